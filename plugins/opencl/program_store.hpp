// Built programs, in memory and on disk.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "plugins/opencl/cl_api.hpp"

namespace backplane::opencl {

/// Programs by their source. On disk an entry is a file named by a hash of its key; it holds the whole
/// key (device, driver, build options, source), a checksum and the device's binary. An entry that is
/// foreign, cut off or altered is ignored and written anew; a file is put in its place by renaming, so
/// several processes may share a folder.
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
  std::string path_of(const std::string& key) const;
  std::optional<Program> from_disk(const std::string& key) const;
  Program build(const std::string& source) const;
  void to_disk(const std::string& key, const Program& program);

  cl_context context_;
  cl_device_id device_;
  std::string device_key_, folder_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Program>> programs_;  // by source
  Counts counts_;
  bool warned_ = false;
};

/// Where programs are kept when nobody says otherwise: $XDG_CACHE_HOME/backplane/opencl, or
/// ~/.cache/backplane/opencl; empty without either.
std::string default_cache_dir();

}  // namespace backplane::opencl
