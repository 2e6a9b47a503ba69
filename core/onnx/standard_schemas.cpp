#include "core/onnx/standard_schemas.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <onnx/common/constants.h>
#include <span>
#include <string_view>

#include "core/onnx/standard_schema_table.hpp"

namespace backplane::core {
namespace {

using Entry = StandardSchema;

/// ONNX's registry makes all schemas at the first question; here each is made by itself. Without a lock, which the child
/// of a fork would find held for ever where another thread was here: of two threads that make one, one throws its own away.
const ::onnx::OpSchema& schema_of(const Entry& entry) {
  using Slot = std::atomic<const ::onnx::OpSchema*>;
  static auto& slots = *new std::vector<Slot>(standard_schema_table().size());  // for good
  Slot& slot = slots[static_cast<std::size_t>(&entry - standard_schema_table().data())];
  if (const auto* const made = slot.load(std::memory_order_acquire)) return *made;
  auto fresh = std::make_unique<::onnx::OpSchema>(entry.make());
  fresh->Finalize();
  const ::onnx::OpSchema* first = nullptr;
  if (!slot.compare_exchange_strong(first, fresh.get(), std::memory_order_acq_rel)) return *first;
  return *fresh.release();
}

std::string domain_of(const Entry& entry) {
  if (entry.set == "Onnx") return ::onnx::ONNX_DOMAIN;
  if (entry.set == "OnnxML") return ::onnx::AI_ONNX_ML_DOMAIN;
  return schema_of(entry).domain();  // the set of previews is of two domains
}

/// The versions of the operators of that name, of any domain.
std::span<const Entry> entries_of(std::string_view name) {
  struct ByName {
    bool operator()(const Entry& a, std::string_view b) const { return a.name < b; }
    bool operator()(std::string_view a, const Entry& b) const { return a < b.name; }
  };
  const std::span<const Entry> all = standard_schema_table();
  const auto [begin, end] = std::equal_range(all.begin(), all.end(), name, ByName{});
  return {begin, end};
}

}  // namespace

const ::onnx::OpSchema* standard_schema(const std::string& domain, const std::string& op_type,
                                        int version) {
  const std::span<const Entry> entries = entries_of(op_type);
  const auto selected = std::find_if(entries.rbegin(), entries.rend(), [&](const Entry& entry) {
    return entry.version <= version && domain_of(entry) == domain;
  });
  return selected == entries.rend() ? nullptr : &schema_of(*selected);
}

std::vector<const ::onnx::OpSchema*> standard_versions(const std::string& domain,
                                                       const std::string& op_type) {
  std::vector<const ::onnx::OpSchema*> result;
  for (const Entry& entry : entries_of(op_type)) {
    if (domain_of(entry) == domain) result.push_back(&schema_of(entry));
  }
  return result;
}

std::set<std::pair<std::string, std::string>> standard_operators() {
  std::set<std::pair<std::string, std::string>> result;
  for (const Entry& entry : standard_schema_table()) result.emplace(domain_of(entry), entry.name);
  return result;
}

}  // namespace backplane::core
