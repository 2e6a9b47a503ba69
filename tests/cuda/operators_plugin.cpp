// The CUDA provider on the stand-in, as a plugin: kernels are run by the processor. With it operator tests and sessions see what
// the provider decides and rewrites, and that it is right.
#include "tests/cuda/host_kernels.hpp"

BP_PLUGIN("cuda_stand_in", "0.1.0", [](backplane::sdk::Plugin& plugin) {
  using namespace backplane::cuda;
  stand_in().devices = {stand_in_device(), stand_in_device()};
  run_kernels_on_host();
  static auto* const provider = new Provider(stand_in_libraries());
  // By a name of its own: the provider itself may be there too.
  static bp_provider shown = *provider->raw();
  shown.name = "cuda_stand_in";
  plugin.provider(&shown);
});
