#include "plugins/cuda/launch.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

namespace backplane::cuda {

using device_ops::CopyPlan;
using device_ops::LaunchPlan;
using device_ops::LoopPlan;
using device_ops::MemoryRef;
using device_ops::Place;

namespace {

/// The most groups along y and z of one launch (CUDA's limit); more are launched in parts.
constexpr unsigned kMostGroups = 65535;
/// The hidden arguments: the first group of a part along y and z, see prelude.hpp.
constexpr std::size_t kPartArguments = 2;

/// An argument's bytes, at the start of a word, as the driver reads them.
std::uint64_t word_of(const device_ops::Scalar& scalar) {
  std::uint64_t word = 0;
  std::visit([&](const auto& value) { std::memcpy(&word, &value, sizeof(value)); }, scalar);
  return word;
}

}  // namespace

Launches::Launches(Device& device, const device_ops::Work& work)
    : device_(device), label_(work.label()) {
  add_tables(work.tables());
  for (const device_ops::Work::Step& step : work.steps()) {
    if (const auto* const launch = std::get_if<LaunchPlan>(&step)) {
      steps_.push_back({make_launch(*launch), launch->unless_inside});
    } else if (const auto* const loop = std::get_if<LoopPlan>(&step)) {
      Loop made{{}, loop->times};
      for (const LaunchPlan& each : loop->launches) made.launches.push_back(make_launch(each));
      steps_.push_back({std::move(made)});
    } else {
      const auto& copy = std::get<CopyPlan>(step);
      steps_.push_back({copy, copy.unless_inside});
    }
  }
}

Launches::~Launches() {
  for (const int number : faults_) device_.faults().remove(number);
}

Launches::Launch Launches::make_launch(const LaunchPlan& plan) {
  Launch launch;
  launch.kernel = device_.modules().get(plan.source);
  launch.memory = plan.memory;
  for (std::size_t d = 0; d < 3; ++d) {
    const std::size_t groups = (plan.items[d] + plan.group[d] - 1) / plan.group[d];
    if (groups > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
      sdk::unsupported(plan.items[d], " work items along one dimension are more than CUDA takes");
    launch.groups[d] = static_cast<unsigned>(groups);
    launch.group[d] = static_cast<unsigned>(plan.group[d]);
  }
  // A memory argument is a pointer and its first element: the pointer has the offset already.
  launch.values.assign(2 * plan.memory.size(), 0);
  for (const device_ops::Scalar& scalar : plan.scalars) launch.values.push_back(word_of(scalar));
  if (!plan.fault.empty()) {
    const int number = device_.faults().add(sdk::message("node '", label_, "': ", plan.fault));
    faults_.push_back(number);
    launch.may_fault = true;
    launch.values.push_back(0);  // the stream's word
    launch.values.push_back(word_of(number));
  }
  if (launch.values.size() + kPartArguments > kMaxArguments)
    sdk::unsupported("a kernel of ", launch.values.size(), " arguments; there may be ",
                     kMaxArguments - kPartArguments);
  return launch;
}

void Launches::add_tables(const std::vector<std::vector<unsigned char>>& tables) {
  if (tables.empty()) return;
  const std::uint64_t alignment = device_.limits().alignment;
  std::vector<unsigned char> joined;
  for (const std::vector<unsigned char>& table : tables) {
    joined.resize((joined.size() + alignment - 1) / alignment * alignment);
    table_offsets_.push_back(joined.size());
    joined.insert(joined.end(), table.begin(), table.end());
  }
  tables_ = device_.allocate(BP_MEMORY_DEVICE, std::max<std::uint64_t>(joined.size(), 1));
  device_.upload(joined.data(), joined.size(), tables_->address);
}

Address Launches::address_of(const MemoryRef& ref, const sdk::ComputeContext& ctx) const {
  if (ref.place == Place::Table) return tables_->address + table_offsets_[ref.index] + ref.offset;
  return cuda::address_of(ref, ctx);
}

void Launches::compute(const sdk::ComputeContext& ctx) const {
  Stream& stream = *reinterpret_cast<Stream*>(ctx.stream());
  try {
    for (const Step& step : steps_) {
      if (step.unless_inside >= 0 &&
          ctx.input_inside(static_cast<std::uint32_t>(step.unless_inside)))
        continue;
      std::visit([&](const auto& work) { enqueue(work, ctx, stream); }, step.work);
    }
  } catch (const sdk::Error& error) {
    throw sdk::Error(error.code(), sdk::message("node '", label_, "': ", error.what()));
  }
}

void Launches::enqueue(const Loop& loop, const sdk::ComputeContext& ctx, Stream& stream) const {
  for (std::int64_t time = 0; time < loop.times; ++time) {
    for (const Launch& launch : loop.launches) enqueue(launch, ctx, stream, &time);
  }
}

void Launches::enqueue(const Launch& launch, const sdk::ComputeContext& ctx, Stream& stream,
                       const std::int64_t* time) const {
  std::array<std::uint64_t, kMaxArguments> values;
  std::array<void*, kMaxArguments> pointers;
  const std::size_t count = launch.values.size();
  std::copy(launch.values.begin(), launch.values.end(), values.begin());
  for (std::size_t i = 0; i < launch.memory.size(); ++i)
    values[2 * i] = address_of(launch.memory[i].memory, ctx);
  if (time != nullptr) values[2 * launch.memory.size()] = word_of(*time);
  if (launch.may_fault) {
    values[count - 2] = reinterpret_cast<std::uint64_t>(stream.faults().address());
    stream.faults().arm();
  }
  for (std::size_t i = 0; i < count + kPartArguments; ++i) pointers[i] = &values[i];
  const TimedWork timed(stream, "kernel");
  for (unsigned z = 0; z < launch.groups[2]; z += kMostGroups) {
    for (unsigned y = 0; y < launch.groups[1]; y += kMostGroups) {
      values[count] = y;
      values[count + 1] = z;
      const Extent part{launch.groups[0], std::min(launch.groups[1] - y, kMostGroups),
                        std::min(launch.groups[2] - z, kMostGroups)};
      stream.launch(*launch.kernel, part, launch.group, pointers.data());
    }
  }
}

void Launches::enqueue(const CopyPlan& copy, const sdk::ComputeContext& ctx, Stream& stream) const {
  const Address from = address_of(copy.from, ctx), to = address_of(copy.to, ctx);
  if (from == to) return;
  const TimedWork timed(stream, "copy");
  device_.context().copy(stream.handle(), to, from, copy.bytes);
}

}  // namespace backplane::cuda
