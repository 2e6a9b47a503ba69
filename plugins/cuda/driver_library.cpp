#include "plugins/cuda/driver_library.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <cuda.h>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "plugins/cuda/libraries.hpp"

// The name that cuda.h gives a function is the one of its current version in the library.
#define CUDA_TEXT_(name) #name
#define CUDA_TEXT(name) CUDA_TEXT_(name)
#define CUDA_FUNCTION(name) decltype(&::name) name##_ = load<decltype(&::name)>(CUDA_TEXT(name))
// Null where the library has none.
#define CUDA_FUNCTION_OR_NONE(name) \
  decltype(&::name) name##_ = load_or_none<decltype(&::name)>(CUDA_TEXT(name))
// Of one whose current version a driver of the same major version may lack, and whose first one is as good.
#define CUDA_FUNCTION_OF_OLD(name) \
  decltype(&::name) name##_ = load_either<decltype(&::name)>(CUDA_TEXT(name), #name)

namespace backplane::cuda {
namespace {

/// The functions of the library.
class Functions {
 public:
  Functions() : library_("libcuda.so.1", ": there is no NVIDIA driver on this machine") {}

  std::string name_of(CUresult code) const {
    const char* text = nullptr;
    if (get_error_name_(code, &text) == CUDA_SUCCESS && text != nullptr) return text;
    return sdk::message("CUDA error ", static_cast<int>(code));
  }
  void check(CUresult code, const char* call) const {
    if (code != CUDA_SUCCESS) throw_cuda(call, name_of(code));
  }
  /// Of CUDA, that the driver serves: 1000 * major + 10 * minor.
  int version() const { return version_; }

 private:
  template <class Pointer>
  Pointer load(const char* name) const {
    return reinterpret_cast<Pointer>(library_.find(name));
  }
  template <class Pointer>
  Pointer load_either(const char* current, const char* first) const {
    return load<Pointer>(library_.has(current) ? current : first);
  }
  template <class Pointer>
  Pointer load_or_none(const char* name) const {
    return library_.has(name) ? load<Pointer>(name) : nullptr;
  }
  int served_version() const {
    int version = 0;
    check(get_version_(&version), "cuDriverGetVersion");
    if (version / 1000 < CUDA_VERSION / 1000)
      sdk::unsupported("the NVIDIA driver serves CUDA ", version / 1000, '.', version % 1000 / 10,
                       ", and this plugin is built for ", CUDA_VERSION / 1000,
                       ".x: install a newer driver");
    return version;
  }
  SharedLibrary library_;
  decltype(&::cuGetErrorName) get_error_name_ = load<decltype(&::cuGetErrorName)>("cuGetErrorName");
  decltype(&::cuDriverGetVersion) get_version_ =
      load<decltype(&::cuDriverGetVersion)>("cuDriverGetVersion");
  // Before other functions are looked for, which an older driver does not have.
  int version_ = served_version();

 public:
  CUDA_FUNCTION(cuInit);
  CUDA_FUNCTION(cuDeviceGetCount);
  CUDA_FUNCTION(cuDeviceGet);
  CUDA_FUNCTION(cuDeviceGetName);
  CUDA_FUNCTION(cuDeviceGetUuid);
  CUDA_FUNCTION(cuDeviceTotalMem);
  CUDA_FUNCTION(cuDeviceGetAttribute);
  CUDA_FUNCTION(cuDeviceCanAccessPeer);
  CUDA_FUNCTION(cuDevicePrimaryCtxRetain);
  CUDA_FUNCTION(cuDevicePrimaryCtxRelease);
  CUDA_FUNCTION(cuCtxGetCurrent);
  CUDA_FUNCTION(cuCtxSetCurrent);
  CUDA_FUNCTION(cuThreadExchangeStreamCaptureMode);
  CUDA_FUNCTION(cuCtxEnablePeerAccess);
  CUDA_FUNCTION(cuMemPoolCreate);
  CUDA_FUNCTION(cuMemPoolDestroy);
  CUDA_FUNCTION(cuMemPoolSetAttribute);
  CUDA_FUNCTION(cuMemPoolSetAccess);
  CUDA_FUNCTION(cuMemPoolTrimTo);
  CUDA_FUNCTION(cuMemAllocFromPoolAsync);
  CUDA_FUNCTION(cuMemFreeAsync);
  CUDA_FUNCTION(cuMemAlloc);
  CUDA_FUNCTION(cuMemFree);
  CUDA_FUNCTION(cuMemHostAlloc);
  CUDA_FUNCTION(cuMemFreeHost);
  CUDA_FUNCTION(cuMemcpyAsync);
  CUDA_FUNCTION(cuPointerGetAttribute);
  CUDA_FUNCTION(cuStreamCreate);
  CUDA_FUNCTION(cuStreamDestroy);
  CUDA_FUNCTION(cuStreamSynchronize);
  CUDA_FUNCTION(cuStreamGetCtx);
  CUDA_FUNCTION(cuStreamWaitEvent);
  CUDA_FUNCTION(cuStreamWaitValue64);
  CUDA_FUNCTION(cuStreamWriteValue64);
  CUDA_FUNCTION(cuEventCreate);
  CUDA_FUNCTION(cuEventDestroy);
  CUDA_FUNCTION(cuEventRecord);
  CUDA_FUNCTION(cuEventQuery);
  CUDA_FUNCTION(cuEventSynchronize);
  CUDA_FUNCTION_OF_OLD(cuEventElapsedTime);  // the second version is of 12.8
  CUDA_FUNCTION(cuModuleLoadData);
  CUDA_FUNCTION(cuModuleUnload);
  CUDA_FUNCTION(cuModuleGetFunction);
  CUDA_FUNCTION(cuFuncSetAttribute);
  CUDA_FUNCTION_OR_NONE(cuTensorMapEncodeTiled);   // of 12.0
  CUDA_FUNCTION_OR_NONE(cuTensorMapEncodeIm2col);  // of 12.0
  CUDA_FUNCTION(cuLaunchKernel);
  CUDA_FUNCTION_OR_NONE(cuLaunchKernelEx);  // of 11.8
  CUDA_FUNCTION(cuStreamBeginCapture);
  CUDA_FUNCTION(cuStreamEndCapture);
  CUDA_FUNCTION(cuStreamIsCapturing);
  CUDA_FUNCTION(cuGraphDestroy);
  CUDA_FUNCTION(cuGraphInstantiate);
  CUDA_FUNCTION(cuGraphExecUpdate);
  CUDA_FUNCTION(cuGraphExecDestroy);
  CUDA_FUNCTION(cuGraphLaunch);
};

// Calls a function of the library and throws what it fails with, under its own name.
#define CUDA_CALL(name, ...) cuda_.check(cuda_.name##_(__VA_ARGS__), #name)

/// Elements' bytes and a line's elements, of boxes.
constexpr cuuint64_t kBoxedBytes = 2;
constexpr cuuint32_t kBoxLine = 64;

/// What the driver calls a matrix by.
void* start_of(Address address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

CUtensorMapDataType boxed_type(sdk::DataType type) {
  return type == sdk::DataType::Float16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                        : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

BoxMap words_of(const CUtensorMap& map) {
  static_assert(sizeof(BoxMap) == sizeof(CUtensorMap) && alignof(BoxMap) >= alignof(CUtensorMap));
  BoxMap made;
  std::memcpy(made.words.data(), &map, sizeof(map));
  return made;
}

/// Makes a context current on this thread, and the former one again at the end: the thread is the caller's.
class Current {
 public:
  Current(const Functions& cuda, CUcontext wanted) : cuda_(cuda) {
    CUDA_CALL(cuCtxGetCurrent, &former_);
    changed_ = former_ != wanted;
    if (changed_) CUDA_CALL(cuCtxSetCurrent, wanted);
  }
  /// For what frees: a context that cannot be made current has nothing left to free.
  Current(const Functions& cuda, CUcontext wanted, std::nothrow_t) noexcept : cuda_(cuda) {
    cuda_.cuCtxGetCurrent_(&former_);
    changed_ = former_ != wanted && cuda_.cuCtxSetCurrent_(wanted) == CUDA_SUCCESS;
  }
  ~Current() {
    if (changed_) cuda_.cuCtxSetCurrent_(former_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Functions& cuda_;
  CUcontext former_ = nullptr;
  bool changed_ = false;
};

/// How this thread is taken where streams are captured: as `wanted`, where it is not freer already, and at the end as
/// before.
class CaptureMode {
 public:
  CaptureMode(const Functions& cuda, CUstreamCaptureMode wanted) noexcept
      : cuda_(cuda), mode_(wanted) {
    changed_ = exchange() && mode_ <= wanted;  // from the strictest to the freest
    if (!changed_) exchange();
  }
  ~CaptureMode() {
    if (changed_) exchange();
  }
  CaptureMode(const CaptureMode&) = delete;
  CaptureMode& operator=(const CaptureMode&) = delete;

 private:
  bool exchange() noexcept {
    return cuda_.cuThreadExchangeStreamCaptureMode_(&mode_) == CUDA_SUCCESS;
  }
  const Functions& cuda_;
  CUstreamCaptureMode mode_;
  bool changed_;
};

/// A context that is current, for calls that CUDA holds for unsafe while streams are captured: all but those that put
/// work on a stream. In the default mode a capture of another thread, begun in that mode as PyTorch does, forbids them and is
/// spoiled by them.
class Apart {
 public:
  /// A capture of this thread still forbids them: memory that comes and goes within it must not be part of its graph.
  Apart(const Functions& cuda, CUcontext wanted)
      : current_(cuda, wanted), mode_(cuda, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) {}
  /// For what frees, also while the program captures on this thread: no graph depends on that.
  Apart(const Functions& cuda, CUcontext wanted, std::nothrow_t) noexcept
      : current_(cuda, wanted, std::nothrow), mode_(cuda, CU_STREAM_CAPTURE_MODE_RELAXED) {}

 private:
  Current current_;
  CaptureMode mode_;
};

/// A device's primary context as long as somebody has it open.
struct PrimaryContext {
  CUdevice device = 0;
  CUcontext context = nullptr;
  int openings = 0;
  bool is_lost = false;
};

/// The driver resets a primary context when its last reference goes, with every module and the libraries' memory, which the
/// next session would pay for again. So each is retained when it is first opened, and given up only when it is lost and
/// nobody has it open any more: then the reset makes the device usable again, where the program has no reference of its own.
/// Threads: any.
class PrimaryContexts {
 public:
  explicit PrimaryContexts(const Functions& cuda) : cuda_(cuda) {}
  PrimaryContext& open(int ordinal) {
    const std::lock_guard lock(mutex_);
    PrimaryContext& primary = by_ordinal_[ordinal];
    if (primary.context == nullptr) {
      CUDA_CALL(cuDeviceGet, &primary.device, ordinal);
      CUDA_CALL(cuDevicePrimaryCtxRetain, &primary.context, primary.device);
    }
    ++primary.openings;
    return primary;
  }
  void close(PrimaryContext& primary, bool is_lost) noexcept {
    const std::lock_guard lock(mutex_);
    primary.is_lost = primary.is_lost || is_lost;
    if (--primary.openings > 0 || !primary.is_lost) return;
    cuda_.cuDevicePrimaryCtxRelease_(primary.device);
    primary = PrimaryContext();
  }

 private:
  const Functions& cuda_;
  std::mutex mutex_;
  std::map<int, PrimaryContext> by_ordinal_;
};

// From here on in LibraryContext, which remembers what it fails with.
#undef CUDA_CALL
#define CUDA_CALL(name, ...) check(cuda_.name##_(__VA_ARGS__), #name)

class LibraryContext final : public Context {
 public:
  LibraryContext(const Functions& cuda, PrimaryContexts& contexts, int ordinal, bool has_pools)
      : cuda_(cuda),
        contexts_(contexts),
        ordinal_(ordinal),
        primary_(contexts.open(ordinal)),
        device_(primary_.device),
        context_(primary_.context) {
    try {
      if (has_pools) make_pool();
    } catch (...) {
      contexts_.close(primary_, is_lost_);
      throw;
    }
  }
  ~LibraryContext() override {
    if (pool_ != nullptr) {
      const Apart apart(cuda_, context_, std::nothrow);
      note(cuda_.cuStreamSynchronize_(pool_stream_));
      cuda_.cuMemPoolDestroy_(pool_);
      cuda_.cuStreamDestroy_(pool_stream_);
    }
    contexts_.close(primary_, is_lost_);
  }

  CUctx_st* native() const override { return context_; }
  Former enter() override {
    CUcontext former = nullptr;
    CUDA_CALL(cuCtxGetCurrent, &former);
    if (former != context_) CUDA_CALL(cuCtxSetCurrent, context_);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    cuda_.cuThreadExchangeStreamCaptureMode_(&mode);
    if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
      // As in CaptureMode: never stricter than the program wants it.
      cuda_.cuThreadExchangeStreamCaptureMode_(&mode);
      mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    }
    return {former, mode};
  }
  void leave(const Former& former) noexcept override {
    auto mode = static_cast<CUstreamCaptureMode>(former.capture_mode);
    cuda_.cuThreadExchangeStreamCaptureMode_(&mode);
    if (former.context != context_) cuda_.cuCtxSetCurrent_(former.context);
  }

  Address allocate(std::uint64_t bytes) override {
    const Apart apart(cuda_, context_);
    CUdeviceptr memory = 0;
    if (pool_ == nullptr) {
      CUDA_CALL(cuMemAlloc, &memory, bytes);
      return memory;
    }
    CUDA_CALL(cuMemAllocFromPoolAsync, &memory, bytes, pool_, pool_stream_);
    CUDA_CALL(cuStreamSynchronize, pool_stream_);  // from here on every stream may use it
    return memory;
  }
  void free(Address memory) noexcept override {
    const Apart apart(cuda_, context_, std::nothrow);
    if (pool_ == nullptr) {
      cuda_.cuMemFree_(memory);
    } else {
      cuda_.cuMemFreeAsync_(memory, pool_stream_);
    }
  }
  void trim() noexcept override {
    if (pool_ == nullptr) return;
    const Apart apart(cuda_, context_, std::nothrow);
    cuda_.cuStreamSynchronize_(pool_stream_);
    cuda_.cuMemPoolTrimTo_(pool_, 0);
  }
  void* allocate_pinned(std::uint64_t bytes) override {
    const Apart apart(cuda_, context_);
    void* memory = nullptr;
    CUDA_CALL(cuMemHostAlloc, &memory, bytes, CU_MEMHOSTALLOC_PORTABLE);
    return memory;
  }
  void free_pinned(void* memory) noexcept override {
    const Apart apart(cuda_, context_, std::nothrow);
    cuda_.cuMemFreeHost_(memory);
  }

  PointerTraits traits_of(Address pointer) override {
    const Current current(cuda_, context_);
    const auto ask = [&](auto* value, CUpointer_attribute which) {
      const CUresult code = cuda_.cuPointerGetAttribute_(value, which, pointer);
      if (code == CUDA_ERROR_INVALID_VALUE) return false;
      check(code, "cuPointerGetAttribute");
      return true;
    };
    PointerTraits traits;
    unsigned type = 0;
    traits.is_known = ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
    if (!traits.is_known) return traits;
    traits.is_on_device = type == CU_MEMORYTYPE_DEVICE;
    int ordinal = -1;
    CUcontext owner = nullptr;  // memory of pools and of mapped ranges has none
    ask(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
    ask(&owner, CU_POINTER_ATTRIBUTE_CONTEXT);
    traits.is_here = ordinal == ordinal_ && (owner == nullptr || owner == context_);
    CUdeviceptr begin = 0;
    std::size_t bytes = 0;
    if (ask(&begin, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) &&
        ask(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE)) {
      traits.begin = begin;
      traits.bytes = bytes;
    }
    return traits;
  }

  bool enable_peer(Context& owner) override {
    auto& other = static_cast<LibraryContext&>(owner);
    int can = 0;
    CUDA_CALL(cuDeviceCanAccessPeer, &can, device_, other.device_);
    if (can == 0) return false;
    const Apart apart(cuda_, context_);
    const CUresult code = cuda_.cuCtxEnablePeerAccess_(other.context_, 0);
    if (code == CUDA_ERROR_TOO_MANY_PEERS) return false;
    if (code != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) check(code, "cuCtxEnablePeerAccess");
    if (other.pool_ != nullptr) {
      CUmemAccessDesc access{};
      access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      access.location.id = device_;
      access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      CUDA_CALL(cuMemPoolSetAccess, other.pool_, &access, 1);
    }
    return true;
  }

  StreamHandle create_stream() override {
    const Apart apart(cuda_, context_);
    CUstream stream = nullptr;
    CUDA_CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    return stream;
  }
  void destroy_stream(StreamHandle stream) noexcept override {
    const Apart apart(cuda_, context_, std::nothrow);
    cuda_.cuStreamDestroy_(stream);
  }
  void synchronize(StreamHandle stream) override {
    const Apart apart(cuda_, context_);
    CUDA_CALL(cuStreamSynchronize, stream);
  }
  bool owns(StreamHandle stream) override {
    const Current current(cuda_, context_);
    CUcontext owner = nullptr;
    return cuda_.cuStreamGetCtx_(stream, &owner) == CUDA_SUCCESS && owner == context_;
  }

  EventHandle create_event() override {
    const Apart apart(cuda_, context_);
    CUevent event = nullptr;
    CUDA_CALL(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    return event;
  }
  EventHandle create_timer() override {
    const Apart apart(cuda_, context_);
    CUevent event = nullptr;
    CUDA_CALL(cuEventCreate, &event, CU_EVENT_DEFAULT);
    return event;
  }
  std::uint64_t nanoseconds_between(EventHandle begin, EventHandle end) override {
    const Apart apart(cuda_, context_);
    float milliseconds = 0;
    CUDA_CALL(cuEventElapsedTime, &milliseconds, begin, end);
    return static_cast<std::uint64_t>(std::max(0.0, static_cast<double>(milliseconds) * 1e6));
  }
  void destroy_event(EventHandle event) noexcept override {
    const Apart apart(cuda_, context_, std::nothrow);
    cuda_.cuEventDestroy_(event);
  }
  void record(EventHandle event, StreamHandle stream) override {
    const Current current(cuda_, context_);
    CUDA_CALL(cuEventRecord, event, stream);
  }
  void wait(StreamHandle stream, EventHandle event) override {
    const Current current(cuda_, context_);
    CUDA_CALL(cuStreamWaitEvent, stream, event, 0);
  }
  bool is_done(EventHandle event) override {
    const Apart apart(cuda_, context_);
    const CUresult code = cuda_.cuEventQuery_(event);
    if (code == CUDA_ERROR_NOT_READY) return false;
    check(code, "cuEventQuery");
    return true;
  }
  void synchronize(EventHandle event) override {
    const Apart apart(cuda_, context_);
    CUDA_CALL(cuEventSynchronize, event);
  }
  void wait_value(StreamHandle stream, std::uint64_t* word, std::uint64_t value) override {
    const Current current(cuda_, context_);
    CUDA_CALL(cuStreamWaitValue64, stream, reinterpret_cast<CUdeviceptr>(word), value,
              CU_STREAM_WAIT_VALUE_GEQ);
  }
  void write_value(StreamHandle stream, std::uint64_t* word, std::uint64_t value) override {
    const Current current(cuda_, context_);
    CUDA_CALL(cuStreamWriteValue64, stream, reinterpret_cast<CUdeviceptr>(word), value,
              CU_STREAM_WRITE_VALUE_DEFAULT);
  }

  void copy(StreamHandle stream, Address to, Address from, std::uint64_t bytes) override {
    if (bytes == 0) return;  // a graph takes no such copy
    const Current current(cuda_, context_);
    CUDA_CALL(cuMemcpyAsync, to, from, bytes, stream);
  }

  ModuleHandle load(const std::string& image) override {
    const Apart apart(cuda_, context_);
    CUmodule module = nullptr;
    CUDA_CALL(cuModuleLoadData, &module, image.c_str());
    return module;
  }
  void unload(ModuleHandle module) noexcept override {
    const Apart apart(cuda_, context_, std::nothrow);
    cuda_.cuModuleUnload_(module);
  }
  FunctionHandle function(ModuleHandle module, std::uint32_t local_bytes) override {
    const Apart apart(cuda_, context_);
    CUfunction function = nullptr;
    CUDA_CALL(cuModuleGetFunction, &function, module, "run");
    if (local_bytes > 0)
      CUDA_CALL(cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                static_cast<int>(local_bytes));
    return function;
  }
  BoxMap describe(const BoxedMatrices& matrices) override {
    const Current current(cuda_, context_);
    const cuuint64_t dims[] = {static_cast<cuuint64_t>(matrices.columns),
                               static_cast<cuuint64_t>(matrices.rows),
                               static_cast<cuuint64_t>(matrices.matrices)};
    const cuuint64_t steps[] = {static_cast<cuuint64_t>(matrices.step) * kBoxedBytes,
                                static_cast<cuuint64_t>(matrices.matrix_step) * kBoxedBytes};
    const cuuint32_t box[] = {kBoxLine, matrices.box_rows, 1}, each[] = {1, 1, 1};
    CUtensorMap map{};
    CUDA_CALL(cuTensorMapEncodeTiled, &map, boxed_type(matrices.type), 3,
              start_of(matrices.address), dims, steps, box, each, CU_TENSOR_MAP_INTERLEAVE_NONE,
              CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return words_of(map);
  }
  BoxMap describe_pixels(const BoxedPixels& pixels) override {
    const Current current(cuda_, context_);
    const cuuint64_t dims[] = {
        static_cast<cuuint64_t>(pixels.channels), static_cast<cuuint64_t>(pixels.width),
        static_cast<cuuint64_t>(pixels.height), static_cast<cuuint64_t>(pixels.images)};
    cuuint64_t steps[3], step = kBoxedBytes;
    for (std::size_t axis = 0; axis < 3; ++axis) steps[axis] = step *= dims[axis];
    const cuuint32_t each[] = {1, pixels.stride[0], pixels.stride[1], 1};
    CUtensorMap map{};
    CUDA_CALL(cuTensorMapEncodeIm2col, &map, boxed_type(pixels.type), 4, start_of(pixels.address),
              dims, steps, pixels.lower.data(), pixels.upper.data(), kBoxLine, pixels.box_pixels,
              each, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
              CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return words_of(map);
  }
  void launch(FunctionHandle function, const Extent& groups, const Extent& group,
              std::uint32_t local_bytes, StreamHandle stream, void** arguments) override {
    const Current current(cuda_, context_);
    CUDA_CALL(cuLaunchKernel, function, groups[0], groups[1], groups[2], group[0], group[1],
              group[2], local_bytes, stream, arguments, nullptr);
  }
  bool launch_early(FunctionHandle function, const Extent& groups, const Extent& group,
                    std::uint32_t local_bytes, StreamHandle stream, void** arguments) override {
    const Current current(cuda_, context_);
    CUlaunchAttribute early{};
    early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    early.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config{};
    config.gridDimX = groups[0];
    config.gridDimY = groups[1];
    config.gridDimZ = groups[2];
    config.blockDimX = group[0];
    config.blockDimY = group[1];
    config.blockDimZ = group[2];
    config.sharedMemBytes = local_bytes;
    config.hStream = stream;
    config.attrs = &early;
    config.numAttrs = 1;
    const CUresult code = cuda_.cuLaunchKernelEx_(&config, function, arguments, nullptr);
    const bp_code kind = note(code);
    // Whatever else it does not like of it, the plain launch may do without, or names.
    if (kind == BP_INTERNAL || kind == BP_UNSUPPORTED) return false;
    check(code, "cuLaunchKernelEx");
    return true;
  }

  void begin_capture(StreamHandle stream) override {
    const Current current(cuda_, context_);
    CUDA_CALL(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  }
  GraphHandle end_capture(StreamHandle stream) override {
    const Current current(cuda_, context_);
    CUgraph graph = nullptr;
    CUDA_CALL(cuStreamEndCapture, stream, &graph);
    return graph;
  }
  bool is_captured(StreamHandle stream) override {
    const Current current(cuda_, context_);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUDA_CALL(cuStreamIsCapturing, stream, &status);
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
  }
  void destroy_graph(GraphHandle graph) noexcept override {
    const Apart apart(cuda_, context_, std::nothrow);
    cuda_.cuGraphDestroy_(graph);
  }
  GraphExecHandle instantiate(GraphHandle graph) override {
    const Apart apart(cuda_, context_);
    CUgraphExec exec = nullptr;
    CUDA_CALL(cuGraphInstantiate, &exec, graph, 0);
    return exec;
  }
  bool update(GraphExecHandle exec, GraphHandle graph) override {
    const Apart apart(cuda_, context_);
    CUgraphExecUpdateResultInfo result{};
    const CUresult code = cuda_.cuGraphExecUpdate_(exec, graph, &result);
    // Whatever it does not like of the new graph, one that is made anew may do.
    if (note(code) == BP_DEVICE_LOST) check(code, "cuGraphExecUpdate");
    return code == CUDA_SUCCESS;
  }
  void destroy_exec(GraphExecHandle exec) noexcept override {
    const Apart apart(cuda_, context_, std::nothrow);
    cuda_.cuGraphExecDestroy_(exec);
  }
  void launch_graph(GraphExecHandle exec, StreamHandle stream) override {
    const Apart apart(cuda_, context_);
    CUDA_CALL(cuGraphLaunch, exec, stream);
  }

 private:
  /// A pool of its own, so that what other users of the device keep is theirs.
  void make_pool() {
    const Apart apart(cuda_, context_);
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device_;
    CUDA_CALL(cuStreamCreate, &pool_stream_, CU_STREAM_NON_BLOCKING);
    try {
      const CUresult code = cuda_.cuMemPoolCreate_(&pool_, &properties);
      const bp_code kind = note(code);
      if (kind == BP_OUT_OF_MEMORY || kind == BP_DEVICE_LOST) check(code, "cuMemPoolCreate");
      if (code == CUDA_SUCCESS) {
        cuuint64_t kept = ~static_cast<cuuint64_t>(0);  // until trim()
        CUDA_CALL(cuMemPoolSetAttribute, pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &kept);
        return;
      }
      pool_ = nullptr;  // a device that has pools and makes none, as some virtual ones do
    } catch (...) {
      if (pool_ != nullptr) cuda_.cuMemPoolDestroy_(pool_);
      cuda_.cuStreamDestroy_(pool_stream_);
      throw;
    }
    cuda_.cuStreamDestroy_(pool_stream_);
  }
  /// What a code says; that the context is lost is remembered.
  bp_code note(CUresult code) noexcept {
    if (code == CUDA_SUCCESS) return BP_OK;
    const bp_code kind = error_code(cuda_.name_of(code));
    if (kind == BP_DEVICE_LOST) is_lost_ = true;
    return kind;
  }
  void check(CUresult code, const char* call) {
    if (code == CUDA_SUCCESS) return;
    note(code);
    cuda_.check(code, call);
  }

  const Functions& cuda_;
  PrimaryContexts& contexts_;
  int ordinal_;
  PrimaryContext& primary_;
  CUdevice device_;
  CUcontext context_;
  std::atomic<bool> is_lost_{false};
  CUmemoryPool pool_ = nullptr;
  CUstream pool_stream_ = nullptr;
};

#undef CUDA_CALL
#define CUDA_CALL(name, ...) cuda_.check(cuda_.name##_(__VA_ARGS__), #name)

class LibraryDriver final : public Driver {
 public:
  LibraryDriver() {
    const CUresult code = cuda_.cuInit_(0);
    if (code == CUDA_ERROR_NO_DEVICE) return;
    if (code != CUDA_SUCCESS)
      sdk::unsupported("cuInit: ", cuda_.name_of(code), ": the NVIDIA driver does not start");
    CUDA_CALL(cuDeviceGetCount, &count_);
  }
  int device_count() override { return count_; }

  DeviceTraits traits(int ordinal) override {
    CUdevice device = 0;
    CUDA_CALL(cuDeviceGet, &device, ordinal);
    char name[256] = "";
    CUDA_CALL(cuDeviceGetName, name, sizeof(name), device);
    DeviceTraits traits;
    traits.name = name;
    const int version = cuda_.version();
    traits.driver = sdk::message("CUDA driver ", version / 1000, '.', version % 1000 / 10);
    CUuuid uuid{};
    CUDA_CALL(cuDeviceGetUuid, &uuid, device);
    std::memcpy(traits.uuid.data(), uuid.bytes, traits.uuid.size());
    traits.major = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    traits.minor = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    std::size_t bytes = 0;
    CUDA_CALL(cuDeviceTotalMem, &bytes, device);
    traits.memory_bytes = bytes;
    // Kilohertz of two transfers a clock, and bits of one.
    traits.memory_bytes_per_ns = 2e-6 * attribute(device, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) *
                                 attribute(device, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8;
    traits.max_group_items =
        static_cast<std::size_t>(attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
    traits.multiprocessors = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    traits.has_pools = attribute(device, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) != 0;
    traits.has_stream_values =
        attribute(device, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) != 0;
    // Graphs know such launches from 12.3 on.
    constexpr int kFirstMajor = 9, kFirstVersion = 12030;
    traits.has_early_launches = traits.major >= kFirstMajor && version >= kFirstVersion &&
                                cuda_.cuLaunchKernelEx_ != nullptr;
    traits.has_boxes = traits.major >= kFirstMajor && cuda_.cuTensorMapEncodeTiled_ != nullptr &&
                       cuda_.cuTensorMapEncodeIm2col_ != nullptr;
    traits.is_prohibited =
        attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE) == CU_COMPUTEMODE_PROHIBITED;
    return traits;
  }

  std::unique_ptr<Context> open(int ordinal) override {
    return std::make_unique<LibraryContext>(cuda_, contexts_, ordinal, traits(ordinal).has_pools);
  }

 private:
  int attribute(CUdevice device, CUdevice_attribute which) const {
    int value = 0;
    CUDA_CALL(cuDeviceGetAttribute, &value, which, device);
    return value;
  }

  Functions cuda_;
  PrimaryContexts contexts_{cuda_};
  int count_ = 0;
};

}  // namespace

std::unique_ptr<Driver> load_driver() { return std::make_unique<LibraryDriver>(); }

}  // namespace backplane::cuda
