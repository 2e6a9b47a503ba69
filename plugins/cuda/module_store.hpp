// Kernels by their text.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "plugins/common/device_ops/program_cache.hpp"
#include "plugins/cuda/driver.hpp"

namespace backplane::cuda {

/// What a kernel needs beside its text.
struct KernelNeeds {
  std::uint32_t local_bytes = 0;  ///< of local memory, beside what the text declares
  bool of_generation = false;     ///< instructions that the next compute capability has no more
};

/// A kernel of a loaded module, which lives as long as this.
class Kernel {
 public:
  Kernel(Context& context, const std::string& image, bool waits, std::uint32_t local_bytes = 0);
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  FunctionHandle function() const { return function_; }
  /// Whether it waits itself for the kernels before it: only then may it be begun before they have ended.
  bool waits() const { return waits_; }
  std::uint32_t local_bytes() const { return local_bytes_; }

 private:
  Context& context_;
  ModuleHandle module_;
  FunctionHandle function_;
  bool waits_;
  std::uint32_t local_bytes_;
};

/// The arguments of a launch that is put together by hand, in the kernel's order.
class LaunchArguments {
 public:
  LaunchArguments() = default;
  LaunchArguments(const LaunchArguments&) = delete;
  LaunchArguments& operator=(const LaunchArguments&) = delete;
  /// A tensor at its first element.
  LaunchArguments& tensor(Address address) { return add(address).add(std::uint64_t{0}); }
  template <class Number>
  LaunchArguments& add(Number number) {
    static_assert(sizeof(number) <= sizeof(std::uint64_t));
    void* const place = next(&words_[count_ % kMost]);
    std::memcpy(place, &number, sizeof(number));
    return *this;
  }
  LaunchArguments& add(const BoxMap& map) {
    if (map_count_ == kMostMaps) throw sdk::Error(BP_INTERNAL, "a launch of too many matrices");
    maps_[map_count_] = map;
    next(&maps_[map_count_++]);
    return *this;
  }
  /// With the two hidden ones: the first groups of a part, which is all (prelude.hpp).
  void** finish() {
    add(std::uint64_t{0}).add(std::uint64_t{0});
    return pointers_.data();
  }

 private:
  static constexpr std::size_t kMost = 48, kMostMaps = 4;

  void* next(void* place) {
    if (count_ == kMost) throw sdk::Error(BP_INTERNAL, "a launch of too many arguments");
    return pointers_[count_++] = place;
  }

  std::array<BoxMap, kMostMaps> maps_;
  std::size_t map_count_ = 0;
  std::array<std::uint64_t, kMost> words_;
  std::array<void*, kMost> pointers_;
  std::size_t count_ = 0;
};

/// Kernels, compiled when they are first asked for. On disk they are kept by compiler, architecture and source:
/// code of a device depends on no driver.
/// Threads: any.
class ModuleStore {
 public:
  ModuleStore(Context& context, Compiler& compiler, std::string architecture, std::string folder);

  /// The text is compiled with IN_TURN as the first words of its kernel (prelude.hpp).
  /// Errors: BP_INTERNAL with the compiler's log, or for a text without such a place; BP_OUT_OF_MEMORY.
  std::shared_ptr<const Kernel> get(const std::string& source, const KernelNeeds& needs = {});

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
