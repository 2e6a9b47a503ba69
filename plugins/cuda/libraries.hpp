// CUDA's shared libraries, which are opened when they are first needed.
#pragma once

#include <string>

namespace backplane::cuda {

/// A shared library, open as long as the process runs.
class SharedLibrary {
 public:
  /// Errors: BP_UNSUPPORTED with the loader's message, which names the library, and `advice`.
  SharedLibrary(const char* name, const char* advice);
  /// Errors: BP_UNSUPPORTED naming library and function: the library is of another version.
  void* find(const char* function) const;

 private:
  std::string name_;
  void* handle_;
};

/// Throws what SharedLibrary would when the library is not there, mostly by looking for the file alone: opening
/// some of CUDA's libraries takes from a tenth of a second to one, and a plugin is loaded by every program.
void require_library(const char* name, const char* advice);

}  // namespace backplane::cuda
