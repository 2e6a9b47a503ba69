// If: https://onnx.ai/onnx/operators/onnx__If.html
#include "core/runtime/control_step.hpp"

namespace backplane::core {
namespace {

class IfStep : public ControlStep {
 public:
  IfStep(const Node& node, const Step& step, const DeviceSet& devices)
      : plan_(*step.control), output_count_(node.outputs.size()) {
    std::size_t first = node.inputs.size();
    for (std::size_t b = 0; b < plan_.node->bodies.size(); ++b) {
      const ControlBody& body = plan_.node->bodies[b];
      branches_.push_back(std::make_unique<BodyRunner>(body, plan_.places[b], devices));
      first_captured_.push_back(first);
      first += body.captured.size();
    }
  }

  void run(const ControlCall& call) override {
    const int branch =
        plan_.branch >= 0 ? plan_.branch : (read_condition(call.input(0), "condition") ? 0 : 1);
    BodyRunner& runner = *branches_[static_cast<std::size_t>(branch)];
    runner.take_captured(call, first_captured_[static_cast<std::size_t>(branch)]);
    for (std::size_t i = 0; i < output_count_; ++i) {
      const int fetch = runner.body().outputs[i].fetch;
      if (fetch < 0) continue;
      runner.fetches[static_cast<std::size_t>(fetch)] = &call.output(i);
      runner.is_fixed[static_cast<std::size_t>(fetch)] = plan_.direct[i];
    }
    runner.run(call, -1);
  }

 private:
  const ControlPlan& plan_;
  std::size_t output_count_;
  std::vector<std::unique_ptr<BodyRunner>> branches_;
  std::vector<std::size_t> first_captured_;
};

}  // namespace

std::unique_ptr<ControlStep> make_if_step(const Node& node, const Step& step,
                                          const DeviceSet& devices) {
  return std::make_unique<IfStep>(node, step, devices);
}

}  // namespace backplane::core
