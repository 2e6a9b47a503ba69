// What can be known of the OpenCL devices of a machine before a driver is opened, which takes tens of milliseconds and
// megabytes.
#pragma once

#include <filesystem>
#include <string>

namespace backplane::opencl {

/// Where a system says what OpenCL it has.
struct SystemFolders {
  std::filesystem::path drivers =
      "/etc/OpenCL/vendors";  ///< *.icd, one line each: a driver's library
  std::filesystem::path device_files = "/dev";
};

/// Why no other device than the processor can be there: PoCL is the only driver, and none of its parts for other devices
/// can find one. "" where that is not sure, as wherever the environment names drivers or PoCL's devices. Threads: any.
std::string why_only_processors(const SystemFolders& folders = {});

}  // namespace backplane::opencl
