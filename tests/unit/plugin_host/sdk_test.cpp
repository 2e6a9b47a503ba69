// The SDK's own logic, with the host's real tables.
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "backplane/plugin.hpp"
#include "core/plugin_host/graph_view.hpp"
#include "core/plugin_host/host_api.hpp"
#include "core/plugin_host/plugin_description.hpp"
#include "core/plugin_host/runtime_value.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

class SdkPlugin : public testing::Test {
 protected:
  bp_status* init() { return plugin_.raw()->init(plugin_.raw()->self, &host_api()); }
  void shutdown() { plugin_.raw()->shutdown(plugin_.raw()->self); }
  ~SdkPlugin() override { sdk::host_table = nullptr; }
  sdk::Plugin plugin_{"test", "1.0.0"};
};

TEST_F(SdkPlugin, HooksRunWhenItStartsAndEnds) {
  std::string calls;
  plugin_.on_init(
      [&](const bp_host_api& api) { calls += &api == &sdk::host() ? "init " : "wrong host "; });
  plugin_.on_shutdown([&] { calls += sdk::host_table != nullptr ? "shutdown" : "too late"; });
  ASSERT_EQ(init(), nullptr);
  shutdown();
  EXPECT_EQ(calls, "init shutdown");
  EXPECT_EQ(sdk::host_table, nullptr);
}

TEST_F(SdkPlugin, AnInitHookMayRefuseToStart) {
  plugin_.on_init([](const bp_host_api&) { sdk::unsupported("no licence for ", 3, " devices"); });
  bp_status* status = init();
  ASSERT_NE(status, nullptr);
  const Error error = take_error(status);
  EXPECT_EQ(error.code(), Code::Unsupported);
  EXPECT_EQ(error.message(), "no licence for 3 devices");
}

TEST_F(SdkPlugin, StartsWithoutHooks) {
  ASSERT_EQ(init(), nullptr);
  EXPECT_EQ(sdk::host_table, &host_api());
  shutdown();
}

TEST_F(SdkPlugin, RefusesHostsThatAreOlderThanWhatItNeeds) {
  plugin_.on_init([](const bp_host_api&) {});
  plugin_.require_minor(BP_ABI_MINOR);
  check_description(plugin_.raw());
  plugin_.require_minor(BP_ABI_MINOR + 1);
  try {
    check_description(plugin_.raw());
    FAIL() << "an older host took it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::Incompatible);
    EXPECT_NE(error.message().find("update the host"), std::string::npos) << error.message();
  }
}

class SdkValues : public testing::Test {
 protected:
  SdkValues() { sdk::host_table = &host_api(); }
  ~SdkValues() override { sdk::host_table = nullptr; }
};

TEST_F(SdkValues, InferenceTellsSymbols) {
  sdk::OpSchema schema =
      sdk::OpSchema("test", "Window", 1)
          .type_param("T", {sdk::DataType::Float})
          .input("x", "T")
          .output("y", "T")
          .infer([](sdk::InferContext& ctx) {
            ctx.set_output(0, sdk::DataType::Float, sdk::Dims{-1, -1, 4}, {"batch", "", ""});
          });
  const CustomSchema read = read_schema(*schema.raw(), "lib.so");
  Graph graph;
  Node node;
  node.op_type = "Window";
  node.domain = "test";
  const ValueId x = graph.value_named("x");
  graph.value(x).type = Type::tensor(DataType::Float);
  node.inputs = {x};
  node.outputs = {graph.value_named("y")};
  const NodeId id = graph.add_node(std::move(node));
  const std::vector<Type> types = read.infer(graph, graph.node(id));
  ASSERT_EQ(types.size(), 1U);
  EXPECT_EQ(*types[0].shape, (Shape{{-1, "batch"}, {-1, ""}, {4, ""}}));

  sdk::OpSchema wrong = sdk::OpSchema("test", "Window", 1)
                            .type_param("T", {sdk::DataType::Float})
                            .input("x", "T")
                            .output("y", "T")
                            .infer([](sdk::InferContext& ctx) {
                              ctx.set_output(0, sdk::DataType::Float, sdk::Dims{-1, 4}, {"batch"});
                            });
  EXPECT_THROW(read_schema(*wrong.raw(), "lib.so").infer(graph, graph.node(id)), Error);
}

TEST_F(SdkValues, OwnedValuesBecomeSequencesOfMaps) {
  RuntimeValue sequence;
  sequence.set_type(Type::parse("seq(map(string,tensor(float)))"));
  {
    const sdk::OwnedValue keys = sdk::OwnedValue::tensor(sdk::DataType::String, sdk::Dims{2});
    keys.get().set_string(0, "cat");
    keys.get().set_string(1, "dog");
    sdk::OwnedValue values = sdk::OwnedValue::tensor(sdk::DataType::Float, sdk::Dims{2});
    values.get().tensor().mutable_data<float>()[1] = 0.75f;
    const sdk::OwnedValue map = sdk::OwnedValue::of_type("map(string,tensor(float))");
    map.get().set_map(keys.get(), values.get());
    sdk::Value(&sequence).append(map.get());
    values = sdk::OwnedValue();
    EXPECT_FALSE(values.get());
  }
  const sdk::Value map = sdk::Value(&sequence).sequence_at(0);
  EXPECT_EQ(map.kind(), BP_VALUE_MAP);
  EXPECT_EQ(map.map_keys().string_at(1), "dog");
  EXPECT_EQ(map.map_values().tensor().data<float>()[1], 0.75f);
}

TEST_F(SdkValues, AttributesHoldStringTensors) {
  const sdk::OwnedValue words = sdk::OwnedValue::tensor(sdk::DataType::String, sdk::Dims{1, 2});
  words.get().set_string(1, "two");
  const auto [name, read] = read_attribute(*sdk::Attribute("keys", words.get()).raw());
  EXPECT_EQ(name, "keys");
  ASSERT_EQ(read.tensors.size(), 1U);
  EXPECT_EQ(read.tensors[0]->strings(), (std::vector<std::string>{"", "two"}));

  Graph graph;
  Node node;
  node.op_type = "Constant";
  node.attributes[name] = read;
  node.outputs = {graph.value_named("y")};
  const GraphView view(graph, {graph.add_node(std::move(node))});
  const sdk::Node seen(view.node(NodeId(0)));
  EXPECT_EQ(seen.get_tensor("keys").string_at(1), "two");
  EXPECT_FALSE(seen.get_tensor("none"));
  EXPECT_THROW(seen.get_tensors("keys"), sdk::Error);
}

}  // namespace
}  // namespace backplane::core
