// Regions of the thread pool: members that go their own ways, and join each other's loops.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "core/plugin_host/thread_pool.hpp"

namespace backplane::core {
namespace {

constexpr std::uint64_t kQuickSleep = 20'000;  // ns: workers sleep often

/// Member 0 runs one loop after the other; the others help until it is done.
struct Helped {
  explicit Helped(ThreadPool& p) : pool(p) {}
  ThreadPool& pool;
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> sum{0}, expected{0};
  std::atomic<int> members{0}, by_others{0};
  std::atomic<bool> clash{false};
  std::vector<std::atomic<int>> busy = std::vector<std::atomic<int>>(ThreadPool::kMaxThreads);

  static void part(void* argument, std::uint64_t begin, std::uint64_t end, std::uint32_t worker) {
    auto& self = *static_cast<Helped*>(argument);
    if (self.busy[worker].fetch_add(1) != 0) self.clash = true;
    for (std::uint64_t i = begin; i < end; ++i) self.sum += i;
    if (worker != 0) ++self.by_others;
    self.busy[worker].fetch_sub(1);
  }
  static void member(void* argument, unsigned number) {
    auto& self = *static_cast<Helped*>(argument);
    ++self.members;
    if (number != 0) {
      while (!self.done) self.pool.help();
      return;
    }
    for (std::uint64_t n = 1; n < 300; ++n) {
      self.expected += n * (n - 1) / 2;
      self.pool.parallel_for(4, n, 1, part, &self);
    }
    self.done = true;
  }
};

TEST(ThreadPoolRegion, LoopsOfAMemberAreDoneOnceWithTheHelpOfOthers) {
  ThreadPool pool(4, kQuickSleep);
  int helped = 0;
  // Where other programs have the processors, a round may be over before anybody else has a turn.
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (int round = 0; round < 20 || (helped == 0 && std::chrono::steady_clock::now() < patience);
       ++round) {
    Helped region(pool);
    ASSERT_TRUE(pool.run_region(4, Helped::member, &region));
    EXPECT_EQ(region.sum, region.expected);
    EXPECT_FALSE(region.clash);
    EXPECT_EQ(region.members, 4);  // one who comes late finds it all done, but comes
    helped += region.by_others;
  }
  EXPECT_GT(helped, 0);
}

/// All members run loops of their own at the same time, and help when they have run them.
struct Busy {
  explicit Busy(ThreadPool& p) : pool(p) {}
  ThreadPool& pool;
  std::atomic<int> running{4};
  std::atomic<std::uint64_t> count{0};

  static void part(void* argument, std::uint64_t begin, std::uint64_t end, std::uint32_t) {
    static_cast<std::atomic<std::uint64_t>*>(argument)->fetch_add(end - begin);
  }
  static void member(void* argument, unsigned) {
    auto& self = *static_cast<Busy*>(argument);
    for (std::uint64_t n = 2; n < 200; ++n) {
      std::atomic<std::uint64_t> mine{0};
      self.pool.parallel_for(4, n, 1, part, &mine);
      if (mine == n) ++self.count;
    }
    --self.running;
    while (self.running > 0) {
      if (!self.pool.help()) std::this_thread::yield();
    }
  }
};

TEST(ThreadPoolRegion, MembersRunLoopsAtTheSameTime) {
  ThreadPool pool(4, kQuickSleep);
  for (int round = 0; round < 10; ++round) {
    Busy region(pool);
    // Each member waits for the others, so none may be done by another's thread.
    std::atomic<int> here{0};
    struct Both {
      Busy* busy;
      std::atomic<int>* here;
    } both{&region, &here};
    const auto enter = [](void* argument, unsigned member) {
      Busy::member(static_cast<Both*>(argument)->busy, member);
      ++*static_cast<Both*>(argument)->here;
    };
    region.running = 1;
    ASSERT_TRUE(pool.run_region(4, enter, &both));
    EXPECT_EQ(here, 4);
    EXPECT_EQ(region.count, 4u * 198u);
  }
}

TEST(ThreadPoolRegion, IsRefusedToASingleThread) {
  ThreadPool pool(1, kQuickSleep);
  const auto never = [](void*, unsigned) { FAIL(); };
  EXPECT_FALSE(pool.run_region(4, never, nullptr));
  ThreadPool larger(4, kQuickSleep);
  EXPECT_FALSE(larger.run_region(1, never, nullptr));
}

TEST(ThreadPoolRegion, IsRefusedWhileThePoolIsBusy) {
  ThreadPool pool(2, kQuickSleep);
  struct Inner {
    ThreadPool* pool;
    std::atomic<int> refused{0};
  } inner{&pool, {}};
  const auto outer = [](void* argument, unsigned) {
    auto& self = *static_cast<Inner*>(argument);
    const auto never = [](void*, unsigned) { FAIL(); };
    if (!self.pool->run_region(2, never, nullptr)) ++self.refused;
  };
  ASSERT_TRUE(pool.run_region(2, outer, &inner));
  EXPECT_EQ(inner.refused, 2);
}

TEST(ThreadPoolRegion, LoopsOutsideWorkAfterwards) {
  ThreadPool pool(3, kQuickSleep);
  ASSERT_TRUE(pool.run_region(
      3, [](void*, unsigned) {}, nullptr));
  EXPECT_FALSE(pool.help());
  std::atomic<std::uint64_t> count{0};
  pool.parallel_for(3, 1000, 1, Busy::part, &count);
  EXPECT_EQ(count, 1000u);
}

TEST(ThreadPoolRegion, OtherCallersLoopsGoOnAlone) {
  ThreadPool pool(3, kQuickSleep);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0};
  std::thread other([&] {
    while (!stop) {
      std::atomic<std::uint64_t> count{0};
      pool.parallel_for(3, 500, 1, Busy::part, &count);
      if (count != 500) ++wrong;
    }
  });
  int ran = 0;
  for (int attempt = 0; ran < 20 && attempt < 1'000'000; ++attempt) {
    Helped region(pool);
    if (!pool.run_region(3, Helped::member, &region)) {
      std::this_thread::yield();
      continue;
    }
    ++ran;
    EXPECT_EQ(region.sum, region.expected);
  }
  stop = true;
  other.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(ran, 20);
}

}  // namespace
}  // namespace backplane::core
