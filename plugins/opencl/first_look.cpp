#include "plugins/opencl/first_look.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <string_view>

namespace backplane::opencl {
namespace {

namespace fs = std::filesystem;

/// What ocl-icd, the Khronos loader and PoCL read: other lists of drivers, other devices.
bool environment_says_otherwise() {
  constexpr std::array kVariables{"OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH",
                                  "POCL_DEVICES"};
  return std::any_of(kVariables.begin(), kVariables.end(), [](const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr && *value != '\0';
  });
}

/// The driver of a list's file is PoCL.
bool is_pocl(const fs::path& icd) {
  std::ifstream file(icd);
  std::string library;
  std::getline(file, library);
  return fs::path(library).filename().native().starts_with("libpocl");
}

/// Whether every driver that is listed is PoCL, and there is one.
bool only_pocl(const fs::path& drivers) {
  bool is_there = false;
  std::error_code error;
  for (fs::directory_iterator entry(drivers, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() != ".icd") continue;
    if (!is_pocl(entry->path())) return false;
    is_there = true;
  }
  return is_there && !error;
}

/// Linux shows GPUs and other accelerators by files of these names, or names that begin so.
bool has_accelerator(const fs::path& device_files) {
  constexpr std::array<std::string_view, 10> kBeginnings{
      "dri", "nvidia", "kfd", "dxg", "accel", "mali", "kgsl", "pvr", "galcore", "xdma"};
  std::error_code error;
  for (fs::directory_iterator entry(device_files, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().native();
    if (std::any_of(kBeginnings.begin(), kBeginnings.end(),
                    [&](std::string_view beginning) { return name.starts_with(beginning); }))
      return true;
  }
  return static_cast<bool>(error);
}

}  // namespace

std::string why_only_processors(const SystemFolders& folders) {
  if (environment_says_otherwise() || !only_pocl(folders.drivers) ||
      has_accelerator(folders.device_files))
    return "";
  return "the only OpenCL driver in " + folders.drivers.native() +
         " is PoCL, whose device here is the processor";
}

}  // namespace backplane::opencl
