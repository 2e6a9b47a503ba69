#include "tests/cuda/host_kernels.hpp"

#include <csetjmp>
#include <dlfcn.h>
#include <ucontext.h>

#include "tests/cuda/host_compiler.hpp"
#include "tests/cuda/memory_check.hpp"

namespace backplane::cuda {
namespace {

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

HostKernel compile(const std::string& source) {
  void* const library = ::dlopen(host_library(source).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::logic_error(::dlerror());
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
#if defined(BACKPLANE_SANITIZED) && !defined(BACKPLANE_SANITIZED_THREAD)
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
    auto found = kernels.find(source);
    if (found == kernels.end()) found = kernels.emplace(source, compile(source)).first;
    run_groups(found->second, groups, group, arguments);
    if (const std::string& fault = Watch::all().fault; !fault.empty())
      throw std::logic_error(
          sdk::message(fault, ", in ", source.substr(source.find("KERNEL run("))));
  };
}

bool are_accesses_seen() {
#ifdef BACKPLANE_SANITIZED
  return false;
#else
  return true;
#endif
}

}  // namespace backplane::cuda
