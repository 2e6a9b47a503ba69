#include "plugins/cuda/stream.hpp"

#include <chrono>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include "plugins/cuda/device.hpp"

namespace backplane::cuda {
namespace {

/// Marks that are kept although they are done: the host may still ask for their values.
constexpr std::size_t kKeptMarks = 16;

}  // namespace

FaultWord::FaultWord(Device& device) : device_(device), word_(device.pinned()) {}

bool FaultWord::end_capture() {
  const bool was_armed = armed() != before_capture_;
  launches_.take_back(before_capture_);
  return was_armed;
}

void FaultWord::check(std::uint64_t armed) {
  if (!launches_.is_due(armed)) return;
  const std::lock_guard lock(reading_);
  int number = 0;  // the kernel's word is an int
  std::memcpy(&number, word_.get(), sizeof(number));
  if (number == 0) return;
  *word_.get() = 0;
  throw sdk::Error(BP_FAILED, device_.faults().text(number));
}

Stream::Stream(Device& device, StreamHandle users)
    : device_(device),
      users_(users),
      handle_(users != nullptr ? users : device.context().create_stream()) {
  try {
    faults_ = std::make_shared<FaultWord>(device);
  } catch (...) {
    if (users_ == nullptr) device.context().destroy_stream(handle_);
    throw;
  }
}

Stream::~Stream() {
  if (users_ == nullptr) device_.context().destroy_stream(handle_);
  if (aside_ != nullptr) device_.context().destroy_stream(aside_);
}

void Stream::sync() {
  refuse_while_programs_capture();
  device_.context().synchronize(handle_);
  faults_->check(faults_->armed());
}

void Stream::launch(const Kernel& kernel, const Extent& groups, const Extent& group,
                    void** arguments) {
  // Not a library's: these do not let it begin before they end, and an encoder's replays took 1.5 % longer on an H100 so.
  const Put last = std::exchange(last_, Put::kOther);
  const bool follows_kernel = last == Put::kKernel || last == Put::kEarlyKernel;
  // Where times are taken, each kernel is to have its own; and to the program's stream others put work, too.
  const bool is_early = device_.launch(handle_, kernel, groups, group, arguments,
                                       follows_kernel && times() == nullptr && handle_ != users_);
  has_overlaps_ = has_overlaps_ || is_early;
  note(is_early ? Put::kEarlyKernel : Put::kKernel);
}

void Stream::refuse_while_programs_capture() const {
  if (users_ != nullptr) device_.refuse_while_programs_capture();
}

void Stream::begin_capture() {
  Context& context = device_.context();
  if (users_ != nullptr && aside_ == nullptr) aside_ = context.create_stream();
  const StreamHandle captured = users_ != nullptr ? aside_ : handle_;
  context.begin_capture(captured);
  device_.begin_capture();
  handle_ = captured;
  faults_->begin_capture();
  is_capturing_ = true;
  last_ = Put::kOther;
  form_ = 0;
  has_overlaps_ = false;
}

Stream::CaptureEnd Stream::end_capture() {
  const StreamHandle captured = handle_;
  const std::uint64_t form = form_;
  last_ = Put::kOther;
  if (users_ != nullptr) handle_ = users_;
  is_capturing_ = false;
  device_.end_capture();
  return {captured, faults_->end_capture(), has_overlaps_, form};
}

void Stream::record_times(bool on) {
  times_.reset();
  last_ = Put::kOther;  // events were
  if (!on) return;
  refuse_while_programs_capture();
  times_ = std::make_unique<WorkTimes>(device_.context(), handle_);
}

Fence::Fence(Device& device) : device_(device) {}

Fence::~Fence() {
  if (early_ == nullptr) return;
  // A stream that waits for a value which never came would wait for ever. CUDA compares in a circle, as the sign of the
  // difference says, so this is the greatest of all values; and nobody knows when the streams have read it.
  *early_->get() = std::numeric_limits<std::int64_t>::max();
  device_.keep(std::move(early_));
}

const Fence::Mark* Fence::find(std::uint64_t value) const {
  for (const Mark& mark : marks_) {
    if (mark.value >= value) return &mark;
  }
  return nullptr;
}

/// An event that nobody waits for any more, or a new one.
std::shared_ptr<CUevent_st> Fence::take_event() {
  if (marks_.size() >= kKeptMarks && marks_.front().event.use_count() == 1 &&
      device_.context().is_done(marks_.front().event.get())) {
    std::shared_ptr<CUevent_st> event = std::move(marks_.front().event);
    marks_.pop_front();
    return event;
  }
  Context& context = device_.context();
  return {context.create_event(), [&context](EventHandle event) { context.destroy_event(event); }};
}

void Fence::signal(Stream& stream, std::uint64_t value) {
  // An event that is recorded then can never be asked again.
  stream.refuse_while_programs_capture();
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<CUevent_st> event = take_event();
    device_.context().record(event.get(), stream.handle());
    if (early_ != nullptr) device_.context().write_value(stream.handle(), early_->get(), value);
    marks_.push_back({value, std::move(event), stream.shared_faults(), stream.faults().armed()});
  }
  signalled_.notify_all();
}

void Fence::wait(Stream& stream, std::uint64_t value) {
  if (value == 0) return;
  const std::lock_guard lock(mutex_);
  if (const Mark* const mark = find(value)) {
    device_.context().wait(stream.handle(), mark->event.get());
    return;
  }
  if (!device_.traits().has_stream_values)
    sdk::unsupported(device_.traits().name,
                     " cannot wait for a fence that is signalled later (no 64-bit stream waits)");
  if (early_ == nullptr) early_ = std::make_unique<PinnedWord>(device_.pinned());
  device_.context().wait_value(stream.handle(), early_->get(), value);
}

bool Fence::host_wait(std::uint64_t value, std::uint64_t timeout_ns) {
  if (value == 0) return true;
  using Clock = std::chrono::steady_clock;
  const bool for_ever =
      timeout_ns >= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() / 4);
  const auto end =
      Clock::now() + std::chrono::nanoseconds(for_ever ? 0 : static_cast<std::int64_t>(timeout_ns));
  Mark mark;
  {
    std::unique_lock lock(mutex_);
    const auto is_there = [&] { return find(value) != nullptr; };
    if (for_ever) {
      signalled_.wait(lock, is_there);
    } else if (!signalled_.wait_until(lock, end, is_there)) {
      return false;
    }
    mark = *find(value);
  }
  if (for_ever) {
    device_.context().synchronize(mark.event.get());
  } else {
    // CUDA waits without a limit only, so a limited wait looks again and again.
    for (auto pause = std::chrono::microseconds(2); !device_.context().is_done(mark.event.get());) {
      if (Clock::now() >= end) return false;
      std::this_thread::sleep_for(pause);
      if (pause < std::chrono::microseconds(500)) pause *= 2;
    }
  }
  mark.faults->check(mark.armed);
  return true;
}

}  // namespace backplane::cuda
