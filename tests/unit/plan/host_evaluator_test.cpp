// Nodes that are computed while a session plans.
#include "core/plan/host_evaluator.hpp"

#include <cstring>

#include "core/plugin_host/status.hpp"
#include "tests/unit/plan/stub_device.hpp"

namespace backplane::core {
namespace {

int times_prepared = 0;
bool sees_elements = false;

/// Adds the first element of its second input, which `prepare` asks for where kRole says so, to each of the first.
template <std::int32_t kRole>
class ShiftKernel {
 public:
  struct Prepared {
    float shift = 0;
    bool is_known = false;
    void compute(const sdk::ComputeContext& ctx) const {
      const auto* x = ctx.input(0).data<float>();
      const float by = is_known ? shift : *ctx.input(1).data<float>();
      auto* y = ctx.output(0).mutable_data<float>();
      for (std::int64_t i = 0; i < ctx.input(0).size(); ++i) y[i] = x[i] + by;
    }
  };
  ShiftKernel(const sdk::CreateContext&, const sdk::Node&) {}
  Prepared prepare(sdk::PrepareContext& ctx) const {
    ++times_prepared;
    sees_elements = ctx.input(0).bytes_data() != nullptr || ctx.input_constant(0);
    ctx.set_output(0, ctx.input(0).type(), ctx.input(0).dims());
    if (kRole != BP_INPUT_HOST_VALUE) return {};
    return {*ctx.input(1).template data<float>(), true};
  }
};

RuntimeValuePtr vector_of(const std::vector<float>& elements) {
  auto value = std::make_shared<RuntimeValue>();
  value->set_owned_tensor(DataType::Float, {static_cast<std::int64_t>(elements.size())});
  std::memcpy(value->description.host_ptr, elements.data(), elements.size() * sizeof(float));
  return value;
}

class HostEvaluatorTest : public PlanTest {
 protected:
  template <std::int32_t kRole>
  void use_role() {
    provider_.kernels = {sdk::op("Add")
                             .name("stub:shift")
                             .roles({BP_INPUT_DATA, kRole})
                             .template kernel<ShiftKernel<kRole>>()};
    use(provider_);
    devices_.host_evaluator = 0;
    input("x");
    input("by", {1});
    node_ = add("Add", {"x", "by"}, "y", "shift");
    evaluator_ = std::make_unique<HostEvaluator>(devices_, schemas_, &threads_);
    kernel_ = evaluator_->create(graph(), graph().node(node_));
    ASSERT_NE(kernel_, nullptr);
    times_prepared = 0;
  }
  std::vector<float> evaluate(const std::vector<float>& x, float by) {
    const RuntimeValuePtr first = vector_of(x), second = vector_of({by});
    const auto outputs =
        evaluator_->evaluate(*kernel_, graph().node(node_), {first.get(), second.get()}, 1024);
    if (!outputs) return {};
    const auto* made = static_cast<const float*>(outputs->front()->description.host_ptr);
    return {made, made + outputs->front()->dims[0]};
  }

  StubProvider provider_{"stub"};
  NodeId node_ = kNone;
  std::unique_ptr<HostEvaluator> evaluator_;
  std::unique_ptr<HostKernel> kernel_;
};

TEST_F(HostEvaluatorTest, KernelsArePreparedOnceForElementsThatTheyDoNotAskFor) {
  use_role<BP_INPUT_DATA>();
  EXPECT_EQ(evaluate({1, 2}, 10), (std::vector<float>{11, 12}));
  EXPECT_FALSE(sees_elements);
  EXPECT_EQ(evaluate({3, 4}, 20), (std::vector<float>{23, 24}));
  EXPECT_EQ(times_prepared, 1);
  EXPECT_EQ(evaluate({3, 4, 5}, 20), (std::vector<float>{23, 24, 25}));
  EXPECT_EQ(times_prepared, 2);
  EXPECT_EQ(evaluate({}, 20), std::vector<float>());
  EXPECT_EQ(times_prepared, 3);
}

TEST_F(HostEvaluatorTest, KernelsArePreparedAgainForOtherElementsThatTheyAskFor) {
  use_role<BP_INPUT_HOST_VALUE>();
  EXPECT_EQ(evaluate({1, 2}, 10), (std::vector<float>{11, 12}));
  EXPECT_EQ(evaluate({1, 2}, 20), (std::vector<float>{21, 22}));
  EXPECT_EQ(evaluate({3, 4}, 20), (std::vector<float>{23, 24}));
  EXPECT_EQ(times_prepared, 2);
}

}  // namespace
}  // namespace backplane::core
