#include "tests/cuda/host_compiler.hpp"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <unistd.h>

#include "backplane/plugin.hpp"
#include "plugins/common/device_ops/program_cache.hpp"
#include "tests/cuda/warpgroups.hpp"

namespace backplane::cuda {
namespace {

namespace fs = std::filesystem;

/// CUDA's words, before a kernel's text. No header is read and no library linked: both take several times as long
/// as a kernel, and there are hundreds. What a kernel calls is in this program, or in what kRest says.
constexpr char kWords[] = R"text(
using size_t = decltype(sizeof 0);
#define NAN __builtin_nanf("")
#define INFINITY __builtin_inff()
#define __CUDACC__ 1
#define __global__
#define __device__
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("local_memory")))
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
struct Place { unsigned x, y, z; };
#define SHARED_WORD extern "C" __attribute__((visibility("hidden")))
SHARED_WORD Place blockIdx, threadIdx, blockDim;
SHARED_WORD void host_meet(const void *place);
SHARED_WORD void (*host_note)(const void *at, unsigned bytes, int kind);
SHARED_WORD void __syncthreads();
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) double2 { double x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
template <class T> NOT_WATCHED static T __shfl_xor_sync(unsigned, T value, int distance) {
  static T given[1024];
  const unsigned item = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  given[item] = value;
  host_meet(nullptr);
  const T other = given[item ^ (unsigned)distance];
  host_meet(nullptr);
  return other;
}
template <class To, class From> static inline To bits_of(From from) {
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
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

/// After it.
constexpr char kCall[] = R"text(
struct Call {  // braces evaluate what is between them from left to right
  template <class... A> NOT_WATCHED Call(void (*kernel)(A...), A... values) { kernel(values...); }
};
template <class... A> NOT_WATCHED static void call(void (*kernel)(A...), void **arguments) {
  Call{kernel, *static_cast<A *>(*arguments++)...};
}
SHARED_WORD NOT_WATCHED void host_call(void **arguments) { call(run, arguments); }
)text";

/// What is the same in all kernels' libraries, and so compiled once: one item, or all of a group.
constexpr char kRest[] = R"text(
#define OUR_OWN __attribute__((section("host_words")))
#define SHARED_WORD extern "C" __attribute__((visibility("hidden")))
struct Place { unsigned x, y, z; };
SHARED_WORD OUR_OWN Place blockIdx = {}, threadIdx = {}, blockDim = {};
extern "C" __attribute__((weak, visibility("hidden"))) char __start_local_memory[], __stop_local_memory[];
extern "C" __attribute__((weak, visibility("hidden"))) char __start_host_words[], __stop_host_words[];
// All of the group, at that place of the text, or the neighbours that run together, at none.
static void (*meet_others)(const void *place);
SHARED_WORD void (*host_note)(const void *at, unsigned bytes, int kind);
void (*host_note)(const void *at, unsigned bytes, int kind) = nullptr;
SHARED_WORD OUR_OWN void *const *host_table = nullptr;
SHARED_WORD void host_call(void **arguments);
SHARED_WORD void host_meet(const void *place) {
  meet_others(place);
}
SHARED_WORD void __syncthreads() { host_meet(__builtin_return_address(0)); }
// What a compiler puts before every access for its thread sanitizer.
#define WATCH(bytes) \
  SHARED_WORD void __tsan_read##bytes(void *at) { host_note(at, bytes, 0); } \
  SHARED_WORD void __tsan_write##bytes(void *at) { host_note(at, bytes, 1); } \
  SHARED_WORD void __tsan_unaligned_read##bytes(void *at) { host_note(at, bytes, 0); } \
  SHARED_WORD void __tsan_unaligned_write##bytes(void *at) { host_note(at, bytes, 1); }
WATCH(1) WATCH(2) WATCH(4) WATCH(8) WATCH(16)
SHARED_WORD void __tsan_read_range(void *at, long bytes) { host_note(at, (unsigned)bytes, 0); }
SHARED_WORD void __tsan_write_range(void *at, long bytes) { host_note(at, (unsigned)bytes, 1); }
SHARED_WORD void __tsan_func_entry(void *) {}
SHARED_WORD void __tsan_func_exit(void *) {}
SHARED_WORD void __tsan_init() {}
extern "C" void host_sections(char **bounds) {
  bounds[0] = __start_local_memory;
  bounds[1] = __stop_local_memory;
  bounds[2] = __start_host_words;
  bounds[3] = __stop_host_words;
  bounds[4] = (char *)&blockIdx;
  bounds[5] = (char *)&threadIdx;
}
extern "C" void host_item(const unsigned *group, const unsigned *item, const unsigned *size,
                          void **arguments, void (*meet)(const void *),
                          void (*note)(const void *, unsigned, int), void *const *words) {
  meet_others = meet;
  host_table = words;
  host_note = note;
  blockIdx = {group[0], group[1], group[2]};
  threadIdx = {item[0], item[1], item[2]};
  blockDim = {size[0], size[1], size[2]};
  host_call(arguments);
}
)text";

/// The text without what is written in the device's own instructions: the other branch stands for it, or words that stand before all.
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

// An access that is not aligned, for which a GPU ends the program, ends this one. Nothing throws.
constexpr char kOptions[] =
    " -std=c++17 -w -O0 -fwrapv -fPIC -fno-exceptions -fno-asynchronous-unwind-tables "
    "-fsanitize=alignment -fsanitize-undefined-trap-on-error -shared -nostdlib -Wl,-Bsymbolic ";
constexpr char kOptionsOfRest[] =
    " -std=c++17 -w -O2 -fPIC -fno-exceptions -fno-asynchronous-unwind-tables -c ";
#if defined(BACKPLANE_SANITIZED_THREAD)
constexpr char kWatch[] = "";
#elif defined(BACKPLANE_SANITIZED)
constexpr char kWatch[] = "-fsanitize=address ";
#else
constexpr char kWatch[] = "-fsanitize=thread ";  // whose library is not linked: see WATCH
#endif

/// What nobody has asked for in a week is not kept: kernels' texts change.
void remove_old(const fs::path& folder) {
  const auto oldest = fs::file_time_type::clock::now() - std::chrono::hours(24 * 7);
  std::error_code error;  // others remove the same
  for (const fs::directory_entry& each : fs::directory_iterator(folder, error)) {
    const fs::file_time_type used = each.last_write_time(error);
    if (!error && used < oldest) fs::remove(each.path(), error);
  }
}

/// The file that `command` makes of the text. It is the same for all programs and runs of this build: networks' tests are hundreds of
/// processes that want the same kernels.
std::string file_of(const std::string& text, const std::string& command, const char* extension) {
  static const fs::path folder = [] {
    fs::path made = BACKPLANE_TEST_KERNELS;
    fs::create_directories(made);
    remove_old(made);
    return made;
  }();
  const std::string key = sdk::message(__VERSION__, '\n', command, extension, '\n', text);
  const fs::path path = folder / (device_ops::file_name_of(key) + extension);
  std::error_code error;
  fs::last_write_time(path, fs::file_time_type::clock::now(), error);
  if (!error) return path.string();
  // Others may make it meanwhile: it gets its name when it is whole.
  static int number = 0;
  const std::string stem = (folder / sdk::message("of_", ::getpid(), '_', number++)).string();
  const std::string source = stem + ".cpp", made = stem + extension;
  std::ofstream(source) << text;
  const int code = std::system(sdk::message(command, "-o ", made, ' ', source).c_str());
  fs::remove(source);
  if (code != 0) throw std::logic_error("a kernel does not compile: " + text);
  fs::rename(made, path);
  return path.string();
}

}  // namespace

std::string host_library(const std::string& source) {
  const std::string compiler = BACKPLANE_TEST_COMPILER;
  static const std::string rest = file_of(kRest, compiler + kOptionsOfRest, ".o");
  const std::string words = kWords + (has_warpgroups(source) ? warpgroup_words() : "");
  return file_of(words + without_instructions(source) + kCall,
                 sdk::message(compiler, kOptions, kWatch, rest, ' '), ".so");
}

}  // namespace backplane::cuda
