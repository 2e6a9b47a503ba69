#include "core/passes/dim_sizes.hpp"

#include <algorithm>

namespace backplane::core {
namespace {

template <class Visit>
void for_each_symbol(const Type& type, Visit&& visit) {
  if (!type.is_tensor() || !type.shape) return;
  for (const Dim& dim : *type.shape) {
    if (!dim.known() && !dim.symbol.empty()) visit(dim.symbol);
  }
}

/// The axis of a Concat, as one of `rank`; nullopt where the node says none.
std::optional<std::size_t> concat_axis(const Node& node, std::size_t rank) {
  const auto found = node.attributes.find("axis");
  if (found == node.attributes.end() || found->second.ints.size() != 1) return std::nullopt;
  const auto size = static_cast<std::int64_t>(rank);
  std::int64_t axis = found->second.ints[0];
  if (axis < 0) axis += size;
  if (axis < 0 || axis >= size) return std::nullopt;
  return static_cast<std::size_t>(axis);
}

}  // namespace

DimSizes::DimSizes(const Graph& graph, const PassOptions& options) : sizes_(graph.value_count()) {
  find_unproven(graph, options);
  add_feeds(graph, options.feeds);
  for (const NodeId id : topological_order(graph)) add_outputs(graph, graph.node(id));
}

const std::vector<DimSize>* DimSizes::of(ValueId value) const {
  return sizes_.contains(value) && sizes_[value] ? &*sizes_[value] : nullptr;
}

/// Symbols by which inference may have called different sizes.
void DimSizes::find_unproven(const Graph& graph, const PassOptions& options) {
  unproven_ = options.unproven_symbols;
  const auto doubt = [this](const std::string& symbol) { unproven_.insert(symbol); };
  for (const Value& value : graph.values()) {
    // An overridable initializer has the type of its input, with which nobody compares its contents.
    if (value.constant != nullptr) for_each_symbol(value.type, doubt);
    if (value.producer == kNone) continue;
    // What a body makes is what its last iteration made, if there was one.
    const Node& node = graph.node(value.producer);
    if (node.has_bodies() && node.op_type != "If") for_each_symbol(value.type, doubt);
  }
}

void DimSizes::add_feeds(const Graph& graph, const std::vector<std::string>& feeds) {
  for (const ValueId id : graph.inputs) {
    const Value& value = graph.value(id);
    if (std::find(feeds.begin(), feeds.end(), value.name) == feeds.end()) continue;
    if (!value.type.is_tensor() || !value.type.shape || of(id) != nullptr) continue;
    std::vector<DimSize> sizes;
    for (const Dim& dim : *value.type.shape) {
      const DimSize named = dim.symbol.empty() ? kUnknownSize : named_by(dim.symbol);
      sizes.push_back(dim.known() ? dim.size : named);
    }
    add(value, std::move(sizes));
  }
}

void DimSizes::add_outputs(const Graph& graph, const Node& node) {
  if (node.op_type == "Concat" && node.domain.empty()) return add_concat(graph, node);
  for (const ValueId output : node.outputs) {
    if (output == kNone) continue;
    const Value& value = graph.value(output);
    if (auto sizes = inferred(value)) add(value, std::move(*sizes));
  }
}

void DimSizes::add_concat(const Graph& graph, const Node& node) {
  if (node.outputs.empty() || node.outputs[0] == kNone) return;
  const Value& value = graph.value(node.outputs[0]);
  std::optional<std::vector<DimSize>> sizes = inferred(value);
  if (!sizes) return;
  const std::optional<std::size_t> axis = concat_axis(node, sizes->size());
  std::vector<DimSize> parts;
  for (const ValueId input : node.inputs) {
    if (input == kNone || !axis) continue;
    const Value& read = graph.value(input);
    const bool is_fixed = read.constant != nullptr && !read.overridable;
    const std::vector<DimSize>* known = is_fixed ? &read.constant->dims() : of(input);
    const bool fits = known != nullptr && known->size() == sizes->size();
    parts.push_back(fits ? (*known)[*axis] : kUnknownSize);
    for (std::size_t i = 0; fits && i < sizes->size(); ++i) {
      if (i != *axis && (*sizes)[i] == kUnknownSize) (*sizes)[i] = (*known)[i];
    }
  }
  if (axis && !is_elsewhere((*sizes)[*axis])) {
    (*sizes)[*axis] = sum_of(parts);
    // Others got the symbol that inference made up here.
    const std::string& symbol = (*value.type.shape)[*axis].symbol;
    if (!value.has_unproven_symbols && !symbol.empty() && !unproven_.contains(symbol))
      symbols_.insert_or_assign(symbol, (*sizes)[*axis]);
  }
  add(value, std::move(*sizes));
}

void DimSizes::add(const Value& value, std::vector<DimSize> sizes) {
  for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
    if (is_named(sizes[axis])) places_[index(sizes[axis])].push_back({value.id, axis});
  }
  sizes_[value.id] = std::move(sizes);
}

std::optional<std::vector<DimSize>> DimSizes::inferred(const Value& value) {
  if (!value.type.is_tensor() || !value.type.shape) return std::nullopt;
  std::vector<DimSize> sizes;
  for (const Dim& dim : *value.type.shape) {
    const bool is_proven =
        !value.has_unproven_symbols && !dim.symbol.empty() && !unproven_.contains(dim.symbol);
    sizes.push_back(dim.known() ? dim.size : is_proven ? named_by(dim.symbol) : kUnknownSize);
  }
  return sizes;
}

DimSize DimSizes::new_name() {
  places_.emplace_back();
  sums_.emplace_back();
  return kUnknownSize - static_cast<DimSize>(places_.size());
}

DimSize DimSizes::named_by(const std::string& symbol) {
  const auto known = symbols_.find(symbol);
  if (known != symbols_.end()) return known->second;
  const DimSize name = new_name();
  sums_.back() = {0, {name}};
  names_of_sums_.emplace(sums_.back(), name);
  symbols_.emplace(symbol, name);
  return name;
}

DimSize DimSizes::sum_of(const std::vector<DimSize>& sizes) {
  constexpr std::size_t kMostParts = 64;  // sums of sums grow fast
  constexpr DimSize kLargest = DimSize{1} << 62;
  Sum sum;
  for (const DimSize size : sizes) {
    if (size == kUnknownSize) return kUnknownSize;
    const Sum part = is_named(size) ? sums_[index(size)] : Sum{size, {}};
    if (part.first > kLargest - sum.first || sum.second.size() + part.second.size() > kMostParts)
      return kUnknownSize;
    sum.first += part.first;
    sum.second.insert(sum.second.end(), part.second.begin(), part.second.end());
  }
  if (sum.second.empty()) return sum.first;
  std::sort(sum.second.begin(), sum.second.end());
  if (const auto known = names_of_sums_.find(sum); known != names_of_sums_.end())
    return known->second;
  const DimSize name = new_name();
  sums_.back() = sum;
  names_of_sums_.emplace(std::move(sum), name);
  return name;
}

}  // namespace backplane::core
