#include "core/plugin_host/graph_view.hpp"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include "core/base/mapped_file.hpp"
#include "core/plugin_host/runtime_value.hpp"
#include "tests/fixtures/resident_pages.hpp"

namespace backplane::core {
namespace {

const bp_graph_api& api() { return graph_api(); }

NodeId add(Graph& graph, const std::string& op, const std::vector<std::string>& inputs,
           const std::vector<std::string>& outputs) {
  Node node;
  node.op_type = op;
  node.since_version = 7;
  for (const std::string& name : inputs) {
    node.inputs.push_back(name.empty() ? kNone : graph.value_named(name));
  }
  for (const std::string& name : outputs) {
    node.outputs.push_back(name.empty() ? kNone : graph.value_named(name));
  }
  return graph.add_node(std::move(node));
}

void add_input(Graph& graph, const std::string& name, Type type) {
  const ValueId id = graph.value_named(name);
  graph.value(id).is_input = true;
  graph.value(id).type = std::move(type);
  graph.inputs.push_back(id);
}

void add_output(Graph& graph, const std::string& name) {
  const ValueId id = graph.value_named(name);
  graph.value(id).is_output = true;
  graph.outputs.push_back(id);
}

void add_constant(Graph& graph, const std::string& name, const std::vector<float>& numbers) {
  const ValueId id = graph.value_named(name);
  graph.value(id).constant =
      Constant::copy_of(DataType::Float, {static_cast<std::int64_t>(numbers.size())},
                        std::as_bytes(std::span(numbers)));
  graph.value(id).type = Type::tensor(DataType::Float, {static_cast<std::int64_t>(numbers.size())});
  graph.initializers.push_back(id);
}

std::vector<std::string> names(std::uint64_t count, const bp_graph* graph,
                               const bp_value_info* (*at)(const bp_graph*, std::uint64_t)) {
  std::vector<std::string> list;
  for (std::uint64_t i = 0; i < count; ++i) list.emplace_back(api().value_name(at(graph, i)));
  return list;
}
std::vector<std::string> inputs_of(const bp_graph* graph) {
  return names(api().graph_input_count(graph), graph, api().graph_input);
}
std::vector<std::string> outputs_of(const bp_graph* graph) {
  return names(api().graph_output_count(graph), graph, api().graph_output);
}

using Names = std::vector<std::string>;

/// y = (x + w) -> Relu -> Mul(., b), where t = Relu's result is also used by Neg, z.
class GraphViewTest : public testing::Test {
 protected:
  GraphViewTest() {
    graph_.name = "main";
    add_input(graph_, "b", Type::tensor(DataType::Float, Shape{}));
    add_input(graph_, "x", Type::tensor(DataType::Float, Shape{{-1, "batch"}, {3, ""}, {-1, ""}}));
    add_constant(graph_, "w", {1, 2, 3});
    sum_ = add(graph_, "Add", {"x", "w"}, {"s"});
    relu_ = add(graph_, "Relu", {"s"}, {"t"});
    mul_ = add(graph_, "Mul", {"t", "b"}, {"y"});
    neg_ = add(graph_, "Neg", {"t"}, {"z"});
    add_output(graph_, "z");
    add_output(graph_, "y");
  }
  Graph graph_;
  NodeId sum_, relu_, mul_, neg_;
};

TEST_F(GraphViewTest, WholeGraphHasItsOwnBorder) {
  const GraphView view(graph_, topological_order(graph_));
  EXPECT_STREQ(api().graph_name(view.raw()), "main");
  EXPECT_EQ(api().graph_node_count(view.raw()), 4U);
  EXPECT_EQ(inputs_of(view.raw()), (Names{"b", "x"}));
  EXPECT_EQ(outputs_of(view.raw()), (Names{"z", "y"}));
  EXPECT_EQ(view.inputs(), (std::vector<ValueId>{graph_.find_value("b"), graph_.find_value("x")}));
}

TEST_F(GraphViewTest, PartOfAGraphShowsWhatCrossesItsBorder) {
  const GraphView view(graph_, {relu_, mul_});
  EXPECT_EQ(inputs_of(view.raw()), (Names{"b", "s"}));
  EXPECT_EQ(outputs_of(view.raw()), (Names{"y", "t"}));
  EXPECT_EQ(view.node(sum_), nullptr);
  EXPECT_EQ(GraphView::id_of(view.node(mul_)), mul_);
  EXPECT_EQ(GraphView::id_of(nullptr), kNone);
  const bp_value_info* t = api().graph_value(view.raw(), "t");
  EXPECT_EQ(api().value_producer(t), view.node(relu_));
  ASSERT_EQ(api().value_consumer_count(t), 1U);
  EXPECT_EQ(api().value_consumer(t, 0), view.node(mul_));
  EXPECT_EQ(api().value_is_output(t), 1U);
  const bp_value_info* s = api().graph_value(view.raw(), "s");
  EXPECT_EQ(api().value_producer(s), nullptr);
  EXPECT_EQ(api().value_is_output(s), 0U);
  EXPECT_EQ(api().graph_value(view.raw(), "z"), nullptr);
}

TEST_F(GraphViewTest, ValuesTellTypeDimsAndSymbols) {
  const GraphView view(graph_, {sum_});
  const bp_value_info* x = api().node_input(view.node(sum_), 0);
  EXPECT_STREQ(api().value_name(x), "x");
  EXPECT_EQ(GraphView::name_of(x), "x");
  EXPECT_STREQ(api().value_type(x), "tensor(float)");
  EXPECT_EQ(api().value_dtype(x), BP_FLOAT);
  ASSERT_EQ(api().value_rank(x), 3);
  EXPECT_EQ(api().value_dims(x)[0], -1);
  EXPECT_EQ(api().value_dims(x)[1], 3);
  EXPECT_STREQ(api().value_symbol(x, 0), "batch");
  EXPECT_EQ(api().value_symbol(x, 1), nullptr);
  EXPECT_EQ(api().value_symbol(x, 2), nullptr);
  EXPECT_EQ(api().value_symbol(x, 3), nullptr);
  EXPECT_EQ(api().value_symbol(x, -1), nullptr);
  const bp_value_info* s = api().node_output(view.node(sum_), 0);
  EXPECT_STREQ(api().value_type(s), "");
  EXPECT_EQ(api().value_rank(s), -1);
  EXPECT_EQ(api().value_dims(s), nullptr);
}

TEST_F(GraphViewTest, ScalarsHaveRankZero) {
  const GraphView view(graph_, {mul_});
  const bp_value_info* b = api().graph_value(view.raw(), "b");
  EXPECT_EQ(api().value_rank(b), 0);
  EXPECT_NE(api().value_dims(b), nullptr);
}

TEST_F(GraphViewTest, ConstantsAreNoInputs) {
  const GraphView view(graph_, {sum_});
  EXPECT_EQ(inputs_of(view.raw()), Names{"x"});
  const bp_value_info* w = api().graph_value(view.raw(), "w");
  const bp_tensor* tensor = api().value_constant(w);
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->bytes, 12U);
  EXPECT_EQ(static_cast<const float*>(tensor->host_ptr)[2], 3.0F);
  EXPECT_EQ(api().value_constant_value(w)->tensor, tensor);
  EXPECT_EQ(api().value_constant(api().graph_value(view.raw(), "x")), nullptr);
}

TEST_F(GraphViewTest, WhetherAValueIsConstantIsToldWithoutReadingIt) {
  const std::string path = ::testing::TempDir() + "/constant_" + std::to_string(::getpid());
  std::ofstream(path, std::ios::binary) << std::string((1 << 16) + 1, '\1');
  const auto file = MappedFile::open(path);
  std::filesystem::remove(path);
  const auto unaligned = file->bytes().subspan(1);
  graph_.value(graph_.find_value("w")).constant = std::make_shared<const Constant>(
      DataType::Float, std::vector<std::int64_t>{1 << 14}, unaligned, file);
  MappedFile::let_go(file->bytes());
  const std::size_t before = test_host::resident_pages(unaligned);
  const GraphView view(graph_, {sum_});
  const bp_value_info* w = api().graph_value(view.raw(), "w");
  EXPECT_EQ(api().value_is_constant(w), 1U);
  EXPECT_EQ(api().value_is_constant(api().graph_value(view.raw(), "x")), 0U);
  EXPECT_EQ(api().value_is_constant(nullptr), 0U);
  std::uint64_t bytes = 0;
  EXPECT_EQ(api().value_constant_stored(w, &bytes), unaligned.data());
  EXPECT_EQ(bytes, unaligned.size());
  EXPECT_EQ(api().value_constant_stored(api().graph_value(view.raw(), "x"), &bytes), nullptr);
  EXPECT_EQ(bytes, 0U);
  EXPECT_EQ(api().value_constant_stored(nullptr, nullptr), nullptr);
  EXPECT_EQ(test_host::resident_pages(unaligned), before);
  const bp_tensor* tensor = api().value_constant(w);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor->host_ptr) % sizeof(float), 0U);
  EXPECT_EQ(static_cast<const std::uint8_t*>(tensor->host_ptr)[tensor->bytes - 1], 1);
}

TEST_F(GraphViewTest, OverridableInitializersAreInputs) {
  graph_.value(graph_.find_value("w")).overridable = true;
  const GraphView view(graph_, {sum_});
  EXPECT_EQ(inputs_of(view.raw()), (Names{"x", "w"}));
  EXPECT_EQ(api().value_constant(api().graph_value(view.raw(), "w")), nullptr);
}

TEST_F(GraphViewTest, StringConstantsAreReadAsValues) {
  const ValueId id = graph_.value_named("words");
  graph_.value(id).constant = std::make_shared<const Constant>(std::vector<std::int64_t>{2},
                                                               std::vector<std::string>{"a", "bc"});
  graph_.value(id).type = Type::tensor(DataType::String, std::vector<std::int64_t>{2});
  const NodeId node = add(graph_, "Take", {"words"}, {"q"});
  const GraphView view(graph_, {node});
  const bp_value_info* words = api().graph_value(view.raw(), "words");
  EXPECT_EQ(api().value_constant(words)->host_ptr, nullptr);
  EXPECT_EQ(api().value_constant(words)->dtype, BP_STRING);
  bp_str text{nullptr, 0};
  ASSERT_EQ(value_api().string_get(api().value_constant_value(words), 1, &text), nullptr);
  EXPECT_EQ(std::string(text.data, text.size), "bc");
}

TEST_F(GraphViewTest, LeftOutInputsAndOutputsAreNull) {
  const NodeId node = add(graph_, "Clip", {"x", "", "b"}, {"", "c"});
  const GraphView view(graph_, {node});
  const bp_node* clip = view.node(node);
  EXPECT_EQ(api().node_input_count(clip), 3U);
  EXPECT_EQ(api().node_input(clip, 1), nullptr);
  EXPECT_NE(api().node_input(clip, 2), nullptr);
  EXPECT_EQ(api().node_input(clip, 3), nullptr);
  EXPECT_EQ(api().node_output(clip, 0), nullptr);
  EXPECT_STREQ(api().value_name(api().node_output(clip, 1)), "c");
}

TEST_F(GraphViewTest, AValueReadTwiceHasTwoConsumers) {
  const NodeId node = add(graph_, "Mul", {"x", "x"}, {"square"});
  const GraphView view(graph_, {node});
  const bp_value_info* x = api().graph_value(view.raw(), "x");
  ASSERT_EQ(api().value_consumer_count(x), 2U);
  EXPECT_EQ(api().value_consumer(x, 0), view.node(node));
  EXPECT_EQ(api().value_consumer(x, 1), view.node(node));
  EXPECT_EQ(api().value_consumer(x, 2), nullptr);
}

TEST_F(GraphViewTest, AttributesOfEveryType) {
  Node node;
  node.op_type = "Many";
  node.domain = "my.domain";
  node.name = "many";
  node.outputs = {graph_.value_named("m")};
  const std::vector<float> numbers{4, 5};
  const ConstantPtr constant =
      Constant::copy_of(DataType::Float, {2}, std::as_bytes(std::span(numbers)));
  Attribute attribute;
  attribute.type = Attribute::Type::Float;
  attribute.floats = {1.5F};
  node.attributes["a_float"] = attribute;
  attribute = {};
  attribute.type = Attribute::Type::Ints;
  attribute.ints = {3, 4, 5};
  node.attributes["b_ints"] = attribute;
  attribute = {};
  attribute.type = Attribute::Type::Strings;
  attribute.strings = {"one", std::string("t\0o", 3)};
  node.attributes["c_strings"] = attribute;
  attribute = {};
  attribute.type = Attribute::Type::Tensor;
  attribute.tensors = {constant};
  node.attributes["d_tensor"] = attribute;
  attribute = {};
  attribute.type = Attribute::Type::TypeProto;
  attribute.types = {Type::parse("seq(tensor(int64))")};
  node.attributes["e_type"] = attribute;
  attribute = {};
  attribute.type = Attribute::Type::Ints;
  node.attributes["f_none"] = attribute;
  attribute = {};
  attribute.type = Attribute::Type::Tensors;
  attribute.tensors = {std::make_shared<Constant>(std::vector<std::int64_t>{2},
                                                  std::vector<std::string>{"cat", "dog"}),
                       constant};
  node.attributes["g_tensors"] = attribute;
  const NodeId id = graph_.add_node(std::move(node));
  const GraphView view(graph_, {id});
  const bp_node* many = view.node(id);
  EXPECT_STREQ(api().node_name(many), "many");
  EXPECT_STREQ(api().node_domain(many), "my.domain");
  ASSERT_EQ(api().node_attribute_count(many), 7U);
  EXPECT_EQ(api().node_attribute_at(many, 7), nullptr);
  EXPECT_EQ(api().node_attribute(many, "none"), nullptr);
  const bp_attribute* found = api().node_attribute(many, "a_float");
  EXPECT_EQ(found, api().node_attribute_at(many, 0));
  EXPECT_EQ(found->type, BP_ATTRIBUTE_FLOAT);
  EXPECT_EQ(found->count, 1U);
  EXPECT_EQ(found->floats[0], 1.5F);
  EXPECT_EQ(found->ints, nullptr);
  found = api().node_attribute(many, "b_ints");
  EXPECT_EQ(std::vector<std::int64_t>(found->ints, found->ints + found->count),
            (std::vector<std::int64_t>{3, 4, 5}));
  found = api().node_attribute(many, "c_strings");
  EXPECT_EQ(std::string(found->strings[1].data, found->strings[1].size), std::string("t\0o", 3));
  found = api().node_attribute(many, "d_tensor");
  EXPECT_EQ(static_cast<const float*>(found->tensors[0]->host_ptr)[1], 5.0F);
  EXPECT_EQ(found->values[0]->tensor, found->tensors[0]);
  found = api().node_attribute(many, "g_tensors");
  ASSERT_EQ(found->count, 2U);
  bp_str string{nullptr, 0};
  ASSERT_EQ(value_api().string_get(found->values[0], 1, &string), nullptr);
  EXPECT_EQ(std::string(string.data, string.size), "dog");
  EXPECT_EQ(found->values[1]->tensor, found->tensors[1]);
  found = api().node_attribute(many, "e_type");
  EXPECT_STREQ(found->types[0], "seq(tensor(int64))");
  EXPECT_EQ(api().node_attribute(many, "f_none")->count, 0U);
}

TEST_F(GraphViewTest, BodiesAreGraphsThatKnowTheEnclosingValues) {
  auto body = std::make_shared<Graph>();
  body->name = "then";
  for (const char* outer : {"x", "w"}) body->value(body->value_named(outer)).is_outer = true;
  add_input(*body, "unused", Type::tensor(DataType::Bool, Shape{}));
  add(*body, "Add", {"x", "w"}, {"r"});
  add_output(*body, "r");
  add_output(*body, "r");
  Node node;
  node.op_type = "If";
  node.inputs = {graph_.find_value("b")};
  node.outputs = {graph_.value_named("chosen")};
  Attribute attribute;
  attribute.type = Attribute::Type::Graph;
  attribute.graphs = {body};
  node.attributes["then_branch"] = attribute;
  const NodeId id = graph_.add_node(std::move(node));
  graph_.update_captures();

  const GraphView view(graph_, {id});
  EXPECT_EQ(inputs_of(view.raw()), (Names{"b", "x"}));
  const bp_value_info* x = api().graph_value(view.raw(), "x");
  ASSERT_EQ(api().value_consumer_count(x), 1U);
  EXPECT_EQ(api().value_consumer(x, 0), view.node(id));
  const bp_graph* inner = api().node_attribute(view.node(id), "then_branch")->graphs[0];
  EXPECT_STREQ(api().graph_name(inner), "then");
  EXPECT_EQ(inputs_of(inner), (Names{"unused", "x"}));
  EXPECT_EQ(outputs_of(inner), (Names{"r", "r"}));
  EXPECT_STREQ(api().value_type(api().graph_value(inner, "x")), "tensor(float)");
  ASSERT_NE(api().value_constant(api().graph_value(inner, "w")), nullptr);
  EXPECT_EQ(api().value_constant(api().graph_value(inner, "w"))->bytes, 12U);
}

TEST_F(GraphViewTest, NullAndOutOfRangeGiveNothing) {
  const GraphView view(graph_, {relu_});
  EXPECT_EQ(api().graph_node(view.raw(), 1), nullptr);
  EXPECT_EQ(api().graph_input(view.raw(), 7), nullptr);
  EXPECT_EQ(api().graph_value(view.raw(), nullptr), nullptr);
  EXPECT_EQ(api().graph_node_count(nullptr), 0U);
  EXPECT_EQ(api().graph_node(nullptr, 0), nullptr);
  EXPECT_STREQ(api().graph_name(nullptr), "");
  EXPECT_STREQ(api().node_name(nullptr), "");
  EXPECT_EQ(api().node_attribute(view.node(relu_), nullptr), nullptr);
  EXPECT_EQ(api().node_input(nullptr, 0), nullptr);
  EXPECT_STREQ(api().value_name(nullptr), "");
  EXPECT_EQ(api().value_rank(nullptr), -1);
  EXPECT_EQ(api().value_dims(nullptr), nullptr);
  EXPECT_EQ(api().value_constant(nullptr), nullptr);
  EXPECT_EQ(api().value_is_output(nullptr), 0U);
}

}  // namespace
}  // namespace backplane::core
