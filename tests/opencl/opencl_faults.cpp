// A library to be loaded before the OpenCL loader (LD_PRELOAD), whose calls fail when they are told to:
//
//   BACKPLANE_OPENCL_FAULT="CALL N CODE"   the Nth call of CALL, and every one after it, returns CODE
//   BACKPLANE_OPENCL_FAULT="* N CODE"      so do all calls from the Nth on: the device has vanished
//
// BACKPLANE_OPENCL_NO_WAITS=1            launches are told to wait for nothing
// BACKPLANE_FULL_FOLDER=PATH             writing to files whose path holds PATH finds the disk full
//
// Calls that only ask, and those that release, are never touched, and so are calls before the Nth. Threads: any.
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sstream>
#include <string>
#include <sys/uio.h>
#include <unistd.h>

namespace {

struct Fault {
  std::string call;
  long first = 0;
  cl_int code = CL_SUCCESS;
  std::atomic<long> count{0};

  Fault() {
    const char* const text = std::getenv("BACKPLANE_OPENCL_FAULT");
    if (text != nullptr) std::istringstream(text) >> call >> first >> code;
  }
  /// CL_SUCCESS, or what this call returns instead of being made.
  cl_int next(const char* name) {
    if (call != "*" && call != name) return CL_SUCCESS;
    return ++count >= first ? code : CL_SUCCESS;
  }
};

Fault& fault() {
  static Fault told;
  return told;
}

template <class Function>
Function as_function(void* symbol) {
  if (symbol == nullptr) std::abort();
  Function function = nullptr;
  std::memcpy(&function, &symbol, sizeof(function));
  return function;
}

template <class Function>
Function real(const char* name) {
  static void* const loader = dlopen("libOpenCL.so.1", RTLD_NOW);
  return as_function<Function>(loader == nullptr ? nullptr : dlsym(loader, name));
}

bool is_full(int file) {
  const char* const folder = std::getenv("BACKPLANE_FULL_FOLDER");
  if (folder == nullptr) return false;
  char path[4096] = "";
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  return readlink(link.c_str(), path, sizeof(path) - 1) > 0 && std::strstr(path, folder) != nullptr;
}

/// For calls that return their code.
template <class... Arguments>
cl_int returned(const char* name, cl_int (*)(Arguments...), Arguments... arguments) {
  const cl_int code = fault().next(name);
  if (code != CL_SUCCESS) return code;
  return real<cl_int (*)(Arguments...)>(name)(arguments...);
}

/// For calls that return a handle, and their code by the last argument.
template <class Handle, class... Arguments>
Handle made(const char* name, cl_int* code, Arguments... arguments) {
  const cl_int failed = fault().next(name);
  if (failed == CL_SUCCESS)
    return real<Handle (*)(Arguments..., cl_int*)>(name)(arguments..., code);
  if (code != nullptr) *code = failed;
  return nullptr;
}

}  // namespace

extern "C" {

ssize_t write(int file, const void* bytes, size_t count) {
  static const auto next =
      as_function<ssize_t (*)(int, const void*, size_t)>(dlsym(RTLD_NEXT, "write"));
  if (!is_full(file)) return next(file, bytes, count);
  errno = ENOSPC;
  return -1;
}

ssize_t writev(int file, const iovec* parts, int count) {
  static const auto next =
      as_function<ssize_t (*)(int, const iovec*, int)>(dlsym(RTLD_NEXT, "writev"));
  if (!is_full(file)) return next(file, parts, count);
  errno = ENOSPC;
  return -1;
}

cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device,
                                      cl_command_queue_properties properties, cl_int* code) {
  return made<cl_command_queue>("clCreateCommandQueue", code, context, device, properties);
}

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t bytes, void* host,
                      cl_int* code) {
  return made<cl_mem>("clCreateBuffer", code, context, flags, bytes, host);
}

cl_kernel clCreateKernel(cl_program program, const char* name, cl_int* code) {
  return made<cl_kernel>("clCreateKernel", code, program, name);
}

cl_int clBuildProgram(cl_program program, cl_uint count, const cl_device_id* devices,
                      const char* options, void(CL_CALLBACK* done)(cl_program, void*), void* data) {
  return returned("clBuildProgram", clBuildProgram, program, count, devices, options, done, data);
}

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint axes,
                              const size_t* offset, const size_t* global, const size_t* local,
                              cl_uint count, const cl_event* events, cl_event* event) {
  static const bool waits = std::getenv("BACKPLANE_OPENCL_NO_WAITS") == nullptr;
  if (!waits) {
    count = 0;
    events = nullptr;
  }
  return returned("clEnqueueNDRangeKernel", clEnqueueNDRangeKernel, queue, kernel, axes, offset,
                  global, local, count, events, event);
}

cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem memory, cl_bool blocking, size_t offset,
                            size_t bytes, const void* from, cl_uint count, const cl_event* events,
                            cl_event* event) {
  return returned("clEnqueueWriteBuffer", clEnqueueWriteBuffer, queue, memory, blocking, offset,
                  bytes, from, count, events, event);
}

cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem memory, cl_bool blocking, size_t offset,
                           size_t bytes, void* to, cl_uint count, const cl_event* events,
                           cl_event* event) {
  return returned("clEnqueueReadBuffer", clEnqueueReadBuffer, queue, memory, blocking, offset,
                  bytes, to, count, events, event);
}

cl_int clEnqueueMarkerWithWaitList(cl_command_queue queue, cl_uint count, const cl_event* events,
                                   cl_event* event) {
  return returned("clEnqueueMarkerWithWaitList", clEnqueueMarkerWithWaitList, queue, count, events,
                  event);
}

cl_int clEnqueueBarrierWithWaitList(cl_command_queue queue, cl_uint count, const cl_event* events,
                                    cl_event* event) {
  return returned("clEnqueueBarrierWithWaitList", clEnqueueBarrierWithWaitList, queue, count,
                  events, event);
}

cl_int clFlush(cl_command_queue queue) { return returned("clFlush", clFlush, queue); }

cl_int clFinish(cl_command_queue queue) {
  // A device that is gone works on nothing any more: here what is under way ends first.
  const cl_int code = real<cl_int (*)(cl_command_queue)>("clFinish")(queue);
  const cl_int failed = fault().next("clFinish");
  return failed != CL_SUCCESS ? failed : code;
}

}  // extern "C"
