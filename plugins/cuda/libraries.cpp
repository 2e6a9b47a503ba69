#include "plugins/cuda/libraries.hpp"

#include <dlfcn.h>

#include "backplane/plugin.hpp"

namespace backplane::cuda {

SharedLibrary::SharedLibrary(const char* name, const char* advice)
    : name_(name), handle_(::dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ != nullptr) return;
  const char* const why = ::dlerror();
  sdk::unsupported(why == nullptr ? name : why, advice);
}

void* SharedLibrary::find(const char* symbol) const {
  void* const address = ::dlsym(handle_, symbol);
  if (address == nullptr)
    sdk::unsupported(name_, " has no ", symbol, ": it is older than this plugin needs");
  return address;
}

bool SharedLibrary::has(const char* symbol) const { return ::dlsym(handle_, symbol) != nullptr; }

}  // namespace backplane::cuda
