#include "plugins/opencl/tuner.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <variant>

#include "plugins/opencl/device.hpp"

namespace backplane::opencl {
namespace {

using device_ops::CopyPlan;
using device_ops::LaunchPlan;
using device_ops::Work;

/// Raised when the way of measuring or of keeping changes.
constexpr char kVersion[] = "tuner 1";

/// A round of one way takes about so long, and there are so many; the least counts.
constexpr double kRoundNs = 400'000;
constexpr int kRounds = 7, kMostRuns = 50;
/// What is slower than the best by more than this after a first look is not measured further.
constexpr double kHopeless = 2;
/// Another way than the one by rule has to be faster by more than what measurements differ by.
constexpr double kWorthwhile = 0.97;
/// Loads of tiles may pass the end of a matrix.
constexpr std::uint64_t kSlackBytes = 512;

/// Memory that stands for the node's tensors. All ways use the same, as large as the largest needs it.
class Scratch {
 public:
  Scratch(Device& device, const sdk::PrepareContext& ctx, const std::vector<Way>& ways,
          std::uint64_t output_bytes)
      : device_(device), stream_(device.create_side_stream()) {
    std::uint64_t packed = 0, workspace = 0;
    for (const Way& way : ways) {
      packed = std::max(packed, way.packed_bytes);
      workspace = std::max(workspace, way.workspace_bytes);
    }
    const std::uint32_t count = ctx.input_count();
    // All places are taken beforehand: values point to them.
    tensors_.reserve(count + 3);
    values_.reserve(count + 1);
    for (std::uint32_t i = 0; i < count; ++i)
      inputs_.push_back(add_value(ctx.input(i).present() ? ctx.input(i).bytes() : 0));
    output_ = add_value(output_bytes);
    packed_ = add_tensor(packed);
    states_.resize(count + 1);
    raw_.inputs = inputs_.data();
    raw_.input_count = count;
    raw_.outputs = &output_;
    raw_.output_count = 1;
    raw_.packed = &packed_;
    raw_.packed_count = 1;
    raw_.workspace = add_tensor(workspace);
    raw_.stream = reinterpret_cast<bp_stream*>(stream_.get());
    raw_.input_state = states_.data();
    stream_->sync();
  }

  /// Of one run, of `runs` in a row.
  double time_ns(const device_ops::PreparedWork& work, int runs) const {
    const sdk::ComputeContext ctx(&raw_);
    const auto begin = std::chrono::steady_clock::now();
    for (int run = 0; run < runs; ++run) work.compute(ctx);
    stream_->sync();
    const std::chrono::duration<double, std::nano> passed =
        std::chrono::steady_clock::now() - begin;
    return passed.count() / runs;
  }

 private:
  const bp_tensor* add_tensor(std::uint64_t bytes) {
    bp_tensor& tensor = tensors_.emplace_back(sdk::abi_struct<bp_tensor>());
    if (bytes == 0) return &tensor;
    // Half a float: no zeros, which some devices multiply with less power, and a number of every other type too.
    constexpr float kFill = 0.5f;
    const std::uint64_t size =
        (bytes + kSlackBytes + sizeof(kFill) - 1) / sizeof(kFill) * sizeof(kFill);
    buffers_.push_back(device_.allocate(BP_MEMORY_DEVICE, size));
    Buffer& buffer = *buffers_.back();
    check_cl(clEnqueueFillBuffer(stream_->queue(), buffer.memory.get(), &kFill, sizeof(kFill), 0,
                                 size, 0, nullptr, nullptr),
             "clEnqueueFillBuffer");
    tensor.buffer = reinterpret_cast<bp_buffer*>(&buffer);
    tensor.bytes = bytes;
    return &tensor;
  }
  const bp_value* add_value(std::uint64_t bytes) {
    bp_value& value = values_.emplace_back(sdk::abi_struct<bp_value>());
    value.kind = bytes == 0 ? BP_VALUE_ABSENT : BP_VALUE_TENSOR;
    value.tensor = add_tensor(bytes);
    return &value;
  }

  Device& device_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::unique_ptr<Stream> stream_;  // ends before the memory
  std::vector<bp_tensor> tensors_;
  std::vector<bp_value> values_;
  std::vector<const bp_value*> inputs_;
  const bp_value* output_ = nullptr;
  const bp_tensor* packed_ = nullptr;
  std::vector<std::uint32_t> states_;
  bp_kctx raw_ = sdk::abi_struct<bp_kctx>();
};

/// A way that is measured.
struct Trial {
  std::unique_ptr<const device_ops::PreparedWork> work;  ///< null: not measured any further
  double least_ns = std::numeric_limits<double>::infinity();
};

/// The kernels built and run once (drivers compile again at the first launch), and a first look at the time. A way that
/// the device's compiler or the device refuses is none.
Trial first_look(Device& device, const Scratch& scratch, const Way& way) {
  Trial trial;
  try {
    trial.work = device.make_ready(way.work);
    scratch.time_ns(*trial.work, 1);
    for (int look = 0; look < 2; ++look)
      trial.least_ns = std::min(trial.least_ns, scratch.time_ns(*trial.work, 1));
  } catch (const sdk::Error&) {
    return {};
  }
  return trial;
}

double least_of(const std::vector<Trial>& trials) {
  double least = std::numeric_limits<double>::infinity();
  for (const Trial& trial : trials) least = std::min(least, trial.least_ns);
  return least;
}

/// The fastest way. Measured in turns, so that what else the machine does falls on all of them.
std::size_t measure(Device& device, const Scratch& scratch, const std::vector<Way>& ways) {
  std::vector<Trial> trials;
  for (const Way& way : ways) trials.push_back(first_look(device, scratch, way));
  for (int round = 0; round < kRounds; ++round) {
    const double best = least_of(trials);
    for (Trial& trial : trials) {
      if (trial.work == nullptr || trial.least_ns > kHopeless * best) continue;
      const int runs = std::clamp(static_cast<int>(kRoundNs / (trial.least_ns + 1)), 1, kMostRuns);
      trial.least_ns = std::min(trial.least_ns, scratch.time_ns(*trial.work, runs));
    }
  }
  if (std::isinf(least_of(trials))) sdk::failed("the device runs none of its ways");
  std::size_t best = 0;
  for (std::size_t i = 1; i < trials.size(); ++i) {
    if (trials[i].least_ns < trials[best].least_ns) best = i;
  }
  return trials[best].least_ns < kWorthwhile * trials[0].least_ns ? best : 0;
}

std::string text_of(const LaunchPlan& launch) {
  std::string text = sdk::message(" [", launch.name, ' ', device_ops::hash_of(launch.source), ':');
  for (const std::size_t items : launch.items) text += sdk::message(' ', items);
  for (const std::size_t items : launch.group) text += sdk::message(" /", items);
  for (const device_ops::Scalar& scalar : launch.scalars)
    text += std::visit([](const auto& value) { return sdk::message(' ', value); }, scalar);
  return text + ']';
}

std::string text_of(const CopyPlan& copy) { return sdk::message(" [copy ", copy.bytes, ']'); }

std::string text_of(const device_ops::LoopPlan& loop) {
  std::string text = sdk::message(" [", loop.times, " times:");
  for (const LaunchPlan& launch : loop.launches) text += text_of(launch);
  return text + ']';
}

}  // namespace

Tuner::Tuner(Device& device, const std::string& device_key, const std::string& folder, bool is_on)
    : device_(device),
      device_key_(device_key),
      is_on_(is_on),
      cache_(is_on ? folder : "", "choice") {}

std::string Tuner::key_of(const std::vector<Way>& ways) const {
  std::string key =
      sdk::message(kVersion, '\n', device_key_, '\n', device_.traits().compute_units, " units");
  for (const Way& way : ways) {
    key += "\nway " + way.name + ':';
    for (const Work::Step& step : way.work.steps()) {
      key += std::visit([](const auto& plan) { return text_of(plan); }, step);
    }
    for (const std::vector<unsigned char>& table : way.work.tables()) {
      const std::string bytes(table.begin(), table.end());
      key += sdk::message(" [table ", device_ops::hash_of(bytes), ']');
    }
  }
  return key;
}

std::size_t Tuner::choose(const sdk::PrepareContext& ctx, const std::vector<Way>& ways,
                          std::uint64_t output_bytes) {
  // What is measured differs from session to session.
  if (!is_on_ || ways.size() < 2 || ctx.deterministic()) return 0;
  const std::string key = key_of(ways);
  // Held while the ways are measured: see the class.
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = chosen_.try_emplace(key, 0);
  if (!is_new) return place->second;
  if (const std::optional<std::string> kept = cache_.read(key)) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      if (ways[i].name == *kept) return place->second = i;
    }
  }
  try {
    const Scratch scratch(device_, ctx, ways, output_bytes);
    place->second = measure(device_, scratch, ways);
    cache_.write(key, ways[place->second].name);
  } catch (const sdk::Error& error) {
    const std::string text =
        sdk::message("node '", ways[0].work.label(), "' is done as '", ways[0].name, "' on ",
                     device_.traits().name, ", not tuned: ", error.what());
    sdk::host().log(BP_LOG_WARNING, text.data(), text.size());
  }
  return place->second;
}

void take_best(sdk::PrepareContext& ctx, Work& work, std::vector<Way> ways,
               std::uint64_t output_bytes) {
  const auto& device = static_cast<const Device&>(work.device());
  Way& way = ways[device.tuner().choose(ctx, ways, output_bytes)];
  if (way.workspace_bytes > 0)
    ctx.set_workspace(way.workspace_bytes, work.device().limits().alignment);
  if (way.request_packed) way.request_packed(ctx);
  ctx.set_variant(way.name);
  work = std::move(way.work);
}

}  // namespace backplane::opencl
