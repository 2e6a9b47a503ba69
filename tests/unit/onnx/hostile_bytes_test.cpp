// Broken models end in an error, never in a crash, a hang or memory without bound. Run under the sanitizers.
#include <chrono>
#include <gtest/gtest.h>
#include <random>

#include "proto_models.hpp"

namespace backplane::core {
namespace {

/// A small model with something of everything: bodies, a function, typed and raw tensors, sparse ones, annotations.
std::string seed_model() {
  ::onnx::GraphProto then_branch;
  then_branch.set_name("then");
  *then_branch.add_node() = node("Mul", {"a", "k"}, {"r"}, "in_then");
  *then_branch.add_initializer() = raw_tensor<float>("k", 1, {}, {2});
  then_branch.add_output()->set_name("r");
  ::onnx::GraphProto else_branch;
  *else_branch.add_node() = node("Identity", {"a"}, {"s"}, "in_else");
  else_branch.add_output()->set_name("s");
  auto branch = node("If", {"c"}, {"b"}, "branch");
  set_graph(branch, "then_branch", then_branch);
  set_graph(branch, "else_branch", else_branch);
  auto call = node("Twice", {"b"}, {"d"}, "call");
  call.set_domain("local");
  auto concat = node("Concat", {"d", "d"}, {"e"}, "concat");
  set_int(concat, "axis", 0);
  auto model = model_of({node("Add", {"x", "w"}, {"a"}, "add"), branch, call, concat,
                         node("Reshape", {"e", "shape"}, {"y"}, "reshape")});
  auto& graph = *model.mutable_graph();
  *graph.add_initializer() = raw_tensor<float>("w", 1, {3}, {1, 2, 3});
  *graph.add_initializer() = raw_tensor<std::int64_t>("shape", 7, {2}, {3, -1});
  *graph.add_initializer() = raw_tensor<float>("large", 1, {300}, std::vector<float>(300, 1.5f));
  *graph.add_input() = value_info("c", {}, ::onnx::TensorProto::BOOL);
  *graph.add_value_info() = value_info("a", {"2", "3"});
  auto& annotation = *graph.add_quantization_annotation();
  annotation.set_tensor_name("a");
  annotation.add_quant_parameter_tensor_names()->set_key("SCALE_TENSOR");
  auto& sparse = *graph.add_sparse_initializer();
  *sparse.mutable_values() = raw_tensor<float>("sparse", 1, {2}, {1, 2});
  *sparse.mutable_indices() = raw_tensor<std::int64_t>("", 7, {2}, {0, 5});
  sparse.add_dims(6);
  auto* import = model.add_opset_import();
  import->set_domain("local");
  import->set_version(1);
  auto& function = *model.add_functions();
  function.set_name("Twice");
  function.set_domain("local");
  function.add_input("in");
  function.add_output("out");
  *function.add_node() = node("Add", {"in", "in"}, {"out"});
  function.add_opset_import()->set_version(16);
  return model.SerializeAsString();
}

/// Whether it imports; every failure must be an Error of one short line.
bool imports(const std::string& text) {
  try {
    (void)import_text(text);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.message().find('\n'), std::string::npos) << error.message();
    EXPECT_LT(error.message().size(), 2000u);
    EXPECT_NE(error.code(), Code::Internal) << error.message();
    return false;
  }
}

TEST(HostileBytes, TheModelItselfIsGood) { EXPECT_TRUE(imports(seed_model())); }

TEST(HostileBytes, EveryTruncationIsAnError) {
  const std::string model = seed_model();
  int good = 0;
  for (std::size_t size = 0; size < model.size(); ++size) {
    // A copy of the exact size, so that the sanitizer sees every read beyond it.
    if (imports(std::string(model.data(), size))) ++good;
  }
  // Cut between two fields of the model, what is left may be one: here, before the unused import.
  EXPECT_LE(good, 2);
}

std::string mutated(const std::string& model, std::mt19937& random) {
  std::string text = model;
  const auto pick = [&](std::size_t count) {
    return std::uniform_int_distribution<std::size_t>(0, count - 1)(random);
  };
  for (std::size_t edits = 1 + pick(4); edits > 0 && !text.empty(); --edits) {
    const std::size_t at = pick(text.size());
    switch (pick(6)) {
      case 0:
        text[at] = static_cast<char>(pick(256));
        break;
      case 1:
        text[at] = static_cast<char>(text[at] ^ (1 << pick(8)));
        break;
      case 2:
        text.erase(at, 1 + pick(8));
        break;
      case 3:
        text.insert(at, std::string(1 + pick(8), static_cast<char>(pick(256))));
        break;
      case 4:
        text.insert(at, text.substr(pick(text.size()), 1 + pick(32)));
        break;
      default:
        text.replace(at, 1, pick(2) == 0 ? "\xff" : std::string(1, '\0'));
        break;
    }
  }
  return text;
}

TEST(HostileBytes, MutationsAreErrorsOrModels) {
  const std::string model = seed_model();
  std::mt19937 random(20261121);
  int good = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string text = mutated(model, random);
    const auto begin = std::chrono::steady_clock::now();
    good += imports(text) ? 1 : 0;
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(taken.count(), 5.0) << "mutation " << i;
    if (::testing::Test::HasFailure()) FAIL() << "mutation " << i;
  }
  EXPECT_GT(good, 20);  // else the mutations never get behind the first check
  EXPECT_LT(good, 3900);
}

}  // namespace
}  // namespace backplane::core
