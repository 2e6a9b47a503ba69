#include "core/plan/cost_model.hpp"

#include <algorithm>

namespace backplane::core {
namespace {

/// What a device does at the least these days. Only what the kernels' own costs leave open is counted so.
ComputeRate usual_rate(const Device& device) {
  constexpr ComputeRate kOnHost{300, 30, 10};
  constexpr ComputeRate kOwnMemory{5'000, 300, 50};
  return device.on_host_memory() ? kOnHost : kOwnMemory;
}

std::vector<int> spaces_of(const DeviceSet& devices) {
  std::vector<int> spaces;
  for (std::size_t i = 0; i < devices.devices.size(); ++i)
    spaces.push_back(devices.space_of(static_cast<int>(i)));
  return spaces;
}

}  // namespace

CostModel::CostModel(const DeviceSet& devices) : CostModel(devices, spaces_of(devices)) {}

CostModel::CostModel(const DeviceSet& devices, std::vector<int> spaces)
    : spaces_(std::move(spaces)),
      space_count_(devices.space_count()),
      copies_(space_count_ * space_count_) {
  for (const SessionDevice& device : devices.devices)
    compute_.push_back(usual_rate(*device.device));
}

void CostModel::set_host_copies(int device, const CopyRate& to_device, const CopyRate& to_host) {
  rate(kHostSpace, space_of(device)) = to_device;
  rate(space_of(device), kHostSpace) = to_host;
}

void CostModel::set_peer_copy(int from, int to, const CopyRate& between) {
  rate(space_of(from), space_of(to)) = between;
}

void CostModel::set_compute(int device, const ComputeRate& rate) {
  compute_[static_cast<std::size_t>(device)] = rate;
}

double CostModel::copy_ns(int from, int to, std::uint64_t bytes) const {
  const CopyRate& known = rate(from, to);
  if (from == to || known.bytes_per_ns <= 0) return known.latency_ns;
  return known.latency_ns + static_cast<double>(bytes) / known.bytes_per_ns;
}

double CostModel::exec_ns(int device, double flops, double bytes) const {
  const ComputeRate& rate = compute_[static_cast<std::size_t>(device)];
  return rate.launch_ns + std::max(flops / rate.flops_per_ns, bytes / rate.bytes_per_ns);
}

}  // namespace backplane::core
