// backplane.tests::Probe: y = x + 1, slowly or not at all where a test wants it so.
#include "backplane/plugin.hpp"
#include "tests/session/run/probe.hpp"

namespace {

namespace sdk = backplane::sdk;
using backplane::session_test::Probe;
using sdk::DataType;

constexpr const char* kDomain = "backplane.tests";

sdk::OpSchema schema() {
  return sdk::OpSchema(kDomain, "Probe", 1)
      .doc("y = x + 1. `probe` is the address of a Probe in this process.")
      .type_param("T", {DataType::Float})
      .input("x", "T")
      .output("y", "T")
      .attribute("probe", BP_ATTRIBUTE_INT, true, "An address.")
      .infer([](sdk::InferContext& ctx) { ctx.set_output_like(0, ctx.node().input(0)); });
}

class ProbeKernel {
 public:
  struct Prepared {
    explicit Prepared(Probe* its_probe) : probe(its_probe) { ++probe->prepares; }
    Prepared(Prepared&& other) noexcept : probe(std::exchange(other.probe, nullptr)) {}
    Prepared& operator=(Prepared&&) = delete;
    ~Prepared() {
      if (probe != nullptr) ++probe->releases;
    }
    void compute(const sdk::ComputeContext& ctx) const;
    Probe* probe;
  };

  ProbeKernel(const sdk::CreateContext&, const sdk::Node& node)
      // NOLINTNEXTLINE(performance-no-int-to-ptr): attributes have no pointers
      : probe_(reinterpret_cast<Probe*>(node.get_int("probe", 0))) {
    ++probe_->creates;
  }
  ProbeKernel(const ProbeKernel&) = delete;
  ProbeKernel& operator=(const ProbeKernel&) = delete;
  ~ProbeKernel() { ++probe_->destroys; }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    ctx.set_output(0, x.type(), sdk::Dims(x.dims().begin(), x.dims().end()));
    return Prepared(probe_);
  }

 private:
  Probe* probe_;
};

void ProbeKernel::Prepared::compute(const sdk::ComputeContext& ctx) const {
  ++probe->computes;
  while (probe->hold) {
    std::this_thread::yield();
    if (probe->heeds_cancel && ctx.cancelled())
      throw sdk::Error(BP_CANCELLED, "Probe was told to stop");
  }
  if (probe->fails) sdk::failed("Probe was told to fail");
  const float* x = ctx.input(0).data<float>();
  float* y = ctx.output(0).mutable_data<float>();
  for (std::int64_t i = 0; i < ctx.output(0).size(); ++i) y[i] = x[i] + 1;
}

sdk::KernelList host_kernels() {
  return {sdk::op("Probe", kDomain)
              .name("probe:float")
              .types("T", {DataType::Float})
              .kernel<ProbeKernel>()};
}

}  // namespace

BP_PLUGIN("session_probe", "1.0.0", [](sdk::Plugin& plugin) {
  plugin.schema(schema());
  plugin.kernels_for("cpu", host_kernels);
});
