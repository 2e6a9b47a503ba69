#include "core/onnx/standard_schemas.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <onnx/common/constants.h>
#include <onnx/defs/operator_sets.h>
#include <onnx/defs/operator_sets_ml.h>
#include <onnx/defs/operator_sets_preview.h>
#include <string_view>

namespace backplane::core {
namespace {

/// ONNX's registry makes all schemas at the first question, 15 to 20 ms; this table knows how to make each.
struct Entry {
  std::string_view name;
  int version;
  std::string_view set;  ///< of which of ONNX's operator sets
  ::onnx::OpSchema (*make)();
};

constexpr std::array kEntries{
#define SCHEMA(name, version, set) \
  Entry{#name, version, #set,      \
        &::onnx::GetOpSchema<::onnx::ONNX_OPERATOR_SET_SCHEMA_CLASS_NAME(set, version, name)>},
#include "standard_schemas.inc"
#undef SCHEMA
};

constexpr bool by_name_and_version(const Entry& a, const Entry& b) {
  return a.name != b.name ? a.name < b.name : a.version < b.version;
}
static_assert(std::is_sorted(kEntries.begin(), kEntries.end(), by_name_and_version));

const ::onnx::OpSchema& schema_of(const Entry& entry) {
  static std::mutex mutex;
  static std::array<std::unique_ptr<const ::onnx::OpSchema>, kEntries.size()> made;
  const std::lock_guard lock(mutex);
  auto& schema = made[static_cast<std::size_t>(&entry - kEntries.data())];
  if (schema == nullptr) {
    ::onnx::OpSchema fresh = entry.make();
    fresh.Finalize();
    schema = std::make_unique<const ::onnx::OpSchema>(std::move(fresh));
  }
  return *schema;
}

std::string domain_of(const Entry& entry) {
  if (entry.set == "Onnx") return ::onnx::ONNX_DOMAIN;
  if (entry.set == "OnnxML") return ::onnx::AI_ONNX_ML_DOMAIN;
  return schema_of(entry).domain();  // the set of previews is of two domains
}

/// The versions of the operators of that name, of any domain.
std::pair<const Entry*, const Entry*> entries_of(std::string_view name) {
  struct ByName {
    bool operator()(const Entry& entry, std::string_view name) const { return entry.name < name; }
    bool operator()(std::string_view name, const Entry& entry) const { return name < entry.name; }
  };
  return std::equal_range(kEntries.data(), kEntries.data() + kEntries.size(), name, ByName{});
}

}  // namespace

const ::onnx::OpSchema* standard_schema(const std::string& domain, const std::string& op_type,
                                        int version) {
  const auto [begin, end] = entries_of(op_type);
  for (const Entry* entry = end; entry != begin;) {
    --entry;
    if (entry->version <= version && domain_of(*entry) == domain) return &schema_of(*entry);
  }
  return nullptr;
}

std::vector<const ::onnx::OpSchema*> standard_versions(const std::string& domain,
                                                       const std::string& op_type) {
  std::vector<const ::onnx::OpSchema*> result;
  const auto [begin, end] = entries_of(op_type);
  for (const Entry* entry = begin; entry != end; ++entry) {
    if (domain_of(*entry) == domain) result.push_back(&schema_of(*entry));
  }
  return result;
}

std::set<std::pair<std::string, std::string>> standard_operators() {
  std::set<std::pair<std::string, std::string>> result;
  for (const Entry& entry : kEntries) result.emplace(domain_of(entry), entry.name);
  return result;
}

}  // namespace backplane::core
