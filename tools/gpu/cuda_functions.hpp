// The driver's functions that the probe calls, found when they are wanted: so it starts on machines without a driver.
#pragma once

#include <chrono>
#include <cstdint>
#include <cuda.h>
#include <string>

namespace backplane::gpu {

/// A shared library that stays open. Throws std::runtime_error with the loader's words.
class Library {
 public:
  explicit Library(const char* name);
  /// Null where there is none.
  void* find(const char* name) const;
  /// Throws std::runtime_error.
  void* get(const char* name) const;

 private:
  std::string name_;
  void* handle_;
};

// The name that cuda.h gives a function is the one of its current version; an older driver has the plain one.
#define GPU_TEXT_(name) #name
#define GPU_TEXT(name) GPU_TEXT_(name)
#define GPU_FUNCTION(name) \
  decltype(&::name) name##_ = load<decltype(&::name)>(GPU_TEXT(name), #name)

/// The first device, its primary context current on this thread until the end, and a stream.
class Cuda {
 public:
  Cuda();

  /// Throws std::runtime_error with CUDA's name of the error.
  void check(CUresult code, const char* call) const;

  CUdeviceptr allocate(std::size_t bytes) const;
  void free(CUdeviceptr memory) const;
  CUstream make_stream() const;
  /// Milliseconds between two events of a stream that was waited for.
  double elapsed_ms(CUevent begin, CUevent end) const;
  /// What `work` puts on the stream takes there, per time, in milliseconds: the least of some batches of `times`, after
  /// one or more for `warm_up_s`.
  template <class Work>
  double least_ms(CUstream stream, int times, double warm_up_s, const Work& work) const;

  CUevent make_event() const;
  std::size_t memory_bytes() const;
  std::string name() const;
  int attribute(CUdevice_attribute which) const;

 private:
  template <class Pointer>
  Pointer load(const char* name, const char* plain) const {
    void* const found = library_.find(name);
    return reinterpret_cast<Pointer>(found != nullptr ? found : library_.get(plain));
  }
  Library library_{"libcuda.so.1"};
  CUdevice device_ = 0;

 public:
  GPU_FUNCTION(cuInit);
  GPU_FUNCTION(cuGetErrorName);
  GPU_FUNCTION(cuDeviceGet);
  GPU_FUNCTION(cuDeviceGetName);
  GPU_FUNCTION(cuDeviceGetAttribute);
  GPU_FUNCTION(cuDeviceTotalMem);
  GPU_FUNCTION(cuDevicePrimaryCtxRetain);
  GPU_FUNCTION(cuCtxSetCurrent);
  GPU_FUNCTION(cuMemAlloc);
  GPU_FUNCTION(cuMemFree);
  GPU_FUNCTION(cuMemAllocHost);
  GPU_FUNCTION(cuMemFreeHost);
  GPU_FUNCTION(cuMemcpyAsync);
  GPU_FUNCTION(cuMemcpyHtoD);
  GPU_FUNCTION(cuMemcpyDtoH);
  GPU_FUNCTION(cuMemsetD32Async);
  GPU_FUNCTION(cuStreamCreate);
  GPU_FUNCTION(cuStreamSynchronize);
  GPU_FUNCTION(cuStreamBeginCapture);
  GPU_FUNCTION(cuStreamEndCapture);
  GPU_FUNCTION(cuEventCreate);
  GPU_FUNCTION(cuEventRecord);
  GPU_FUNCTION(cuEventSynchronize);
  GPU_FUNCTION(cuEventElapsedTime);
  GPU_FUNCTION(cuModuleLoadData);
  GPU_FUNCTION(cuModuleGetFunction);
  GPU_FUNCTION(cuModuleUnload);
  GPU_FUNCTION(cuLaunchKernel);
  GPU_FUNCTION(cuLaunchKernelEx);
  GPU_FUNCTION(cuGraphInstantiateWithFlags);
  GPU_FUNCTION(cuGraphLaunch);
  GPU_FUNCTION(cuGraphExecDestroy);
  GPU_FUNCTION(cuGraphDestroy);
  // Of cudaProfiler.h, which not every toolkit has.
  CUresult (*cuProfilerStart_)() = load<CUresult (*)()>("cuProfilerStart", "cuProfilerStart");
  CUresult (*cuProfilerStop_)() = load<CUresult (*)()>("cuProfilerStop", "cuProfilerStop");
};

/// A call of the driver; throws where it fails.
#define GPU_CALL(cuda, name, ...) (cuda).check((cuda).name##_(__VA_ARGS__), #name)

template <class Work>
double Cuda::least_ms(CUstream stream, int times, double warm_up_s, const Work& work) const {
  using Clock = std::chrono::steady_clock;
  constexpr int kBatches = 4;
  const Clock::time_point start = Clock::now();
  CUevent begin = make_event(), end = make_event();
  double least = 0;
  const auto since_s = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  const auto run = [&] {
    GPU_CALL(*this, cuEventRecord, begin, stream);
    for (int i = 0; i < times; ++i) work();
    GPU_CALL(*this, cuEventRecord, end, stream);
    GPU_CALL(*this, cuEventSynchronize, end);
    return elapsed_ms(begin, end) / times;
  };
  do run();
  while (since_s() < warm_up_s);
  for (int batch = 0; batch < kBatches; ++batch) {
    const double each = run();
    if (least == 0 || each < least) least = each;
  }
  return least;
}

}  // namespace backplane::gpu
