#include "tests/cuda/stand_in.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>
#include <set>
#include <utility>

#include "tests/cuda/stand_in_arithmetic.hpp"

// What a handle points to here.
struct CUevent_st {
  std::uint64_t recorded = 0, done = 0;
  std::uint64_t passed_ns = 0;  ///< by the host's clock
  bool is_captured = false;     ///< was recorded last on a stream that was captured
};
struct CUmod_st {
  std::string source;
};
struct CUctx_st {};
struct CUfunc_st {
  std::string source;
};
struct CUgraph_st {
  std::vector<std::function<bool()>> work;
};
struct CUgraphExec_st {
  std::vector<std::function<bool()>> work;
};
struct CUstream_st {
  std::deque<std::function<bool()>> work;  ///< false: not yet
  CUctx_st* context = nullptr;
  std::unique_ptr<CUgraph_st> captured;  ///< null: it is not captured
  bool is_spoiled = false;               ///< something that a capture does not take was called
  bool ends_with_kernel = false;         ///< of what was put on it, or captured
};

namespace backplane::cuda {
namespace {

/// Memory that is alive, by its first byte.
struct Allocation {
  std::uint64_t bytes = 0;
  const CUctx_st* context = nullptr;
  bool is_pinned = false;
};
std::map<Address, Allocation>& all_memory() {
  static std::map<Address, Allocation> memory;
  return memory;
}

std::set<CUstream_st*>& all_streams() {
  static std::set<CUstream_st*> streams;
  return streams;
}

/// Does what can be done.
void advance() {
  if (stand_in().holds) return;
  for (bool moved = true; moved;) {
    moved = false;
    for (CUstream_st* const stream : all_streams()) {
      while (!stream->work.empty() && stream->work.front()()) {
        stream->work.pop_front();
        moved = true;
      }
    }
  }
}

void put(StreamHandle stream, std::function<bool()> work) {
  stream->ends_with_kernel = false;
  if (stream->captured != nullptr) {
    stream->captured->work.push_back(std::move(work));
    return;
  }
  stream->work.push_back(std::move(work));
  advance();
}

/// Work of kernels.
void put_kernels(StreamHandle stream, std::function<bool()> work) {
  put(stream, std::move(work));
  stream->ends_with_kernel = true;
}

/// Of a wait or a write that is done: true.
bool forget_word(const void* word) {
  std::multiset<const void*>& words = stand_in().awaited_words;
  words.erase(words.find(word));
  return true;
}

/// How many arguments a launch of this text has: one more than there are commas between them, since IN(T, x) has one
/// and stands for two, as FAULT_WORD does, and the hidden two. Those of a product's sizes stand in a macro.
std::size_t count_arguments(const std::string& source) {
  const std::size_t begin = source.find("KERNEL run("), end = source.find(") {", begin);
  if (begin == std::string::npos || end == std::string::npos) return 0;
  const auto at = [&](std::size_t i) { return source.begin() + static_cast<std::ptrdiff_t>(i); };
  const auto commas = [&](std::size_t from, std::size_t to) {
    return static_cast<std::size_t>(std::count(at(from), at(to), ','));
  };
  const std::string head = source.substr(begin, end - begin);
  std::size_t count = commas(begin, end) + (head.find("FAULT_WORD") != std::string::npos ? 4 : 3);
  if (head.find("BATCH_ARGUMENTS") != std::string::npos) {
    const std::size_t sizes = source.find("#define BATCH_ARGUMENTS");
    count += commas(sizes, source.find("factor", sizes));
  }
  return count;
}

/// In the thread-local mode a capture of this thread forbids what is no work on a stream, and is spoiled by it.
void be_no_capture(const char* call) {
  bool is_captured = false;
  for (CUstream_st* const stream : all_streams()) {
    if (stream->captured == nullptr) continue;
    stream->is_spoiled = is_captured = true;
  }
  if (is_captured) throw_cuda(call, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED");
}

/// Of the driver's allocations.
constexpr std::size_t kDriverAlignment = 256;

/// What a device of any generation takes:
/// https://docs.nvidia.com/cuda/cuda-c-programming-guide/#features-and-technical-specifications
void check_extent(const Extent& groups, const Extent& group) {
  constexpr Extent kMostGroups{2147483647, 65535, 65535}, kMostItems{1024, 1024, 64};
  for (std::size_t d = 0; d < 3; ++d) {
    if (groups[d] < 1 || groups[d] > kMostGroups[d] || group[d] < 1 || group[d] > kMostItems[d])
      throw_cuda("launch", "CUDA_ERROR_INVALID_VALUE");
  }
  if (group[0] * group[1] * group[2] > 1024) throw_cuda("launch", "CUDA_ERROR_INVALID_VALUE");
}

/// What the driver takes: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TENSOR__MEMORY.html
void check_boxes(const BoxedMatrices& m) {
  constexpr std::int64_t kMostSize = std::int64_t{1} << 32, kMostStep = std::int64_t{1} << 39;
  bool is_taken = m.address % 16 == 0 && m.box_rows >= 1 && m.box_rows <= 256;
  for (const std::int64_t size : {m.columns, m.rows, m.matrices})
    is_taken = is_taken && size >= 1 && size <= kMostSize;
  for (const std::int64_t step : {m.step, m.matrix_step})
    is_taken = is_taken && step >= 1 && step % 8 == 0 && step < kMostStep;
  if (!is_taken) throw_cuda("describe", "CUDA_ERROR_INVALID_VALUE");
}

/// What kernels read here of a description is behind its first word, as a launch that waits keeps a word of each argument.
BoxMap map_of(const StandInBoxes& boxes) {
  static std::map<std::array<std::int64_t, 19>, StandInBoxes> all;
  const BoxedMatrices& m = boxes.matrices;
  const BoxedPixels& p = boxes.pixels;
  const std::array<std::int64_t, 19> numbers{static_cast<std::int64_t>(m.address),
                                             m.columns,
                                             m.rows,
                                             m.matrices,
                                             m.step,
                                             m.matrix_step,
                                             m.box_rows,
                                             static_cast<std::int64_t>(p.address),
                                             p.channels,
                                             p.width,
                                             p.height,
                                             p.images,
                                             p.lower[0],
                                             p.lower[1],
                                             p.upper[0],
                                             p.upper[1],
                                             p.stride[0],
                                             p.stride[1],
                                             p.box_pixels};
  BoxMap made;
  made.words[0] =
      reinterpret_cast<std::uintptr_t>(&all.insert_or_assign(numbers, boxes).first->second);
  return made;
}

class StandInContext final : public Context {
 public:
  explicit StandInContext(int ordinal) : ordinal_(ordinal) { ++stand_in().live_contexts; }
  ~StandInContext() override {
    --stand_in().live_contexts;
    stand_in().peer_memory.erase(this);
  }
  CUctx_st* native() const override {
    static std::map<int, CUctx_st> primary;
    return stand_in().shares_contexts ? &primary[ordinal_] : const_cast<CUctx_st*>(&context_);
  }
  Former enter() override {
    stand_in().note("enter");
    return {};
  }
  void leave(const Former&) noexcept override { stand_in().calls.emplace_back("leave"); }

  Address allocate(std::uint64_t bytes) override {
    stand_in().note("allocate");
    be_no_capture("allocate");
    if (bytes == 0) throw_cuda("allocate", "CUDA_ERROR_INVALID_VALUE");
    stand_in().live_bytes += bytes;
    stand_in().kept_bytes -= std::min(stand_in().kept_bytes, bytes);
    void* memory = nullptr;
    if (::posix_memalign(&memory, kDriverAlignment, bytes) != 0) throw std::bad_alloc();
    all_memory()[reinterpret_cast<Address>(memory)] = {bytes, native(), false};
    return reinterpret_cast<Address>(memory);
  }
  void free(Address memory) noexcept override {
    const auto found = all_memory().find(memory);
    stand_in().live_bytes -= found->second.bytes;
    stand_in().kept_bytes += found->second.bytes;
    all_memory().erase(found);
    std::free(memory_at<void>(memory));
  }
  void trim() noexcept override {
    stand_in().calls.emplace_back("trim");
    stand_in().kept_bytes = 0;
  }
  void* allocate_pinned(std::uint64_t bytes) override {
    stand_in().note("allocate_pinned");
    be_no_capture("allocate_pinned");
    ++stand_in().live_pinned;
    void* const memory = std::calloc(1, bytes);
    all_memory()[reinterpret_cast<Address>(memory)] = {bytes, native(), true};
    return memory;
  }
  void free_pinned(void* memory) noexcept override {
    stand_in().calls.emplace_back("free_pinned");
    const auto found = all_memory().find(reinterpret_cast<Address>(memory));
    const auto* const end = static_cast<const unsigned char*>(memory) + found->second.bytes;
    const auto& words = stand_in().awaited_words;
    // cuMemFreeHost waits for the device: a stream that still waits for such a word would do so for ever.
    if (words.lower_bound(memory) != words.lower_bound(end))
      stand_in().misuses.emplace_back("a word was freed that work on a stream reads or writes");
    --stand_in().live_pinned;
    all_memory().erase(found);
    std::free(memory);
  }
  PointerTraits traits_of(Address pointer) override {
    stand_in().note("traits_of");
    const auto after = all_memory().upper_bound(pointer);
    if (after == all_memory().begin()) return {};
    const auto& [begin, memory] = *std::prev(after);
    if (pointer >= begin + memory.bytes) return {};
    const bool is_here = stand_in().shares_contexts || memory.context == native();
    return {true, !memory.is_pinned, is_here, begin, memory.bytes};
  }
  bool enable_peer(Context& owner) override {
    stand_in().note("enable_peer");
    if (owner.native() == native()) throw_cuda("enable_peer", "CUDA_ERROR_INVALID_CONTEXT");
    if (stand_in().peers) stand_in().peer_memory.insert(&owner);
    return stand_in().peers;
  }

  StreamHandle create_stream() override {
    stand_in().note("create_stream");
    be_no_capture("create_stream");
    ++stand_in().live_streams;
    auto* const stream = new CUstream_st;
    stream->context = native();
    all_streams().insert(stream);
    return stream;
  }
  void destroy_stream(StreamHandle stream) noexcept override {
    --stand_in().live_streams;
    all_streams().erase(stream);
    delete stream;
  }
  void synchronize(StreamHandle stream) override {
    stand_in().note("synchronize");
    if (stream->captured != nullptr) {
      stream->is_spoiled = true;
      throw_cuda("synchronize", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED");
    }
    advance();
    if (!stream->work.empty()) throw std::logic_error("this wait would never end");
    stand_in().host_ns = std::max(stand_in().host_ns, stand_in().ahead_ns);
  }
  bool owns(StreamHandle stream) override {
    // CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are of whatever context is current.
    if (reinterpret_cast<std::uintptr_t>(stream) <= 2) return true;
    if (all_streams().count(stream) == 0) {
      stand_in().misuses.emplace_back("the context of what is no stream was asked for");
      return false;
    }
    return stand_in().shares_contexts || stream->context == native();
  }

  EventHandle create_event() override {
    stand_in().note("create_event");
    be_no_capture("create_event");
    ++stand_in().live_events;
    return new CUevent_st;
  }
  EventHandle create_timer() override { return create_event(); }
  std::uint64_t nanoseconds_between(EventHandle begin, EventHandle end) override {
    stand_in().note("nanoseconds_between");
    if (begin->done == 0 || end->done == 0) throw_cuda("elapsed", "CUDA_ERROR_NOT_READY");
    return end->passed_ns - begin->passed_ns;
  }
  void destroy_event(EventHandle event) noexcept override {
    --stand_in().live_events;
    delete event;
  }
  void record(EventHandle event, StreamHandle stream) override {
    stand_in().note("record");
    const std::uint64_t number = ++event->recorded;
    event->is_captured = stream->captured != nullptr;
    put(stream, [event, number] {
      event->passed_ns = (stand_in().has_own_clock ? 0 : steady_ns()) + stand_in().ahead_ns;
      return event->done = number, true;
    });
  }
  void wait(StreamHandle stream, EventHandle event) override {
    stand_in().note("wait");
    // Neither may a graph wait for what is outside of it, nor the other way round.
    if (event->is_captured && stream->captured == nullptr)
      throw_cuda("wait", "CUDA_ERROR_CAPTURED_EVENT");
    if (!event->is_captured && stream->captured != nullptr) {
      stream->is_spoiled = true;
      throw_cuda("wait", "CUDA_ERROR_STREAM_CAPTURE_ISOLATION");
    }
    const std::uint64_t number = event->recorded;
    put(stream, [event, number] { return event->done >= number; });
  }
  bool is_done(EventHandle event) override {
    be_no_capture("is_done");
    if (event->is_captured) throw_cuda("is_done", "CUDA_ERROR_CAPTURED_EVENT");
    advance();
    return event->done >= event->recorded;
  }
  void synchronize(EventHandle event) override {
    stand_in().note("synchronize_event");
    be_no_capture("synchronize_event");
    if (!is_done(event)) throw std::logic_error("this wait would never end");
  }
  void wait_value(StreamHandle stream, std::uint64_t* word, std::uint64_t value) override {
    stand_in().note("wait_value");
    stand_in().awaited_words.insert(word);
    // As CU_STREAM_WAIT_VALUE_GEQ says in cuda.h: a cyclic comparison.
    put(stream, [word, value] {
      return static_cast<std::int64_t>(*word - value) >= 0 && forget_word(word);
    });
  }
  void write_value(StreamHandle stream, std::uint64_t* word, std::uint64_t value) override {
    stand_in().note("write_value");
    stand_in().awaited_words.insert(word);
    put(stream, [word, value] { return *word = value, forget_word(word); });
  }

  void copy(StreamHandle stream, Address to, Address from, std::uint64_t bytes) override {
    stand_in().note("copy");
    if (to != from && to < from + bytes && from < to + bytes)
      stand_in().misuses.emplace_back("a copy between pieces of memory that overlap");
    put(stream, [=] {
      std::memmove(memory_at<void>(to), memory_at<void>(from), bytes);
      stand_in().ahead_ns += stand_in().copy_takes_ns;
      return true;
    });
  }

  ModuleHandle load(const std::string& image) override {
    stand_in().note("load");
    be_no_capture("load");
    stand_in().take_device_memory("load");
    ++stand_in().live_modules;
    return new CUmod_st{image};
  }
  void unload(ModuleHandle module) noexcept override {
    --stand_in().live_modules;
    functions_.erase(module);
    delete module;
  }
  FunctionHandle function(ModuleHandle module, std::uint32_t local_bytes) override {
    stand_in().note("function");
    be_no_capture("function");
    // Of a group, on the largest: https://docs.nvidia.com/cuda/hopper-tuning-guide/
    constexpr std::uint32_t kMostLocal = 227 * 1024;
    if (local_bytes > kMostLocal) throw_cuda("function", "CUDA_ERROR_INVALID_VALUE");
    auto& function = functions_[module];
    function = std::make_unique<CUfunc_st>(CUfunc_st{module->source});
    return function.get();
  }
  BoxMap describe(const BoxedMatrices& matrices) override {
    check_boxes(matrices);
    return map_of({matrices, {}});
  }
  BoxMap describe_pixels(const BoxedPixels& pixels) override {
    check_boxes({pixels.address, pixels.type, pixels.channels, pixels.width * pixels.height,
                 pixels.images, pixels.channels, pixels.channels * pixels.width * pixels.height,
                 pixels.box_pixels});
    for (std::size_t axis = 0; axis < 2; ++axis) {
      for (const int corner : {pixels.lower[axis], pixels.upper[axis]}) {
        if (corner < -128 || corner > 127) throw_cuda("describe", "CUDA_ERROR_INVALID_VALUE");
      }
      if (pixels.stride[axis] < 1 || pixels.stride[axis] > 8)
        throw_cuda("describe", "CUDA_ERROR_INVALID_VALUE");
    }
    return map_of({{}, pixels});
  }
  void launch(FunctionHandle function, const Extent& groups, const Extent& group,
              std::uint32_t local_bytes, StreamHandle stream, void** arguments) override {
    stand_in().note("launch");
    put_kernel(function, groups, group, local_bytes, stream, arguments);
    stand_in().early.push_back(false);
  }
  bool launch_early(FunctionHandle function, const Extent& groups, const Extent& group,
                    std::uint32_t local_bytes, StreamHandle stream, void** arguments) override {
    stand_in().note(stand_in().takes_early_launches ? "launch" : "launch_early");
    if (!stand_in().takes_early_launches) return false;
    if (function->source.find(") { IN_TURN;") == std::string::npos)
      stand_in().misuses.emplace_back("a kernel begins early that does not wait");
    if (!stream->ends_with_kernel)
      stand_in().misuses.emplace_back("a kernel begins early behind what is none");
    put_kernel(function, groups, group, local_bytes, stream, arguments);
    stand_in().early.push_back(true);
    return true;
  }

  void begin_capture(StreamHandle stream) override {
    stand_in().note("begin_capture");
    stream->captured = std::make_unique<CUgraph_st>();
    stream->is_spoiled = stream->ends_with_kernel = false;
  }
  GraphHandle end_capture(StreamHandle stream) override {
    std::unique_ptr<CUgraph_st> graph = std::move(stream->captured);
    stand_in().note("end_capture");
    if (stream->is_spoiled) throw_cuda("end_capture", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED");
    ++stand_in().live_graphs;
    return graph.release();
  }
  bool is_captured(StreamHandle stream) override { return stream->captured != nullptr; }
  void destroy_graph(GraphHandle graph) noexcept override {
    --stand_in().live_graphs;
    delete graph;
  }
  GraphExecHandle instantiate(GraphHandle graph) override {
    stand_in().note("instantiate");
    be_no_capture("instantiate");
    stand_in().take_device_memory("instantiate");
    ++stand_in().live_execs;
    return new CUgraphExec_st{graph->work};
  }
  bool update(GraphExecHandle exec, GraphHandle graph) override {
    stand_in().note("update");
    be_no_capture("update");
    if (!stand_in().updates_graphs || exec->work.size() != graph->work.size()) return false;
    exec->work = graph->work;
    return true;
  }
  void destroy_exec(GraphExecHandle exec) noexcept override {
    --stand_in().live_execs;
    delete exec;
  }
  void launch_graph(GraphExecHandle exec, StreamHandle stream) override {
    stand_in().note("launch_graph");
    for (const std::function<bool()>& work : exec->work) put(stream, work);
  }

 private:
  static void run(const std::string& source, const Extent& groups, const Extent& group,
                  std::uint32_t local_bytes, void** arguments) {
    stand_in().local_bytes = local_bytes;
    if (stand_in().kernel) stand_in().kernel(source, groups, group, arguments);
  }
  static void put_kernel(FunctionHandle function, const Extent& groups, const Extent& group,
                         std::uint32_t local_bytes, StreamHandle stream, void** arguments) {
    check_extent(groups, group);
    if (stream->captured == nullptr && stream->work.empty() && !stand_in().holds) {
      stream->ends_with_kernel = true;
      run(function->source, groups, group, local_bytes, arguments);
      return;
    }
    // The driver copies the arguments; here all are words of 8 bytes.
    std::vector<std::uint64_t> words(count_arguments(function->source));
    for (std::size_t i = 0; i < words.size(); ++i) std::memcpy(&words[i], arguments[i], 8);
    put_kernels(stream, [source = function->source, groups, group, local_bytes, words] {
      std::vector<std::uint64_t> kept = words;
      std::vector<void*> pointers;
      for (std::uint64_t& word : kept) pointers.push_back(&word);
      run(source, groups, group, local_bytes, pointers.data());
      return true;
    });
  }

  int ordinal_;
  CUctx_st context_;
  std::map<ModuleHandle, std::unique_ptr<CUfunc_st>> functions_;
};

class StandInDriver final : public Driver {
 public:
  int device_count() override { return static_cast<int>(stand_in().devices.size()); }
  DeviceTraits traits(int ordinal) override {
    return stand_in().devices.at(static_cast<std::size_t>(ordinal));
  }
  std::unique_ptr<Context> open(int ordinal) override {
    stand_in().note("open");
    return std::make_unique<StandInContext>(ordinal);
  }
};

/// What is put on the stream takes as long as the way does.
void begin_way(StreamHandle stream, const std::string& what, std::uint64_t number,
               const StandInWay& way) {
  stand_in().note(sdk::message(what, ' ', number));
  if (!way.error.empty()) throw sdk::Error(BP_INTERNAL, way.error);
  // A replay asks the host for nothing.
  std::uint64_t begin_ns = 0;
  if (stream->captured == nullptr) begin_ns = stand_in().host_ns += stand_in().host_takes_ns;
  put_kernels(stream, [takes_ns = way.takes_ns, begin_ns] {
    StandInState& all = stand_in();
    if (begin_ns > 0) all.ahead_ns = std::max(all.ahead_ns, begin_ns);
    all.ahead_ns += takes_ns + std::exchange(all.rises_ns, all.rises_ns / 2);
    return true;
  });
}

/// Computes products where the stream has come to them, as the real library's descriptions say.
class StandInProduct final : public PreparedProduct {
 public:
  StandInProduct(const LibraryProduct& product, const ProductAlgorithm& algorithm, double factor,
                 double addend_factor)
      : product_(product),
        number_(algorithm.words[0]),
        factor_(factor),
        addend_factor_(addend_factor) {}
  void enqueue(KernelQueue& queue, const ProductAddresses& at) const override {
    const StreamHandle stream = queue.for_library();
    stand_in().note("product");
    stand_in().constant_weights.push_back(at.a_is_constant);
    begin_way(stream, "product", number_, stand_in().algorithm_ways[number_]);
    for (const Address address : {at.a, at.b, at.c, at.d, at.bias}) {
      if (address % product_.alignment != 0) throw std::logic_error("an address is not aligned");
    }
    // Whatever was promised: cuBLASLt has been seen to offer algorithms that fault on such a one.
    if (product_.has_bias && at.bias % kLibraryAlignment != 0)
      throw std::logic_error("the bias is not aligned");
    put_kernels(stream, [product = product_, factor = factor_, addend_factor = addend_factor_, at] {
      if (stand_in().libraries_compute) multiply(product, factor, addend_factor, at);
      return true;
    });
  }

 private:
  LibraryProduct product_;
  std::uint64_t number_;
  double factor_, addend_factor_;
};

class StandInProducts final : public ProductLibrary {
 public:
  std::string version() override { return stand_in().library_version; }
  std::vector<ProductAlgorithm> propose(const LibraryProduct& product, std::uint64_t) override {
    stand_in().note("propose");
    stand_in().products.push_back(product);
    if (product.alignment < stand_in().least_alignment || !has_algorithms(product)) return {};
    if (stand_in().multiplies && !stand_in().multiplies(product)) return {};
    return stand_in().proposals;
  }
  bool serves(const LibraryProduct&, ProductAlgorithm&) override {
    stand_in().note("serves");
    return stand_in().serves_kept;
  }
  std::unique_ptr<const PreparedProduct> prepare(const LibraryProduct& product,
                                                 const ProductAlgorithm& algorithm, double factor,
                                                 double addend_factor) override {
    stand_in().algorithms.push_back(algorithm);
    return std::make_unique<StandInProduct>(product, algorithm, factor, addend_factor);
  }
};

class StandInConvolution final : public PreparedConvolution {
 public:
  StandInConvolution(const Convolution& form, std::size_t number) : form_(form), number_(number) {}
  std::uint64_t workspace_bytes() const override {
    return stand_in().convolution_workspace + way().workspace_bytes;
  }
  std::string kept() const override { return sdk::message(number_, " kept ", form_.key()); }

 private:
  void put_on(KernelQueue& queue, const ConvolutionAddresses& at) const override {
    const StreamHandle stream = queue.for_library();
    stand_in().note("convolution");
    stand_in().constant_weights.push_back(at.w_is_constant);
    StandInWay taken = way();
    if (form_.is_fused()) taken.takes_ns += stand_in().fused_takes_ns;
    begin_way(stream, "convolution", number_, taken);
    for (const Address address : {at.x, at.w, at.bias, at.addend, at.y}) {
      if (address % form_.alignment != 0) throw std::logic_error("an address is not aligned");
    }
    put_kernels(stream, [form = form_, at] {
      if (!stand_in().libraries_compute) return true;
      if (form.is_transposed) return convolve_transposed(form, at), true;
      return convolve(form, at), true;
    });
  }

  const StandInWay& way() const { return stand_in().ways.at(number_); }

  Convolution form_;
  std::size_t number_;
};

class StandInConvolutions final : public ConvolutionLibrary {
 public:
  std::string version() override { return stand_in().library_version; }
  void begin(const Convolution&) override { stand_in().note("begin"); }
  std::string offer(const Convolution& form, std::uint64_t, const Taker& take) override {
    stand_in().note("plan");
    stand_in().convolutions.push_back(form);
    // All that the library has of int8 with tensor cores.
    if (form.type == sdk::DataType::Int8 &&
        (form.is_fused() || form.is_transposed || !form.is_channels_last))
      return "no such int8";
    if (stand_in().plans && !stand_in().plans(form)) return "the test has it so";
    for (std::size_t i = 0; i < stand_in().ways.size(); ++i) {
      if (take(std::make_shared<const StandInConvolution>(form, i))) return "";
    }
    return "there are no more";
  }
  std::shared_ptr<const PreparedConvolution> restore(const Convolution& form,
                                                     const std::string& kept) override {
    stand_in().note("restore");
    const auto plan = std::make_shared<const StandInConvolution>(form, std::stoull(kept));
    return stand_in().serves_kept && kept == plan->kept() ? plan : nullptr;
  }
};

class StandInAttention final : public PreparedAttention {
 public:
  StandInAttention(const Attention& form, std::size_t number) : form_(form), number_(number) {}
  std::uint64_t workspace_bytes() const override {
    return stand_in().attention_workspace + way().workspace_bytes;
  }
  std::string kept() const override { return sdk::message(number_, " kept ", form_.key()); }

 private:
  void put_on(KernelQueue& queue, const AttentionAddresses& at, float scale) const override {
    const StreamHandle stream = queue.for_library();
    stand_in().note("attention");
    begin_way(stream, "attention", number_, way());
    for (const Address address : {at.q, at.k, at.v, at.mask, at.y}) {
      if (address % kLibraryAlignment != 0) throw std::logic_error("an address is not aligned");
    }
    put_kernels(stream, [form = form_, at, scale] {
      if (stand_in().libraries_compute) attend(form, at, scale);
      return true;
    });
  }

  const StandInWay& way() const { return stand_in().ways.at(number_); }

  Attention form_;
  std::size_t number_;
};

class StandInAttentions final : public AttentionLibrary {
 public:
  std::string version() override { return stand_in().library_version; }
  std::string offer(const Attention& form, std::uint64_t, const Taker& take) override {
    stand_in().note("plan");
    stand_in().attentions.push_back(form);
    if (stand_in().attends && !stand_in().attends(form)) return "the test has it so";
    for (std::size_t i = 0; i < stand_in().ways.size(); ++i) {
      if (take(std::make_shared<const StandInAttention>(form, i))) return "";
    }
    return "there are no more";
  }
  std::shared_ptr<const PreparedAttention> restore(const Attention& form,
                                                   const std::string& kept) override {
    stand_in().note("restore");
    const auto plan = std::make_shared<const StandInAttention>(form, std::stoull(kept));
    return stand_in().serves_kept && kept == plan->kept() ? plan : nullptr;
  }
};

class StandInCompiler final : public Compiler {
 public:
  std::string version() override { return "stand-in 1"; }
  std::vector<int> architectures() override { return {75, 80, 86, 90}; }
  std::string compile(const std::string& source, const std::string&) override {
    stand_in().note("compile");
    compiled_sources().push_back(source);
    return source;
  }
};

class StandInEngine final : public Engine {
 public:
  Compiler& compiler() override { return compiler_; }
  std::unique_ptr<ProductLibrary> open_products(Context&) override {
    stand_in().note("open_products");
    return std::make_unique<StandInProducts>();
  }
  std::unique_ptr<ConvolutionLibrary> open_convolutions(Context&) override {
    if (!stand_in().has_convolutions) return nullptr;
    return std::make_unique<StandInConvolutions>();
  }
  std::unique_ptr<AttentionLibrary> open_attentions(Context&) override {
    if (!stand_in().has_convolutions) return nullptr;
    return std::make_unique<StandInAttentions>();
  }

 private:
  StandInCompiler compiler_;
};

}  // namespace

std::size_t StandInState::count(const std::string& call) const {
  return static_cast<std::size_t>(std::count(calls.begin(), calls.end(), call));
}

std::size_t StandInState::count_of_run(const std::string& call) const {
  return static_cast<std::size_t>(
      std::count(calls.begin() + static_cast<std::ptrdiff_t>(std::min(run_began, calls.size())),
                 calls.end(), call));
}

void StandInState::note(const std::string& call) {
  calls.push_back(call);
  std::vector<std::string>& errors = failures[call];
  if (errors.empty()) return;
  const std::string name = errors.front();
  errors.erase(errors.begin());
  if (!name.empty()) throw_cuda(call.c_str(), name);
}

void StandInState::take_device_memory(const char* call) const {
  if (is_full && kept_bytes > 0) throw_cuda(call, "CUDA_ERROR_OUT_OF_MEMORY");
}

std::uint64_t steady_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

StandInState& stand_in() {
  static StandInState state;
  return state;
}

DeviceTraits stand_in_device(int major, int minor) {
  DeviceTraits traits;
  traits.name = "Stand-in";
  traits.driver = "no driver";
  traits.major = major;
  traits.minor = minor;
  traits.memory_bytes = 1ull << 30;
  traits.memory_bytes_per_ns = 1000;
  traits.multiprocessors = 4;
  traits.has_pools = traits.has_stream_values = true;
  traits.has_early_launches = traits.has_boxes = major >= 9;
  return traits;
}

std::vector<std::string>& compiled_sources() {
  static std::vector<std::string> sources;
  return sources;
}

std::unique_ptr<Driver> load_stand_in() { return std::make_unique<StandInDriver>(); }
std::unique_ptr<Engine> load_stand_in_engine() {
  stand_in().note("open_engine");
  return std::make_unique<StandInEngine>();
}
Libraries stand_in_libraries() {
  // What is chosen is not to depend on how busy the machine is that the test runs on.
  constexpr std::uint64_t kLong = 600'000'000'000;
  return {load_stand_in,
          load_stand_in_engine,
          [] { return stand_in().engine_is_there; },
          {kLong, kLong}};
}

}  // namespace backplane::cuda
