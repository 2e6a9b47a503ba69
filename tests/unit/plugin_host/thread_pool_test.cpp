#include "core/plugin_host/thread_pool.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <pthread.h>
#include <thread>
#include <vector>

#include "core/base/denormals.hpp"

namespace backplane::core {
namespace {

constexpr std::uint64_t kQuick = 20'000;  // ns: workers sleep often

/// Counts how often each index is done, and checks that no worker index is in use twice at a time.
struct Record {
  explicit Record(std::uint64_t n) : done(n) {}
  std::vector<std::uint32_t> done;
  std::array<std::atomic<int>, ThreadPool::kMaxThreads> busy{};
  std::atomic<std::uint32_t> highest_worker{0};
  std::atomic<std::uint64_t> parts{0};
  std::atomic<std::uint64_t> shortest_part{std::numeric_limits<std::uint64_t>::max()};
  std::atomic<bool> clash{false};
  std::chrono::microseconds work{0};

  static void part(void* argument, std::uint64_t begin, std::uint64_t end, std::uint32_t worker) {
    auto& self = *static_cast<Record*>(argument);
    if (self.busy[worker].fetch_add(1) != 0) self.clash = true;
    for (std::uint64_t i = begin; i < end; ++i) ++self.done[i];  // parts are disjoint
    if (self.work.count() > 0) std::this_thread::sleep_for(self.work);
    ++self.parts;
    lower(self.shortest_part, end - begin);
    std::uint32_t highest = self.highest_worker;
    while (worker > highest && !self.highest_worker.compare_exchange_weak(highest, worker)) {
    }
    self.busy[worker].fetch_sub(1);
  }
  static void lower(std::atomic<std::uint64_t>& least, std::uint64_t value) {
    std::uint64_t before = least;
    while (value < before && !least.compare_exchange_weak(before, value)) {
    }
  }
  bool all_once() const {
    return std::all_of(done.begin(), done.end(), [](std::uint32_t times) { return times == 1; });
  }
};

/// How many parts were done by threads that take numbers below the normal ones as 0, and by others.
struct DenormalParts {
  std::atomic<int> zero{0}, numbers{0};
  static void part(void* argument, std::uint64_t, std::uint64_t, std::uint32_t) {
    auto& self = *static_cast<DenormalParts*>(argument);
    const bool is_zero = DenormalControl::of_thread() == DenormalControl::zero();
    ++(is_zero ? self.zero : self.numbers);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
};

TEST(ThreadPool, WorkersTakeDenormalsAsTheCallerDoes) {
  if (DenormalControl::zero() == DenormalControl()) GTEST_SKIP() << "no such control is known here";
  ThreadPool pool(4, kQuick);
  for (int i = 0; i < 20; ++i) {
    DenormalParts plain, zero;
    {
      const DenormalsAsZero scope(true);
      const DenormalsAsZero nothing(false);
      pool.parallel_for(4, 64, 1, DenormalParts::part, &zero);
      EXPECT_TRUE(DenormalControl::of_thread() == DenormalControl::zero());
    }
    EXPECT_TRUE(DenormalControl::of_thread() == DenormalControl());
    pool.parallel_for(4, 64, 1, DenormalParts::part, &plain);
    EXPECT_EQ(zero.numbers, 0);
    EXPECT_EQ(plain.zero, 0);
  }
}

TEST(ThreadPool, CoversEveryIndexOnce) {
  ThreadPool pool(4, kQuick);
  for (const std::uint64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 63, 64, 65, 1000, 4097}) {
    for (const std::uint64_t grain : {0, 1, 2, 3, 8, 100, 5000}) {
      for (const unsigned threads : {1U, 2U, 3U, 4U}) {
        Record record(n);
        pool.parallel_for(threads, n, grain, Record::part, &record);
        ASSERT_TRUE(record.all_once()) << n << " " << grain << " " << threads;
        ASSERT_FALSE(record.clash) << n << " " << grain << " " << threads;
        ASSERT_LT(record.highest_worker, threads);
        ASSERT_LE(record.parts, threads * 5 + 1);
      }
    }
  }
}

TEST(ThreadPool, CallsNothingForAnEmptyLoop) {
  ThreadPool pool(2, kQuick);
  Record record(0);
  pool.parallel_for(2, 0, 1, Record::part, &record);
  EXPECT_EQ(record.parts, 0U);
}

TEST(ThreadPool, KeepsTheGrainWhereItCan) {
  ThreadPool pool(4, kQuick);
  Record record(4000);
  pool.parallel_for(4, 4000, 500, Record::part, &record);
  EXPECT_TRUE(record.all_once());
  EXPECT_GE(record.shortest_part, 500U);
  Record whole(4000);
  pool.parallel_for(4, 4000, 2001, Record::part, &whole);
  EXPECT_EQ(whole.parts, 1U);
}

TEST(ThreadPool, WorksForSizesNearTheLargest) {
  ThreadPool pool(3, kQuick);
  struct Sum {
    std::atomic<std::uint64_t> covered{0};
    std::atomic<std::uint64_t> last{0};
  } sum;
  const std::uint64_t n = std::numeric_limits<std::uint64_t>::max() - 3;
  pool.parallel_for(
      3, n, 1,
      [](void* argument, std::uint64_t begin, std::uint64_t end, std::uint32_t) {
        auto& result = *static_cast<Sum*>(argument);
        result.covered += end - begin;
        std::uint64_t last = result.last;
        while (end > last && !result.last.compare_exchange_weak(last, end)) {
        }
      },
      &sum);
  EXPECT_EQ(sum.covered, n);
  EXPECT_EQ(sum.last, n);
}

constexpr int kTries = 20;

/// The highest worker that long work of as many threads has; where other programs have the processors, work may be over before every
/// one has had a turn, and is tried again.
std::uint32_t highest_worker_of(ThreadPool& pool, unsigned threads, std::uint32_t wanted) {
  std::uint32_t highest = 0;
  for (int i = 0; i < kTries && highest != wanted; ++i) {
    Record record(30);
    record.work = std::chrono::milliseconds(2);
    pool.parallel_for(threads, 30, 1, Record::part, &record);
    EXPECT_TRUE(record.all_once());
    EXPECT_FALSE(record.clash);
    highest = record.highest_worker;
  }
  return highest;
}

TEST(ThreadPool, SharesLongWorkAmongAllThreads) {
  ThreadPool pool(3, kQuick);
  EXPECT_EQ(highest_worker_of(pool, 3, 2), 2U);
}

TEST(ThreadPool, WakesWorkersThatSleep) {
  ThreadPool pool(2, 1000);
  int woken = 0;
  for (int round = 0; round < kTries; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // far longer than they spin
    Record record(20);
    record.work = std::chrono::milliseconds(1);
    pool.parallel_for(2, 20, 1, Record::part, &record);
    ASSERT_TRUE(record.all_once());
    woken += record.highest_worker == 1U ? 1 : 0;
  }
  EXPECT_GT(woken, kTries / 2);
}

TEST(ThreadPool, RunsManySmallLoopsInARow) {
  ThreadPool pool(4, kQuick);
  Record record(16);
  constexpr std::uint32_t kLoops = 20'000;
  for (std::uint32_t i = 0; i < kLoops; ++i) {
    pool.parallel_for(4, 16, 1, Record::part, &record);
    if (i % 1000 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  for (const std::uint32_t times : record.done) EXPECT_EQ(times, kLoops);
  EXPECT_FALSE(record.clash);
}

TEST(ThreadPool, WorkOfWorkersIsVisibleToTheCaller) {
  ThreadPool pool(4, kQuick);
  std::vector<std::uint64_t> numbers(4096);
  for (std::uint64_t round = 1; round < 300; ++round) {
    struct Loop {
      std::uint64_t* to;
      std::uint64_t round;
    } loop{numbers.data(), round};
    pool.parallel_for(
        4, numbers.size(), 16,
        [](void* argument, std::uint64_t begin, std::uint64_t end, std::uint32_t) {
          const Loop& l = *static_cast<Loop*>(argument);
          for (std::uint64_t i = begin; i < end; ++i) l.to[i] = i * l.round;
        },
        &loop);
    for (std::uint64_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], i * round);
  }
}

TEST(ThreadPool, SecondCallerWorksAlone) {
  ThreadPool pool(3, kQuick);
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        Record record(100);
        pool.parallel_for(3, 100, 1, Record::part, &record);
        if (!record.all_once() || record.clash) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, LoopInsideAPartRunsInPlace) {
  ThreadPool pool(3, kQuick);
  struct Outer {
    ThreadPool* pool;
    std::atomic<std::uint64_t> inner_parts{0};
    std::atomic<std::uint64_t> inner_indices{0};
  } outer{&pool};
  pool.parallel_for(
      3, 12, 1,
      [](void* argument, std::uint64_t begin, std::uint64_t end, std::uint32_t) {
        auto& o = *static_cast<Outer*>(argument);
        for (std::uint64_t i = begin; i < end; ++i) {
          o.pool->parallel_for(
              3, 50, 1,
              [](void* inner, std::uint64_t b, std::uint64_t e, std::uint32_t) {
                ++static_cast<Outer*>(inner)->inner_parts;
                static_cast<Outer*>(inner)->inner_indices += e - b;
              },
              &o);
        }
      },
      &outer);
  EXPECT_EQ(outer.inner_parts, 12U);
  EXPECT_EQ(outer.inner_indices, 12U * 50U);
}

TEST(ThreadPool, GrowsButNeverShrinks) {
  ThreadPool pool(1, kQuick);
  EXPECT_EQ(pool.thread_count(), 1U);
  Record alone(40);
  pool.parallel_for(8, 40, 1, Record::part, &alone);
  EXPECT_EQ(alone.parts, 1U);
  pool.grow(3);
  pool.grow(2);
  EXPECT_EQ(pool.thread_count(), 3U);
  EXPECT_EQ(highest_worker_of(pool, 8, 2), 2U);
  pool.grow(1'000'000);
  EXPECT_EQ(pool.thread_count(), ThreadPool::kMaxThreads);
}

TEST(ThreadPool, ZeroThreadsMeansTheCaller) {
  ThreadPool pool(0, kQuick);
  EXPECT_EQ(pool.thread_count(), 1U);
  Record record(10);
  pool.parallel_for(0, 10, 1, Record::part, &record);
  EXPECT_TRUE(record.all_once());
}

TEST(ThreadPool, WorkersBlockSignalsButThoseOfFaults) {
  ThreadPool pool(2, kQuick);
  std::atomic<int> open{0};
  const auto look = [](void* argument, std::uint64_t, std::uint64_t, std::uint32_t worker) {
    sigset_t blocked{};
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    const bool is_open = sigismember(&blocked, SIGUSR1) == 0;
    if (is_open != (worker == 0)) ++*static_cast<std::atomic<int>*>(argument);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
      if (sigismember(&blocked, fault) != 0) ++*static_cast<std::atomic<int>*>(argument);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  pool.parallel_for(2, 10, 1, look, &open);
  EXPECT_EQ(open, 0);
}

TEST(ThreadPool, EndsWhileWorkersSpinOrSleep) {
  for (int round = 0; round < 50; ++round) {
    ThreadPool pool(3, round % 2 == 0 ? 1000 : 1'000'000);
    Record record(30);
    pool.parallel_for(3, 30, 1, Record::part, &record);
    EXPECT_TRUE(record.all_once());
    if (round % 5 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace
}  // namespace backplane::core
