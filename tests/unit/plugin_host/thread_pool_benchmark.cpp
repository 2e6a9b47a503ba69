// Prints what a loop costs beyond its work: fork and join, and how well small work is shared.
//   thread_pool_benchmark [threads]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "core/plugin_host/thread_pool.hpp"

namespace {

using backplane::core::ThreadPool;
using Clock = std::chrono::steady_clock;

struct Work {
  std::uint64_t steps_per_index;
  std::uint64_t sink[ThreadPool::kMaxThreads * 8];  // a cache line for each worker
};

void part(void* argument, std::uint64_t begin, std::uint64_t end, std::uint32_t worker) {
  auto* work = static_cast<Work*>(argument);
  std::uint64_t value = work->sink[worker * 8] + begin;
  const std::uint64_t steps = (end - begin) * work->steps_per_index;
  for (std::uint64_t i = 0; i < steps; ++i) value = value * 6364136223846793005ULL + 1;
  work->sink[worker * 8] = value;
}

/// The median and the best of `samples` means over `loops` loops, in ns.
struct Times {
  double median;
  double best;
};

template <class Body>
Times measure(int samples, int loops, Body body) {
  std::vector<double> means;
  for (int s = 0; s < samples; ++s) {
    const auto begin = Clock::now();
    for (int i = 0; i < loops; ++i) body();
    const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
    means.push_back(took.count() / loops);
  }
  std::sort(means.begin(), means.end());
  return {means[means.size() / 2], means[0]};
}

}  // namespace

int main(int argc, char** argv) {
  const auto threads = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 2U;
  ThreadPool pool(threads);
  static Work work{};
  std::printf("%u threads of %u processors\n", threads, std::thread::hardware_concurrency());

  work.steps_per_index = 0;
  const Times empty =
      measure(101, 2000, [&] { pool.parallel_for(threads, threads, 1, part, &work); });
  std::printf("fork and join, a part a thread, no work: median %.0f ns, best %.0f ns\n",
              empty.median, empty.best);
  const Times chunked = measure(
      101, 2000, [&] { pool.parallel_for(threads, std::uint64_t{threads} * 64, 1, part, &work); });
  std::printf("the same with all chunks: median %.0f ns, best %.0f ns\n", chunked.median,
              chunked.best);

  for (const std::uint64_t steps : {8ULL, 32ULL, 128ULL, 1024ULL}) {
    work.steps_per_index = steps;
    const std::uint64_t n = 64;
    const Times alone = measure(31, 500, [&] { part(&work, 0, n, 0); });
    for (const std::uint64_t grain : {n / threads, std::uint64_t{1}}) {
      const Times shared =
          measure(31, 500, [&] { pool.parallel_for(threads, n, grain, part, &work); });
      std::printf(
          "work of %6.0f ns, grain %2d of 64: %6.0f ns, best %6.0f ns, beyond a fair share %5.0f "
          "ns\n",
          alone.median, static_cast<int>(grain), shared.median, shared.best,
          shared.best - alone.best / threads);
    }
  }
  work.steps_per_index = 1024;
  std::vector<double> waking;
  for (int i = 0; i < 51; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    waking.push_back(measure(1, 1, [&] { pool.parallel_for(threads, 64, 1, part, &work); }).median);
  }
  std::sort(waking.begin(), waking.end());
  std::printf("a loop of 64 x 1024 steps that finds the workers asleep: median %.0f ns\n",
              waking[waking.size() / 2]);
  return 0;
}
