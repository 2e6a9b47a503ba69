#include "plugins/cuda/work_times.hpp"

#include <chrono>
#include <utility>

#include "plugins/cuda/stream.hpp"

namespace backplane::cuda {

WorkTimes::WorkTimes(Context& context, StreamHandle stream) : context_(context), stream_(stream) {
  compare_clocks();
}

void WorkTimes::compare_clocks() {
  zero_ = mark();
  context_.synchronize(zero_.get());
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  zero_ns_ =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

WorkTimes::Event WorkTimes::mark() {
  Event event(context_.create_timer(),
              [&context = context_](EventHandle handle) { context.destroy_event(handle); });
  context_.record(event.get(), stream_);
  return event;
}

void WorkTimes::add(const char* name, Event begin, Event end) {
  work_.push_back({name, std::move(begin), std::move(end)});
}

bp_status* WorkTimes::take(void* sink_ctx, bp_device_time_sink sink) {
  const std::vector<Work> done = std::exchange(work_, {});
  for (const Work& work : done) {
    bp_device_time time = sdk::abi_struct<bp_device_time>();
    time.name = work.name;
    time.begin_ns = zero_ns_ + context_.nanoseconds_between(zero_.get(), work.begin.get());
    time.end_ns = zero_ns_ + context_.nanoseconds_between(zero_.get(), work.end.get());
    if (bp_status* status = sink(sink_ctx, &time)) return status;
  }
  if (!done.empty()) compare_clocks();
  return nullptr;
}

TimedWork::TimedWork(Stream& stream, const char* name) noexcept
    : times_(stream.times()), name_(name) {
  if (times_ == nullptr) return;
  try {
    begin_ = times_->mark();
  } catch (const std::exception&) {
    times_ = nullptr;
  }
}

TimedWork::~TimedWork() {
  if (times_ == nullptr) return;
  try {
    times_->add(name_, std::move(begin_), times_->mark());
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace backplane::cuda
