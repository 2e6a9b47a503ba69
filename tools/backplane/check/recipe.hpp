// Nodes to try a kernel with: for ONNX's operators by recipes, for a plugin's own by their schemas.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tools/backplane/check/bare_kernel.hpp"

namespace backplane::cli::check {

/// What a recipe makes nodes for: one operator, one version of its schema, one element type.
class Draft {
 public:
  Draft(const bp_kernel_def* def, int since_version, bp_dtype dtype, Generator& numbers)
      : def_(def),
        op_type_(def->op_type),
        since_(since_version),
        dtype_(dtype),
        numbers_(numbers) {}

  int since() const { return since_; }
  bp_dtype dtype() const { return dtype_; }
  const std::string& op_type() const { return op_type_; }
  Generator& numbers() const { return numbers_; }

  /// A node with one output of the draft's type; the parts are added by the functions below.
  NodeCase node(Attributes attributes = {}) const;
  /// Elements of the draft's type in [low, high].
  NodeCase::Input data(const Dims& dims, double low = -2, double high = 2) const;
  NodeCase::Input data_of(bp_dtype dtype, const Dims& dims, double low, double high) const;
  /// The same as an initializer.
  NodeCase::Input weight(const Dims& dims, double low = -1, double high = 1) const;
  /// An initializer of int64 elements.
  static NodeCase::Input ints(const std::vector<std::int64_t>& values);
  /// An initializer that all nodes of the draft share: one number, and random ones.
  NodeCase::Input number(bp_dtype dtype, double value) const;
  NodeCase::Input fixed(bp_dtype dtype, const Dims& dims, double low, double high) const;
  /// Whether the kernel takes the type for a type parameter of the schema; true where it does not say.
  bool lists(const std::string& param, bp_dtype dtype) const;
  /// Left out.
  static NodeCase::Input none() { return {}; }

 private:
  const bp_kernel_def* def_;
  std::string op_type_;
  int since_;
  bp_dtype dtype_;
  Generator& numbers_;
};

struct Recipe {
  /// The schema's type parameter that the draft's type stands for.
  std::string param = "T";
  std::function<std::vector<NodeCase>(const Draft& draft)> make;
};
using RecipeBook = std::map<std::string, Recipe>;

void add_elementwise_recipes(RecipeBook& book);
void add_movement_recipes(RecipeBook& book);
void add_reduction_recipes(RecipeBook& book);
void add_dense_recipes(RecipeBook& book);
void add_quantized_recipes(RecipeBook& book);
void add_indexed_recipes(RecipeBook& book);
void add_generated_recipes(RecipeBook& book);
void add_recurrent_recipes(RecipeBook& book);
void add_image_recipes(RecipeBook& book);

/// The node on these.
NodeCase with_inputs(NodeCase node, std::vector<NodeCase::Input> inputs);

/// Shapes for operators that take any: of rank 0 to 4, with odd, single and no elements, and some random ones.
std::vector<Dims> any_shapes(Generator& numbers);

/// The nodes that a kernel's registration lets one expect it takes, and why there are none.
struct KernelCases {
  std::vector<NodeCase> nodes;
  std::string reason;
  /// Made from the plugin's schema alone, which says nothing of shapes and values: the kernel may find each of them wrong.
  bool are_guesses = false;
};
/// Whether a kernel that takes none of the nodes is right to give this code for one. The codes of both interfaces are alike.
bool excuses(const KernelCases& cases, int code);
KernelCases cases_of(const bp_kernel_def* def, const bp_plugin* plugin, std::uint64_t seed);

}  // namespace backplane::cli::check
