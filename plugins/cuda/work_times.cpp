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

const bp_device_times& device_times() {
  static const bp_device_times kTable = [] {
    bp_device_times table = sdk::abi_struct<bp_device_times>();
    table.record = [](bp_device*, bp_stream* stream, std::uint32_t on) {
      return sdk::guarded([&] { reinterpret_cast<Stream*>(stream)->record_times(on != 0); });
    };
    table.take = [](bp_device*, bp_stream* stream, void* sink_ctx, bp_device_time_sink sink) {
      bp_status* status = nullptr;
      bp_status* const caught = sdk::guarded([&] {
        if (WorkTimes* const times = reinterpret_cast<Stream*>(stream)->times())
          status = times->take(sink_ctx, sink);
      });
      return caught != nullptr ? caught : status;
    };
    return table;
  }();
  return kTable;
}

}  // namespace backplane::cuda
