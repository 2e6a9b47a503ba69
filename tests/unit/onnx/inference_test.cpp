#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto_models.hpp"

namespace backplane::core {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Model imported(const ::onnx::ModelProto& model) {
  static std::string text;
  text = model.SerializeAsString();
  return import_text(text);
}

TEST(Inference, CarriesShapeArithmetic) {
  auto gather = node("Gather", {"shape", "index"}, {"rows"});
  auto unsqueeze = node("Unsqueeze", {"rows", "axes"}, {"rows_1"});
  auto concat = node("Concat", {"rows_1", "rest"}, {"target"});
  set_int(concat, "axis", 0);
  for (const std::int64_t opset : {13, 17, 23}) {
    auto model = model_of({node("Shape", {"x"}, {"shape"}), gather, unsqueeze, concat,
                           node("Reshape", {"x", "target"}, {"y"})},
                          opset);
    *model.mutable_graph()->mutable_input(0) = value_info("x", {"batch", "6"});
    auto& graph = *model.mutable_graph();
    *graph.add_initializer() = raw_tensor<std::int64_t>("index", 7, {}, {0});
    *graph.add_initializer() = raw_tensor<std::int64_t>("axes", 7, {1}, {0});
    *graph.add_initializer() = raw_tensor<std::int64_t>("rest", 7, {2}, {2, 3});
    EXPECT_EQ(shape_of(imported(model).graph, "y"), "tensor(float)[batch,2,3]") << opset;
  }
}

// ONNX takes a bound that it does not know for 0.
TEST(Inference, ShapesThatAreCutWhereNobodyKnowsAreUnknown) {
  const auto inferred = [](const std::string& fed) {
    auto model = model_of({node("Shape", {"x"}, {"shape"}),
                           node("Slice", {"shape", "start", "end", "axes", "steps"}, {"target"}),
                           node("Expand", {"x", "target"}, {"y"})});
    auto& graph = *model.mutable_graph();
    *graph.mutable_input(0) = value_info("x", {"batch", "6", "7"});
    for (const auto& [name, value] :
         std::map<std::string, std::int64_t>{{"start", 1}, {"end", 3}, {"axes", 0}, {"steps", 1}}) {
      if (name == fed) {
        *graph.add_input() = value_info(name, {"1"}, ::onnx::TensorProto::INT64);
      } else {
        *graph.add_initializer() = raw_tensor<std::int64_t>(name, 7, {1}, {value});
      }
    }
    return shape_of(imported(model).graph, "y");
  };
  EXPECT_EQ(inferred(""), "tensor(float)[batch,6,7]");
  for (const char* fed : {"start", "end", "axes", "steps"})
    EXPECT_EQ(inferred(fed).find("batch"), std::string::npos) << fed << inferred(fed);
}

TEST(Inference, BelievesOperatorsMoreThanTheFile) {
  auto model = model_of(
      {node("Relu", {"x"}, {"a"}), node("NonZero", {"a"}, {"b"}), node("Cast", {"b"}, {"y"})});
  set_int(*model.mutable_graph()->mutable_node(2), "to", 1);
  *model.mutable_graph()->add_value_info() = value_info("a", {"7", "7", "7"});
  *model.mutable_graph()->add_value_info() =
      value_info("b", {"2", "found"}, ::onnx::TensorProto::INT64);
  const Model result = imported(model);
  EXPECT_EQ(shape_of(result.graph, "a"), "tensor(float)[2,3]");
  EXPECT_EQ(shape_of(result.graph, "y"), "tensor(float)[2,found]");
}

TEST(Inference, SizesThatAreWrittenAsMinusOneAreTheSameFromNodeToNode) {
  auto model = model_of({node("Neg", {"x"}, {"a"}), node("Abs", {"a"}, {"y"})});
  auto& dims = *model.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type();
  dims.mutable_shape()->mutable_dim(0)->set_dim_value(-1);
  const Model result = imported(model);
  EXPECT_NE(shape_of(result.graph, "a"), "tensor(float)[?,3]");
  EXPECT_EQ(shape_of(result.graph, "a"), shape_of(result.graph, "y"));
}

// ONNX 1.23 leaves such axes out before opset 11.
TEST(Inference, NewAxesMayBeCountedFromTheEndInAnyOpset) {
  const auto inferred = [](const std::vector<std::int64_t>& axes, std::int64_t opset) {
    auto unsqueeze = node("Unsqueeze", {"x"}, {"y"});
    auto* attribute = unsqueeze.add_attribute();
    attribute->set_name("axes");
    attribute->set_type(::onnx::AttributeProto::INTS);
    for (const std::int64_t axis : axes) attribute->add_ints(axis);
    return shape_of(imported(model_of({unsqueeze}, opset)).graph, "y");
  };
  for (const std::int64_t opset : {7, 10, 11}) {
    EXPECT_EQ(inferred({-1}, opset), "tensor(float)[2,3,1]") << opset;
    EXPECT_EQ(inferred({0, -2}, opset), "tensor(float)[1,2,1,3]") << opset;
    EXPECT_EQ(inferred({1}, opset), "tensor(float)[2,1,3]") << opset;
  }
}

TEST(Inference, EinsumBroadcasts) {
  const auto inferred = [](const char* equation, const std::vector<std::string>& a,
                           const std::vector<std::string>& b) {
    auto einsum = node("Einsum", {"x", "w"}, {"y"});
    auto* attribute = einsum.add_attribute();
    attribute->set_name("equation");
    attribute->set_type(::onnx::AttributeProto::STRING);
    attribute->set_s(equation);
    auto model = model_of({einsum}, 17);
    auto& graph = *model.mutable_graph();
    *graph.mutable_input(0) = value_info("x", a);
    *graph.add_input() = value_info("w", b);
    return shape_of(imported(model).graph, "y");
  };
  EXPECT_EQ(inferred("bij,bjk->bik", {"b", "n", "4"}, {"b", "4", "m"}), "tensor(float)[b,n,m]");
  EXPECT_EQ(inferred("i,i->i", {"1"}, {"n"}), "tensor(float)[n]");
  EXPECT_EQ(inferred("i,i->i", {"n"}, {"5"}), "tensor(float)[5]");
  EXPECT_THAT(inferred("i,i->i", {"n"}, {"m"}),
              ::testing::Not(::testing::AnyOf("tensor(float)[n]", "tensor(float)[m]")));
  EXPECT_EQ(inferred("... j , j k -> ... k", {"a", "n", "4"}, {"4", "m"}), "tensor(float)[a,n,m]");
  EXPECT_THAT(inferred("...j,...j->...j", {"n", "4"}, {"m", "4"}),
              ::testing::Not(::testing::AnyOf("tensor(float)[n,4]", "tensor(float)[m,4]")));
  EXPECT_EQ(inferred("ij,jk", {"n", "4"}, {"4", "m"}), "tensor(float)[n,m]");
}

TEST(Inference, AttentionsScoresAreAsWideAsPastAndPresent) {
  auto attention = node("Attention", {"x", "k", "v", "", "past_k", "past_v"},
                        {"y", "present_k", "present_v", "scores"});
  auto model = model_of({attention}, 23);
  auto& graph = *model.mutable_graph();
  *graph.mutable_input(0) = value_info("x", {"1", "2", "n", "8"});
  *graph.add_input() = value_info("k", {"1", "2", "n", "8"});
  *graph.add_input() = value_info("v", {"1", "2", "n", "8"});
  *graph.add_input() = value_info("past_k", {"1", "2", "7", "8"});
  *graph.add_input() = value_info("past_v", {"1", "2", "7", "8"});
  const Type type = value_of(imported(model).graph, "scores").type;
  ASSERT_TRUE(type.shape);
  EXPECT_FALSE(type.shape->back().known()) << type.shape->back().size;
}

// ONNX 1.23 calls them a scalar.
TEST(Inference, AttentionsScoresOfUnknownRankAreUnknown) {
  auto model =
      model_of({node("Attention", {"x", "k", "v"}, {"y", "present_k", "present_v", "scores"})}, 23);
  auto& graph = *model.mutable_graph();
  for (const char* name : {"k", "v"}) *graph.add_input() = value_info(name, {"1", "2", "n", "8"});
  for (auto& input : *graph.mutable_input())
    input.mutable_type()->mutable_tensor_type()->clear_shape();
  EXPECT_FALSE(value_of(imported(model).graph, "scores").type.shape);
}

/// What a pool of one window size along each axis makes of [1,3,size].
std::string pooled(const char* op_type, std::int64_t opset, std::int64_t size,
                   const std::map<std::string, std::vector<std::int64_t>>& attributes,
                   const char* auto_pad = nullptr, std::int64_t ceil_mode = 1) {
  auto pool = node(op_type, {"x"}, {"y"});
  set_int(pool, "ceil_mode", ceil_mode);
  for (const auto& [name, numbers] : attributes) {
    auto* attribute = pool.add_attribute();
    attribute->set_name(name);
    attribute->set_type(::onnx::AttributeProto::INTS);
    for (const std::int64_t number : numbers) attribute->add_ints(number);
  }
  if (auto_pad != nullptr) {
    auto* attribute = pool.add_attribute();
    attribute->set_name("auto_pad");
    attribute->set_type(::onnx::AttributeProto::STRING);
    attribute->set_s(auto_pad);
  }
  auto model = model_of({pool}, opset);
  *model.mutable_graph()->mutable_input(0) = value_info("x", {"1", "3", std::to_string(size)});
  return shape_of(imported(model).graph, "y").substr(std::string("tensor(float)").size());
}

// ONNX 1.23 counts them before opset 22.
TEST(Inference, WindowsThatBeginInThePaddingAreNotCounted) {
  for (const std::int64_t opset : {12, 17, 19, 22}) {
    for (const char* op_type : {"AveragePool", "LpPool", "MaxPool"}) {
      if (op_type == std::string("LpPool") && opset < 18) continue;  // has no ceil_mode
      if (op_type == std::string("AveragePool") && opset == 12) continue;
      EXPECT_EQ(pooled(op_type, opset, 2, {{"kernel_shape", {1}}, {"strides", {2}}}), "[1,3,1]")
          << op_type << opset;
      EXPECT_EQ(pooled(op_type, opset, 3, {{"kernel_shape", {1}}, {"strides", {2}}}), "[1,3,2]");
      EXPECT_EQ(pooled(op_type, opset, 6, {{"kernel_shape", {3}}, {"strides", {2}}}), "[1,3,3]");
      const std::map<std::string, std::vector<std::int64_t>> padded{
          {"kernel_shape", {2}}, {"strides", {3}}, {"pads", {1, 1}}};
      EXPECT_EQ(pooled(op_type, opset, 5, padded), "[1,3,2]") << op_type << opset;
      EXPECT_EQ(pooled(op_type, opset, 6, padded), "[1,3,3]") << op_type << opset;
      for (const char* auto_pad : {"SAME_UPPER", "SAME_LOWER"}) {
        for (const std::int64_t size : {4, 5, 6}) {
          EXPECT_EQ(
              pooled(op_type, opset, size, {{"kernel_shape", {1}}, {"strides", {3}}}, auto_pad),
              "[1,3,2]")
              << op_type << opset << auto_pad << size;
        }
      }
    }
  }
  EXPECT_EQ(pooled("MaxPool", 17, 2, {{"kernel_shape", {1}}, {"strides", {2}}}, nullptr, 0),
            "[1,3,1]");
  EXPECT_NE(pooled("MaxPool", 17, 2, {{"kernel_shape", {1}}, {"strides", {2}}}, nullptr, 2),
            "[1,3,2]");
}

// ONNX 1.23 leaves out the sizes from the first on that is smaller than the input's.
TEST(Inference, TransposedConvolutionsMayMakeLessThanTheyGet) {
  for (const std::vector<std::int64_t>& sizes :
       std::vector<std::vector<std::int64_t>>{{4, 7}, {7, 4}, {3, 3}, {9, 9}}) {
    auto conv = node("ConvTranspose", {"x", "w"}, {"y"});
    ::onnx::AttributeProto* shape = conv.add_attribute();
    shape->set_name("output_shape");
    shape->set_type(::onnx::AttributeProto::INTS);
    for (const std::int64_t size : sizes) shape->add_ints(size);
    auto model = model_of({conv}, 11);
    auto& graph = *model.mutable_graph();
    *graph.mutable_input(0) = value_info("x", {"1", "2", "5", "5"});
    *graph.add_input() = value_info("w", {"2", "3", "3", "3"});
    EXPECT_EQ(
        shape_of(imported(model).graph, "y"),
        "tensor(float)[1,3," + std::to_string(sizes[0]) + "," + std::to_string(sizes[1]) + "]");
  }
}

// ONNX 1.23 infers two sides where the attribute is left out.
TEST(Inference, SpectraAreOnesidedUnlessTheNodeSaysOtherwise) {
  const auto inferred = [](std::int64_t length, std::optional<std::int64_t> onesided) {
    auto stft = node("STFT", {"x", "step", "", "frame"}, {"y"});
    if (onesided) set_int(stft, "onesided", *onesided);
    auto model = model_of({stft}, 17);
    auto& graph = *model.mutable_graph();
    *graph.mutable_input(0) = value_info("x", {"1", std::to_string(length), "1"});
    *graph.add_initializer() = raw_tensor<std::int64_t>("step", 7, {}, {3});
    *graph.add_initializer() = raw_tensor<std::int64_t>("frame", 7, {}, {15});
    return shape_of(imported(model).graph, "y");
  };
  EXPECT_EQ(inferred(160, std::nullopt), "tensor(float)[1,49,8,2]");
  EXPECT_EQ(inferred(160, 1), "tensor(float)[1,49,8,2]");
  EXPECT_EQ(inferred(160, 0), "tensor(float)[1,49,15,2]");
  // As floats these make one frame more.
  EXPECT_NE(inferred(15 + 116'999'999, 1), "tensor(float)[1,39000001,8,2]");
}

TEST(Inference, OutputsKeepTheirDeclaredNames) {
  auto model = model_of({node("NonZero", {"x"}, {"y"})});
  *model.mutable_graph()->mutable_output(0) =
      value_info("y", {"2", "found"}, ::onnx::TensorProto::INT64);
  EXPECT_EQ(shape_of(imported(model).graph, "y"), "tensor(int64)[2,found]");
}

TEST(Inference, TellsWhichNamesTheFileAloneGives) {
  auto model = model_of({node("NonZero", {"x"}, {"a"}), node("Neg", {"a"}, {"b"}),
                         node("NonZero", {"x"}, {"y"}), node("Neg", {"x"}, {"z"})});
  auto& graph = *model.mutable_graph();
  *graph.mutable_input(0) = value_info("x", {"rows", "3"});
  const auto int64 = ::onnx::TensorProto::INT64;
  *graph.add_value_info() = value_info("a", {"2", "found"}, int64);
  *graph.mutable_output(0) = value_info("y", {"2", "rows"}, int64);
  *graph.add_output() = value_info("b", {"2", "others"}, int64);
  *graph.add_output() = value_info("z", {"lines", "3"});
  const Model result = imported(model);
  EXPECT_EQ(result.unproven_symbols, std::set<std::string>{"found"});
  const auto is_doubted = [&](const char* name) {
    return result.graph.value(result.graph.find_value(name)).has_unproven_symbols;
  };
  EXPECT_TRUE(is_doubted("y"));
  EXPECT_FALSE(is_doubted("a"));
  EXPECT_FALSE(is_doubted("b")) << "inference says [2,found]";
  EXPECT_FALSE(is_doubted("z")) << "inference says [rows,3]";
  EXPECT_EQ(shape_of(result.graph, "z"), "tensor(float)[rows,3]");
}

TEST(Inference, ContradictedOutputsAreErrors) {
  auto model = model_of({node("Relu", {"x"}, {"y"})});
  *model.mutable_graph()->mutable_output(0) =
      value_info("y", {"2", "3"}, ::onnx::TensorProto::INT64);
  EXPECT_THAT(import_error(model), AllOf(HasSubstr("'y'"), HasSubstr("int64")));
  // A size or a rank that differs comes with exported models often, and harms nobody.
  for (const std::vector<std::string>& dims :
       {std::vector<std::string>{"5", "3"}, {"2", "n", "1"}}) {
    *model.mutable_graph()->mutable_output(0) = value_info("y", dims);
    EXPECT_EQ(shape_of(imported(model).graph, "y"), "tensor(float)[2,3]");
  }
}

TEST(Inference, ErrorsNameTheNode) {
  auto model = model_of({node("MatMul", {"x", "w"}, {"y"}, "product")});
  *model.mutable_graph()->add_initializer() = raw_tensor<float>("w", 1, {4, 1}, {1, 2, 3, 4});
  EXPECT_THAT(import_error(model),
              AllOf(HasSubstr("'product'"), HasSubstr("MatMul"),
                    HasSubstr("'x' tensor(float) [2,3], 'w' tensor(float) [4,1]")));
}

TEST(Inference, LongVectorsAreNoShapes) {
  auto cast = node("Cast", {"x"}, {"y"});
  set_int(cast, "to", 7);
  auto model = model_of({cast});
  *model.mutable_graph()->mutable_input(0) =
      value_info("x", {"9000000000000000"}, ::onnx::TensorProto::INT32);
  EXPECT_EQ(shape_of(imported(model).graph, "y"), "tensor(int64)[9000000000000000]");
}

::onnx::NodeProto einsum(const std::string& equation) {
  auto proto = node("Einsum", {"x", "x"}, {"y"}, "the_einsum");
  auto* attribute = proto.add_attribute();
  attribute->set_name("equation");
  attribute->set_type(::onnx::AttributeProto::STRING);
  attribute->set_s(equation);
  return proto;
}

// ONNX 1.23 never ends over anything that is no letter on the left-hand side, spaces included.
TEST(Inference, EinsumEquationsMayHaveSpaces) {
  const Model result = imported(model_of({einsum(" ij , kj -> i k ")}));
  EXPECT_EQ(shape_of(result.graph, "y"), "tensor(float)[2,2]");
  EXPECT_EQ(shape_of(imported(model_of({einsum("...j,...j->...")})).graph, "y"),
            "tensor(float)[2]");
}

TEST(Inference, OtherEinsumEquationsAreErrors) {
  for (const char* equation :
       {"i1,ij->ij", "i-j,ij", "......,ij", "i.j,ij", "ij,ij->i->j", "ij,ij>i", "i\tj,ij"}) {
    EXPECT_THAT(import_error(model_of({einsum(equation)})), HasSubstr("'the_einsum'")) << equation;
  }
}

// ONNX 1.23 cuts the axis to 32 bits and writes before the shape's first dimension.
TEST(Inference, AxesBeyond32BitsAreErrors) {
  auto norm = node("LayerNormalization", {"x", "x"}, {"y", "mean"}, "the_norm");
  set_int(norm, "axis", 0xffffff00);
  EXPECT_THAT(import_error(model_of({norm})), AllOf(HasSubstr("'the_norm'"), HasSubstr("axis")));
}

TEST(Inference, LoopBodiesAreInferred) {
  ::onnx::GraphProto body;
  *body.add_input() = value_info("i", {}, ::onnx::TensorProto::INT64);
  *body.add_input() = value_info("keep", {}, ::onnx::TensorProto::BOOL);
  body.add_input()->set_name("state");
  *body.add_node() = node("Identity", {"keep"}, {"keep_out"});
  *body.add_node() = node("Add", {"state", "x"}, {"state_out"});
  *body.add_node() = node("Neg", {"x"}, {"scanned"});
  for (const char* name : {"keep_out", "state_out", "scanned"}) body.add_output()->set_name(name);
  auto loop = node("Loop", {"count", "", "x"}, {"last", "all"}, "loop");
  set_graph(loop, "body", body);
  auto model = model_of({loop, node("Relu", {"last"}, {"y"})});
  *model.mutable_graph()->add_input() = value_info("count", {}, ::onnx::TensorProto::INT64);
  const Model result = imported(model);
  EXPECT_EQ(shape_of(result.graph, "all").substr(0, 14), "tensor(float)[");
  EXPECT_EQ(value_of(result.graph, "all").type.shape->size(), 3u);
  const NodeId id = value_of(result.graph, "last").producer;
  const Graph& inner = *result.graph.node(id).attributes.at("body").graphs.at(0);
  EXPECT_EQ(shape_of(inner, "scanned"), "tensor(float)[2,3]");
  EXPECT_EQ(value_of(inner, "state").type.element, DataType::Float);
}

TEST(Inference, AnErrorNamesTheNodeWhateverElseHasItsName) {
  ::onnx::GraphProto body;
  body.set_name("loop");
  *body.add_input() = value_info("i", {}, ::onnx::TensorProto::INT64);
  *body.add_input() = value_info("keep", {}, ::onnx::TensorProto::BOOL);
  *body.add_node() = node("Identity", {"keep"}, {"keep_out"});
  body.add_output()->set_name("keep_out");
  auto loop = node("Loop", {"", "", "x"}, {"y"}, "loop");
  set_graph(loop, "body", body);
  EXPECT_THAT(import_error(model_of({loop})),
              AllOf(HasSubstr("node 'loop' (Loop): its body 'loop' has 2 inputs"),
                    Not(HasSubstr("node 'loop' (Loop): node 'loop' (Loop)"))));
}

TEST(Inference, NamesOfABodyDoNotLeak) {
  // The body has a value `a` of its own, of another type than the outer one.
  ::onnx::GraphProto body;
  auto cast = node("Cast", {"x"}, {"a"});
  set_int(cast, "to", 7);
  *body.add_node() = cast;
  body.add_output()->set_name("a");
  auto branch = node("If", {"c"}, {"b"});
  set_graph(branch, "then_branch", body);
  set_graph(branch, "else_branch", body);
  auto model = model_of({node("Relu", {"x"}, {"a"}), branch, node("Neg", {"a"}, {"y"})});
  *model.mutable_graph()->add_input() = value_info("c", {}, ::onnx::TensorProto::BOOL);
  const Model result = imported(model);
  EXPECT_EQ(shape_of(result.graph, "y"), "tensor(float)[2,3]");
  EXPECT_EQ(shape_of(result.graph, "b"), "tensor(int64)[2,3]");
}

/// A Loop that makes `result`, with so many Loops in its body, one in the other, around a Neg.
::onnx::NodeProto nested_loop(int depth, const std::string& state, const std::string& result) {
  const std::string at = std::to_string(depth);
  ::onnx::GraphProto body;
  *body.add_input() = value_info("i" + at, {}, ::onnx::TensorProto::INT64);
  *body.add_input() = value_info("keep" + at, {}, ::onnx::TensorProto::BOOL);
  body.add_input()->set_name("in" + at);
  *body.add_node() = depth == 0 ? node("Neg", {"in" + at}, {"out" + at})
                                : nested_loop(depth - 1, "in" + at, "out" + at);
  *body.add_node() = node("Identity", {"keep" + at}, {"kept" + at});
  for (const char* name : {"kept", "out"}) body.add_output()->set_name(name + at);
  auto loop = node("Loop", {"count", "", state}, {result});
  set_graph(loop, "body", body);
  return loop;
}

// An older Loop says no shape of what it carries, and to ask a newer one at each level took 2^29 inferences here.
TEST(Inference, BodiesInBodiesAreInferredOnce) {
  for (const std::int64_t opset : {11, 17, 25}) {
    auto model = model_of({nested_loop(29, "x", "y")}, opset, 10);
    *model.mutable_graph()->add_input() = value_info("count", {}, ::onnx::TensorProto::INT64);
    EXPECT_EQ(value_of(imported(model).graph, "y").type.element, DataType::Float) << opset;
  }
}

TEST(Inference, AModelMayHaveAnyNumberOfBodies) {
  ::onnx::GraphProto body;
  *body.add_node() = node("Neg", {"x"}, {"a"});
  body.add_output()->set_name("a");
  std::vector<::onnx::NodeProto> nodes;
#if defined(BACKPLANE_SANITIZED)
  constexpr int kNodes = 2'000;
#else
  constexpr int kNodes = 60'000;
#endif
  for (int i = 0; i < kNodes; ++i) {
    auto branch = node("If", {"c"}, {i == 0 ? "y" : "y" + std::to_string(i)});
    set_graph(branch, "then_branch", body);
    set_graph(branch, "else_branch", body);
    nodes.push_back(std::move(branch));
  }
  auto model = model_of(nodes);
  *model.mutable_graph()->add_input() = value_info("c", {}, ::onnx::TensorProto::BOOL);
  EXPECT_EQ(import_error(model), "no error");
}

class SplitTypes : public ::testing::Test {
 protected:
  static ::onnx::ModelProto model(std::int64_t opset, const std::string& dim,
                                  const std::vector<std::int64_t>& sizes, std::int64_t axis = 0) {
    auto split = node("Split", {"x"}, {"y", "rest"}, "the_split");
    set_int(split, "axis", axis);
    if (sizes.empty() && opset >= 18) set_int(split, "num_outputs", 2);
    if (!sizes.empty() && opset >= 13) split.add_input("sizes");
    if (!sizes.empty() && opset < 13) {
      auto* attribute = split.add_attribute();
      attribute->set_name("split");
      attribute->set_type(::onnx::AttributeProto::INTS);
      for (const std::int64_t size : sizes) attribute->add_ints(size);
    }
    auto model = model_of({split}, opset);
    *model.mutable_graph()->mutable_input(0) = value_info("x", {dim, "3"});
    if (!sizes.empty() && opset >= 13) {
      *model.mutable_graph()->add_initializer() =
          raw_tensor("sizes", 7, {static_cast<std::int64_t>(sizes.size())}, sizes);
    }
    return model;
  }

  static std::pair<std::string, std::string> shapes(const ::onnx::ModelProto& model) {
    const Model result = imported(model);
    return {shape_of(result.graph, "y"), shape_of(result.graph, "rest")};
  }
};

// ONNX 1.23 cuts the size to 32 bits.
TEST_F(SplitTypes, AxesMayHaveMoreThan31Bits) {
  using ::testing::Pair;
  for (const std::int64_t opset : {2, 11, 13, 18}) {
    for (const std::int64_t axis : {0, -2}) {
      EXPECT_THAT(shapes(model(opset, "4294967300", {4294967297, 3}, axis)),
                  Pair("tensor(float)[4294967297,3]", "tensor(float)[3,3]"))
          << opset;
    }
    EXPECT_THAT(shapes(model(opset, "4294967300", {})),
                Pair("tensor(float)[2147483650,3]", "tensor(float)[2147483650,3]"))
        << opset;
  }
}

TEST_F(SplitTypes, AreAsFarAsTheModelSays) {
  using ::testing::Pair;
  for (const std::int64_t opset : {2, 11, 13, 18}) {
    EXPECT_THAT(shapes(model(opset, "6", {1, 5})),
                Pair("tensor(float)[1,3]", "tensor(float)[5,3]"));
    EXPECT_THAT(shapes(model(opset, "n", {1, 5})),
                Pair("tensor(float)[1,3]", "tensor(float)[5,3]"));
    EXPECT_EQ(value_of(imported(model(opset, "n", {})).graph, "y").type.shape->size(), 2u);
  }
  EXPECT_THAT(shapes(model(18, "5", {})), Pair("tensor(float)[3,3]", "tensor(float)[2,3]"));
  auto computed = model(13, "6", {1, 5});
  computed.mutable_graph()->clear_initializer();
  *computed.mutable_graph()->add_input() = value_info("sizes", {"2"}, ::onnx::TensorProto::INT64);
  EXPECT_EQ(value_of(imported(computed).graph, "y").type.shape->size(), 2u);
}

TEST_F(SplitTypes, SizesThatDoNotFitAreErrors) {
  for (const std::int64_t opset : {2, 11, 13, 18}) {
    const auto error = [&](const std::string& dim, const std::vector<std::int64_t>& sizes,
                           std::int64_t axis = 0) {
      std::string text = import_error(model(opset, dim, sizes, axis));
      EXPECT_THAT(text, HasSubstr("'the_split'")) << opset;
      return text;
    };
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    EXPECT_THAT(error("6", {1, 4}), HasSubstr("sum of 'split' (5)"));
    EXPECT_THAT(error("6", {kMost, kMost}), HasSubstr("more than the 6 elements"));
    EXPECT_THAT(error("6", {7, -1}), HasSubstr("negative"));
    EXPECT_THAT(error("6", {6}), HasSubstr("number of splits (1)"));
    EXPECT_THAT(error("6", {1, 5}, 2), HasSubstr("'axis'"));
    if (opset < 18) {
      EXPECT_THAT(error("5", {}), HasSubstr("2 equal parts"));
    }
  }
}

}  // namespace
}  // namespace backplane::core
