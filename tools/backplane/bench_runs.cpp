#include "tools/backplane/bench_runs.hpp"

#include <algorithm>
#include <barrier>
#include <chrono>

#include "tools/backplane/allocation_count.hpp"
#include "tools/backplane/callers.hpp"
#include "tools/backplane/failure.hpp"
#include "tools/backplane/json.hpp"
#include "tools/backplane/terminal.hpp"

namespace backplane::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kSteadyRuns = 10;
constexpr std::size_t kMaxRuns = 1'000'000;

double milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

std::unique_ptr<Binding> bind(const Session& session, const FeedSet& feeds) {
  auto binding = std::make_unique<Binding>(session);
  for (const auto& [name, value] : feeds.values()) binding->bind_input(name, value);
  for (const ValueInfo& output : session.outputs()) binding->bind_output(output.name);
  return binding;
}

/// Of all devices of the process: every session tells the same.
std::uint64_t device_allocations(const Session& session) {
  return Json::parse(session.statistics()).value("device_allocations", std::uint64_t{0});
}

/// Runs that take about so long, from one run's time.
std::size_t runs_in(double wanted_ms, double run_ms, std::size_t least) {
  const double runs = wanted_ms / std::max(run_ms, 1e-4);
  return std::clamp(static_cast<std::size_t>(std::min(runs, static_cast<double>(kMaxRuns))), least,
                    kMaxRuns);
}

/// One thread's runs. `ends` has room for all of them.
class Caller {
 public:
  Caller(const Session& session, const FeedSet& feeds) : binding_(bind(session, feeds)) {}

  double run_once() {
    const Clock::time_point start = Clock::now();
    as_run([&] { binding_->run(); });
    return milliseconds(Clock::now() - start);
  }
  void run(std::size_t count) {
    as_run([&] {
      for (std::size_t i = 0; i < count; ++i) binding_->run();
    });
  }
  void reserve(std::size_t runs) { samples_.assign(runs, Clock::duration::zero()); }

  /// The timed loop: one reading of the clock between two runs.
  void run_timed(Progress* progress) {
    const Clock::time_point start = Clock::now();
    Clock::time_point before = start;
    Clock::time_point next_report = start + std::chrono::milliseconds(500);
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      as_run([&] { binding_->run(); });
      const Clock::time_point after = Clock::now();
      samples_[i] = after - before;
      before = after;
      if (progress != nullptr && after > next_report) {
        progress->show(text("run ", i + 1, " of ", samples_.size()));
        next_report = after + std::chrono::milliseconds(500);
        before = Clock::now();
      }
    }
  }
  const std::vector<Clock::duration>& samples() const { return samples_; }

 private:
  std::unique_ptr<Binding> binding_;
  std::vector<Clock::duration> samples_;
};

/// All callers, and the phases that they go through together.
class Crew {
 public:
  Crew(const std::vector<std::unique_ptr<Session>>& sessions, const FeedSet& feeds,
       const RunCounts& counts)
      : sessions_(sessions), counts_(counts) {
    for (std::size_t i = 0; i < counts.callers; ++i) {
      callers_.push_back(std::make_unique<Caller>(*sessions[i % sessions.size()], feeds));
    }
  }

  Measurement measure() {
    Measurement result;
    result.first_run_ms = callers_[0]->run_once();
    warm_up();
    for (auto& caller : callers_) caller->reserve(runs_);
    const Clock::time_point start = Clock::now();
    {
      Progress progress;
      in_parallel(callers_.size(),
                  [&](std::size_t i) { callers_[i]->run_timed(i == 0 ? &progress : nullptr); });
    }
    const double wall_ms = milliseconds(Clock::now() - start);
    result.runs = runs_;
    result.runs_per_s = static_cast<double>(runs_ * callers_.size()) * 1000 / wall_ms;
    add_times(result);
    result.steady_allocations = steady_allocations();
    return result;
  }

 private:
  void warm_up() {
    if (counts_.warmup) {
      in_parallel(callers_.size(), [&](std::size_t i) { callers_[i]->run(*counts_.warmup); });
    } else {
      in_parallel(callers_.size(), [&](std::size_t i) {
        const double second_ms = callers_[i]->run_once();
        callers_[i]->run(runs_in(300, second_ms, 2));
      });
    }
    if (counts_.runs) {
      runs_ = *counts_.runs;
    } else {
      runs_ = runs_in(1000, callers_[0]->run_once(), kSteadyRuns);
    }
  }

  void add_times(Measurement& result) const {
    std::vector<Clock::duration> samples;
    for (const auto& caller : callers_) {
      samples.insert(samples.end(), caller->samples().begin(), caller->samples().end());
    }
    std::sort(samples.begin(), samples.end());
    const std::size_t count = samples.size();
    const double upper = milliseconds(samples[count / 2]);
    result.median_ms = count % 2 == 1 ? upper : (milliseconds(samples[count / 2 - 1]) + upper) / 2;
    result.min_ms = milliseconds(samples[0]);
    result.p90_ms = milliseconds(samples[std::min(count - 1, count * 9 / 10)]);
  }

  /// A session makes a run context for each of the runs that meet in it. That more of them meet here than ever before is a
  /// start, which is over after one turn for each caller.
  std::optional<std::uint64_t> steady_allocations() {
    std::optional<std::uint64_t> least = count_allocations();
    for (std::size_t turn = 1; turn < callers_.size() && least && *least > 0; ++turn)
      least = std::min(*least, count_allocations().value_or(0));
    return least;
  }

  /// The last runs are made apart from the timed ones, all callers between two barriers, so that starting threads
  /// and growing samples are not counted as the model's.
  std::optional<std::uint64_t> count_allocations() {
    const std::uint64_t before = device_allocations(*sessions_[0]);
    std::barrier barrier(static_cast<std::ptrdiff_t>(callers_.size()));
    std::optional<std::uint64_t> heap;
    in_parallel(callers_.size(), [&](std::size_t i) {
      barrier.arrive_and_wait();
      if (i == 0) start_counting_allocations();
      barrier.arrive_and_wait();
      try {
        callers_[i]->run(kSteadyRuns);
      } catch (...) {
        barrier.arrive_and_drop();
        throw;
      }
      barrier.arrive_and_wait();
      if (i == 0) heap = stop_counting_allocations();
      barrier.arrive_and_wait();  // no thread ends while it is counted
    });
    if (!heap) return std::nullopt;
    return *heap + device_allocations(*sessions_[0]) - before;
  }

  const std::vector<std::unique_ptr<Session>>& sessions_;
  RunCounts counts_;
  std::vector<std::unique_ptr<Caller>> callers_;
  std::size_t runs_ = 0;
};

}  // namespace

Measurement measure(const std::vector<std::unique_ptr<Session>>& sessions, const FeedSet& feeds,
                    const RunCounts& counts) {
  return Crew(sessions, feeds, counts).measure();
}

}  // namespace backplane::cli
