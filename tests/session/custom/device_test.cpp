// Row C4 of core/SESSION.md: operators on the stream of a provider, and those of the cpu between its nodes.
#include "custom_session.hpp"

namespace backplane::session_test {
namespace {

using ::testing::ElementsAre;

/// y = 2 x + 1 on a fake device: it only puts work on the stream that it is given.
class DoubleOnDevice {
 public:
  struct Prepared {
    std::vector<std::uint64_t>* streams;
    void compute(const sdk::ComputeContext& ctx) const {
      const std::uint64_t stream = ctx.native(BP_NATIVE_STREAM);
      streams->push_back(stream);
      if (ctx.native(BP_NATIVE_DEVICE) == 0 ||
          ctx.native(BP_NATIVE_BUFFER, ctx.input(0).raw()) == 0)
        sdk::failed("a native handle is missing");
      const bp_tensor* tensors[] = {ctx.input(0).raw(), ctx.output(0).raw()};
      const auto body = [](void* count, void* const* memory) {
        const auto* x = static_cast<const float*>(memory[0]);
        auto* y = static_cast<float*>(memory[1]);
        for (std::uintptr_t i = 0; i < reinterpret_cast<std::uintptr_t>(count); ++i)
          y[i] = 2 * x[i] + 1;
      };
      const auto size = static_cast<std::uintptr_t>(ctx.output(0).size());
      // NOLINTNEXTLINE(performance-no-int-to-ptr): the body outlives this call, its context is a number
      auto* const count = reinterpret_cast<void*>(size);
      sdk::check(fakegpu().stream_put(stream, tensors, 2, 1, body, count));
    }
  };
  explicit DoubleOnDevice(std::vector<std::uint64_t>* streams) : streams_(streams) {}
  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output(0, sdk::DataType::Float, ctx.input(0).dims());
    return {streams_};
  }

 private:
  std::vector<std::uint64_t>* streams_;
};

/// Operators for the fake device; the numbers of the streams that they ran on go to `streams`.
CustomOpDomain device_ops(std::vector<std::uint64_t>& streams) {
  CustomOpDomain ops(kDomain);
  ops.schema(
      sdk::OpSchema(kDomain, "Double", 1)
          .input("x", "tensor(float)")
          .output("y", "tensor(float)")
          .infer([](sdk::InferContext& ctx) { ctx.set_output_like(0, ctx.node().input(0)); }));
  ops.kernel(sdk::op("Double", kDomain)
                 .name("guest:double")
                 .kernel_of([&streams](const sdk::CreateContext&, const sdk::Node&) {
                   return std::make_unique<DoubleOnDevice>(&streams);
                 }),
             "fakegpu");
  return ops;
}

/// Neg, `middle` and Neg again, on the fake device where it has them.
Session chain(const Environment& where, const Options& options, const std::string& middle,
              const std::string& domain) {
  Graph graph = graph_with(options, where);
  graph.add_value("x", floats({4}));
  graph.add_node("Neg", {"x"}, {"a"}, "before");
  graph.add_node(middle, {"a"}, {"b"}, "middle", domain);
  graph.add_node("Neg", {"b"}, {"y"}, "after");
  return {where, graph, options};
}

std::size_t copies(const Session& session) {
  return json::parse(session.explain())["copies"].size();
}

fakegpu_counters counters() {
  fakegpu_counters all{};
  all.struct_size = sizeof(all);
  fakegpu().counters(FAKEGPU_ALL_DEVICES, &all);
  return all;
}

Options on_device() {
  Options options;
  options.set("providers", "fakegpu,cpu").set("provider.fakegpu.delay_us", "300");
  return options;
}

TEST(CustomOps, C4AnOperatorOfADeviceRunsInOrderOnTheProvidersStream) {
  const Environment own = device_environment();
  std::vector<std::uint64_t> streams;
  Options options = on_device();
  options.add_custom_ops(device_ops(streams));
  const Session standard = chain(own, options, "Abs", "");
  const Session custom = chain(own, options, "Double", kDomain);
  EXPECT_EQ(provider_of(custom, "middle"), "fakegpu:0");
  EXPECT_EQ(copies(custom), 2u);  // in and out
  const Value x = tensor({1, 2, 3, 4});
  fakegpu().reset();
  standard.run({{"x", x}});
  const fakegpu_counters with_standard = counters();
  fakegpu().reset();
  for (int run = 0; run < 20; ++run) {
    streams.clear();
    EXPECT_THAT(elements(custom.run({{"x", x}})[0]), ElementsAre(1, 3, 5, 7));
    EXPECT_EQ(streams.size(), 1u);
  }
  const fakegpu_counters with_custom = counters();
  EXPECT_EQ(findings(), 0u);
  EXPECT_EQ(with_custom.stream_syncs, 20 * with_standard.stream_syncs);
  EXPECT_EQ(with_custom.host_waits, 20 * with_standard.host_waits);
  EXPECT_EQ(with_custom.fence_waits, 20 * with_standard.fence_waits);
}

TEST(CustomOps, C4AUsersOwnStreamIsTheOneUsed) {
  const Environment own = device_environment();
  const std::uint64_t mine = fakegpu().stream_new();
  {
    std::vector<std::uint64_t> streams;
    Options options = on_device();
    options.set("provider.fakegpu.user_stream", std::to_string(mine));
    options.add_custom_ops(device_ops(streams));
    const Session session = chain(own, options, "Double", kDomain);
    fakegpu().reset();
    EXPECT_THAT(elements(session.run({{"x", tensor({1, 2, 3, 4})}})[0]), ElementsAre(1, 3, 5, 7));
    EXPECT_THAT(streams, ElementsAre(mine));
    EXPECT_EQ(findings(), 0u);
  }
  fakegpu().stream_free(mine);
  Options gone = on_device();
  gone.set("provider.fakegpu.user_stream", std::to_string(mine));
  EXPECT_THAT(error_of([&] { chain(own, gone, "Abs", ""); }), ::testing::HasSubstr("no stream"));
}

TEST(CustomOps, C4ACpuOperatorInTheMiddleGetsACopyBeforeAndAfter) {
  const Environment own = device_environment();
  CustomOpDomain ops(kDomain);
  ops.Function("Plus", [](In<float> x, Out<float> y) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] + 10;
  });
  Options options = on_device();
  options.add_custom_ops(ops);
  const Session all_on_device = chain(own, options, "Abs", "");
  const Session session = chain(own, options, "Plus", kDomain);
  EXPECT_EQ(provider_of(session, "before"), "fakegpu:0");
  EXPECT_EQ(provider_of(session, "middle"), "cpu");
  EXPECT_EQ(provider_of(session, "after"), "fakegpu:0");
  EXPECT_EQ(copies(session), copies(all_on_device) + 2);
  fakegpu().reset();
  EXPECT_THAT(elements(session.run({{"x", tensor({1, 2, 3, 4})}})[0]), ElementsAre(-9, -8, -7, -6));
  const fakegpu_counters after = counters();
  EXPECT_EQ(after.copies_h2d, 2u);
  EXPECT_EQ(after.copies_d2h, 2u);
  EXPECT_EQ(findings(), 0u);
}

TEST(CustomOps, C4AFunctionMayStandInOnAProvidersDevices) {
  const Environment own = device_environment();
  CustomOpDomain ops(kDomain);
  ops.Function("Plus",
               [](In<float> x, Out<float> y) {
                 for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] + 10;
               })
      .provider("fakegpu");
  Options options = on_device();
  options.add_custom_ops(ops);
  const Session session = chain(own, options, "Plus", kDomain);
  EXPECT_EQ(provider_of(session, "middle"), "fakegpu:0");
  fakegpu().reset();
  for (int run = 0; run < 10; ++run)
    EXPECT_THAT(elements(session.run({{"x", tensor({1, 2, 3, 4})}})[0]),
                ElementsAre(-9, -8, -7, -6));
  EXPECT_EQ(findings(), 0u);
}

/// A kernel of the device that reads one input on the host and leaves one output there.
class Split {
 public:
  struct Prepared {
    void compute(const sdk::ComputeContext& ctx) const {
      const float by = *ctx.input(1).data<float>();  // in host memory: the role says so
      *ctx.output(1).mutable_data<float>() = by * 100;
      const bp_tensor* tensors[] = {ctx.input(0).raw(), ctx.output(0).raw()};
      const auto body = [](void*, void* const* memory) {
        for (int i = 0; i < 4; ++i)
          static_cast<float*>(memory[1])[i] = static_cast<const float*>(memory[0])[i] + 1;
      };
      sdk::check(fakegpu().stream_put(ctx.native(BP_NATIVE_STREAM), tensors, 2, 1, body, nullptr));
    }
  };
  Split(const sdk::CreateContext&, const sdk::Node&) {}
  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output(0, sdk::DataType::Float, ctx.input(0).dims());
    ctx.set_output(1, sdk::DataType::Float, ctx.input(1).dims());
    return {};
  }
};

TEST(CustomOps, C2InputsAndOutputsOfADevicesKernelMayLieOnTheHost) {
  const Environment own = device_environment();
  CustomOpDomain ops(kDomain);
  ops.schema(sdk::OpSchema(kDomain, "Split", 1)
                 .input("x", "tensor(float)")
                 .input("by", "tensor(float)")
                 .output("y", "tensor(float)")
                 .output("told", "tensor(float)")
                 .infer([](sdk::InferContext& ctx) {
                   ctx.set_output_like(0, ctx.node().input(0));
                   ctx.set_output_like(1, ctx.node().input(1));
                 }));
  ops.kernel(sdk::op("Split", kDomain)
                 .name("guest:split")
                 .roles({BP_INPUT_DATA, BP_INPUT_HOST_DATA})
                 .output_roles({BP_OUTPUT_DATA, BP_OUTPUT_HOST})
                 .kernel<Split>(),
             "fakegpu");
  Options options = on_device();
  options.add_custom_ops(ops);
  Graph graph = graph_with(options, own);
  graph.add_value("x", floats({4}));
  graph.add_value("b", floats({1}));
  graph.add_node("Neg", {"x"}, {"a"}, "before");
  graph.add_node("Neg", {"b"}, {"c"}, "by");
  graph.add_node("Split", {"a", "c"}, {"s", "told"}, "middle", kDomain);
  graph.add_node("Neg", {"s"}, {"y"}, "after");
  const Session session(own, graph, options);
  EXPECT_EQ(provider_of(session, "middle"), "fakegpu:0");
  fakegpu().reset();
  for (int run = 0; run < 10; ++run) {
    const auto results =
        session.run({{"x", tensor({1, 2, 3, 4})}, {"b", tensor({5})}}, {"y", "told"});
    EXPECT_THAT(elements(results[0]), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(elements(results[1]), ElementsAre(-500));
  }
  EXPECT_EQ(findings(), 0u);
}

}  // namespace
}  // namespace backplane::session_test
