#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/nearest_name.hpp"
#include "core/base/quote.hpp"
#include "core/graph/type.hpp"
#include "core/plugin_host/device.hpp"
#include "core/plugin_host/plugin_description.hpp"
#include "core/plugin_host/plugin_text.hpp"

namespace backplane::core {
namespace {

constexpr std::string_view kPrivateDomain = "backplane.";

bool is_private(std::string_view domain) { return domain.starts_with(kPrivateDomain); }

/// "ai.onnx" is the other spelling of ONNX's own domain.
std::string domain_of(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

std::string operator_name(const bp_kernel_def& def) {
  const std::string domain = domain_of(plugin_text(def.domain));
  const std::string op_type = plugin_text(def.op_type);
  return domain.empty() ? op_type : domain + "::" + op_type;
}

std::string list_of(const std::set<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list.empty() ? "none" : list;
}

void check_constraint(const bp_type_constraint* constraint, std::uint32_t index) {
  const Subject what("its constraint", index);
  check_struct(constraint, BP_SIZE_V1(bp_type_constraint, type_count), what);
  check_array(constraint->types, constraint->type_count,
              Subject("its constraint", index, ": its types"));
  if (constraint->type_count == 0) invalid(what, " allows no type");
  for (std::uint64_t i = 0; i < constraint->type_count; ++i) {
    if (!is_plain_text(constraint->types[i])) invalid(what, ": type ", i, " is missing");
  }
  if (constraint->param == nullptr && constraint->input < 0 && constraint->output < 0) {
    invalid(what, " names no type parameter, no input and no output");
  }
}

/// The definition alone: pointers, counts, mandatory functions.
void check_definition(const bp_kernel_def& def) {
  check_kernel(def, true);
  if (def.domain == nullptr) invalid("its domain is NULL");
  if (!is_plain_text(def.op_type)) invalid("its op_type is missing");
  if (def.since_min < 1 || def.since_max < def.since_min) {
    invalid("its versions ", def.since_min, "..", def.since_max, " are no range");
  }
  check_array(def.constraints, def.constraint_count, "its constraints");
  for (std::uint32_t i = 0; i < def.constraint_count; ++i) check_constraint(def.constraints[i], i);
}

std::vector<std::string> tensor_types() {
  std::vector<std::string> types;
  for (int i = static_cast<int>(DataType::Float); i <= static_cast<int>(DataType::Int2); ++i)
    types.push_back(text("tensor(", name(static_cast<DataType>(i)), ")"));
  return types;
}

/// A sentence about types of constraints that this host does not know: of a later day, or mistyped. Nothing is of such a
/// type, so that the kernel serves for the others.
std::optional<std::string> unknown_types(const bp_kernel_def& def) {
  std::string sentence;
  for (std::uint32_t c = 0; c < def.constraint_count; ++c) {
    const bp_type_constraint& constraint = *def.constraints[c];
    for (std::uint64_t i = 0; i < constraint.type_count; ++i) {
      try {
        Type::parse(constraint.types[i]);
      } catch (const Error&) {
        sentence += text(sentence.empty() ? "" : "; ", "the type ", quoted(constraint.types[i]),
                         " of its constraint ", c, " is not known to this host",
                         did_you_mean(constraint.types[i], tensor_types()));
      }
    }
  }
  if (sentence.empty()) return std::nullopt;
  return sentence;
}

/// A type parameter must be one of the schema in some version that the kernel covers; in the others
/// the constraint says nothing, since the parameter had another name there, or came later.
void check_param(const std::string& param, std::span<const SchemaInfo> versions) {
  for (const SchemaInfo& version : versions)
    if (version.type_params.count(param) != 0) return;
  std::set<std::string> known;
  for (const SchemaInfo& version : versions)
    for (const auto& [name, types] : version.type_params) known.insert(name);
  invalid("the operator has no type parameter ", quoted(param), "; it has: ", list_of(known));
}

/// The versions of the operator that the kernel says to implement.
std::span<const SchemaInfo> covered_versions(const bp_kernel_def& def,
                                             const SchemaRegistry& schemas) {
  const std::string domain = domain_of(def.domain);
  const std::span<const SchemaInfo> all = schemas.versions(domain, def.op_type);
  if (all.empty()) {
    std::string near;
    for (const std::string& name : schemas.similar(domain, def.op_type)) {
      near += (near.empty() ? "; near names: " : ", ") + name;
    }
    invalid("no schema defines the operator", near);
  }
  const auto first = std::find_if(all.begin(), all.end(), [&](const SchemaInfo& schema) {
    return schema.since_version >= def.since_min;
  });
  const auto end = std::find_if(
      first, all.end(), [&](const SchemaInfo& s) { return s.since_version > def.since_max; });
  if (first == end) {
    std::string known;
    for (const SchemaInfo& schema : all)
      known += text(known.empty() ? "" : ", ", schema.since_version);
    invalid("no version of the operator is in its versions ", def.since_min, "..", def.since_max,
            "; there are: ", known);
  }
  return {first, end};
}

void check_against_schema(const bp_kernel_def& def, const SchemaRegistry& schemas) {
  if (is_private(def.domain)) return;
  const std::span<const SchemaInfo> versions = covered_versions(def, schemas);
  const auto any_has = [&](auto has) { return std::any_of(versions.begin(), versions.end(), has); };
  for (std::uint32_t i = 0; i < def.constraint_count; ++i) {
    const bp_type_constraint& constraint = *def.constraints[i];
    if (constraint.param != nullptr) {
      check_param(plugin_text(constraint.param), versions);
    } else if (constraint.input >= 0) {
      const auto index = static_cast<std::size_t>(constraint.input);
      if (!any_has([&](const SchemaInfo& s) { return s.input(index) != nullptr; })) {
        invalid("its constraint ", i, " is on input ", index, ", which the operator does not have");
      }
    } else {
      const auto index = static_cast<std::size_t>(constraint.output);
      if (!any_has([&](const SchemaInfo& s) { return s.output(index) != nullptr; })) {
        invalid("its constraint ", i, " is on output ", index,
                ", which the operator does not have");
      }
    }
  }
  if (def.input_role_count > 0 &&
      !any_has([&](const SchemaInfo& s) { return s.input(def.input_role_count - 1) != nullptr; })) {
    invalid("it gives roles to ", def.input_role_count, " inputs, more than the operator has");
  }
  if (def.output_role_count > 0 && !any_has([&](const SchemaInfo& s) {
        return s.output(def.output_role_count - 1) != nullptr;
      })) {
    invalid("it gives roles to ", def.output_role_count, " outputs, more than the operator has");
  }
}

bool better(const RegisteredKernel& a, const RegisteredKernel& b) {
  if (a.first != b.first) return a.first;
  if (a.last != b.last) return b.last;
  if (a.def->priority != b.def->priority) return a.def->priority > b.def->priority;
  return a.rank > b.rank;
}

/// " of 'FILE'", where it is of one.
std::string file_of(const RegisteredKernel& kernel) {
  return kernel.plugin == nullptr ? "" : " of " + quoted(kernel.plugin->file().native());
}

/// "kernel 'NAME' for OPERATOR of 'FILE'".
std::string words_of(const RegisteredKernel& kernel) {
  return text("kernel ", quoted(plugin_text(kernel.def->name)), " for ", operator_name(*kernel.def),
              file_of(kernel));
}

/// Why `check` refuses a definition; nullopt where it does not.
template <class Check>
std::optional<std::string> refusal(const RegisteredKernel& kernel, Check&& check) {
  bool has_name = false;
  try {
    check_struct(kernel.def, BP_SIZE_V1(bp_kernel_def, compute), "its definition (bp_kernel_def)");
    has_name = true;
    check(*kernel.def);
    return std::nullopt;
  } catch (const Error& error) {
    return (has_name ? words_of(kernel) : "a kernel" + file_of(kernel)) +
           " is refused: " + error.message();
  }
}

}  // namespace

void KernelRegistry::insert(const RegisteredKernel& kernel, bool first) {
  RegisteredKernel added = kernel;
  added.first = first;
  added.rank = ++registered_;
  std::vector<RegisteredKernel>& known =
      operators_[{domain_of(kernel.def->domain), kernel.def->op_type}].kernels;
  known.insert(std::upper_bound(known.begin(), known.end(), added, better), added);
}

void KernelRegistry::add(const RegisteredKernel& kernel, const SchemaRegistry& schemas,
                         bool first) {
  const auto refused = refusal(kernel, [&](const bp_kernel_def& def) {
    check_definition(def);
    check_against_schema(def, schemas);
  });
  if (refused) {
    refused_.push_back(*refused);
    return;
  }
  insert(kernel, first);
  if (const auto unknown = unknown_types(*kernel.def))
    refused_.push_back(words_of(kernel) + ": " + *unknown);
}

void KernelRegistry::check_later_against(const SchemaRegistry& schemas, Warn warn) {
  schemas_ = &schemas;
  warn_ = std::move(warn);
}

void KernelRegistry::add_provisionally(const RegisteredKernel& kernel) {
  if (const auto refused = refusal(kernel, check_definition)) {
    refused_.push_back(*refused);
    return;
  }
  RegisteredKernel added = kernel;
  added.is_provisional = true;
  insert(added, false);
}

void KernelRegistry::check_provisional(const Operator& one) const {
  std::erase_if(one.kernels, [&](const RegisteredKernel& kernel) {
    if (!kernel.is_provisional) return false;
    const auto refused =
        refusal(kernel, [&](const bp_kernel_def& def) { check_against_schema(def, *schemas_); });
    if (refused) {
      warn_(*refused);
    } else if (const auto unknown = unknown_types(*kernel.def)) {
      warn_(words_of(kernel) + ": " + *unknown);
    }
    return refused.has_value();
  });
}

const std::vector<RegisteredKernel>& KernelRegistry::find(const std::string& domain,
                                                          const std::string& op_type) const {
  static const std::vector<RegisteredKernel> none;
  const auto found = operators_.find({domain_of(domain), op_type});
  if (found == operators_.end()) return none;
  const Operator& one = found->second;
  std::call_once(one.checked, [&] { check_provisional(one); });
  return one.kernels;
}

std::size_t KernelRegistry::size() const {
  std::size_t count = 0;
  for (const auto& [name, one] : operators_) count += one.kernels.size();
  return count;
}

}  // namespace backplane::core
