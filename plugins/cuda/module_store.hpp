// Kernels by their text.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "plugins/common/device_ops/program_cache.hpp"
#include "plugins/cuda/driver.hpp"

namespace backplane::cuda {

/// A kernel of a loaded module, which lives as long as this.
class Kernel {
 public:
  Kernel(Context& context, const std::string& image, bool waits);
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  FunctionHandle function() const { return function_; }
  /// Whether it waits itself for the kernels before it: only then may it be begun before they have ended.
  bool waits() const { return waits_; }

 private:
  Context& context_;
  ModuleHandle module_;
  FunctionHandle function_;
  bool waits_;
};

/// Kernels, compiled when they are first asked for. On disk they are kept by compiler, architecture and source:
/// code of a device depends on no driver.
/// Threads: any.
class ModuleStore {
 public:
  ModuleStore(Context& context, Compiler& compiler, std::string architecture, std::string folder);

  /// The text is compiled with IN_TURN as the first words of its kernel (prelude.hpp).
  /// Errors: BP_INTERNAL with the compiler's log, or for a text without such a place; BP_OUT_OF_MEMORY.
  std::shared_ptr<const Kernel> get(const std::string& source);

  struct Counts {
    std::uint64_t compiled = 0, read = 0;
  };
  Counts counts() const;
  const std::string& architecture() const { return architecture_; }

 private:
  Context& context_;
  Compiler& compiler_;
  std::string architecture_;
  bool kernels_wait_;  ///< of this architecture
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Kernel>> kernels_;  // by source
  Counts counts_;
  device_ops::ProgramCache cache_;
};

}  // namespace backplane::cuda
