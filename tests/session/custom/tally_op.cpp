// backplane.tests::Tally: y = x + 1. Built twice, into two libraries that define the same operator.
#include <string_view>

#include "backplane/plugin.hpp"

namespace {

namespace sdk = backplane::sdk;
using sdk::DataType;

constexpr const char* kDomain = "backplane.tests";

class Tally {
 public:
  struct Prepared {
    void compute(const sdk::ComputeContext& ctx) const {
      const float* x = ctx.input(0).data<float>();
      if (ctx.input(0).size() > 0 && x[0] < 0) sdk::failed("Tally takes no debts, got ", x[0]);
      float* y = ctx.output(0).mutable_data<float>();
      for (std::int64_t i = 0; i < ctx.output(0).size(); ++i) y[i] = x[i] + 1;
    }
  };
  Tally(const sdk::CreateContext&, const sdk::Node&) {}
  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output(0, DataType::Float, ctx.input(0).dims());
    return {};
  }
};

/// A mistake of this plugin's: only BP_UNSUPPORTED refuses a node.
void match(const sdk::Node& node) {
  if (std::string_view(node.name()) == "unmatched") sdk::failed("Tally's match broke");
}

}  // namespace

BP_PLUGIN("session_tally", "1.0.0", [](sdk::Plugin& plugin) {
  plugin.schema(
      sdk::OpSchema(kDomain, "Tally", 1)
          .input("x", "tensor(float)")
          .output("y", "tensor(float)")
          .infer([](sdk::InferContext& ctx) { ctx.set_output_like(0, ctx.node().input(0)); }));
  plugin.kernels_for("cpu", [] {
    return sdk::KernelList{
        sdk::op("Tally", kDomain).name("tally:float").match(match).kernel<Tally>()};
  });
});
