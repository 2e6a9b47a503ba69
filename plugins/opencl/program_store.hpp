// Built programs, in memory and on disk.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plugins/common/device_ops/program_cache.hpp"
#include "plugins/opencl/cl_api.hpp"

namespace backplane::opencl {

/// A program, and kernel objects of it that nobody uses: a plan for other sizes takes those of one that was dropped, where
/// making and releasing them would cost more with each that there is. Threads: any.
class BuiltProgram {
 public:
  explicit BuiltProgram(Program program) : program_(std::move(program)) {}
  /// An object of the kernel `run`, whose arguments are not set. `where` is for messages.
  Kernel take(const std::string& where) const;
  void give_back(Kernel kernel) const noexcept;

 private:
  Program program_;
  mutable std::mutex mutex_;
  mutable std::vector<Kernel> idle_;
};

/// Programs by their source, kept on disk by device, driver, build options and source.
/// Threads: any.
class ProgramStore {
 public:
  /// `device_key` names device and driver; an empty `folder` means no entries on disk.
  ProgramStore(cl_context context, cl_device_id device, std::string device_key, std::string folder);

  /// The program, built when it is not there. Errors: BP_INTERNAL with the compiler's log.
  std::shared_ptr<const BuiltProgram> get(const std::string& source);

  struct Counts {
    std::uint64_t built = 0;  ///< by the device's compiler
    std::uint64_t read = 0;   ///< from the disk
  };
  Counts counts() const;

 private:
  std::string key_of(const std::string& source) const;
  std::optional<Program> from_disk(const std::string& key) const;
  Program build(const std::string& source) const;
  void to_disk(const std::string& key, const Program& program);

  cl_context context_;
  cl_device_id device_;
  std::string device_key_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const BuiltProgram>> programs_;  // by source
  Counts counts_;
  device_ops::ProgramCache cache_;
};

}  // namespace backplane::opencl
