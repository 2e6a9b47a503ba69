// Custom operators that are made of other operators, through sessions on the cpu, a fake device and a
// provider that has no kernel for what they are made of.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <memory>
#include <onnx/onnx_pb.h>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/runtime/session.hpp"
#include "tests/fixtures/fakegpu/fakegpu.h"

namespace backplane::core {
namespace {

using Dims = std::vector<std::int64_t>;
using Floats = std::vector<float>;

const std::shared_ptr<Environment>& environment() {
  static const std::shared_ptr<Environment> shared = [] {
    EnvironmentOptions options;
    options.threads = 2;
    options.log_level = "error";
    options.plugin_path = {BACKPLANE_TEST_PLUGIN_DIR};
    auto made = std::make_shared<Environment>(options, Logger::Sink());
    for (const char* const name : {"fakegpu", "null_provider"})
      made->plugins().load(std::string(BACKPLANE_TEST_FIXTURES_DIR "/") + name + ".so");
    return made;
  }();
  return shared;
}

void add_float(::onnx::ValueInfoProto* info, const std::string& name, const Dims& dims) {
  info->set_name(name);
  auto* type = info->mutable_type()->mutable_tensor_type();
  type->set_elem_type(::onnx::TensorProto::FLOAT);
  for (const std::int64_t dim : dims) {
    auto* made = type->mutable_shape()->add_dim();
    if (dim >= 0) made->set_dim_value(dim);
  }
}

/// One node `op` of the fixture's domain: y = op(x), or y = op(x, b) with b a constant.
std::string model(const std::string& op, const Dims& x, const Dims& b_dims = {},
                  const Floats& b = {}) {
  ::onnx::ModelProto made;
  made.set_ir_version(8);
  made.add_opset_import()->set_version(17);
  auto* opset = made.add_opset_import();
  opset->set_domain("test.composed");
  opset->set_version(1);
  ::onnx::GraphProto* graph = made.mutable_graph();
  graph->set_name("composed");
  add_float(graph->add_input(), "x", x);
  ::onnx::NodeProto* node = graph->add_node();
  node->set_name("node");
  node->set_op_type(op);
  node->set_domain("test.composed");
  node->add_input("x");
  node->add_output("y");
  if (!b_dims.empty()) {
    node->add_input("b");
    ::onnx::TensorProto* proto = graph->add_initializer();
    proto->set_name("b");
    proto->set_data_type(::onnx::TensorProto::FLOAT);
    for (const std::int64_t dim : b_dims) proto->add_dims(dim);
    proto->set_raw_data(b.data(), b.size() * sizeof(float));
  }
  ::onnx::ValueInfoProto* y = graph->add_output();
  y->set_name("y");
  y->mutable_type()->mutable_tensor_type()->set_elem_type(::onnx::TensorProto::FLOAT);
  return made.SerializeAsString();
}

/// A session on these providers that knows the fixture's operators.
std::unique_ptr<Session> open(const std::string& bytes, const std::vector<std::string>& providers) {
  SessionOptions options;
  for (const std::string& name : providers) options.providers.push_back({name, {}});
  options.custom_ops = {BACKPLANE_TEST_FIXTURES_DIR "/composed_ops.so"};
  options.fallback = Fallback::Allow;
  return std::make_unique<Session>(environment(), "", std::as_bytes(std::span(bytes)), options);
}

Floats run(Session& session, const Dims& dims, const Floats& x) {
  RuntimeValue feed, fetch;
  feed.set_owned_tensor(DataType::Float, dims);
  std::copy(x.begin(), x.end(), static_cast<float*>(feed.description.host_ptr));
  session.run({{"x", &feed}}, {{"y", &fetch}});
  const auto* first = static_cast<const float*>(fetch.description.host_ptr);
  return {first, first + fetch.description.bytes / sizeof(float)};
}

Floats numbers(std::size_t count, float step) {
  Floats made;
  for (std::size_t i = 0; i < count; ++i)
    made.push_back(std::sin(step * static_cast<float>(i + 1)));
  return made;
}

/// Softmax over the last axis of x (m, k) times b (k, n), in double.
Floats softmax_of_product(const Floats& x, const Floats& b, std::size_t m, std::size_t k,
                          std::size_t n) {
  Floats result;
  for (std::size_t row = 0; row < m; ++row) {
    std::vector<double> scores(n);
    double sum = 0;
    for (std::size_t column = 0; column < n; ++column) {
      for (std::size_t i = 0; i < k; ++i)
        scores[column] += static_cast<double>(x[row * k + i]) * b[i * n + column];
      sum += std::exp(scores[column]);
    }
    for (const double score : scores) result.push_back(static_cast<float>(std::exp(score) / sum));
  }
  return result;
}

void expect_near(const Floats& got, const Floats& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << i;
}

/// How a node was placed: provider and kernel.
std::string placed(Session& session) {
  const auto node = nlohmann::json::parse(session.explain())["nodes"][0];
  return node["provider"].get<std::string>() + " " + node["kernel"].get<std::string>();
}

class ComposedOps : public testing::TestWithParam<const char*> {};

TEST_P(ComposedOps, SoftmaxOfAProductByTheDevicesOwnKernels) {
  const Floats b = numbers(20, 0.7f);
  const auto session = open(model("SoftmaxOfGemm", {-1, 4}, {4, 5}, b), {GetParam()});
  for (const std::size_t m : {3u, 1u, 3u, 0u}) {  // several plans
    const Floats x = numbers(m * 4, 0.3f);
    const Floats want = softmax_of_product(x, b, m, 4, 5);
    for (int round = 0; round < 3; ++round)
      expect_near(run(*session, {static_cast<std::int64_t>(m), 4}, x), want);
  }
  const std::string where = placed(*session);
  EXPECT_EQ(where.rfind(GetParam(), 0), 0u) << where;
  EXPECT_NE(where.find("composed:softmax_of_gemm"), std::string::npos) << where;
}
INSTANTIATE_TEST_SUITE_P(Devices, ComposedOps, testing::Values("cpu", "fakegpu:0"));

TEST(ComposedOpsOnFakegpu, BreakNoRuleOfTheDevice) {
  const bp_provider* provider = nullptr;
  const PluginPtr plugin = environment()->plugins().find_provider("fakegpu", &provider);
  const auto* api = static_cast<const fakegpu_api*>(
      provider->get_interface(provider->self, FAKEGPU_INTERFACE, 1));
  api->reset();
  {
    const Floats b = numbers(6, 0.7f), x = numbers(8, 0.3f);
    const auto session = open(model("SoftmaxOfGemm", {4, 2}, {2, 3}, b), {"fakegpu:0"});
    expect_near(run(*session, {4, 2}, x), softmax_of_product(x, b, 4, 2, 3));
    fakegpu_counters counters{};
    counters.struct_size = sizeof(counters);
    api->counters(FAKEGPU_ALL_DEVICES, &counters);
    EXPECT_EQ(counters.computes, 2u);
    EXPECT_EQ(counters.packs, 1u);
  }
  char line[512] = "";
  EXPECT_EQ(api->report(0, line, sizeof(line)), 0u) << line;
  fakegpu_counters left{};
  left.struct_size = sizeof(left);
  api->counters(FAKEGPU_ALL_DEVICES, &left);
  EXPECT_EQ(left.kernels, 0u);
  EXPECT_EQ(left.prepared, 0u);
  EXPECT_EQ(left.buffers, 0u);
}

TEST(ComposedOpsOnOtherProviders, UseTheHostsKernels) {
  const auto session = open(model("HostSoftmax", {2, 2}), {"null", "cpu"});
  expect_near(run(*session, {2, 2}, {0, 0, 0, std::log(3.0f)}), {0.5f, 0.5f, 0.25f, 0.75f});
  EXPECT_EQ(placed(*session).rfind("null", 0), 0u) << placed(*session);
}

TEST(ComposedOpsByCall, SizesThatDependOnData) {
  const auto session = open(model("CountNonZero", {-1}), {"cpu"});
  EXPECT_EQ(run(*session, {4}, {0, 1, 0, 2}), Floats{2});
  EXPECT_EQ(run(*session, {4}, {3, 1, 0, 2}), Floats{3});
  EXPECT_EQ(run(*session, {2}, {0, 0}), Floats{0});
}

TEST(ComposedOpsThatMakeThemselves, AreRefused) {
  try {
    open(model("Endless", {2}), {"cpu"});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("'node'"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("make the operator itself"), std::string::npos)
        << error.message();
  }
}

}  // namespace
}  // namespace backplane::core
