#include "plugins/cuda/engine_library.hpp"

#include <dlfcn.h>
#include <filesystem>
#include <string>
#include <string_view>

#include "plugins/cuda/libraries.hpp"

namespace backplane::cuda {
namespace {

/// Where the build and the installation put it, seen from this file. By the whole path: a sanitizer that stands in front
/// of dlopen hides the run path of who calls. Alone it is left to the loader's own places.
std::string engine_file() {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&load_engine), &self) != 0) {
    const auto file =
        std::filesystem::path(self.dli_fname).parent_path().parent_path() / "deps/cuda_engine.so";
    std::error_code error;
    if (std::filesystem::exists(file, error)) return file.string();
  }
  return "cuda_engine.so";
}

}  // namespace

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
