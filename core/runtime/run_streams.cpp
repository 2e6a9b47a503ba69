#include "core/runtime/run_streams.hpp"

#include <utility>

namespace backplane::core {

RunStreams::RunStreams(const DeviceSet& devices)
    : devices_(devices),
      streams_(devices.devices.size()),
      raw_(devices.devices.size(), nullptr),
      times_(devices.devices.size()),
      in_flight_(devices.devices.size()) {}

void RunStreams::begin() {
  for (WorkInFlight& work : in_flight_) work.begin();
}

void RunStreams::make(const Segment& segment, bool timed, const Logger* logger) {
  for (std::size_t i = 0; i < segment.used_streams.size(); ++i) {
    if (!segment.used_streams[i]) continue;
    devices_.at(static_cast<int>(i)).throw_if_lost();
    if (streams_[i] == nullptr) {
      streams_[i] = std::make_unique<Stream>(devices_.devices[i].device);
      raw_[i] = streams_[i]->raw();
      ++count_;
    }
    times_[i].record(*streams_[i], timed, logger);
  }
}

void RunStreams::make_room(int device, std::size_t steps) {
  const auto index = static_cast<std::size_t>(device);
  in_flight_[index].make_room(*streams_[index], steps);
}

std::vector<DeviceTime> RunStreams::times(int device) {
  const auto index = static_cast<std::size_t>(device);
  return times_[index].take(*streams_[index]);
}

void RunStreams::drain() {
  for (const auto& stream : streams_) {
    if (stream != nullptr) stream->drain();
  }
}

std::optional<RunStreams::Failure> RunStreams::drain(const Segment& segment) {
  std::optional<Failure> first;
  for (std::size_t i = 0; i < segment.used_streams.size(); ++i) {
    if (!segment.used_streams[i]) continue;
    std::optional<Error> error = streams_[i]->drain();
    if (error && !first) first = Failure{static_cast<int>(i), std::move(*error)};
  }
  return first;
}

}  // namespace backplane::core
