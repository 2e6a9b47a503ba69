#include "tools/backplane/check/recipe.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "tools/backplane/check/schema_versions.hpp"
#include "tools/backplane/failure.hpp"

namespace backplane::cli::check {
namespace {

/// Inputs and attributes were other ones before; nobody implements that any more.
constexpr int kOldestVersion = 6;

const RecipeBook& recipes() {
  static const RecipeBook kBook = [] {
    RecipeBook book;
    add_elementwise_recipes(book);
    add_movement_recipes(book);
    add_reduction_recipes(book);
    add_dense_recipes(book);
    add_quantized_recipes(book);
    add_indexed_recipes(book);
    add_generated_recipes(book);
    add_recurrent_recipes(book);
    add_image_recipes(book);
    return book;
  }();
  return kBook;
}

/// The element types that a kernel lists for a parameter; `all` where it lists none.
std::vector<bp_dtype> types_of(const bp_kernel_def* def, const std::string& param,
                               const std::vector<bp_dtype>& all) {
  std::vector<bp_dtype> types;
  bool is_listed = false;
  for (std::uint32_t i = 0; i < def->constraint_count; ++i) {
    const bp_type_constraint& constraint = *def->constraints[i];
    const bool fits = constraint.param != nullptr ? param == constraint.param
                                                  : constraint.input == 0 && constraint.output < 0;
    if (!fits) continue;
    is_listed = true;
    for (std::uint64_t t = 0; t < constraint.type_count; ++t) {
      const bp_dtype dtype = dtype_of(constraint.types[t]);
      if (dtype != BP_NONE) types.push_back(dtype);
    }
  }
  return is_listed ? types : all;
}

/// The oldest and the newest version that the kernel implements.
std::vector<int> versions_of(const bp_kernel_def* def, const std::vector<int>& known) {
  std::vector<int> fitting;
  for (const int version : known) {
    if (version >= kOldestVersion && version >= def->since_min && version <= def->since_max)
      fitting.push_back(version);
  }
  // Or the one that was the newest then.
  for (std::size_t i = 0; fitting.empty() && i < known.size(); ++i) {
    const bool is_last = i + 1 == known.size() || known[i + 1] > kOldestVersion;
    if (is_last && known[i] >= def->since_min && known[i] <= def->since_max)
      fitting.push_back(known[i]);
  }
  if (fitting.size() > 2) fitting = {fitting.front(), fitting.back()};
  return fitting;
}

/// What reads or makes values that are no tensors of numbers; the sessions' tests are about those.
bool is_about_other_values(const std::string& op_type) {
  static const std::set<std::string> kOps = {
      "ConcatFromSequence", "Optional",         "OptionalGetElement", "OptionalHasElement",
      "RegexFullMatch",     "SequenceAt",       "SequenceConstruct",  "SequenceEmpty",
      "SequenceErase",      "SequenceInsert",   "SequenceLength",     "SplitToSequence",
      "StringConcat",       "StringNormalizer", "StringSplit"};
  return kOps.count(op_type) != 0;
}

KernelCases onnx_cases(const bp_kernel_def* def, std::uint64_t seed) {
  if (is_about_other_values(def->op_type))
    return {{}, "the suite makes no strings, sequences and optionals"};
  const auto recipe = recipes().find(def->op_type);
  if (recipe == recipes().end())
    return {{}, text("the suite has no nodes to try ", def->op_type, " with")};
  KernelCases cases;
  const std::vector<int> versions = versions_of(def, kSchemaVersions.at(def->op_type));
  if (versions.empty())
    return {{},
            text("the suite has no nodes of a version in ", def->since_min, "..", def->since_max,
                 " of ", def->op_type)};
  const std::vector<bp_dtype> types =
      types_of(def, recipe->second.param, types_of(def, "T", {BP_FLOAT}));
  if (types.empty()) return {{}, "the suite makes no elements of the types that it is for"};
  for (const int version : versions) {
    for (const bp_dtype type : types) {
      Generator numbers(seed);
      const Draft draft(def, version, type, numbers);
      for (NodeCase& node : recipe->second.make(draft)) cases.nodes.push_back(std::move(node));
    }
  }
  if (cases.nodes.empty()) cases.reason = "the suite has no nodes for the types that it is for";
  return cases;
}

const bp_op_schema* schema_of(const bp_plugin* plugin, const bp_kernel_def* def) {
  for (std::uint32_t i = 0; plugin != nullptr && i < plugin->schema_count; ++i) {
    const bp_op_schema* schema = plugin->schemas[i];
    if (std::string(schema->name) == def->op_type && std::string(schema->domain) == def->domain &&
        schema->since_version >= def->since_min && schema->since_version <= def->since_max)
      return schema;
  }
  return nullptr;
}

AttributeValue attribute_guess(const bp_attribute_def& attribute) {
  switch (attribute.type) {
    case BP_ATTRIBUTE_INT:
      return std::int64_t{1};
    case BP_ATTRIBUTE_FLOAT:
      return 1.0f;
    case BP_ATTRIBUTE_INTS:
      return std::vector<std::int64_t>{1};
    case BP_ATTRIBUTE_FLOATS:
      return std::vector<float>{1.0f};
    case BP_ATTRIBUTE_STRINGS:
      return std::vector<std::string>{""};
    default:
      return std::string();
  }
}

/// What a schema gives: one type for its first parameter, a fixed type, or BP_NONE.
bp_dtype param_type(const bp_op_schema& schema, const char* type, const bp_kernel_def* def,
                    bp_dtype chosen) {
  const bp_dtype fixed = dtype_of(type);
  if (fixed != BP_NONE) return fixed;
  for (std::uint32_t i = 0; i < schema.type_param_count; ++i) {
    if (std::string(schema.type_params[i]->name) != type) continue;
    if (i == 0) return chosen;
    const std::vector<bp_dtype> listed = types_of(def, type, {});
    if (!listed.empty()) return listed.front();
    return schema.type_params[i]->type_count > 0 ? dtype_of(schema.type_params[i]->types[0])
                                                 : BP_NONE;
  }
  return BP_NONE;
}

/// Shapes for every input at once: all alike, and pairs that operators on boxes, rows or matrices take.
std::vector<std::vector<Dims>> input_shapes(std::size_t inputs, Generator& numbers) {
  std::vector<std::vector<Dims>> sets;
  for (const Dims& dims : any_shapes(numbers)) sets.emplace_back(inputs, dims);
  if (inputs != 1) {
    for (const std::int64_t n : {3, 4, 8}) {
      for (const Dims& first : {Dims{n, 4}, Dims{2, n, 4}}) {
        std::vector<Dims> set{first};
        set.resize(inputs, Dims{n, 4});
        sets.push_back(set);
      }
    }
  }
  return sets;
}

/// A node of the schema on inputs of the shapes; none where the suite makes no values of a type of the schema.
std::optional<NodeCase> custom_case(const bp_kernel_def* def, const bp_op_schema& schema,
                                    bp_dtype type, const std::vector<Dims>& shapes,
                                    Generator& numbers) {
  NodeCase node{schema.name, schema.domain, schema.since_version, {}, {}, {}};
  for (std::uint32_t i = 0; i < schema.attribute_count; ++i) {
    const bp_attribute_def& attribute = *schema.attributes[i];
    if (attribute.required != 0) node.attributes[attribute.name] = attribute_guess(attribute);
  }
  for (std::uint32_t i = 0; i < schema.input_count; ++i) {
    if (schema.inputs[i]->kind == BP_PARAM_OPTIONAL) continue;
    const bp_dtype dtype = param_type(schema, schema.inputs[i]->type, def, type);
    if (dtype == BP_NONE) return std::nullopt;
    node.inputs.push_back({numbers.tensor(dtype, shapes[i], 0.25, 2), false, false});
  }
  for (std::uint32_t i = 0; i < schema.output_count; ++i) {
    if (schema.outputs[i]->kind != BP_PARAM_REQUIRED) continue;
    node.outputs.push_back(param_type(schema, schema.outputs[i]->type, def, type));
  }
  return node;
}

KernelCases custom_cases(const bp_kernel_def* def, const bp_op_schema& schema, std::uint64_t seed) {
  const std::vector<bp_dtype> types = schema.type_param_count == 0
                                          ? std::vector<bp_dtype>{BP_FLOAT}
                                          : types_of(def, schema.type_params[0]->name, {BP_FLOAT});
  KernelCases cases;
  cases.are_guesses = true;
  for (const bp_dtype type : types) {
    Generator numbers(seed);
    for (const std::vector<Dims>& shapes : input_shapes(schema.input_count, numbers)) {
      if (auto node = custom_case(def, schema, type, shapes, numbers))
        cases.nodes.push_back(std::move(*node));
    }
  }
  if (cases.nodes.empty())
    cases.reason = "the suite makes no values of the types that its schema names";
  return cases;
}

}  // namespace

NodeCase Draft::node(Attributes attributes) const {
  return {op_type_, "", since_, std::move(attributes), {}, {dtype_}};
}

NodeCase::Input Draft::data(const Dims& dims, double low, double high) const {
  return data_of(dtype_, dims, low, high);
}

NodeCase::Input Draft::data_of(bp_dtype dtype, const Dims& dims, double low, double high) const {
  return {numbers_.tensor(dtype, dims, low, high), false, false};
}

NodeCase::Input Draft::weight(const Dims& dims, double low, double high) const {
  return {numbers_.tensor(dtype_, dims, low, high), true, false};
}

NodeCase::Input Draft::ints(const std::vector<std::int64_t>& values) {
  return {int64s(values), true, true};
}

NodeCase::Input Draft::number(bp_dtype dtype, double value) const {
  NodeCase::Input input{make_tensor(dtype, {}), true, true};
  input.tensor.set(0, value);
  return input;
}

NodeCase::Input Draft::fixed(bp_dtype dtype, const Dims& dims, double low, double high) const {
  return {numbers_.tensor(dtype, dims, low, high), true, false};
}

bool Draft::lists(const std::string& param, bp_dtype dtype) const {
  const std::vector<bp_dtype> types = types_of(def_, param, {dtype});
  return std::find(types.begin(), types.end(), dtype) != types.end();
}

NodeCase with_inputs(NodeCase node, std::vector<NodeCase::Input> inputs) {
  node.inputs = std::move(inputs);
  return node;
}

std::vector<Dims> any_shapes(Generator& numbers) {
  std::vector<Dims> shapes = {{},     {1},     {7},        {2, 3},       {64, 17},
                              {3, 0}, {1, 33}, {1, 33, 5}, {2, 1, 3, 5}, {4, 8, 2}};
  for (int extra = 0; extra < 2; ++extra) {
    Dims dims(static_cast<std::size_t>(numbers.integer(1, 4)));
    for (std::int64_t& dim : dims) dim = numbers.integer(1, 9);
    shapes.push_back(dims);
  }
  return shapes;
}

bool excuses(const KernelCases& cases, int code) {
  return code == BP_UNSUPPORTED ||
         (cases.are_guesses && (code == BP_INVALID_ARGUMENT || code == BP_FAILED));
}

KernelCases cases_of(const bp_kernel_def* def, const bp_plugin* plugin, std::uint64_t seed) {
  const std::string domain = def->domain;
  if (const bp_op_schema* schema = schema_of(plugin, def)) return custom_cases(def, *schema, seed);
  if (domain.rfind("backplane.", 0) == 0)
    return {{}, "an operator of the provider's own; the rewrites case runs it"};
  if (!domain.empty() && domain != "ai.onnx")
    return {{}, text("the plugin brings no schema of ", domain, "::", def->op_type)};
  return onnx_cases(def, seed);
}

}  // namespace backplane::cli::check
