// The CUDA provider's plugin.
#include "plugins/cuda/driver_library.hpp"
#include "plugins/cuda/engine_file.hpp"
#include "plugins/cuda/engine_library.hpp"
#include "plugins/cuda/provider.hpp"

BP_PLUGIN("cuda", "0.1.0", [](backplane::sdk::Plugin& plugin) {
  static auto* const provider =
      new backplane::cuda::Provider({backplane::cuda::load_driver, backplane::cuda::load_engine,
                                     backplane::cuda::engine_is_there});
  plugin.vendor("Backplane");
  plugin.provider(provider->raw());
});
