#include "tests/cuda/host_kernels.hpp"

#include <csetjmp>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <ucontext.h>
#include <unistd.h>

#include "tests/cuda/memory_check.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__SANITIZE_THREAD__)
#define SANITIZED_BY_THREADS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#elif __has_feature(thread_sanitizer)
#define SANITIZED_BY_THREADS 1
#endif
#endif

namespace backplane::cuda {
namespace {

/// CUDA's words, before a kernel's text. No header is read and no library linked: both take several times as long
/// as a kernel, and there are hundreds. What a kernel calls is in this program.
constexpr char kWords[] = R"text(
using size_t = decltype(sizeof 0);
#define NAN __builtin_nanf("")
#define INFINITY __builtin_inff()
#define __CUDACC__ 1
#define __global__
#define __device__
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("local_memory")))
#define OUR_OWN __attribute__((section("host_words")))
#define NOT_WATCHED __attribute__((no_sanitize("thread")))
#define OF_ONE(name) \
  NOT_WATCHED static inline float name(float x) { return __builtin_##name##f(x); } \
  NOT_WATCHED static inline double name(double x) { return __builtin_##name(x); }
#define OF_TWO(name) \
  NOT_WATCHED static inline float name(float x, float y) { return __builtin_##name##f(x, y); } \
  NOT_WATCHED static inline double name(double x, double y) { return __builtin_##name(x, y); }
#define QUESTION(name) \
  NOT_WATCHED static inline bool name(float x) { return __builtin_##name(x); } \
  NOT_WATCHED static inline bool name(double x) { return __builtin_##name(x); }
OF_ONE(acos) OF_ONE(acosh) OF_ONE(asin) OF_ONE(asinh) OF_ONE(atan) OF_ONE(atanh) OF_ONE(ceil) OF_ONE(cos)
OF_ONE(cosh) OF_ONE(erf) OF_ONE(exp) OF_ONE(exp2) OF_ONE(expm1) OF_ONE(fabs) OF_ONE(floor) OF_ONE(log) OF_ONE(log1p)
OF_ONE(rint) OF_ONE(sin) OF_ONE(sinh) OF_ONE(sqrt) OF_ONE(tan) OF_ONE(tanh) OF_ONE(trunc)
OF_TWO(fmod) OF_TWO(pow)
QUESTION(isfinite) QUESTION(isinf) QUESTION(isnan)
NOT_WATCHED static inline float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
NOT_WATCHED static inline double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
NOT_WATCHED static inline float expf(float x) { return __builtin_expf(x); }
extern "C" __attribute__((weak, visibility("hidden"))) char __start_local_memory[], __stop_local_memory[];
extern "C" __attribute__((weak, visibility("hidden"))) char __start_host_words[], __stop_host_words[];
struct Place { unsigned x, y, z; };
OUR_OWN static Place blockIdx, threadIdx, blockDim;
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) double2 { double x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
// All of the group, at that place of the text, or the neighbours that run together, at none.
static void (*host_meet)(const void *place);
static void (*host_note)(const void *at, unsigned bytes, int kind);
NOT_WATCHED static void meet(const void *place) {
  const Place item = threadIdx;  // others run meanwhile
  host_meet(place);
  threadIdx = item;
}
NOT_WATCHED __attribute__((noinline)) static void __syncthreads() { meet(__builtin_return_address(0)); }
template <class T> NOT_WATCHED static T __shfl_xor_sync(unsigned, T value, int distance) {
  static T given[1024];
  const unsigned item = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  given[item] = value;
  meet(nullptr);
  const T other = given[item ^ (unsigned)distance];
  meet(nullptr);
  return other;
}
// What a compiler puts before every access for its thread sanitizer.
#define WATCH(bytes) \
  NOT_WATCHED void __tsan_read##bytes(void *at) { host_note(at, bytes, 0); } \
  NOT_WATCHED void __tsan_write##bytes(void *at) { host_note(at, bytes, 1); } \
  NOT_WATCHED void __tsan_unaligned_read##bytes(void *at) { host_note(at, bytes, 0); } \
  NOT_WATCHED void __tsan_unaligned_write##bytes(void *at) { host_note(at, bytes, 1); }
extern "C" {
WATCH(1) WATCH(2) WATCH(4) WATCH(8) WATCH(16)
NOT_WATCHED void __tsan_read_range(void *at, long bytes) { host_note(at, (unsigned)bytes, 0); }
NOT_WATCHED void __tsan_write_range(void *at, long bytes) { host_note(at, (unsigned)bytes, 1); }
NOT_WATCHED void __tsan_func_entry(void *) {}
NOT_WATCHED void __tsan_func_exit(void *) {}
NOT_WATCHED void __tsan_init() {}
}
template <class To, class From> static inline To bits_of(From from) {
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}
static inline unsigned __float_as_uint(float x) { return bits_of<unsigned>(x); }
static inline float __uint_as_float(unsigned x) { return bits_of<float>(x); }
static inline float __int_as_float(int x) { return bits_of<float>(x); }
static inline double __longlong_as_double(long long x) { return bits_of<double>(x); }
static inline long long __double_as_longlong(double x) { return bits_of<long long>(x); }
NOT_WATCHED static int atomicCAS(int *p, int from, int to) {
  host_note(p, 4, 2);
  return __sync_val_compare_and_swap(p, from, to);
}
NOT_WATCHED static unsigned atomicAdd(unsigned *p, unsigned value) {
  host_note(p, 4, 2);
  return __sync_fetch_and_add(p, value);
}
)text";

/// After it: one item, or all of a group.
constexpr char kCalls[] = R"text(
struct Call {  // braces evaluate what is between them from left to right
  template <class... A> NOT_WATCHED Call(void (*kernel)(A...), A... values) { kernel(values...); }
};
template <class... A> NOT_WATCHED static void call(void (*kernel)(A...), void **arguments) {
  Call{kernel, *static_cast<A *>(*arguments++)...};
}
extern "C" NOT_WATCHED void host_sections(char **bounds) {
  bounds[0] = __start_local_memory;
  bounds[1] = __stop_local_memory;
  bounds[2] = __start_host_words;
  bounds[3] = __stop_host_words;
}
extern "C" NOT_WATCHED void host_item(const unsigned *group, const unsigned *item,
                                      const unsigned *size, void **arguments,
                                      void (*meet_others)(const void *),
                                      void (*note)(const void *, unsigned, int)) {
  host_meet = meet_others;
  host_note = note;
  blockIdx = {group[0], group[1], group[2]};
  threadIdx = {item[0], item[1], item[2]};
  blockDim = {size[0], size[1], size[2]};
  call(run, arguments);
}
)text";

using Item = void (*)(const unsigned* group, const unsigned* item, const unsigned* size,
                      void** arguments, void (*meet)(const void* place),
                      void (*note)(const void* at, unsigned bytes, int kind));

/// Addresses from the first to before the last.
struct Range {
  std::uintptr_t begin = 0, end = 0;
  bool has(std::uintptr_t at) const { return at >= begin && at < end; }
};

struct HostKernel {
  Item item = nullptr;
  bool has_barriers = false;
  Range local, own;  ///< local memory, and what is none of the kernel's
};

/// The item that runs, and what it does to memory.
struct Watch {
  MemoryCheck memory;
  MemoryCheck::Maker item;
  Range local, own, stack;
  std::string fault;  ///< of another kind than the memory's

  void note(const void* at, unsigned bytes, int kind) {
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    if (stack.has(address) || own.has(address)) return;
    memory.note(address, bytes, static_cast<MemoryCheck::Kind>(kind), local.has(address), item);
  }
  static Watch& all() {
    static Watch watch;
    return watch;
  }
};

void note_access(const void* at, unsigned bytes, int kind) { Watch::all().note(at, bytes, kind); }

/// The text without what is written in the device's own instructions: the other branch stands for it.
std::string without_instructions(std::string source) {
  const std::string begin = "#ifdef __CUDACC__\n";
  for (std::size_t at = source.find(begin); at != std::string::npos;
       at = source.find(begin, at + 1)) {
    const std::size_t end = source.find("\n#else", at);
    const std::string branch = source.substr(at, end - at);
    if (branch.find("asm(") != std::string::npos ||
        branch.find("asm volatile(") != std::string::npos)
      source.replace(at, begin.size(), "#if 0\n");
  }
  return source;
}

HostKernel compile(const std::string& source, std::size_t number) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / sdk::message("cuda_host_kernels_", ::getpid());
  std::filesystem::create_directories(folder);
  const std::string stem = (folder / sdk::message("kernel_", number)).string();
  std::ofstream(stem + ".cpp") << kWords << without_instructions(source) << kCalls;
  // An access that is not aligned, for which a GPU ends the program, ends this one.
  const std::string options =
      " -std=c++17 -w -O0 -fwrapv -fPIC -fsanitize=alignment -fsanitize-undefined-trap-on-error ";
#if defined(SANITIZED)
  const std::string compiled = "-fsanitize=address ", linked = compiled;
#elif defined(SANITIZED_BY_THREADS)
  const std::string compiled, linked;
#else
  const std::string compiled = "-fsanitize=thread ", linked;  // whose library is not: see WATCH
#endif
  const std::string command =
      sdk::message(BACKPLANE_TEST_COMPILER, options, compiled, "-c -o ", stem, ".o ", stem,
                   ".cpp && ", BACKPLANE_TEST_COMPILER, " -shared -nostdlib -Wl,-Bsymbolic ",
                   linked, "-o ", stem, ".so ", stem, ".o");
  const int code = std::system(command.c_str());
  void* const library =
      code == 0 ? ::dlopen((stem + ".so").c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (library == nullptr) throw std::logic_error("a kernel does not compile: " + source);
  std::filesystem::remove_all(folder);
  HostKernel made;
  made.item = reinterpret_cast<Item>(::dlsym(library, "host_item"));
  made.has_barriers = source.find("BARRIER;") != std::string::npos ||
                      source.find("SHUFFLE(") != std::string::npos ||
                      source.find("__shfl_xor_sync(") != std::string::npos;
  std::uintptr_t bounds[4];
  reinterpret_cast<void (*)(std::uintptr_t*)>(::dlsym(library, "host_sections"))(bounds);
  made.local = {bounds[0], bounds[1]};
  made.own = {bounds[2], bounds[3]};
  // Of memory that kernels declare; more takes an attribute of the function.
  constexpr std::uintptr_t kMostLocal = std::uintptr_t{48} * 1024;
  if (bounds[1] - bounds[0] > kMostLocal)
    throw std::logic_error(
        sdk::message("a kernel has ", bounds[1] - bounds[0],
                     " bytes of local memory, which ptxas does not take: ", source));
  return made;
}

Extent place_in(unsigned index, const Extent& size) {
  return {index % size[0], index / size[0] % size[1], index / size[0] / size[1]};
}

/// One of several lines of control of a thread. Its first turn is given by `context`, later ones by `place`: swapcontext
/// asks the system for each, which takes longer than most items between two meetings. Not so under the sanitizer,
/// which does not know where the stack is after longjmp.
struct Turn {
  ucontext_t context{};
  std::jmp_buf place{};
  bool has_begun = false;

  void hand_over(Turn& to) {
#ifdef SANITIZED
    ::swapcontext(&context, &to.context);
#else
    if (_setjmp(place) != 0) return;
    if (to.has_begun) _longjmp(to.place, 1);
    to.has_begun = true;
    ::setcontext(&to.context);
#endif
  }
};

/// The items of a group, each on a stack of its own, which go on in turns from one meeting to the next: one at a barrier
/// goes on when all are there or have ended.
class Fibers {
 public:
  void run(const HostKernel& kernel, const Extent& group, const Extent& size, void** arguments) {
    const unsigned items = size[0] * size[1] * size[2];
    kernel_ = &kernel;
    group_ = group;
    size_ = size;
    arguments_ = arguments;
    scheduler_.has_begun = true;
    Watch& watch = Watch::all();
    while (fibers_.size() < items) fibers_.push_back(std::make_unique<Fiber>());
    for (unsigned i = 0; i < items; ++i) begin(*fibers_[i]);
    for (bool is_left = true; is_left;) {
      is_left = false;
      bool all_wait = true;
      for (current_ = 0; current_ < items; ++current_) {
        Fiber& fiber = *fibers_[current_];
        const auto stack = reinterpret_cast<std::uintptr_t>(fiber.stack.data());
        watch.stack = {stack, stack + fiber.stack.size()};
        watch.item.item = current_;
        watch.item.barriers = fiber.barriers;
        if (!fiber.is_done && fiber.waits_at == nullptr) scheduler_.hand_over(fiber.turn);
        is_left = is_left || !fiber.is_done;
        all_wait = all_wait && (fiber.is_done || fiber.waits_at != nullptr);
      }
      if (all_wait) go_on(items);
    }
  }
  static Fibers& all() {
    static Fibers fibers;
    return fibers;
  }

 private:
  struct Fiber {
    Turn turn;
    std::vector<char> stack = std::vector<char>(std::size_t{64} * 1024);
    bool is_done = false;
    const void* waits_at = nullptr;       ///< the barrier
    unsigned barriers = 0, meetings = 0;  ///< that it passed, of the group and of neighbours
  };

  /// From a barrier, or the end. What CUDA leaves undefined is a fault: items at different barriers, and shuffles that not
  /// all neighbours come to.
  void go_on(unsigned items) {
    constexpr unsigned kNeighbours = 32;
    std::string& fault = Watch::all().fault;
    const void* place = nullptr;
    for (unsigned i = 0; i < items; ++i) {
      Fiber& fiber = *fibers_[i];
      const unsigned first = i / kNeighbours * kNeighbours;
      if (fiber.meetings != fibers_[first]->meetings)
        fault = sdk::message("items ", first, " and ", i, " do not meet in as many shuffles");
      if (fiber.meetings > 0 && items % kNeighbours != 0)
        fault = sdk::message("shuffles of all neighbours in a group of ", items, " items");
      if (fiber.is_done) continue;
      if (place != nullptr && place != fiber.waits_at)
        fault = sdk::message("item ", i, " waits at another barrier than those before it");
      place = fiber.waits_at;
      fiber.waits_at = nullptr;
      ++fiber.barriers;
    }
  }

  static void begin(Fiber& fiber) {
    ucontext_t& context = fiber.turn.context;
    ::getcontext(&context);
    context.uc_stack.ss_sp = fiber.stack.data();
    context.uc_stack.ss_size = fiber.stack.size();
    fiber.turn.has_begun = fiber.is_done = false;
    fiber.waits_at = nullptr;
    fiber.barriers = fiber.meetings = 0;
    ::makecontext(
        &context, [] { all().run_item(); }, 0);
  }
  void run_item() {
    const Extent item = place_in(current_, size_);
    const auto meet = [](const void* place) {
      Fiber& fiber = *all().fibers_[all().current_];
      fiber.waits_at = place;
      if (place == nullptr) ++fiber.meetings;
      fiber.turn.hand_over(all().scheduler_);
    };
    kernel_->item(group_.data(), item.data(), size_.data(), arguments_, meet, note_access);
    fibers_[current_]->is_done = true;
    fibers_[current_]->turn.hand_over(scheduler_);  // for good
  }

  std::vector<std::unique_ptr<Fiber>> fibers_;
  Turn scheduler_;
  unsigned current_ = 0;
  const HostKernel* kernel_ = nullptr;
  Extent group_{}, size_{};
  void** arguments_ = nullptr;
};

void run_group(const HostKernel& kernel, const Extent& group, const Extent& size,
               void** arguments) {
  if (kernel.has_barriers) return Fibers::all().run(kernel, group, size, arguments);
  Watch& watch = Watch::all();
  const auto top = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  constexpr std::uintptr_t kMostStack = std::uintptr_t{1} << 20;
  watch.stack = {top - kMostStack, top};
  watch.item.barriers = 0;
  const unsigned items = size[0] * size[1] * size[2];
  for (unsigned i = 0; i < items; ++i) {
    const Extent item = place_in(i, size);
    watch.item.item = i;
    kernel.item(group.data(), item.data(), size.data(), arguments, nullptr, note_access);
  }
}

void run_groups(const HostKernel& kernel, const Extent& groups, const Extent& size,
                void** arguments) {
  Watch& watch = Watch::all();
  watch.local = kernel.local;
  watch.own = kernel.own;
  watch.fault.clear();
  watch.memory.begin_launch();
  const unsigned count = groups[0] * groups[1] * groups[2];
  for (unsigned i = 0; i < count; ++i) {
    watch.item.group = i;
    watch.memory.begin_group();
    run_group(kernel, place_in(i, groups), size, arguments);
  }
  if (watch.fault.empty()) watch.fault = watch.memory.fault();
}

}  // namespace

void run_kernels_on_host() {
  stand_in().kernel = [](const std::string& source, const Extent& groups, const Extent& group,
                         void** arguments) {
    static std::map<std::string, HostKernel> kernels;
    static std::size_t compiled =
        0;  // with those that were refused: a library is opened once by its name
    auto found = kernels.find(source);
    if (found == kernels.end()) found = kernels.emplace(source, compile(source, compiled++)).first;
    run_groups(found->second, groups, group, arguments);
    if (const std::string& fault = Watch::all().fault; !fault.empty())
      throw std::logic_error(
          sdk::message(fault, ", in ", source.substr(source.find("KERNEL run("))));
  };
}

bool are_accesses_seen() {
#if defined(SANITIZED) || defined(SANITIZED_BY_THREADS)
  return false;
#else
  return true;
#endif
}

}  // namespace backplane::cuda
