// Shared libraries that are opened when they are first needed.
#pragma once

#include <string>

namespace backplane::cuda {

/// A shared library, open as long as the process runs.
class SharedLibrary {
 public:
  /// Errors: BP_UNSUPPORTED with the loader's message, which names the library, and `advice`.
  SharedLibrary(const char* name, const char* advice);
  /// Of a function or a table. Errors: BP_UNSUPPORTED naming library and symbol: the library is of another version.
  void* find(const char* symbol) const;
  bool has(const char* symbol) const;

 private:
  std::string name_;
  void* handle_;
};

}  // namespace backplane::cuda
