#include "tools/gpu/cuda_functions.hpp"

#include <dlfcn.h>
#include <stdexcept>

namespace backplane::gpu {

Library::Library(const char* name) : name_(name), handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) throw std::runtime_error(dlerror());
}

void* Library::find(const char* name) const { return dlsym(handle_, name); }

void* Library::get(const char* name) const {
  void* const found = find(name);
  if (found == nullptr) throw std::runtime_error(name_ + " has no function " + name);
  return found;
}

Cuda::Cuda() {
  CUcontext context = nullptr;
  GPU_CALL(*this, cuInit, 0);
  GPU_CALL(*this, cuDeviceGet, &device_, 0);
  // Retained to the end of the process: the provider uses the same one.
  GPU_CALL(*this, cuDevicePrimaryCtxRetain, &context, device_);
  GPU_CALL(*this, cuCtxSetCurrent, context);
}

void Cuda::check(CUresult code, const char* call) const {
  if (code == CUDA_SUCCESS) return;
  const char* name = nullptr;
  if (cuGetErrorName_(code, &name) != CUDA_SUCCESS || name == nullptr) name = "an unknown error";
  throw std::runtime_error(std::string(call) + ": " + name);
}

CUdeviceptr Cuda::allocate(std::size_t bytes) const {
  CUdeviceptr memory = 0;
  GPU_CALL(*this, cuMemAlloc, &memory, bytes);
  return memory;
}

void Cuda::free(CUdeviceptr memory) const { GPU_CALL(*this, cuMemFree, memory); }

CUstream Cuda::make_stream() const {
  CUstream stream = nullptr;
  GPU_CALL(*this, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  return stream;
}

CUevent Cuda::make_event() const {
  CUevent event = nullptr;
  GPU_CALL(*this, cuEventCreate, &event, CU_EVENT_DEFAULT);
  return event;
}

double Cuda::elapsed_ms(CUevent begin, CUevent end) const {
  float milliseconds = 0;
  GPU_CALL(*this, cuEventElapsedTime, &milliseconds, begin, end);
  return static_cast<double>(milliseconds);
}

std::size_t Cuda::memory_bytes() const {
  std::size_t bytes = 0;
  GPU_CALL(*this, cuDeviceTotalMem, &bytes, device_);
  return bytes;
}

std::string Cuda::name() const {
  char name[256] = {};
  GPU_CALL(*this, cuDeviceGetName, name, sizeof(name), device_);
  return name;
}

int Cuda::attribute(CUdevice_attribute which) const {
  int value = 0;
  GPU_CALL(*this, cuDeviceGetAttribute, &value, which, device_);
  return value;
}

}  // namespace backplane::gpu
