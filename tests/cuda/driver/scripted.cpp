#include "tests/cuda/driver/scripted.hpp"

#include <algorithm>
#include <cstring>

using backplane::cuda::script;

namespace backplane::cuda {

std::size_t Script::count(const std::string& call) const {
  return static_cast<std::size_t>(std::count(calls.begin(), calls.end(), call));
}

Script& script() {
  static Script state;
  return state;
}

}  // namespace backplane::cuda

namespace {

char places[8];  ///< of whatever is a handle
template <class Handle>
void make(Handle* handle) {
  *handle = reinterpret_cast<Handle>(&places[0]);
}

enum class Kind {
  kAny,
  kInContext,  ///< in the current context, which must be there and not lost
  kUnsafe,     ///< that, and what a capture may forbid: see cuThreadExchangeStreamCaptureMode
};

CUresult enter(const char* name, Kind kind) {
  script().calls.emplace_back(name);
  std::vector<CUresult>& failures = script().failures[name];
  if (!failures.empty()) {
    const CUresult code = failures.front();
    failures.erase(failures.begin());
    if (code != CUDA_SUCCESS) return code;
  }
  if (kind == Kind::kAny) return CUDA_SUCCESS;
  if (script().needs_context && (script().current == nullptr || script().references == 0))
    return CUDA_ERROR_INVALID_CONTEXT;
  if (script().is_lost) return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (kind == Kind::kInContext) return CUDA_SUCCESS;
  const CUstreamCaptureMode mode = script().mode;
  const bool is_forbidden =
      (script().is_captured_here && mode != CU_STREAM_CAPTURE_MODE_RELAXED) ||
      (script().is_captured_elsewhere && mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
  if (!is_forbidden) return CUDA_SUCCESS;
  script().spoilers.emplace_back(name);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

}  // namespace

// As in a driver of CUDA 12.0, which has this one alone: the second version is of 12.8.
#undef cuEventElapsedTime

// A function of the library: what happens where nothing is against it.
#define SCRIPTED(name, kind, parameters, effect)                                           \
  CUresult name parameters {                                                               \
    if (const CUresult code = enter(#name, Kind::kind); code != CUDA_SUCCESS) return code; \
    effect;                                                                                \
    return CUDA_SUCCESS;                                                                   \
  }

extern "C" {

CUresult cuGetErrorName(CUresult code, const char** text) {
  static const std::map<CUresult, const char*> kNames = {
      {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
      {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
      {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
      {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
      {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
      {CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"}};
  const auto found = kNames.find(code);
  if (found == kNames.end()) return CUDA_ERROR_INVALID_VALUE;
  return *text = found->second, CUDA_SUCCESS;
}

SCRIPTED(cuInit, kAny, (unsigned), )
SCRIPTED(cuDriverGetVersion, kAny, (int* version), *version = script().version)
SCRIPTED(cuDeviceGetCount, kAny, (int* count), *count = 1)
SCRIPTED(cuDeviceGet, kAny, (CUdevice * device, int), *device = 0)
SCRIPTED(cuDeviceGetName, kAny, (char* name, int size, CUdevice),
         std::strncpy(name, "Scripted", static_cast<std::size_t>(size)))
SCRIPTED(cuDeviceGetUuid, kAny, (CUuuid * uuid, CUdevice), std::memset(uuid, 7, sizeof(*uuid)))
SCRIPTED(cuDeviceTotalMem, kAny, (std::size_t * bytes, CUdevice), *bytes = std::size_t{1} << 33)
SCRIPTED(cuDeviceGetAttribute, kAny, (int* value, CUdevice_attribute which, CUdevice),
         *value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? script().major
                  : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? script().minor
                  : which == CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK    ? 1024
                  : which == CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED   ? 1
                                                                          : 0)
SCRIPTED(cuDeviceCanAccessPeer, kAny, (int* can, CUdevice, CUdevice), *can = 0)

SCRIPTED(cuDevicePrimaryCtxRetain, kAny, (CUcontext * context, CUdevice), make(context);
         ++script().references)
SCRIPTED(
    cuDevicePrimaryCtxRelease, kAny, (CUdevice), if (--script().references == 0) {
      ++script().resets;
      script().is_lost = false;
    })
SCRIPTED(cuCtxGetCurrent, kAny, (CUcontext * context), *context = script().current)
SCRIPTED(cuCtxSetCurrent, kAny, (CUcontext context), script().current = context)
SCRIPTED(cuCtxGetDevice, kInContext, (CUdevice * device), *device = 0)
SCRIPTED(cuCtxEnablePeerAccess, kUnsafe, (CUcontext, unsigned), )
SCRIPTED(cuThreadExchangeStreamCaptureMode, kAny, (CUstreamCaptureMode * mode),
         std::swap(*mode, script().mode))

SCRIPTED(cuMemPoolCreate, kUnsafe, (CUmemoryPool * pool, const CUmemPoolProps*), make(pool);
         ++script().pools)
SCRIPTED(cuMemPoolDestroy, kUnsafe, (CUmemoryPool), --script().pools)
SCRIPTED(cuMemPoolSetAttribute, kUnsafe, (CUmemoryPool, CUmemPool_attribute, void*), )
SCRIPTED(cuMemPoolSetAccess, kUnsafe, (CUmemoryPool, const CUmemAccessDesc*, std::size_t), )
SCRIPTED(cuMemPoolTrimTo, kUnsafe, (CUmemoryPool, std::size_t), )
SCRIPTED(cuMemAllocFromPoolAsync, kInContext,
         (CUdeviceptr * memory, std::size_t, CUmemoryPool, CUstream), *memory = 4096)
SCRIPTED(cuMemFreeAsync, kInContext, (CUdeviceptr, CUstream), )
SCRIPTED(cuMemAlloc, kUnsafe, (CUdeviceptr * memory, std::size_t), *memory = 4096)
SCRIPTED(cuMemFree, kUnsafe, (CUdeviceptr), )
SCRIPTED(cuMemHostAlloc, kUnsafe, (void** memory, std::size_t bytes, unsigned),
         *memory = ::operator new(bytes))
SCRIPTED(cuMemFreeHost, kUnsafe, (void* memory), ::operator delete(memory))
SCRIPTED(cuMemcpyAsync, kInContext, (CUdeviceptr, CUdeviceptr, std::size_t, CUstream), )
SCRIPTED(cuPointerGetAttribute, kInContext, (void*, CUpointer_attribute, CUdeviceptr), )

SCRIPTED(cuStreamCreate, kUnsafe, (CUstream * stream, unsigned), make(stream); ++script().streams)
SCRIPTED(cuStreamDestroy, kUnsafe, (CUstream), --script().streams)
SCRIPTED(cuStreamSynchronize, kUnsafe, (CUstream), )
SCRIPTED(cuStreamGetCtx, kInContext, (CUstream, CUcontext* context), *context = script().current)
SCRIPTED(cuStreamWaitEvent, kInContext, (CUstream, CUevent, unsigned), )
SCRIPTED(cuStreamWaitValue64, kInContext, (CUstream, CUdeviceptr, cuuint64_t, unsigned), )
SCRIPTED(cuStreamWriteValue64, kInContext, (CUstream, CUdeviceptr, cuuint64_t, unsigned), )
SCRIPTED(cuEventCreate, kUnsafe, (CUevent * event, unsigned), make(event))
SCRIPTED(cuEventDestroy, kUnsafe, (CUevent), )
SCRIPTED(cuEventRecord, kInContext, (CUevent, CUstream), )
SCRIPTED(cuEventQuery, kUnsafe, (CUevent), )
SCRIPTED(cuEventSynchronize, kUnsafe, (CUevent), )
SCRIPTED(cuEventElapsedTime, kUnsafe, (float* time, CUevent, CUevent), *time = 0)
SCRIPTED(cuModuleLoadData, kUnsafe, (CUmodule * module, const void* image), make(module);
         ++script().modules; script().images.emplace_back(static_cast<const char*>(image), 4))
SCRIPTED(cuModuleUnload, kUnsafe, (CUmodule), --script().modules)
SCRIPTED(cuModuleGetFunction, kUnsafe, (CUfunction * function, CUmodule, const char*),
         make(function))
SCRIPTED(cuFuncSetAttribute, kUnsafe, (CUfunction, CUfunction_attribute which, int value),
         script().local_bytes = which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? value
                                                                                         : -1)
SCRIPTED(cuTensorMapEncodeTiled, kInContext,
         (CUtensorMap * map, CUtensorMapDataType type, cuuint32_t rank, void* address,
          const cuuint64_t* dims, const cuuint64_t* steps, const cuuint32_t* box,
          const cuuint32_t* each, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
          CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill),
         *map = CUtensorMap{};
         map->opaque[0] = 77;
         (script().boxes = std::vector<cuuint64_t>{
              static_cast<cuuint64_t>(type), rank, reinterpret_cast<std::uintptr_t>(address),
              dims[0], dims[1], dims[2], steps[0], steps[1], box[0], box[1], box[2], each[0],
              each[1], each[2], static_cast<cuuint64_t>(swizzle), static_cast<cuuint64_t>(fill)}))
SCRIPTED(cuTensorMapEncodeIm2col, kInContext,
         (CUtensorMap * map, CUtensorMapDataType type, cuuint32_t rank, void* address,
          const cuuint64_t* dims, const cuuint64_t* steps, const int* lower, const int* upper,
          cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* each, CUtensorMapInterleave,
          CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill),
         *map = CUtensorMap{};
         map->opaque[0] = 78;
         (script().boxes = std::vector<cuuint64_t>{static_cast<cuuint64_t>(type),
                                                   rank,
                                                   reinterpret_cast<std::uintptr_t>(address),
                                                   dims[0],
                                                   dims[1],
                                                   dims[2],
                                                   dims[3],
                                                   steps[0],
                                                   steps[1],
                                                   steps[2],
                                                   static_cast<cuuint64_t>(-lower[0]),
                                                   static_cast<cuuint64_t>(-lower[1]),
                                                   static_cast<cuuint64_t>(-upper[0]),
                                                   static_cast<cuuint64_t>(-upper[1]),
                                                   channels,
                                                   pixels,
                                                   each[0],
                                                   each[1],
                                                   each[2],
                                                   each[3],
                                                   static_cast<cuuint64_t>(swizzle),
                                                   static_cast<cuuint64_t>(fill)}))
SCRIPTED(cuLaunchKernel, kInContext,
         (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
          CUstream, void**, void**), )
SCRIPTED(cuLaunchKernelEx, kInContext, (const CUlaunchConfig* config, CUfunction, void**, void**),
         script().early.push_back(config->numAttrs == 1 &&
                                  config->attrs[0].id ==
                                      CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
                                  config->attrs[0].value.programmaticStreamSerializationAllowed ==
                                      1);
         script().launched = *config)
SCRIPTED(cuStreamBeginCapture, kInContext, (CUstream, CUstreamCaptureMode mode),
         script().is_captured_here = mode != CU_STREAM_CAPTURE_MODE_RELAXED)
SCRIPTED(cuStreamEndCapture, kInContext, (CUstream, CUgraph* graph), make(graph);
         script().is_captured_here = false)
SCRIPTED(cuStreamIsCapturing, kInContext, (CUstream, CUstreamCaptureStatus* status),
         *status = CU_STREAM_CAPTURE_STATUS_NONE)
SCRIPTED(cuGraphDestroy, kUnsafe, (CUgraph), )
SCRIPTED(cuGraphInstantiate, kUnsafe, (CUgraphExec * exec, CUgraph, unsigned long long), make(exec))
SCRIPTED(cuGraphExecUpdate, kUnsafe, (CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo*), )
SCRIPTED(cuGraphExecDestroy, kUnsafe, (CUgraphExec), )
SCRIPTED(cuGraphLaunch, kInContext, (CUgraphExec, CUstream), )
// NVRTC asks for it, of whatever driver is there, and goes on without.
CUresult cuGetExportTable(const void**, const CUuuid*) { return CUDA_ERROR_NOT_SUPPORTED; }
}
