// The CUDA provider on the stand-in as a plugin: whole networks run on it, the kernels on the processor. One run at a
// time.
#include "backplane/plugin.hpp"
#include "plugins/cuda/provider.hpp"
#include "tests/cuda/host_kernels.hpp"

BP_PLUGIN("cuda", "0.1.0", [](backplane::sdk::Plugin& plugin) {
  using namespace backplane::cuda;
  stand_in().devices = {stand_in_device()};
  run_kernels_on_host();
  static auto* const provider = new Provider(stand_in_libraries());
  plugin.vendor("Backplane");
  plugin.provider(provider->raw());
});
