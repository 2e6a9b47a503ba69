#include "plugins/opencl/stream.hpp"

#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "plugins/opencl/device.hpp"

namespace backplane::opencl {
namespace {

/// Markers that are kept although they are done: the host may still ask for their values.
constexpr std::size_t kKeptMarks = 16;

cl_int status_of(cl_event event) {
  cl_int status = CL_COMPLETE;
  check_cl(
      clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr),
      "clGetEventInfo");
  return status;
}

void CL_CALLBACK end_user_event(cl_event, cl_int, void* user_event) {
  auto* const event = static_cast<cl_event>(user_event);
  clSetUserEventStatus(event, CL_COMPLETE);
  clReleaseEvent(event);
}

}  // namespace

FaultWord::FaultWord(Device& device, Memory word) : device_(device), memory_(std::move(word)) {}

void FaultWord::check(std::uint64_t armed) {
  if (!launches_.is_due(armed)) return;
  cl_int number = 0;
  check_cl(clEnqueueReadBuffer(device_.side_queue(), memory_.get(), CL_TRUE, 0, sizeof(number),
                               &number, 0, nullptr, nullptr),
           "clEnqueueReadBuffer");
  if (number == 0) return;
  const cl_int none = 0;
  check_cl(clEnqueueWriteBuffer(device_.side_queue(), memory_.get(), CL_TRUE, 0, sizeof(none),
                                &none, 0, nullptr, nullptr),
           "clEnqueueWriteBuffer");
  throw sdk::Error(BP_FAILED, device_.faults().text(number));
}

Stream::Stream(Device& device, Queue queue, Memory fault_word)
    : device_(device),
      queue_(std::move(queue)),
      faults_(std::make_shared<FaultWord>(device, std::move(fault_word))) {
  if (device_.runs_out_of_order()) hazards_ = std::make_unique<Hazards>();
}

void Stream::sync() {
  check_cl(clFinish(queue_.get()), "clFinish");
  if (hazards_ != nullptr) hazards_->clear();
  faults_->check(faults_->armed());
}

void Stream::barrier() {
  if (hazards_ == nullptr) return;
  check_cl(clEnqueueBarrierWithWaitList(queue_.get(), 0, nullptr, nullptr),
           "clEnqueueBarrierWithWaitList");
  hazards_->clear();
}

cl_command_queue Stream::lend() {
  barrier();
  is_lent_ = hazards_ != nullptr;
  return queue_.get();
}

void Stream::settle() {
  if (!is_lent_ && hazards_->count() < Hazards::kMost) return;
  barrier();
  is_lent_ = false;
}

Command::Command(Stream& stream)
    : stream_(stream), times_(stream.times()), hazards_(stream.hazards()) {
  if (hazards_ != nullptr) {
    stream.settle();
    stream.accesses_.clear();
    stream.awaited_.clear();
  }
  if (times_ != nullptr) enqueued_ns_ = CommandTimes::now();
}

void Command::done(std::string_view name) {
  if (event_ == nullptr) return;
  Event event(event_);
  if (hazards_ != nullptr) {
    for (const Access& access : stream_.accesses_) hazards_->add(access, event.get());
  }
  if (times_ != nullptr) times_->add(std::string(name), enqueued_ns_, std::move(event));
}

void Stream::record_times(bool on) {
  cl_command_queue_properties properties = 0;
  check_cl(clGetCommandQueueInfo(queue_.get(), CL_QUEUE_PROPERTIES, sizeof(properties), &properties,
                                 nullptr),
           "clGetCommandQueueInfo");
  const bool has_times = (properties & CL_QUEUE_PROFILING_ENABLE) != 0;
  if (device_.settings().user_queue != nullptr) {
    if (on && !has_times)
      sdk::unsupported(
          "the queue of option 'user_queue' takes no times; make it with "
          "CL_QUEUE_PROFILING_ENABLE");
  } else if (on != has_times) {
    sync();
    queue_ = device_.make_stream_queue(on);
  }
  times_ = on ? std::make_unique<CommandTimes>() : nullptr;
}

Fence::~Fence() {
  for (const Pending& pending : pending_) clSetUserEventStatus(pending.event.get(), CL_COMPLETE);
}

const Fence::Mark* Fence::find(std::uint64_t value) const {
  for (const Mark& mark : marks_) {
    if (mark.value >= value) return &mark;
  }
  return nullptr;
}

void Fence::signal(Stream& stream, std::uint64_t value) {
  cl_event raw = nullptr;
  check_cl(clEnqueueMarkerWithWaitList(stream.queue(), 0, nullptr, &raw),
           "clEnqueueMarkerWithWaitList");
  Event event(raw);
  check_cl(clFlush(stream.queue()), "clFlush");
  {
    const std::lock_guard lock(mutex_);
    while (marks_.size() >= kKeptMarks && status_of(marks_.front().event.get()) == CL_COMPLETE)
      marks_.pop_front();
    for (std::size_t i = 0; i < pending_.size();) {
      if (pending_[i].value > value) {
        ++i;
        continue;
      }
      cl_event waiting = pending_[i].event.get();
      clRetainEvent(waiting);
      check_cl(clSetEventCallback(event.get(), CL_COMPLETE, end_user_event, waiting),
               "clSetEventCallback");
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    marks_.push_back({value, std::move(event), stream.shared_faults(), stream.faults().armed()});
  }
  signalled_.notify_all();
}

void Fence::wait(Stream& stream, std::uint64_t value) {
  if (value == 0) return;
  const std::lock_guard lock(mutex_);
  cl_event awaited = nullptr;
  if (const Mark* const mark = find(value)) {
    awaited = mark->event.get();
  } else {
    cl_int code = CL_SUCCESS;
    Event made(clCreateUserEvent(device_.context(), &code));
    check_cl(code, "clCreateUserEvent");
    awaited = made.get();
    pending_.push_back({value, std::move(made)});
  }
  check_cl(clEnqueueBarrierWithWaitList(stream.queue(), 1, &awaited, nullptr),
           "clEnqueueBarrierWithWaitList");
}

bool Fence::host_wait(std::uint64_t value, std::uint64_t timeout_ns) {
  if (value == 0) return true;
  using Clock = std::chrono::steady_clock;
  const bool for_ever =
      timeout_ns >= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() / 4);
  const auto end =
      Clock::now() + std::chrono::nanoseconds(for_ever ? 0 : static_cast<std::int64_t>(timeout_ns));
  Event event;
  std::shared_ptr<FaultWord> faults;
  std::uint64_t armed = 0;
  {
    std::unique_lock lock(mutex_);
    const auto is_there = [&] { return find(value) != nullptr; };
    if (for_ever) {
      signalled_.wait(lock, is_there);
    } else if (!signalled_.wait_until(lock, end, is_there)) {
      return false;
    }
    const Mark& mark = *find(value);
    clRetainEvent(mark.event.get());
    event = Event(mark.event.get());
    faults = mark.faults;
    armed = mark.armed;
  }
  if (for_ever) {
    cl_event raw = event.get();
    clWaitForEvents(1, &raw);  // its error is read below, with the command's own code
  }
  // OpenCL waits without a limit only, so a limited wait looks again and again.
  for (auto pause = std::chrono::microseconds(2); status_of(event.get()) > CL_COMPLETE;) {
    if (!for_ever && Clock::now() >= end) return false;
    std::this_thread::sleep_for(pause);
    if (pause < std::chrono::microseconds(500)) pause *= 2;
  }
  if (const cl_int status = status_of(event.get()); status < 0)
    throw_cl(status, "work on an OpenCL queue", "at or before a fence");
  faults->check(armed);
  return true;
}

}  // namespace backplane::opencl
