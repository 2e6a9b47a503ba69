#include "plugins/cuda/trials.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "plugins/common/device_ops/work.hpp"
#include "plugins/cuda/capture.hpp"
#include "plugins/cuda/device.hpp"

namespace backplane::cuda {
namespace {

/// After one run, in which the device loads the code and libraries what they make on first use.
constexpr std::uint64_t kRuns = 5;
/// Another way than the first has to be faster by more than what measurements differ by.
constexpr double kWorthwhile = 0.97;

/// Runs as short as this may take the host longer than the device: a library's call takes the host up to some 10 us. They are
/// captured, as a plan's steps are, and so many replays are measured. It is also what they take in a plan: beside memory that a library
/// has cleared before its kernel, a graph's kernels stand still for 4 us on an H100. Behind each comes the neighbour, since a library's
/// kernel also costs those before and behind it their early beginnings, which others like it would not show.
constexpr std::uint64_t kShortNs = 200'000, kShortRuns = 8, kReplays = 4;
/// What cannot be captured is put behind copies that keep the device busy until all of it is on the stream: so many copies take a device
/// that moves 3 TB/s 300 us.
constexpr std::uint64_t kDelayBytes = std::uint64_t{16} << 20;
constexpr int kDelayCopies = 24;

/// A run that takes longer than so many forms may take counts as one that never ends: 10 s, usually.
constexpr std::uint64_t kLostForms = 50;

constexpr std::uint64_t kPieceAlignment = 256;

std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
}

/// As a session's stream does it: behind one of its own kind, a kernel of the provider's begins early.
class TrialQueue final : public KernelQueue {
 public:
  TrialQueue(Device& device, StreamHandle stream) : device_(device), stream_(stream) {}
  StreamHandle for_library() override {
    follows_kernel_ = false;
    return stream_;
  }
  void launch(const Kernel& kernel, const Extent& groups, const Extent& group,
              void** arguments) override {
    device_.launch(stream_, kernel, groups, group, arguments, follows_kernel_);
    follows_kernel_ = true;
  }

 private:
  Device& device_;
  StreamHandle stream_;
  bool follows_kernel_ = false;
};

/// Work that was captured, ready to be launched.
class Replay {
 public:
  /// Errors: what cannot be captured, by whatever call says so.
  Replay(Context& context, StreamHandle stream, const std::function<void()>& put_work)
      : context_(context) {
    context.begin_capture(stream);
    try {
      put_work();
    } catch (...) {
      abandon_capture(context, stream);
      throw;
    }
    exec_ = context.instantiate(CapturedGraph(context, stream).get());
  }
  ~Replay() { context_.destroy_exec(exec_); }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  void launch(StreamHandle stream) const { context_.launch_graph(exec_, stream); }

 private:
  Context& context_;
  GraphExecHandle exec_ = nullptr;
};

}  // namespace

bool Trials::may_run() { return !device_.is_captured(); }

bool Trials::may_compare() {
  if (!compares_ || !may_run()) return false;
  const std::lock_guard lock(mutex_);
  return spent_ns_ < limits_.all_ns;
}

const Kernel* Trials::neighbour() {
  std::call_once(is_neighbour_made_, [this] {
    device_ops::KernelText text;
    try {
      neighbour_ = device_.modules().get(text.add("KERNEL run(int unused) {\n}\n").str());
    } catch (const sdk::Error& error) {
      if (error.code() == BP_DEVICE_LOST) throw;
    }
  });
  return neighbour_.get();
}

void Trials::spend(std::uint64_t ns) {
  const std::lock_guard lock(mutex_);
  spent_ns_ += ns;
}

/// Where ways are run: memory for sets of operands, whose contents are what was there, a stream and two timers.
class Comparison::Ground {
 public:
  /// Errors: BP_OUT_OF_MEMORY and others of the driver's.
  Ground(Device& device, const std::vector<std::uint64_t>& operand_bytes, std::size_t sets,
         std::uint64_t run_ns, const Kernel* neighbour)
      : device_(device), context_(device.context()), run_ns_(run_ns), neighbour_(neighbour) {
    std::uint64_t bytes = 0;
    for (const std::uint64_t each : operand_bytes) bytes += padded(each);
    if (sets > 1 && !reserve(operand_memory_, bytes * sets)) sets = 1;
    if (operand_memory_ == nullptr)
      operand_memory_ = device.allocate(BP_MEMORY_DEVICE, std::max<std::uint64_t>(bytes, 1));
    Address next = operand_memory_->address;
    operands_.resize(sets);
    for (std::vector<Address>& set : operands_) {
      for (const std::uint64_t each : operand_bytes) {
        set.push_back(each == 0 ? 0 : next);
        next += padded(each);
      }
    }
    try {
      stream_ = context_.create_stream();
      begin_ = context_.create_timer();
      end_ = context_.create_timer();
    } catch (...) {
      close();
      throw;
    }
  }
  ~Ground() { close(); }
  Ground(const Ground&) = delete;
  Ground& operator=(const Ground&) = delete;

  /// False: there is no memory for it.
  bool reserve_workspace(std::uint64_t bytes) { return reserve(workspace_, bytes); }

  /// Of one run, of several in a row where `left_ns` allow it.
  std::uint64_t time_ns(const TrialRun& run, const std::function<std::uint64_t()>& left_ns) {
    const std::uint64_t once = time_ns(run, 1), left = left_ns();
    if (left < once) return once;
    const std::uint64_t each =
        time_ns(run, std::min(kRuns, left / std::max<std::uint64_t>(once, 1)));
    if (each >= kShortNs || left_ns() == 0) return each;
    if (const std::optional<std::uint64_t> replayed = time_replays_ns(run))
      return std::min(each, *replayed);
    return reserve_delay() ? std::min(each, time_ns(run, kShortRuns, kDelayCopies)) : each;
  }

 private:
  bool reserve_delay() { return reserve(delay_, 2 * kDelayBytes); }
  bool reserve(std::unique_ptr<Buffer>& memory, std::uint64_t bytes) {
    if (bytes == 0 || (memory != nullptr && memory->bytes >= bytes)) return true;
    memory.reset();
    try {
      memory = device_.allocate(BP_MEMORY_DEVICE, bytes);
    } catch (const sdk::Error& error) {
      if (error.code() != BP_OUT_OF_MEMORY) throw;
      return false;
    }
    return true;
  }

  void put(const TrialRun& run, std::uint64_t runs, const Kernel* neighbour = nullptr) {
    const Address workspace = workspace_ == nullptr ? 0 : workspace_->address;
    TrialQueue queue(device_, stream_);
    for (std::uint64_t i = 0; i < runs; ++i) {
      run(queue, operands_[runs_++ % operands_.size()], workspace);
      if (neighbour == nullptr) continue;
      LaunchArguments arguments;
      queue.launch(*neighbour, {1, 1, 1}, {1, 1, 1}, arguments.add(std::int32_t{0}).finish());
    }
  }

  std::uint64_t time_ns(const TrialRun& run, std::uint64_t runs, int delays = 0) {
    return time_work_ns([&] {
             for (int i = 0; i < delays; ++i)
               context_.copy(stream_, delay_->address + kDelayBytes, delay_->address, kDelayBytes);
             context_.record(begin_, stream_);
             put(run, runs);
           }) /
           runs;
  }

  /// None: it cannot be captured.
  std::optional<std::uint64_t> time_replays_ns(const TrialRun& run) {
    std::optional<Replay> replay;
    try {
      replay.emplace(context_, stream_, [&] { put(run, kShortRuns, neighbour_); });
    } catch (const sdk::Error& error) {
      if (error.code() == BP_DEVICE_LOST) throw;
      return std::nullopt;
    }
    return time_work_ns([&] {
             replay->launch(stream_);  // the first also takes the graph to the device
             context_.record(begin_, stream_);
             for (std::uint64_t i = 0; i < kReplays; ++i) replay->launch(stream_);
           }) /
           (kReplays * kShortRuns);
  }

  /// From where `put_work` records its begin to what it has put on the stream.
  std::uint64_t time_work_ns(const std::function<void()>& put_work) {
    try {
      put_work();
      context_.record(end_, stream_);
    } catch (...) {
      // What it has put there before it failed, the next one is not to be measured with.
      context_.record(end_, stream_);
      wait();
      throw;
    }
    wait();
    return context_.nanoseconds_between(begin_, end_);
  }

  /// For what was put on the stream before `end_`. Not longer than anything takes that is to be tried: the first run of a
  /// proposal is the one that may never end, and nobody could tell which it was.
  void wait() {
    using Clock = std::chrono::steady_clock;
    constexpr std::uint64_t kBusyPolls = 1000;  // then it is the processor's time that counts
    const Clock::time_point last = Clock::now() + std::chrono::nanoseconds(run_ns_);
    for (std::uint64_t polls = 0; !context_.is_done(end_); ++polls) {
      if (polls < kBusyPolls) continue;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      if (Clock::now() < last) continue;
      const std::string text = sdk::message(
          "device lost: of the ways that a library proposes one was run to measure it, and did not "
          "end in ",
          run_ns_ / 1'000'000,
          " ms; option tuning=off of provider 'cuda' takes the first way that works");
      // At once, since what waits for the device on the way out may never come back.
      sdk::host().log(BP_LOG_ERROR, text.data(), text.size());
      throw sdk::Error(BP_DEVICE_LOST, text);
    }
    context_.synchronize(stream_);
  }

  void close() noexcept {
    if (end_ != nullptr) context_.destroy_event(end_);
    if (begin_ != nullptr) context_.destroy_event(begin_);
    if (stream_ != nullptr) context_.destroy_stream(stream_);
  }

  Device& device_;
  Context& context_;
  std::uint64_t run_ns_;
  const Kernel* neighbour_;
  std::unique_ptr<Buffer> operand_memory_, workspace_, delay_;
  std::vector<std::vector<Address>> operands_;  // of each set
  std::size_t runs_ = 0;
  StreamHandle stream_ = nullptr;
  EventHandle begin_ = nullptr, end_ = nullptr;
};

Comparison::Comparison(Trials* trials, std::vector<std::uint64_t> operand_bytes, std::size_t most,
                       bool compares, std::size_t operand_sets)
    : trials_(trials),
      operand_bytes_(std::move(operand_bytes)),
      most_(most),
      compares_(compares),
      operand_sets_(operand_sets) {
  if (trials_ == nullptr || trials_->may_run()) return;
  trials_ = nullptr;
  is_settled_ = false;
}

Comparison::~Comparison() = default;

std::uint64_t Comparison::passed_ns() const {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now() - begin_)
                                        .count());
}

std::uint64_t Comparison::left_ns() const {
  if (!compares_) return 0;
  const std::uint64_t passed = passed_ns(), all = trials_->form_ns();
  return passed < all ? all - passed : 0;
}

bool Comparison::add(std::uint64_t workspace_bytes, TrialRun run) {
  Way way{workspace_bytes, std::move(run)};
  const std::size_t index = added_++;
  if (trials_ == nullptr) return true;
  if (index == 0) counted_ns_ = passed_ns();
  if (index == 0 && left_ns() > 0) {
    // If it stays the only one, it is run once.
    waiting_ = std::move(way);
    return false;
  }
  if (waiting_) measure(0, *std::exchange(waiting_, std::nullopt));
  measure(index, way);
  // One that works is looked for however long that takes. What is taken by rule does not depend on what memory is free.
  return trials_ == nullptr || (!compares_ && unseen_) ||
         (fastest_ && (timed_count_ >= most_ || left_ns() == 0));
}

void Comparison::settle() {
  if (!waiting_) return;
  compares_ = false;
  measure(0, *std::exchange(waiting_, std::nullopt));
}

std::optional<std::size_t> Comparison::best() const {
  if (added_ == 0) return std::nullopt;
  if (trials_ == nullptr || waiting_) return 0;
  if (!fastest_) return unseen_;
  const bool is_faster =
      static_cast<double>(fastest_->ns) < kWorthwhile * static_cast<double>(first_->ns);
  return is_faster ? fastest_->index : first_->index;
}

std::uint64_t Comparison::best_ns() const {
  // What ran once also waited for what a library does for its first run.
  const std::optional<std::size_t> index = timed_count_ > 1 ? best() : std::nullopt;
  for (const std::optional<Timed>& timed : {fastest_, first_}) {
    if (index && timed && timed->index == *index) return timed->ns;
  }
  return 0;
}

/// Whether there is somewhere to run; else the first way stays.
bool Comparison::reach_ground() {
  if (trials_ == nullptr) return false;
  if (ground_ != nullptr) return true;
  try {
    ground_ = std::make_unique<Ground>(trials_->device(), operand_bytes_, operand_sets_,
                                       kLostForms * trials_->form_ns(),
                                       compares_ ? trials_->neighbour() : nullptr);
  } catch (const sdk::Error& error) {
    if (error.code() == BP_DEVICE_LOST) throw;
    trials_ = nullptr;
    is_settled_ = false;
  }
  return ground_ != nullptr;
}

void Comparison::measure(std::size_t index, const Way& way) {
  if (!reach_ground()) return;
  const auto turn = trials_->take_turn();
  const auto time_ns = [this](const Way& timed) {
    return ground_->time_ns(timed.run, [this] { return left_ns(); });
  };
  try {
    if (ground_->reserve_workspace(way.workspace_bytes)) {
      const Timed timed{index, time_ns(way)};
      ++timed_count_;
      if (!first_) first_ = timed;
      if (fastest_ && timed.ns < fastest_->ns && left_ns() > 0 &&
          ground_->reserve_workspace(fastest_way_.workspace_bytes)) {
        // Not because the device is faster by now: clocks rise for a while when it is given work.
        fastest_->ns = std::min(fastest_->ns, time_ns(fastest_way_));
        if (fastest_->index == first_->index) first_->ns = fastest_->ns;
      }
      if (!fastest_ || timed.ns < fastest_->ns) {
        fastest_ = timed;
        fastest_way_ = way;
      }
    } else {
      leave_unseen(index);
    }
  } catch (const sdk::Error& error) {
    if (error.code() == BP_DEVICE_LOST) throw;
    if (error.code() == BP_OUT_OF_MEMORY) {
      leave_unseen(index);
    } else {
      failure_ = error.what();
    }
  }
  const std::uint64_t passed = passed_ns();
  trials_->spend(passed - std::exchange(counted_ns_, passed));
}

/// It may work when there is memory.
void Comparison::leave_unseen(std::size_t index) {
  is_settled_ = false;
  if (!unseen_) unseen_ = index;
}

}  // namespace backplane::cuda
