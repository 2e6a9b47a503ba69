#include "core/plan/cost_placement.hpp"

#include <algorithm>

#include "core/plan/cost_policy.hpp"

namespace backplane::core {
namespace {

std::uint64_t element_count_of(const Type& type) {
  if (!type.is_tensor() || !type.shape) return 1;
  std::uint64_t count = 1;
  for (const Dim& dim : *type.shape)
    count *= dim.known() ? static_cast<std::uint64_t>(dim.size) : 1;
  return count;
}

std::uint64_t bytes_of(const Type& type) {
  const int bits =
      type.is_tensor() && type.element != DataType::String ? element_bits(type.element) : 64;
  return (element_count_of(type) * static_cast<std::uint64_t>(bits) + 7) / 8;
}

/// A first guess where no kernel says better: each element of an output takes as many products as a weight has
/// elements for each of its channels, of which there are as many as its largest dimension says.
double guessed_flops(const Graph& graph, const Node& node) {
  double made = 0, products = 1;
  for (const ValueId id : node.outputs) {
    if (id != kNone) made += static_cast<double>(element_count_of(graph.value(id).type));
  }
  for (const ValueId id : node.inputs) {
    if (id == kNone || graph.value(id).constant == nullptr) continue;
    const std::vector<std::int64_t>& dims = graph.value(id).constant->dims();
    if (dims.size() < 2) continue;
    double elements = 1;
    for (const std::int64_t dim : dims) elements *= static_cast<double>(dim);
    const std::int64_t channels =
        std::max<std::int64_t>(*std::max_element(dims.begin(), dims.end()), 1);
    products = std::max(products, 2 * elements / static_cast<double>(channels));
  }
  return made * products;
}

double touched_bytes(const Graph& graph, const Node& node) {
  double bytes = 0;
  for (const std::vector<ValueId>* const side : {&node.inputs, &node.outputs}) {
    for (const ValueId id : *side) {
      if (id != kNone) bytes += static_cast<double>(bytes_of(graph.value(id).type));
    }
  }
  return bytes;
}

class CostedGraphBuilder {
 public:
  CostedGraphBuilder(const Graph& graph, const std::vector<NodeId>& order,
                     const std::vector<NodeOffers>& offers, const CostModel& model)
      : graph_(graph),
        order_(order),
        offers_(offers),
        model_(model),
        index_(graph.value_count(), -1) {}

  CostedGraph build() {
    for (std::size_t i = 0; i < order_.size(); ++i) add_node(static_cast<int>(i));
    for (const CostedValue& value : costed_.values) {
      for (const CostedValue::Reader& reader : value.readers) note(reader.node, value);
      if (value.maker >= 0) note(value.maker, value);
    }
    for (CostedNode& node : costed_.nodes) {
      std::sort(node.values.begin(), node.values.end());
      node.values.erase(std::unique(node.values.begin(), node.values.end()), node.values.end());
    }
    return std::move(costed_);
  }

 private:
  void note(int node, const CostedValue& value) {
    costed_.nodes[static_cast<std::size_t>(node)].values.push_back(
        static_cast<int>(&value - costed_.values.data()));
  }

  /// -1 for a constant, which is uploaded once and not per run.
  int value_of(ValueId id) {
    const Value& value = graph_.value(id);
    if (value.constant != nullptr) return -1;
    int& index = index_[id];
    if (index >= 0) return index;
    index = static_cast<int>(costed_.values.size());
    CostedValue costed;
    costed.bytes = bytes_of(value.type);
    costed.is_fetched = value.is_output;
    costed_.values.push_back(std::move(costed));
    return index;
  }

  void read(ValueId id, int node, std::int32_t role) {
    if (id == kNone || role == BP_INPUT_SHAPE_ONLY) return;
    const int value = value_of(id);
    if (value < 0) return;
    costed_.values[static_cast<std::size_t>(value)].readers.push_back(
        {node, role == BP_INPUT_HOST_VALUE || role == BP_INPUT_HOST_DATA});
  }

  void add_node(int number) {
    const NodeOffers& offers = offers_[static_cast<std::size_t>(number)];
    const Node& node = graph_.node(order_[static_cast<std::size_t>(number)]);
    CostedNode costed;
    costed.name = node.name;
    double flops = 0, bytes = 0;
    for (const Offer& offer : offers) {  // the same work, whoever knows of it
      flops = std::max(flops, static_cast<double>(offer.cost.flops));
      bytes = std::max(bytes, static_cast<double>(offer.cost.bytes_moved));
    }
    if (flops <= 0) flops = guessed_flops(graph_, node);
    if (bytes <= 0) bytes = touched_bytes(graph_, node);
    const bp_kernel_def* def = nullptr;
    for (std::size_t device = 0; device < offers.size(); ++device) {
      const Offer& offer = offers[device];
      costed.exec_ns.push_back(-1);
      if (offer.kernels.empty()) continue;
      costed.exec_ns.back() = offer.cost.exec_ns > 0
                                  ? offer.cost.exec_ns
                                  : model_.exec_ns(static_cast<int>(device), flops, bytes);
      if (costed.device >= 0) continue;
      costed.device = static_cast<int>(device);
      def = offer.kernels.front().def;
    }
    costed_.nodes.push_back(std::move(costed));
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      read(node.inputs[i], number,
           def == nullptr ? 0 : KernelHandle::role(def->input_roles, def->input_role_count, i));
    for (const ValueId id : node.captured) read(id, number, 0);
    for (const ValueId id : node.outputs) {
      if (id != kNone && graph_.value(id).constant == nullptr)
        costed_.values[static_cast<std::size_t>(value_of(id))].maker = number;
    }
  }

  const Graph& graph_;
  const std::vector<NodeId>& order_;
  const std::vector<NodeOffers>& offers_;
  const CostModel& model_;
  PerValue<int> index_;
  CostedGraph costed_;
};

}  // namespace

std::vector<CostedPlace> places_by_cost(const Graph& graph, const std::vector<NodeId>& order,
                                        std::vector<NodeOffers>& offers, const DeviceSet& devices) {
  std::vector<std::string> labels;
  for (const SessionDevice& device : devices.devices) labels.push_back(device.device->label());
  CostedGraph costed = CostedGraphBuilder(graph, order, offers, *devices.costs).build();
  const std::vector<Move> moves = find_cheaper(costed, *devices.costs, labels);
  std::vector<const Move*> move_of(order.size(), nullptr);
  for (const Move& move : moves) move_of[static_cast<std::size_t>(move.node)] = &move;

  std::vector<CostedPlace> places;
  for (std::size_t i = 0; i < order.size(); ++i) {
    CostedPlace place;
    place.node = order[i];
    place.device = costed.nodes[i].device;
    for (std::size_t device = 0; device < offers[i].size(); ++device) {
      Offer& offer = offers[i][device];
      const Move* const move = move_of[i];
      const bool moved_from = move != nullptr && move->from == static_cast<int>(device);
      if (place.device >= 0 && static_cast<int>(device) > place.device && !moved_from) continue;
      for (Reason& reason : offer.reasons) {
        if (offer.kernels.empty() || static_cast<int>(device) == place.device)
          place.reasons.push_back(std::move(reason));
      }
      if (moved_from) {
        place.reasons.push_back({labels[device], "cheaper_elsewhere", move->why});
      } else if (!offer.kernels.empty() && static_cast<int>(device) != place.device) {
        place.reasons.push_back(
            {labels[device], "cheaper_elsewhere",
             text("it costs less on ", labels[static_cast<std::size_t>(place.device)])});
      }
    }
    if (place.device >= 0)
      place.kernels = std::move(offers[i][static_cast<std::size_t>(place.device)].kernels);
    places.push_back(std::move(place));
  }
  return places;
}

}  // namespace backplane::core
