#include "plugins/cuda/engine_library.hpp"

#include <string_view>

#include "plugins/cuda/engine_file.hpp"
#include "plugins/cuda/libraries.hpp"

namespace backplane::cuda {
std::unique_ptr<Engine> load_engine() {
  // Never closed, as CUDA's libraries cannot be: they keep threads and thread-local data.
  const SharedLibrary library(
      engine_file().c_str(),
      "; the CUDA toolkit has NVRTC and cuBLASLt, and cuDNN 9 comes beside it (tools/setup --cuda "
      "brings all of them): LD_LIBRARY_PATH may name their folder");
  const auto* const entry = static_cast<const EngineEntry*>(library.find("backplane_cuda_engine"));
  if (std::string_view(entry->build) != kEngineBuild)
    sdk::unsupported("cuda_engine.so is '", entry->build, "' and this plugin needs '", kEngineBuild,
                     "': both must be of one build");
  return entry->open();
}

}  // namespace backplane::cuda
