#include "plugins/cuda/libraries.hpp"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "backplane/plugin.hpp"

#ifndef BACKPLANE_CUDA_LIBRARY_DIR
#define BACKPLANE_CUDA_LIBRARY_DIR ""  // no toolkit at build time: the loader's own places alone
#endif

namespace backplane::cuda {
namespace {

/// Whether it lies where the loader looks before the system's folders: LD_LIBRARY_PATH and the plugin's run
/// path. False says nothing.
bool is_surely_there(const char* name) {
  const char* const path = std::getenv("LD_LIBRARY_PATH");
  std::istringstream folders(
      sdk::message(path == nullptr ? "" : path, ':', BACKPLANE_CUDA_LIBRARY_DIR));
  std::string folder;
  std::error_code ignored;
  while (std::getline(folders, folder, ':')) {
    if (!folder.empty() && std::filesystem::exists(folder + '/' + name, ignored)) return true;
  }
  return false;
}

}  // namespace

SharedLibrary::SharedLibrary(const char* name, const char* advice)
    : name_(name), handle_(::dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ != nullptr) return;
  const char* const why = ::dlerror();
  sdk::unsupported(why == nullptr ? name : why, advice);
}

void* SharedLibrary::find(const char* function) const {
  void* const address = ::dlsym(handle_, function);
  if (address == nullptr)
    sdk::unsupported(name_, " has no function ", function, ": it is older than this plugin needs");
  return address;
}

void require_library(const char* name, const char* advice) {
  if (!is_surely_there(name)) SharedLibrary(name, advice);
}

}  // namespace backplane::cuda
