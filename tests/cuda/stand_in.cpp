#include "tests/cuda/stand_in.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <new>
#include <set>

#include "plugins/common/half.hpp"

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

/// An element of any type that libraries compute with.
double load(Address start, sdk::DataType type, std::int64_t index) {
  switch (type) {
    case sdk::DataType::Double:
      return memory_at<double>(start)[index];
    case sdk::DataType::Float16:
      return static_cast<double>(common::to_float(memory_at<sdk::Half>(start)[index]));
    case sdk::DataType::BFloat16:
      return static_cast<double>(common::to_float(memory_at<sdk::BFloat16>(start)[index]));
    case sdk::DataType::Int8:
      return memory_at<std::int8_t>(start)[index];
    case sdk::DataType::Int32:
      return memory_at<std::int32_t>(start)[index];
    default:
      return static_cast<double>(memory_at<float>(start)[index]);
  }
}

void store(Address start, sdk::DataType type, std::int64_t index, double value) {
  switch (type) {
    case sdk::DataType::Double:
      memory_at<double>(start)[index] = value;
      return;
    case sdk::DataType::Float16:
      memory_at<sdk::Half>(start)[index] = common::to_half(static_cast<float>(value));
      return;
    case sdk::DataType::BFloat16:
      memory_at<sdk::BFloat16>(start)[index] = common::to_bfloat16(static_cast<float>(value));
      return;
    case sdk::DataType::Int32:
      memory_at<std::int32_t>(start)[index] = static_cast<std::int32_t>(value);
      return;
    default:
      memory_at<float>(start)[index] = static_cast<float>(value);
  }
}

/// What the library does: matrices lie column after column.
class LibraryArithmetic {
 public:
  LibraryArithmetic(const LibraryProduct& product, double factor, double addend_factor,
                    const ProductAddresses& at)
      : product_(product), factor_(factor), addend_factor_(addend_factor), at_(at) {}

  void multiply() const {
    const std::int64_t of_batch = product_.d.rows * product_.d.columns;
    for (std::int64_t i = 0; i < product_.batch * of_batch; ++i) {
      const std::int64_t batch = i / of_batch, row = i % of_batch / product_.d.columns;
      const std::int64_t column = i % product_.d.columns;
      store(at_.d, product_.d.type, place(product_.d, batch, row, column),
            finished(sum(batch, row, column), batch, row, column));
    }
  }

 private:
  static std::int64_t place(const LibraryMatrix& matrix, std::int64_t batch, std::int64_t row,
                            std::int64_t column) {
    const std::int64_t r = matrix.is_transposed ? column : row;
    const std::int64_t c = matrix.is_transposed ? row : column;
    if (r >= matrix.rows || c >= matrix.columns || matrix.step < matrix.rows)
      throw std::logic_error("an element is not in its matrix");
    return batch * matrix.batch_step + c * matrix.step + r;
  }
  static double element(Address start, const LibraryMatrix& matrix, std::int64_t batch,
                        std::int64_t row, std::int64_t column) {
    return load(start, matrix.type, place(matrix, batch, row, column));
  }

  double sum(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    const std::int64_t depth = product_.a.is_transposed ? product_.a.rows : product_.a.columns;
    double total = 0;
    for (std::int64_t k = 0; k < depth; ++k)
      total +=
          element(at_.a, product_.a, batch, row, k) * element(at_.b, product_.b, batch, k, column);
    return total;
  }

  double finished(double sum, std::int64_t batch, std::int64_t row, std::int64_t column) const {
    sum *= factor_;
    if (product_.has_addend) sum += addend_factor_ * element(at_.c, product_.c, batch, row, column);
    if (product_.has_bias) sum += load(at_.bias, product_.d.type, row);
    if (product_.epilogue == Epilogue::kRelu) sum = std::max(sum, 0.0);
    if (product_.epilogue == Epilogue::kGelu)
      sum *= 0.5 * (1 + std::tanh(0.7978845608028654 * (sum + 0.044715 * sum * sum * sum)));
    return sum;
  }

  const LibraryProduct& product_;
  double factor_, addend_factor_;
  const ProductAddresses& at_;
};

/// What the library wants of int8: a transposed, b not, columns, steps and the depth in whole words; nothing is added.
void require_int8_form(const LibraryProduct& product) {
  const bool is_right =
      product.a.is_transposed && !product.b.is_transposed && !product.has_addend &&
      !product.has_bias && product.epilogue == Epilogue::kNone && product.a.step % 4 == 0 &&
      product.b.step % 4 == 0 && product.d.step % 4 == 0 && product.d.rows % 4 == 0 &&
      product.a.rows % 4 == 0 && product.alignment % 4 == 0;
  if (!is_right) throw std::logic_error("no form of int8: " + product.key());
}

void multiply(const LibraryProduct& product, double factor, double addend_factor,
              const ProductAddresses& at) {
  if (product.a.type == sdk::DataType::Int8) require_int8_form(product);
  LibraryArithmetic(product, factor, addend_factor, at).multiply();
}

void put(StreamHandle stream, std::function<bool()> work) {
  if (stream->captured != nullptr) {
    stream->captured->work.push_back(std::move(work));
    return;
  }
  stream->work.push_back(std::move(work));
  advance();
}

/// Of a wait or a write that is done: true.
bool forget_word(const void* word) {
  std::multiset<const void*>& words = stand_in().awaited_words;
  words.erase(words.find(word));
  return true;
}

/// How many arguments a launch of this text has: one more than there are commas between them, since IN(T, x) has one
/// and stands for two, as FAULT_WORD does, and the hidden two.
std::size_t count_arguments(const std::string& source) {
  const std::size_t begin = source.find("KERNEL run("), end = source.find(") {", begin);
  if (begin == std::string::npos || end == std::string::npos) return 0;
  const auto at = [&](std::size_t i) { return source.begin() + static_cast<std::ptrdiff_t>(i); };
  const bool may_fault = source.substr(begin, end - begin).find("FAULT_WORD") != std::string::npos;
  return static_cast<std::size_t>(std::count(at(begin), at(end), ',')) + (may_fault ? 4 : 3);
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
  CUctx_st* enter() override { return nullptr; }
  void leave(CUctx_st*) noexcept override {}

  Address allocate(std::uint64_t bytes) override {
    stand_in().note("allocate");
    stand_in().live_bytes += bytes;
    void* memory = nullptr;
    if (::posix_memalign(&memory, kDriverAlignment, bytes) != 0) throw std::bad_alloc();
    all_memory()[reinterpret_cast<Address>(memory)] = {bytes, native(), false};
    return reinterpret_cast<Address>(memory);
  }
  void free(Address memory) noexcept override {
    const auto found = all_memory().find(memory);
    stand_in().live_bytes -= found->second.bytes;
    all_memory().erase(found);
    std::free(memory_at<void>(memory));
  }
  void trim() noexcept override { stand_in().calls.emplace_back("trim"); }
  void* allocate_pinned(std::uint64_t bytes) override {
    stand_in().note("allocate_pinned");
    ++stand_in().live_pinned;
    void* const memory = std::calloc(1, bytes);
    all_memory()[reinterpret_cast<Address>(memory)] = {bytes, native(), true};
    return memory;
  }
  void free_pinned(void* memory) noexcept override {
    if (stand_in().awaited_words.count(memory) > 0)
      stand_in().misuses.emplace_back("a word was freed that work on a stream reads or writes");
    --stand_in().live_pinned;
    all_memory().erase(reinterpret_cast<Address>(memory));
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
      event->passed_ns = steady_ns();
      return event->done = number, true;
    });
  }
  void wait(StreamHandle stream, EventHandle event) override {
    stand_in().note("wait");
    const std::uint64_t number = event->recorded;
    put(stream, [event, number] { return event->done >= number; });
  }
  bool is_done(EventHandle event) override {
    if (event->is_captured) throw_cuda("is_done", "CUDA_ERROR_CAPTURED_EVENT");
    advance();
    return event->done >= event->recorded;
  }
  void synchronize(EventHandle event) override {
    stand_in().note("synchronize_event");
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
    put(stream, [=] {
      std::memmove(memory_at<void>(to), memory_at<void>(from), bytes);
      return true;
    });
  }

  ModuleHandle load(const std::string& image) override {
    stand_in().note("load");
    ++stand_in().live_modules;
    return new CUmod_st{image};
  }
  void unload(ModuleHandle module) noexcept override {
    --stand_in().live_modules;
    functions_.erase(module);
    delete module;
  }
  FunctionHandle function(ModuleHandle module) override {
    stand_in().note("function");
    auto& function = functions_[module];
    function = std::make_unique<CUfunc_st>(CUfunc_st{module->source});
    return function.get();
  }
  void launch(FunctionHandle function, const Extent& groups, const Extent& group,
              StreamHandle stream, void** arguments) override {
    stand_in().note("launch");
    check_extent(groups, group);
    if (stream->captured == nullptr && stream->work.empty() && !stand_in().holds) {
      if (stand_in().kernel) stand_in().kernel(function->source, groups, group, arguments);
      return;
    }
    // The driver copies the arguments; here all are words of 8 bytes.
    std::vector<std::uint64_t> words(count_arguments(function->source));
    for (std::size_t i = 0; i < words.size(); ++i) std::memcpy(&words[i], arguments[i], 8);
    put(stream, [source = function->source, groups, group, words] {
      std::vector<std::uint64_t> kept = words;
      std::vector<void*> pointers;
      for (std::uint64_t& word : kept) pointers.push_back(&word);
      if (stand_in().kernel) stand_in().kernel(source, groups, group, pointers.data());
      return true;
    });
  }

  void begin_capture(StreamHandle stream) override {
    stand_in().note("begin_capture");
    stream->captured = std::make_unique<CUgraph_st>();
    stream->is_spoiled = false;
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
    ++stand_in().live_execs;
    return new CUgraphExec_st{graph->work};
  }
  bool update(GraphExecHandle exec, GraphHandle graph) override {
    stand_in().note("update");
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

/// Computes products where the stream has come to them, as the real library's descriptions say.
class StandInProduct final : public PreparedProduct {
 public:
  StandInProduct(const LibraryProduct& product, double factor, double addend_factor)
      : product_(product), factor_(factor), addend_factor_(addend_factor) {}
  void enqueue(StreamHandle stream, const ProductAddresses& at) const override {
    stand_in().note("product");
    for (const Address address : {at.a, at.b, at.c, at.d, at.bias}) {
      if (address % product_.alignment != 0) throw std::logic_error("an address is not aligned");
    }
    put(stream, [product = product_, factor = factor_, addend_factor = addend_factor_, at] {
      multiply(product, factor, addend_factor, at);
      return true;
    });
  }

 private:
  LibraryProduct product_;
  double factor_, addend_factor_;
};

/// Whether cuBLASLt has algorithms for it, by its documentation of cublasLtMatmul: int8 in the form TN alone, of whole words, with
/// sums of int32 and nothing after them; and as many matrices as a grid's axis has groups.
bool has_algorithms(const LibraryProduct& product) {
  constexpr std::int64_t kMostMatrices = 65535;
  for (const LibraryMatrix* const matrix : {&product.a, &product.b, &product.c, &product.d}) {
    if (matrix->step < matrix->rows || matrix->rows < 1 || matrix->columns < 1)
      throw std::logic_error("CUBLAS_STATUS_INVALID_VALUE: " + product.key());
  }
  if (product.batch > kMostMatrices) return false;
  if (product.batch > 1 && product.d.batch_step == 0)
    throw std::logic_error("results that lie on each other: " + product.key());
  if (product.a.type != sdk::DataType::Int8) return product.d.type == product.a.type;
  const auto is_whole = [](std::int64_t count) { return count % kInt8Word == 0; };
  return product.d.type == sdk::DataType::Int32 && product.a.is_transposed &&
         !product.b.is_transposed && product.epilogue == Epilogue::kNone && !product.has_bias &&
         product.alignment >= kInt8Word && is_whole(product.d.rows) && is_whole(product.a.rows) &&
         is_whole(product.a.step) && is_whole(product.b.step) && is_whole(product.d.step);
}

class StandInProducts final : public ProductLibrary {
 public:
  std::string version() override { return stand_in().library_version; }
  std::vector<ProductAlgorithm> propose(const LibraryProduct& product, std::uint64_t) override {
    stand_in().note("propose");
    stand_in().products.push_back(product);
    if (product.alignment < stand_in().least_alignment || !has_algorithms(product)) return {};
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
    return std::make_unique<StandInProduct>(product, factor, addend_factor);
  }
};

/// Of a tensor of `channels` channels and `size` points: where an element lies.
std::int64_t place_in(const Convolution& form, std::int64_t image, std::int64_t channel,
                      std::int64_t point, std::int64_t channels, std::int64_t size) {
  return form.is_channels_last ? (image * size + point) * channels + channel
                               : (image * channels + channel) * size + point;
}

/// Convolves by the definition.
void convolve(const Convolution& form, const ConvolutionAddresses& at) {
  const auto count = [](const std::array<std::int64_t, 3>& dims) {
    return dims[0] * dims[1] * dims[2];
  };
  const auto place = [](std::int64_t index, const std::array<std::int64_t, 3>& dims) {
    return std::array<std::int64_t, 3>{index / (dims[1] * dims[2]), index / dims[2] % dims[1],
                                       index % dims[2]};
  };
  const std::int64_t points = count(form.out), taps = count(form.kernel);
  const std::int64_t depth = form.channels / form.groups;
  for (std::int64_t i = 0; i < form.batch * form.filters * points; ++i) {
    const std::int64_t filter = i / points % form.filters, image = i / points / form.filters;
    const std::int64_t first = filter / (form.filters / form.groups) * depth;
    const auto to = place(i % points, form.out);
    double sum = 0;
    for (std::int64_t k = 0; k < depth * taps; ++k) {
      const auto tap = place(k % taps, form.kernel);
      std::int64_t from = 0;
      bool is_inside = true;
      for (std::size_t axis = 0; axis < 3; ++axis) {
        const std::int64_t p =
            to[axis] * form.stride[axis] + tap[axis] * form.dilation[axis] - form.pad_begin[axis];
        is_inside = is_inside && p >= 0 && p < form.in[axis];
        from = from * form.in[axis] + p;
      }
      if (is_inside)
        sum += load(at.x, form.type,
                    place_in(form, image, first + k / taps, from, form.channels, count(form.in))) *
               load(at.w, form.type, place_in(form, filter, k / taps, k % taps, depth, taps));
    }
    const std::int64_t y = place_in(form, image, filter, i % points, form.filters, points);
    if (form.has_addend) sum += load(at.addend, form.type, y);
    if (form.has_bias) sum += load(at.bias, form.type, filter);
    store(at.y, form.result_type(), y, form.has_relu ? std::max(sum, 0.0) : sum);
  }
}

/// The transposed one, by gathering.
void convolve_transposed(const Convolution& form, const ConvolutionAddresses& at) {
  std::int64_t points = 1, taps = 1;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    points *= form.out[axis];
    taps *= form.kernel[axis];
    // Of a convolution from y to x, the sizes must be right.
    const std::int64_t span = form.out[axis] + form.pad_begin[axis] + form.pad_end[axis] -
                              (form.kernel[axis] - 1) * form.dilation[axis] - 1;
    if (axis < form.rank && (span < 0 || span / form.stride[axis] + 1 != form.in[axis]))
      throw std::logic_error("no gradient: " + form.key());
  }
  const std::int64_t depth = form.channels / form.groups, width = form.filters / form.groups;
  for (std::int64_t i = 0; i < form.batch * form.filters * points; ++i) {
    const std::int64_t filter = i / points % form.filters, image = i / points / form.filters;
    double sum = form.has_bias ? load(at.bias, form.type, filter) : 0;
    for (std::int64_t k = 0; k < depth * taps; ++k) {
      const std::int64_t channel = filter / width * depth + k / taps;
      std::int64_t place = i % points, tap = k % taps, from = 0, step = 1;
      bool is_reached = true;
      for (std::size_t axis = form.rank; axis-- > 0;) {
        const std::int64_t moved = place % form.out[axis] + form.pad_begin[axis] -
                                   tap % form.kernel[axis] * form.dilation[axis];
        place /= form.out[axis];
        tap /= form.kernel[axis];
        is_reached = is_reached && moved >= 0 && moved % form.stride[axis] == 0 &&
                     moved / form.stride[axis] < form.in[axis];
        from += moved / form.stride[axis] * step;
        step *= form.in[axis];
      }
      if (is_reached)
        sum +=
            load(at.x, form.type, place_in(form, image, channel, from, form.channels, step)) *
            load(at.w, form.type, place_in(form, channel, filter % width, k % taps, width, taps));
    }
    store(at.y, form.type, place_in(form, image, filter, i % points, form.filters, points), sum);
  }
}

class StandInConvolution final : public PreparedConvolution {
 public:
  explicit StandInConvolution(const Convolution& form) : form_(form) {}
  std::uint64_t workspace_bytes() const override { return stand_in().convolution_workspace; }
  std::string kept() const override { return "kept " + form_.key(); }

 private:
  void put_on(StreamHandle stream, const ConvolutionAddresses& at) const override {
    stand_in().note("convolution");
    for (const Address address : {at.x, at.w, at.bias, at.addend, at.y}) {
      if (address % form_.alignment != 0) throw std::logic_error("an address is not aligned");
    }
    put(stream, [form = form_, at] {
      if (form.is_transposed) return convolve_transposed(form, at), true;
      return convolve(form, at), true;
    });
  }

  Convolution form_;
};

class StandInConvolutions final : public ConvolutionLibrary {
 public:
  std::string version() override { return stand_in().library_version; }
  std::shared_ptr<const PreparedConvolution> plan(const Convolution& form, std::uint64_t) override {
    stand_in().note("plan");
    stand_in().convolutions.push_back(form);
    // All that the library has of int8 with tensor cores.
    if (form.type == sdk::DataType::Int8 &&
        (form.is_fused() || form.is_transposed || !form.is_channels_last))
      return nullptr;
    if (stand_in().plans && !stand_in().plans(form)) return nullptr;
    return std::make_shared<const StandInConvolution>(form);
  }
  std::shared_ptr<const PreparedConvolution> restore(const Convolution& form,
                                                     const std::string& kept) override {
    stand_in().note("restore");
    if (!stand_in().serves_kept || kept != "kept " + form.key()) return nullptr;
    return std::make_shared<const StandInConvolution>(form);
  }
};

/// Attention by its definition; exponentials are powers of two, whose exponents are floats, as the library's are.
void attend(const Attention& form, const AttentionAddresses& at, float scale) {
  const auto row_of = [](const AttentionSteps& steps, std::int64_t b, std::int64_t h,
                         std::int64_t i) {
    return b * steps.batch + h * steps.head + i * steps.position;
  };
  const std::array<std::int64_t, 4>& mask = form.mask_dims;
  std::vector<double> weights(static_cast<std::size_t>(form.columns));
  for (std::int64_t i = 0; i < form.batch * form.heads * form.rows; ++i) {
    const std::int64_t b = i / form.rows / form.heads, h = i / form.rows % form.heads,
                       row = i % form.rows, group = h / (form.heads / form.groups);
    double greatest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (std::int64_t j = 0; j < form.columns; ++j) {
      double score = 0;
      for (std::int64_t e = 0; e < form.width; ++e)
        score += load(at.q, form.type, row_of(form.q, b, h, row) + e) *
                 load(at.k, form.type, row_of(form.k, b, group, j) + e);
      score *= static_cast<double>(scale);
      const auto index = [&](std::size_t axis, std::int64_t place) {
        return mask[axis] == 1 ? 0 : place;
      };
      if (form.has_mask)
        score += load(at.mask, form.type,
                      ((index(0, b) * mask[1] + index(1, h)) * mask[2] + index(2, row)) * mask[3] +
                          index(3, j));
      if (form.is_causal && j > row) score = -std::numeric_limits<double>::infinity();
      score = static_cast<double>(static_cast<float>(score) * 1.442695041f);
      greatest = std::max(greatest, weights[static_cast<std::size_t>(j)] = score);
    }
    for (double& weight : weights) sum += weight = std::exp2(weight - greatest);
    for (std::int64_t e = 0; e < form.value_width; ++e) {
      double value = 0;
      for (std::int64_t j = 0; j < form.columns; ++j)
        value += weights[static_cast<std::size_t>(j)] / sum *
                 load(at.v, form.type, row_of(form.v, b, group, j) + e);
      store(at.y, form.type, row_of(form.y, b, h, row) + e, value);
    }
  }
}

class StandInAttention final : public PreparedAttention {
 public:
  explicit StandInAttention(const Attention& form) : form_(form) {}
  std::uint64_t workspace_bytes() const override { return stand_in().attention_workspace; }
  std::string kept() const override { return "kept " + form_.key(); }

 private:
  void put_on(StreamHandle stream, const AttentionAddresses& at, float scale) const override {
    stand_in().note("attention");
    for (const Address address : {at.q, at.k, at.v, at.mask, at.y}) {
      if (address % kLibraryAlignment != 0) throw std::logic_error("an address is not aligned");
    }
    put(stream, [form = form_, at, scale] { return attend(form, at, scale), true; });
  }

  Attention form_;
};

class StandInAttentions final : public AttentionLibrary {
 public:
  std::string version() override { return stand_in().library_version; }
  std::shared_ptr<const PreparedAttention> plan(const Attention& form, std::uint64_t) override {
    stand_in().note("plan");
    stand_in().attentions.push_back(form);
    if (stand_in().attends && !stand_in().attends(form)) return nullptr;
    return std::make_shared<const StandInAttention>(form);
  }
  std::shared_ptr<const PreparedAttention> restore(const Attention& form,
                                                   const std::string& kept) override {
    stand_in().note("restore");
    if (!stand_in().serves_kept || kept != "kept " + form.key()) return nullptr;
    return std::make_shared<const StandInAttention>(form);
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

void StandInState::note(const std::string& call) {
  calls.push_back(call);
  std::vector<std::string>& errors = failures[call];
  if (errors.empty()) return;
  const std::string name = errors.front();
  errors.erase(errors.begin());
  if (!name.empty()) throw_cuda(call.c_str(), name);
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
  traits.has_pools = traits.has_stream_values = true;
  return traits;
}

std::vector<std::string>& compiled_sources() {
  static std::vector<std::string> sources;
  return sources;
}

std::unique_ptr<Driver> load_stand_in() { return std::make_unique<StandInDriver>(); }
std::unique_ptr<Engine> load_stand_in_engine() { return std::make_unique<StandInEngine>(); }

}  // namespace backplane::cuda
