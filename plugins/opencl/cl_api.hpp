// OpenCL 1.2 as this provider uses it: owned handles, and errors by their names.
#pragma once

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <string>
#include <utility>

#include "backplane/plugin.hpp"

namespace backplane::opencl {

/// One reference to an OpenCL object.
template <class T, cl_int (*kRelease)(T)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(T raw) : raw_(raw) {}
  Owned(Owned&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Owned() {
    if (raw_ != nullptr) kRelease(raw_);
  }
  T get() const { return raw_; }
  explicit operator bool() const { return raw_ != nullptr; }

 private:
  T raw_ = nullptr;
};

using Context = Owned<cl_context, clReleaseContext>;
using Queue = Owned<cl_command_queue, clReleaseCommandQueue>;
using Memory = Owned<cl_mem, clReleaseMemObject>;
using Program = Owned<cl_program, clReleaseProgram>;
using Kernel = Owned<cl_kernel, clReleaseKernel>;
using Event = Owned<cl_event, clReleaseEvent>;

/// "CL_OUT_OF_RESOURCES"; the number for a code that no header names.
std::string error_name(cl_int code);

/// The BP_* code that says what to do next.
bp_code error_code(cl_int code);

/// Throws "<call>: <name>, <what>" for anything but CL_SUCCESS.
[[noreturn]] void throw_cl(cl_int code, const char* call, const std::string& what);
inline void check_cl(cl_int code, const char* call) {
  if (code != CL_SUCCESS) throw_cl(code, call, "");
}

/// A string property, without the final zero.
std::string device_text(cl_device_id device, cl_device_info property);
std::string platform_text(cl_platform_id platform, cl_platform_info property);

/// A property of fixed size.
template <class T>
T device_value(cl_device_id device, cl_device_info property) {
  T value{};
  check_cl(clGetDeviceInfo(device, property, sizeof(value), &value, nullptr), "clGetDeviceInfo");
  return value;
}

}  // namespace backplane::opencl
