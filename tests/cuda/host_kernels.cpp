#include "tests/cuda/host_kernels.hpp"

#include <csetjmp>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <ucontext.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
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
#define OF_ONE(name) \
  static inline float name(float x) { return __builtin_##name##f(x); } \
  static inline double name(double x) { return __builtin_##name(x); }
#define OF_TWO(name) \
  static inline float name(float x, float y) { return __builtin_##name##f(x, y); } \
  static inline double name(double x, double y) { return __builtin_##name(x, y); }
#define QUESTION(name) \
  static inline bool name(float x) { return __builtin_##name(x); } \
  static inline bool name(double x) { return __builtin_##name(x); }
OF_ONE(acos) OF_ONE(acosh) OF_ONE(asin) OF_ONE(asinh) OF_ONE(atan) OF_ONE(atanh) OF_ONE(ceil) OF_ONE(cos)
OF_ONE(cosh) OF_ONE(erf) OF_ONE(exp) OF_ONE(expm1) OF_ONE(fabs) OF_ONE(floor) OF_ONE(log) OF_ONE(log1p)
OF_ONE(rint) OF_ONE(sin) OF_ONE(sinh) OF_ONE(sqrt) OF_ONE(tan) OF_ONE(tanh) OF_ONE(trunc)
OF_TWO(fmod) OF_TWO(pow)
QUESTION(isfinite) QUESTION(isinf) QUESTION(isnan)
static inline float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
static inline double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
static inline float expf(float x) { return __builtin_expf(x); }
#define __CUDACC__ 1
#define __global__
#define __device__
#define __shared__ static
struct Place { unsigned x, y, z; };
static Place blockIdx, threadIdx, blockDim;
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) double2 { double x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
static void (*host_meet)(int);  // all of the group, or the neighbours that run together
static inline void meet(int is_group) {
  const Place item = threadIdx;  // others run meanwhile
  host_meet(is_group);
  threadIdx = item;
}
static inline void __syncthreads() { meet(1); }
template <class T> static inline T __shfl_xor_sync(unsigned, T value, int distance) {
  static T given[1024];
  const unsigned item = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  given[item] = value;
  meet(0);
  const T other = given[item ^ (unsigned)distance];
  meet(0);
  return other;
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
static inline int atomicCAS(int *p, int from, int to) { return __sync_val_compare_and_swap(p, from, to); }
static inline unsigned atomicAdd(unsigned *p, unsigned value) { return __sync_fetch_and_add(p, value); }
)text";

/// After it: one item, or all of a group.
constexpr char kCalls[] = R"text(
struct Call {  // braces evaluate what is between them from left to right
  template <class... A> Call(void (*kernel)(A...), A... values) { kernel(values...); }
};
template <class... A> static void call(void (*kernel)(A...), void **arguments) {
  Call{kernel, *static_cast<A *>(*arguments++)...};
}
extern "C" void host_item(const unsigned *group, const unsigned *item, const unsigned *size,
                          void **arguments, void (*meet_others)(int)) {
  host_meet = meet_others;
  blockIdx = {group[0], group[1], group[2]};
  threadIdx = {item[0], item[1], item[2]};
  blockDim = {size[0], size[1], size[2]};
  call(run, arguments);
}
)text";

using Item = void (*)(const unsigned* group, const unsigned* item, const unsigned* size,
                      void** arguments, void (*meet)(int is_group));

struct HostKernel {
  Item item = nullptr;
  bool has_barriers = false;
};

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
      sdk::message(" -std=c++17 -w -O0 -fwrapv -shared -fPIC -Wl,-Bsymbolic -fsanitize=alignment ",
                   "-fsanitize-undefined-trap-on-error -nostdlib ",
#ifdef SANITIZED
                   "-fsanitize=address "
#else
                   ""
#endif
      );
  const std::string command =
      sdk::message(BACKPLANE_TEST_COMPILER, options, "-o ", stem, ".so ", stem, ".cpp");
  const int code = std::system(command.c_str());  // NOLINT(cert-env33-c,concurrency-mt-unsafe)
  void* const library =
      code == 0 ? ::dlopen((stem + ".so").c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (library == nullptr) throw std::logic_error("a kernel does not compile: " + source);
  std::filesystem::remove_all(folder);
  return {
      reinterpret_cast<Item>(::dlsym(library, "host_item")),
      source.find("BARRIER;") != std::string::npos || source.find("SHUFFLE(") != std::string::npos};
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
    while (fibers_.size() < items) fibers_.push_back(std::make_unique<Fiber>());
    for (unsigned i = 0; i < items; ++i) begin(*fibers_[i]);
    for (bool is_left = true; is_left;) {
      is_left = false;
      bool all_wait = true;
      for (current_ = 0; current_ < items; ++current_) {
        Fiber& fiber = *fibers_[current_];
        if (!fiber.is_done && !fiber.waits) scheduler_.hand_over(fiber.turn);
        is_left = is_left || !fiber.is_done;
        all_wait = all_wait && (fiber.is_done || fiber.waits);
      }
      for (unsigned i = 0; all_wait && i < items; ++i) fibers_[i]->waits = false;
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
    bool is_done = false, waits = false;
  };
  static void begin(Fiber& fiber) {
    ucontext_t& context = fiber.turn.context;
    ::getcontext(&context);
    context.uc_stack.ss_sp = fiber.stack.data();
    context.uc_stack.ss_size = fiber.stack.size();
    fiber.turn.has_begun = fiber.is_done = fiber.waits = false;
    ::makecontext(
        &context, [] { all().run_item(); }, 0);
  }
  void run_item() {
    const Extent item = place_in(current_, size_);
    kernel_->item(group_.data(), item.data(), size_.data(), arguments_, [](int is_group) {
      Fiber& fiber = *all().fibers_[all().current_];
      fiber.waits = is_group != 0;
      fiber.turn.hand_over(all().scheduler_);
    });
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
  const unsigned items = size[0] * size[1] * size[2];
  for (unsigned i = 0; i < items; ++i) {
    const Extent item = place_in(i, size);
    kernel.item(group.data(), item.data(), size.data(), arguments, nullptr);
  }
}

}  // namespace

void run_kernels_on_host() {
  stand_in().kernel = [](const std::string& source, const Extent& groups, const Extent& group,
                         void** arguments) {
    static std::map<std::string, HostKernel> kernels;
    auto found = kernels.find(source);
    if (found == kernels.end())
      found = kernels.emplace(source, compile(source, kernels.size())).first;
    const unsigned count = groups[0] * groups[1] * groups[2];
    for (unsigned i = 0; i < count; ++i)
      run_group(found->second, place_in(i, groups), group, arguments);
  };
}

}  // namespace backplane::cuda
