// Row C6 of core/SESSION.md: an operator calls others, takes scratch memory, works on the host's threads, logs.
#include <atomic>
#include <cmath>
#include <mutex>
#include <numeric>

#include "custom_session.hpp"

namespace backplane::session_test {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;

TEST(CustomOps, C6AFunctionCallsAnotherOperatorsKernel) {
  CustomOpDomain ops(kDomain);
  ops.Function("SoftNonZero",
               [](In<float> x, const OpContext& ctx, NewOut<float> y, NewOut<std::int64_t> at) {
                 const auto soft = ctx.call(0, {x.value()});
                 const auto found = ctx.call(1, {x.value()});
                 const sdk::Tensor weights = soft[0].get().tensor();
                 const sdk::Tensor places = found[0].get().tensor();
                 std::copy_n(weights.data<float>(), weights.size(),
                             y.allocate({weights.size()}).data());
                 std::copy_n(places.data<std::int64_t>(), places.size(),
                             at.allocate({places.size()}).data());
               })
      .uses(sdk::OperatorDraft("Softmax", 13).input(sdk::DataType::Float).attribute("axis", -1))
      .uses(sdk::OperatorDraft("NonZero", 13).input(sdk::DataType::Float));
  Options options;
  options.add_custom_ops(ops);
  Graph graph = graph_with(options);
  graph.add_value("x", floats({-1}));
  graph.add_node("SoftNonZero", {"x"}, {"y", "at"}, "soft", kDomain);
  const Session session(environment(), graph, options);
  for (int run = 0; run < 3; ++run) {
    const auto results = session.run({{"x", tensor({0, 0, 0, 0})}});
    EXPECT_THAT(elements(results[0]), ElementsAre(0.25f, 0.25f, 0.25f, 0.25f));
    EXPECT_EQ(results[1].size(), 0u);
  }
  const auto results = session.run({{"x", tensor({0, 3})}});
  EXPECT_THAT(elements(results[0]),
              ElementsAre(FloatEq(1 / (1 + std::exp(3.0f))), FloatEq(1 / (1 + std::exp(-3.0f)))));
  EXPECT_EQ(*results[1].data<std::int64_t>(), 1);
}

TEST(CustomOps, C6AnOperatorThatNobodyHasIsAnErrorOfTheNode) {
  CustomOpDomain ops(kDomain);
  ops.Function("Calls", [](In<float>, const OpContext&, Out<float>) {})
      .uses(sdk::OperatorDraft("NoSuchOperator").input(sdk::DataType::Float));
  Options options;
  options.add_custom_ops(ops);
  Graph graph = graph_with(options);
  graph.add_value("x", floats({1}));
  graph.add_node("Calls", {"x"}, {"y"}, "calls", kDomain);
  const std::string message = error_of([&] { Session(environment(), graph, options); });
  EXPECT_THAT(message, HasSubstr("NoSuchOperator"));
  EXPECT_THAT(message, HasSubstr("'calls'"));
}

TEST(CustomOps, C6LoopsRunOnTheSessionsThreadsAndScratchMemoryIsTheHosts) {
  std::atomic<unsigned> most{0};
  CustomOpDomain ops(kDomain);
  ops.Function("Sum",
               [&most](In<float> x, const OpContext& ctx, Out<float> y) {
                 const sdk::Threads threads = ctx.threads();
                 most = threads.count();
                 const auto parts = ctx.scratch<double>(threads.count());
                 if (parts == nullptr) throw std::bad_alloc();
                 std::fill_n(parts.get(), threads.count(), 0.0);
                 threads.parallel_for(x.size(), 16, [&](auto begin, auto end, auto worker) {
                   parts[worker] = std::accumulate(x.data() + begin, x.data() + end, parts[worker]);
                 });
                 y[0] = static_cast<float>(
                     std::accumulate(parts.get(), parts.get() + threads.count(), 0.0));
               })
      .shape([](const sdk::Node&, const std::vector<sdk::Dims>&) {
        return std::vector<sdk::Dims>{{1}};
      });
  Options options;
  options.add_custom_ops(ops);
  Graph graph = graph_with(options);
  graph.add_value("x", floats({-1}));
  graph.add_node("Sum", {"x"}, {"y"}, "sum", kDomain);
  const Value x = tensor(std::vector<float>(1000, 0.5f));
  EXPECT_EQ(*Session(environment(), graph, options).run({{"x", x}})[0].data<float>(), 500);
  EXPECT_EQ(most, 2u);  // the environment's
  options.set("threads", "1");
  EXPECT_EQ(*Session(environment(), graph, options).run({{"x", x}})[0].data<float>(), 500);
  EXPECT_EQ(most, 1u);
}

TEST(CustomOps, C6AnOperatorLogsToTheEnvironment) {
  std::mutex mutex;
  std::vector<std::string> lines;
  const Environment own(Options().set("environment.log_level", "warning"),
                        [&](int, const std::string& line) {
                          const std::lock_guard<std::mutex> lock(mutex);
                          lines.push_back(line);
                        });
  CustomOpDomain ops(kDomain);
  ops.Function("Tell", [](In<float> x, const OpContext& ctx, Out<float> y) {
    ctx.log(BP_LOG_WARNING, "x is high");
    ctx.log(BP_LOG_DEBUG, "nobody hears this");
    y[0] = x[0];
  });
  Options options;
  options.set("providers", "cpu").add_custom_ops(ops);
  Graph graph = graph_with(options, own);
  graph.add_value("x", floats({1}));
  graph.add_node("Tell", {"x"}, {"y"}, "tell", kDomain);
  Session(own, graph, options).run({{"x", tensor({1})}});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("x is high"));
}

/// y = Softmax(x), planned in `prepare` with a workspace of the host's plan: a run allocates nothing.
class PlannedSoftmax {
 public:
  struct Prepared {
    sdk::OperatorPlan plan;
    std::uint64_t at, work;
    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::TensorAt copy(ctx.input(0), ctx.workspace(), at);
      std::copy_n(ctx.input(0).data<float>(), ctx.input(0).size(),
                  copy.get().mutable_data<float>());
      plan.compute(ctx, {copy.get()}, {ctx.output(0)}, work);
    }
  };
  PlannedSoftmax(const sdk::CreateContext& ctx, const sdk::Node&)
      : softmax_(ctx, sdk::OperatorDraft("Softmax", 13).input(sdk::DataType::Float)) {}
  Prepared prepare(sdk::PrepareContext& ctx) const {
    Prepared made{softmax_.prepare(ctx, {ctx.input(0)}), 0, 0};
    sdk::WorkspaceParts parts;
    made.at = parts.add(ctx.input(0).bytes());
    made.work = parts.add(made.plan);
    ctx.set_workspace(parts.bytes(), parts.alignment());
    ctx.set_output(0, sdk::DataType::Float, ctx.input(0).dims());
    return made;
  }

 private:
  sdk::Operator softmax_;
};

TEST(CustomOps, C6AKernelPlansAnotherOperatorAndItsWorkspace) {
  CustomOpDomain ops(kDomain);
  ops.schema(
      sdk::OpSchema(kDomain, "Soft", 1)
          .input("x", "tensor(float)")
          .output("y", "tensor(float)")
          .infer([](sdk::InferContext& ctx) { ctx.set_output_like(0, ctx.node().input(0)); }));
  ops.kernel(sdk::op("Soft", kDomain).name("soft").kernel<PlannedSoftmax>());
  Options options;
  options.add_custom_ops(ops);
  Graph graph = graph_with(options);
  graph.add_value("x", floats({1, 4}));
  graph.add_node("Soft", {"x"}, {"y"}, "soft", kDomain);
  const Session session(environment(), graph, options);
  EXPECT_THAT(elements(session.run({{"x", tensor({1, 4}, {5, 5, 5, 5})}})[0]),
              ElementsAre(0.25f, 0.25f, 0.25f, 0.25f));
}

}  // namespace
}  // namespace backplane::session_test
