// The device calls that this provider makes, and nothing else of CUDA: the driver's library implements them
// (driver_library.cpp), and a stand-in that records them where there is no device (tests/cuda).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "backplane/plugin.hpp"

// The names that the handles have in cuda.h, which is not needed to use this header.
struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUmod_st;
struct CUfunc_st;
struct CUgraph_st;
struct CUgraphExec_st;

namespace backplane::cuda {

using StreamHandle = CUstream_st*;
using EventHandle = CUevent_st*;
using ModuleHandle = CUmod_st*;
using FunctionHandle = CUfunc_st*;
using GraphHandle = CUgraph_st*;
using GraphExecHandle = CUgraphExec_st*;
/// Of a byte, on a device or in pinned host memory: they share one space.
using Address = unsigned long long;

/// What a device is and can do, read once.
struct DeviceTraits {
  std::string name, driver;
  std::array<std::uint8_t, 16> uuid{};
  int major = 0, minor = 0;  ///< compute capability
  std::uint64_t memory_bytes = 0;
  double memory_bytes_per_ns = 0;  ///< what its memory moves at most; 0: unknown
  std::size_t max_group_items = 1024;
  int multiprocessors = 1;
  bool has_pools = false;           ///< stream-ordered allocation
  bool has_stream_values = false;   ///< streams that wait for a word in memory
  bool is_prohibited = false;       ///< compute mode "prohibited"
  bool has_early_launches = false;  ///< also while they are captured: see Context::launch_early
  bool has_boxes = false;           ///< kernels copy boxes of matrices: see Context::describe
};

/// What the driver knows of an address that a program gives.
struct PointerTraits {
  bool is_known = false;      ///< of memory that CUDA made or was told of
  bool is_on_device = false;  ///< in a device's memory, or managed
  bool is_here = false;       ///< of the context that is asked, or of its device and no context
  Address begin = 0;          ///< of the allocation that it lies in
  std::uint64_t bytes = 0;    ///< of that; 0: unknown
};

/// The size of a launch in groups, or of a group in items.
using Extent = std::array<unsigned, 3>;

/// Matrices of 16-bit elements, one after another, of which a kernel copies boxes: lines of 64 elements, in local memory swizzled over
/// 128 bytes. `address`, `step` and `matrix_step` are multiples of 16 bytes.
struct BoxedMatrices {
  Address address = 0;
  sdk::DataType type = sdk::DataType::Float16;
  std::int64_t columns = 0, rows = 0, matrices = 1;
  std::int64_t step = 0, matrix_step = 0;  ///< elements from a row, and a matrix, to the next
  std::uint32_t box_rows = 1;              ///< up to 256
};

/// Images of 16-bit elements, channels last, of which a kernel copies boxes of 64 channels of so many pixels: those at which a window
/// begins, one after another, moved by where its tap is. What is along both axes is [x, y]. `address` is a multiple of 16, the channels
/// are one of 8.
struct BoxedPixels {
  Address address = 0;
  sdk::DataType type = sdk::DataType::Float16;
  std::int64_t channels = 0, width = 0, height = 0, images = 1;
  /// Where the first window begins, from the first pixel on, and the last one, from the last pixel on.
  std::array<int, 2> lower{}, upper{};
  std::array<std::uint32_t, 2> stride{1, 1};
  std::uint32_t box_pixels = 1;  ///< up to 256
};

/// The same in the driver's words (CUtensorMap): one argument of a kernel.
struct alignas(128) BoxMap {
  std::array<std::uint64_t, 16> words{};
};

/// A device's primary context. Functions that can fail throw sdk::Error with the call and the CUDA error's name:
/// BP_OUT_OF_MEMORY, BP_DEVICE_LOST, BP_INTERNAL.
/// Threads: any; a stream is used by one at a time.
class Context {
 public:
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  virtual ~Context() = default;

  virtual CUctx_st* native() const = 0;
  /// What `enter` changed of this thread.
  struct Former {
    CUctx_st* context = nullptr;
    int capture_mode = 0;  ///< a CUstreamCaptureMode
  };
  /// Makes it current on this thread, for a library that works with the current one; `leave` makes that of before
  /// current again. Meanwhile captures of other threads forbid the library nothing, and are not spoiled by it.
  virtual Former enter() = 0;
  virtual void leave(const Former& former) noexcept = 0;

  /// Memory of the device, ready for every stream. `free`: no stream uses it any more.
  virtual Address allocate(std::uint64_t bytes) = 0;
  virtual void free(Address memory) noexcept = 0;
  /// Gives memory that is kept for later allocations back to the device.
  virtual void trim() noexcept = 0;
  /// Pinned memory of the process, at the same address on every device.
  virtual void* allocate_pinned(std::uint64_t bytes) = 0;
  virtual void free_pinned(void* memory) noexcept = 0;
  virtual PointerTraits traits_of(Address pointer) = 0;
  /// Whether this device can from now on use memory of the other one, which is another device.
  virtual bool enable_peer(Context& owner) = 0;

  virtual StreamHandle create_stream() = 0;
  virtual void destroy_stream(StreamHandle stream) noexcept = 0;
  virtual void synchronize(StreamHandle stream) = 0;
  /// Whether it is a stream of this context.
  virtual bool owns(StreamHandle stream) = 0;

  virtual EventHandle create_event() = 0;
  /// An event that knows when a stream passed it.
  virtual EventHandle create_timer() = 0;
  /// From one timer to a later one, both passed.
  virtual std::uint64_t nanoseconds_between(EventHandle begin, EventHandle end) = 0;
  virtual void destroy_event(EventHandle event) noexcept = 0;
  virtual void record(EventHandle event, StreamHandle stream) = 0;
  virtual void wait(StreamHandle stream, EventHandle event) = 0;
  virtual bool is_done(EventHandle event) = 0;
  virtual void synchronize(EventHandle event) = 0;
  /// The stream waits until the pinned word is at least `value`, of words whose difference is less than 2^63; the stream
  /// writes it. The word stays until that is done.
  virtual void wait_value(StreamHandle stream, std::uint64_t* word, std::uint64_t value) = 0;
  virtual void write_value(StreamHandle stream, std::uint64_t* word, std::uint64_t value) = 0;

  virtual void copy(StreamHandle stream, Address to, Address from, std::uint64_t bytes) = 0;

  /// A module of an image that the compiler made, and its kernel `run`.
  virtual ModuleHandle load(const std::string& image) = 0;
  virtual void unload(ModuleHandle module) noexcept = 0;
  /// `local_bytes`: of local memory that launches give it, beside what its text declares.
  virtual FunctionHandle function(ModuleHandle module, std::uint32_t local_bytes) = 0;
  virtual BoxMap describe(const BoxedMatrices& matrices) = 0;
  virtual BoxMap describe_pixels(const BoxedPixels& pixels) = 0;
  virtual void launch(FunctionHandle function, const Extent& groups, const Extent& group,
                      std::uint32_t local_bytes, StreamHandle stream, void** arguments) = 0;
  /// The same, of a kernel that waits itself for those before it: it may begin when all groups of the one right before it
  /// have begun or ended. False: the driver takes no such launch, and nothing was put on the stream.
  virtual bool launch_early(FunctionHandle function, const Extent& groups, const Extent& group,
                            std::uint32_t local_bytes, StreamHandle stream, void** arguments) = 0;

  /// From here on the stream's work becomes a graph and is not done; of this thread, calls that CUDA forbids meanwhile
  /// fail and spoil it.
  virtual void begin_capture(StreamHandle stream) = 0;
  /// Ends it, also where it throws; the graph is the caller's.
  virtual GraphHandle end_capture(StreamHandle stream) = 0;
  virtual bool is_captured(StreamHandle stream) = 0;
  virtual void destroy_graph(GraphHandle graph) noexcept = 0;
  /// What can be launched. It keeps nothing of the graph.
  virtual GraphExecHandle instantiate(GraphHandle graph) = 0;
  /// Makes `exec`, where that is of the same form, do what the graph does; false: it stays as it is.
  virtual bool update(GraphExecHandle exec, GraphHandle graph) = 0;
  virtual void destroy_exec(GraphExecHandle exec) noexcept = 0;
  virtual void launch_graph(GraphExecHandle exec, StreamHandle stream) = 0;
};

class Kernel;

/// A stream, as plans and algorithms see it, which put kernels there.
class KernelQueue {
 public:
  KernelQueue() = default;
  KernelQueue(const KernelQueue&) = delete;
  KernelQueue& operator=(const KernelQueue&) = delete;
  /// For kernels that a library puts there next, and nothing else.
  virtual StreamHandle for_library() = 0;
  /// Puts one of the provider's own there. Errors: as Context's.
  virtual void launch(const Kernel& kernel, const Extent& groups, const Extent& group,
                      void** arguments) = 0;

 protected:
  ~KernelQueue() = default;
};

/// A context, current on this thread as long as this lives.
class EnteredContext {
 public:
  explicit EnteredContext(Context& context) : context_(context), former_(context.enter()) {}
  /// For what frees: false where it cannot be made current, and nothing is left there to free.
  EnteredContext(Context& context, std::nothrow_t) noexcept : context_(context) {
    try {
      former_ = context.enter();
    } catch (const std::exception&) {
      is_entered_ = false;
    }
  }
  ~EnteredContext() {
    if (is_entered_) context_.leave(former_);
  }
  explicit operator bool() const { return is_entered_; }
  EnteredContext(const EnteredContext&) = delete;
  EnteredContext& operator=(const EnteredContext&) = delete;

 private:
  Context& context_;
  Context::Former former_;
  bool is_entered_ = true;
};

/// What `work` returns; where memory of the device ran out, that of a second try, for which the pool gives back what it
/// keeps.
template <class Work>
auto retry_trimmed(Context& context, const Work& work) {
  try {
    return work();
  } catch (const sdk::Error& error) {
    if (error.code() != BP_OUT_OF_MEMORY) throw;
  }
  context.trim();
  return work();
}

/// The driver. Threads: any.
class Driver {
 public:
  Driver() = default;
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  virtual ~Driver() = default;
  virtual int device_count() = 0;
  virtual DeviceTraits traits(int ordinal) = 0;
  virtual std::unique_ptr<Context> open(int ordinal) = 0;
};

/// Compiles the text of kernels. Threads: any.
class Compiler {
 public:
  Compiler() = default;
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;
  virtual ~Compiler() = default;
  /// For people and for keys: "NVRTC 13.0", and the options of all kernels.
  virtual std::string version() = 0;
  /// Compute capabilities that it knows, as 10 * major + minor, ascending.
  virtual std::vector<int> architectures() = 0;
  /// The image for "sm_90" (code of the device) or "compute_90" (PTX, which the driver compiles).
  /// Errors: BP_INTERNAL with the compiler's log.
  virtual std::string compile(const std::string& source, const std::string& architecture) = 0;
};

/// The BP_* code that says what to do next, for an error's name ("CUDA_ERROR_OUT_OF_MEMORY"); BP_UNSUPPORTED for what a
/// stream that is captured does not take, BP_CANCELLED for a capture that something spoiled.
bp_code error_code(const std::string& name);
/// Throws "<call>: <name>".
[[noreturn]] void throw_cuda(const char* call, const std::string& name);

/// What to compile for: the device's own code, or, for a device newer than the compiler, PTX of the newest it
/// knows. Errors: BP_UNSUPPORTED for a device older than the compiler serves.
std::string choose_architecture(const std::vector<int>& known, const DeviceTraits& traits);

}  // namespace backplane::cuda
