// How a loop is shared.
//
// Moving a cache line between cores takes about 100 ns, and a loop may be worth a microsecond; so
// the protocol is made to move few. Each worker spins on a mailbox, one cache line of its own. The
// owner of a loop writes the loop into the mailboxes and offers it there; a worker accepts by
// compare-and-swap, does the part that is reserved for it (its home part), then claims chunks of
// what is left from a counter, and at last sets its mailbox to idle. The owner does the same without
// a mailbox; then it takes back the offers that nobody accepted, does their home parts, and waits
// for the others. So a worker that has no core just then, or sleeps, costs no waiting.
//
// Where the indices are few, there are home parts alone and nothing is claimed.
//
// A region is a loop of one index a thread, in which each member decides by itself what it does. The
// loops of a member are put up in its open loop, one cache line, from which everybody claims chunks.
#include "core/plugin_host/thread_pool.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <exception>
#include <pthread.h>
#include <thread>

#include "core/base/denormals.hpp"

namespace backplane::core {
namespace {

/// Of a loop with enough indices, half is home parts and half is claimed in chunks, so many a thread.
constexpr std::uint64_t kChunksPerThread = 4;
/// How often a spinning thread looks before it reads the clock, or lets others run.
constexpr unsigned kSpinsPerCheck = 256;
constexpr std::size_t kCacheLine = 64;

/// What a mailbox says.
constexpr std::uint32_t kIdle = 0;
constexpr std::uint32_t kOffered = 1;
constexpr std::uint32_t kAccepted = 2;
constexpr std::uint32_t kStop = 3;

void pause_thread() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

std::uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

/// A loop over [0, n): home part k is [k * home, (k + 1) * home); from `shared` on, chunks.
struct Loop {
  bp_range_fn fn = nullptr;
  void* argument = nullptr;
  std::uint64_t n = 0;
  std::uint64_t home = 0;
  std::uint64_t shared = 0;
  std::uint64_t chunk = 0;

  void run_home(std::uint64_t index, std::uint32_t worker) const {
    const std::uint64_t begin = index * home;
    fn(argument, begin, std::min(shared - begin, home) + begin, worker);
  }
  void run_chunks(std::atomic<std::uint64_t>& next, std::uint32_t worker) const {
    if (shared == n) return;
    for (;;) {
      const std::uint64_t index = next.fetch_add(1, std::memory_order_relaxed);
      const std::uint64_t left = n - shared;
      if (index * chunk >= left) return;
      const std::uint64_t begin = shared + index * chunk;
      fn(argument, begin, std::min(n - begin, chunk) + begin, worker);
    }
  }
};

/// What the thread works on. Without the call that may allocate, since handlers of signals look.
__attribute__((tls_model("initial-exec"))) thread_local const void* t_work = nullptr;

/// The loop of a region's member that others may join. `loop` belongs to the member while `open` is 0 and
/// nobody helps.
struct OpenLoop {
  alignas(kCacheLine) std::atomic<std::uint32_t> open{0};
  std::atomic<std::uint32_t> helpers{0};
  std::atomic<std::uint64_t> next{0};
  Loop loop;
  const void* work = nullptr;

  void run(const Loop& mine, std::uint32_t member) {
    loop = mine;
    work = t_work;
    next.store(0, std::memory_order_relaxed);
    open.store(1, std::memory_order_seq_cst);
    loop.run_chunks(next, member);
    // Either a helper sees the loop closed, or this sees the helper: both orders are sequential.
    open.store(0, std::memory_order_seq_cst);
    for (unsigned spins = 1; helpers.load(std::memory_order_seq_cst) != 0; ++spins) {
      pause_thread();
      if (spins % kSpinsPerCheck == 0) std::this_thread::yield();
    }
  }
  bool join(std::uint32_t member) {
    if (open.load(std::memory_order_relaxed) == 0) return false;
    helpers.fetch_add(1, std::memory_order_seq_cst);
    const bool is_open = open.load(std::memory_order_seq_cst) != 0;
    if (is_open) {
      t_work = work;
      loop.run_chunks(next, member);
      t_work = nullptr;
    }
    helpers.fetch_sub(1, std::memory_order_release);
    return is_open;
  }
};

/// What a thread is in the region that it works in; one at a time.
struct Membership {
  const void* pool = nullptr;
  unsigned member = 0;
};
thread_local Membership t_membership;

/// Blocks signals while it lives, and threads started meanwhile inherit that; but not those of a fault of the thread's own,
/// which would then end the process past every handler.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t outside{};
    sigfillset(&outside);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS})
      sigdelset(&outside, fault);
    pthread_sigmask(SIG_SETMASK, &outside, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

/// A worker. `loop` and `home` belong to the owner while `mail` is idle, to the worker while it is
/// accepted.
struct Worker {
  alignas(kCacheLine) std::atomic<std::uint32_t> mail{kIdle};
  std::uint32_t home = 0;  ///< the home part; 0 (the owner's own) means none
  Loop loop;
  const void* work = nullptr;  ///< of the owner, as are the next
  DenormalControl denormals;
  /// 1 from when the worker decided to sleep until somebody wakes it.
  alignas(kCacheLine) std::atomic<std::uint32_t> asleep{0};
  std::uint32_t index = 0;
  std::thread thread;

  void wake() {
    if (asleep.exchange(0, std::memory_order_seq_cst) != 0) asleep.notify_one();
  }
};

}  // namespace

class ThreadPool::Impl {
 public:
  Impl(unsigned thread_count, std::uint64_t spin_ns) : spin_ns_(spin_ns) { grow(thread_count); }
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  unsigned thread_count() const { return wanted_.load(std::memory_order_relaxed); }
  void grow(unsigned thread_count);
  void parallel_for(unsigned max_threads, std::uint64_t n, std::uint64_t grain, bp_range_fn fn,
                    void* argument);
  bool run_region(unsigned max_threads, RegionFn fn, void* argument);
  bool help();

 private:
  struct Region {
    Impl* pool;
    RegionFn fn;
    void* argument;
  };
  static void enter_region(void* region, std::uint64_t begin, std::uint64_t end,
                           std::uint32_t worker);
  void share(const Loop& loop, unsigned workers);
  void finish(const Loop& loop, unsigned workers);
  unsigned start_workers(unsigned count);
  void work(Worker& self);
  bool spin_until_mail(Worker& self) const;

  alignas(kCacheLine) std::atomic<std::uint64_t> next_{0};
  alignas(kCacheLine) std::atomic<bool> owned_{false};  ///< the lock that makes a caller the owner
  unsigned started_ = 0;                                ///< the owner's, as is the next
  bool cannot_start_ = false;
  std::atomic<unsigned> wanted_{1};
  const std::uint64_t spin_ns_;
  std::atomic<unsigned> members_{0};  ///< of the region that runs
  const std::unique_ptr<std::array<OpenLoop, kMaxThreads>> open_loops_ =
      std::make_unique<std::array<OpenLoop, kMaxThreads>>();  ///< by member
  std::array<std::unique_ptr<Worker>, kMaxThreads> workers_;
};

ThreadPool::Impl::~Impl() {
  for (unsigned i = 0; i < started_; ++i) {
    workers_[i]->mail.store(kStop, std::memory_order_seq_cst);
    workers_[i]->wake();
    workers_[i]->thread.join();
  }
}

void ThreadPool::Impl::grow(unsigned thread_count) {
  const unsigned wanted = std::clamp(thread_count, 1U, kMaxThreads);
  unsigned before = wanted_.load(std::memory_order_relaxed);
  while (before < wanted &&
         !wanted_.compare_exchange_weak(before, wanted, std::memory_order_relaxed)) {
  }
}

void ThreadPool::Impl::parallel_for(unsigned max_threads, std::uint64_t n, std::uint64_t grain,
                                    bp_range_fn fn, void* argument) {
  if (n == 0) return;
  const unsigned limit = std::min(max_threads, thread_count());
  const std::uint64_t parts = n / std::max<std::uint64_t>(grain, 1);
  if (limit > 1 && parts > 1 && t_membership.pool == this) {
    const std::uint64_t chunk = std::max(ceil_div(n, 2 * limit * kChunksPerThread), grain);
    (*open_loops_)[t_membership.member].run({fn, argument, n, 0, 0, chunk}, t_membership.member);
    return;
  }
  if (limit <= 1 || parts <= 1 || owned_.load(std::memory_order_relaxed) ||
      owned_.exchange(true, std::memory_order_acquire)) {
    fn(argument, 0, n, 0);
    return;
  }
  const auto useful = static_cast<unsigned>(std::min<std::uint64_t>(limit, parts));
  const std::uint64_t threads = std::min(useful, start_workers(useful - 1) + 1);
  if (threads == 1) {
    fn(argument, 0, n, 0);
  } else if (parts < 2 * threads) {
    const std::uint64_t home = ceil_div(n, threads);
    share({fn, argument, n, home, n, 0}, static_cast<unsigned>(ceil_div(n, home)) - 1);
  } else {
    const std::uint64_t home = n / (2 * threads);
    const std::uint64_t left = n - home * threads;
    const std::uint64_t chunk = std::max(ceil_div(left, threads * kChunksPerThread), grain);
    share({fn, argument, n, home, home * threads, chunk}, static_cast<unsigned>(threads) - 1);
  }
  owned_.store(false, std::memory_order_release);
}

bool ThreadPool::Impl::run_region(unsigned max_threads, RegionFn fn, void* argument) {
  const unsigned limit = std::min(max_threads, thread_count());
  if (limit <= 1 || owned_.load(std::memory_order_relaxed) ||
      owned_.exchange(true, std::memory_order_acquire)) {
    return false;
  }
  const unsigned threads = std::min(limit, start_workers(limit - 1) + 1);
  if (threads > 1) {
    members_.store(threads, std::memory_order_relaxed);
    Region region{this, fn, argument};
    share({enter_region, &region, threads, 1, threads, 0}, threads - 1);
    members_.store(0, std::memory_order_relaxed);
  }
  owned_.store(false, std::memory_order_release);
  return threads > 1;
}

void ThreadPool::Impl::enter_region(void* region, std::uint64_t begin, std::uint64_t,
                                    std::uint32_t) {
  const auto& self = *static_cast<Region*>(region);
  const Membership before = t_membership;
  t_membership = {self.pool, static_cast<unsigned>(begin)};
  self.fn(self.argument, t_membership.member);
  t_membership = before;
}

bool ThreadPool::Impl::help() {
  if (t_membership.pool != this) return false;
  const unsigned members = members_.load(std::memory_order_relaxed);
  for (unsigned i = 0; i < members; ++i) {
    if (i != t_membership.member && (*open_loops_)[i].join(t_membership.member)) return true;
  }
  return false;
}

/// The owner's part of a loop whose home parts are as many as `workers` and the owner.
void ThreadPool::Impl::share(const Loop& loop, unsigned workers) {
  next_.store(0, std::memory_order_relaxed);
  const DenormalControl denormals = DenormalControl::of_thread();
  for (unsigned i = 0; i < workers; ++i) {
    Worker& worker = *workers_[i];
    worker.loop = loop;
    worker.work = t_work;
    worker.denormals = denormals;
    worker.home = i + 1;
    worker.mail.store(kOffered, std::memory_order_release);
    // A worker that falls asleep right now may miss the offer, which is then taken back; the next
    // loop wakes it. That is rare, and spares a memory fence in each loop.
    if (worker.asleep.load(std::memory_order_relaxed) != 0) worker.wake();
  }
  loop.run_home(0, 0);
  loop.run_chunks(next_, 0);
  finish(loop, workers);
}

/// Does the home parts of those who did not come, then waits for those who did.
void ThreadPool::Impl::finish(const Loop& loop, unsigned workers) {
  for (unsigned i = 0; i < workers; ++i) {
    std::uint32_t offered = kOffered;
    if (workers_[i]->mail.load(std::memory_order_relaxed) == kOffered &&
        workers_[i]->mail.compare_exchange_strong(offered, kIdle, std::memory_order_relaxed)) {
      loop.run_home(i + 1, 0);
    }
  }
  unsigned spins = 0;
  for (unsigned i = 0; i < workers; ++i) {
    while (workers_[i]->mail.load(std::memory_order_acquire) != kIdle) {
      pause_thread();
      // Whoever is waited for may have lost its core to somebody else.
      if (++spins >= 2 * kSpinsPerCheck) std::this_thread::yield();
    }
  }
}

/// Starts workers until there are `count`, or no more can be had; returns how many there are.
unsigned ThreadPool::Impl::start_workers(unsigned count) {
  if (started_ >= count || cannot_start_) return started_;
  const SignalsBlocked blocked;
  try {
    while (started_ < count) {
      auto worker = std::make_unique<Worker>();
      worker->index = started_ + 1;
      worker->thread = std::thread([this, self = worker.get()] { work(*self); });
      pthread_setname_np(worker->thread.native_handle(), "backplane");
      workers_[started_++] = std::move(worker);
    }
  } catch (const std::exception&) {
    cannot_start_ = true;  // no thread or no memory: loops are right with fewer threads, too
  }
  return started_;
}

void ThreadPool::Impl::work(Worker& self) {
  for (;;) {
    if (!spin_until_mail(self)) {
      self.asleep.store(1, std::memory_order_seq_cst);
      if (self.mail.load(std::memory_order_seq_cst) == kIdle) {
        self.asleep.wait(1, std::memory_order_acquire);
      }
      self.asleep.store(0, std::memory_order_relaxed);
    }
    std::uint32_t mail = kOffered;
    if (!self.mail.compare_exchange_strong(mail, kAccepted, std::memory_order_acquire)) {
      if (mail == kStop) return;
      continue;
    }
    const Loop loop = self.loop;
    t_work = self.work;
    self.denormals.apply();
    loop.run_home(self.home, self.index);
    loop.run_chunks(next_, self.index);
    t_work = nullptr;
    self.mail.store(kIdle, std::memory_order_release);
  }
}

/// Looks for `spin_ns_` at most; false when nothing came.
bool ThreadPool::Impl::spin_until_mail(Worker& self) const {
  std::uint64_t begin = 0;
  for (unsigned spins = 1;; ++spins) {
    if (self.mail.load(std::memory_order_relaxed) != kIdle) return true;
    if (spins % kSpinsPerCheck == 0) {
      const std::uint64_t now = now_ns();
      if (begin == 0) begin = now;
      if (now - begin >= spin_ns_) return false;
      if (now - begin >= spin_ns_ / 4) std::this_thread::yield();
    }
    pause_thread();
  }
}

ThreadPool::ThreadPool(unsigned thread_count, std::uint64_t spin_ns)
    : impl_(std::make_unique<Impl>(thread_count, spin_ns)) {}

ThreadPool::~ThreadPool() = default;

unsigned ThreadPool::thread_count() const { return impl_->thread_count(); }

void ThreadPool::grow(unsigned thread_count) { impl_->grow(thread_count); }

void ThreadPool::parallel_for(unsigned max_threads, std::uint64_t n, std::uint64_t grain,
                              bp_range_fn fn, void* argument) {
  impl_->parallel_for(max_threads, n, grain, fn, argument);
}

bool ThreadPool::run_region(unsigned max_threads, RegionFn fn, void* argument) {
  return impl_->run_region(max_threads, fn, argument);
}

bool ThreadPool::help() { return impl_->help(); }

const void*& ThreadPool::work_of_thread() { return t_work; }

}  // namespace backplane::core
