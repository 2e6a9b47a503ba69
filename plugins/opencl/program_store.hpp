// Built programs, in memory and on disk.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "plugins/common/device_ops/program_cache.hpp"
#include "plugins/opencl/cl_api.hpp"

namespace backplane::opencl {

/// Programs by their source, kept on disk by device, driver, build options and source.
/// Threads: any.
class ProgramStore {
 public:
  /// `device_key` names device and driver; an empty `folder` means no entries on disk.
  ProgramStore(cl_context context, cl_device_id device, std::string device_key, std::string folder);

  /// The program, built when it is not there. Errors: BP_INTERNAL with the compiler's log.
  std::shared_ptr<const Program> get(const std::string& source);

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
  std::map<std::string, std::shared_ptr<const Program>> programs_;  // by source
  Counts counts_;
  device_ops::ProgramCache cache_;
};

}  // namespace backplane::opencl
