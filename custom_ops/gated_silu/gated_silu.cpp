// backplane.examples::GatedSilu: y = x * silu(gate). See README.md.
#include <cmath>
#include <cstdint>

#include "backplane/plugin.hpp"
#ifdef GATED_SILU_HAS_CUDA
#include "cuda_kernel.hpp"
#endif

namespace {

namespace sdk = backplane::sdk;
using sdk::DataType;

constexpr const char* kDomain = "backplane.examples";

sdk::OpSchema schema() {
  return sdk::OpSchema(kDomain, "GatedSilu", 1)
      .doc("y = x * gate * sigmoid(gate), element by element; both inputs have the same shape.")
      .type_param("T", {DataType::Float})
      .input("x", "T")
      .input("gate", "T")
      .output("y", "T")
      .infer([](sdk::InferContext& ctx) { ctx.set_output_like(0, ctx.node().input(0)); });
}

class GatedSilu {
 public:
  struct Prepared {
    void compute(const sdk::ComputeContext& ctx) const {
      const auto* x = ctx.input(0).data<float>();
      const auto* gate = ctx.input(1).data<float>();
      auto* y = ctx.output(0).mutable_data<float>();
      ctx.threads().parallel_for(ctx.output(0).size(), 4096,
                                 [=](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
                                   for (std::uint64_t i = begin; i < end; ++i)
                                     y[i] = x[i] * gate[i] / (1.0f + std::exp(-gate[i]));
                                 });
    }
  };

  GatedSilu(const sdk::CreateContext&, const sdk::Node&) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::DimsView x = ctx.input(0).dims(), gate = ctx.input(1).dims();
    if (sdk::Dims(x.begin(), x.end()) != sdk::Dims(gate.begin(), gate.end()))
      sdk::invalid("GatedSilu: x and gate have different shapes");
    ctx.set_output(0, DataType::Float, x);
    return {};
  }
};

sdk::KernelList cpu_kernels() {
  return {sdk::op("GatedSilu", kDomain)
              .name("gated_silu:cpu")
              .types("T", {DataType::Float})
              .kernel<GatedSilu>()};
}

void fill(sdk::Plugin& plugin) {
  plugin.schema(schema());
  plugin.kernels_for("cpu", cpu_kernels);
#ifdef GATED_SILU_HAS_CUDA
  plugin.kernels_for("cuda", gated_silu::cuda_kernels);
#endif
}

}  // namespace

BP_PLUGIN("gated_silu", "1.0.0", fill);
