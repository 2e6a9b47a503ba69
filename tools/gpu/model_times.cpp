#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>

#include "backplane/backplane.hpp"
#include "tools/gpu/cuda_functions.hpp"
#include "tools/gpu/probe.hpp"

namespace backplane::gpu {
namespace {

using Clock = std::chrono::steady_clock;

double since_us(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

Options options_of(const Request& request, const Cuda* cuda, CUstream stream) {
  Options options;
  options.set("providers", request.provider).set("fallback", "forbid");
  for (const auto& [symbol, size] : request.dims)
    options.set("dim." + symbol, std::to_string(size));
  for (const auto& [key, value] : request.options) options.set(key, value);
  if (cuda != nullptr)
    options.set("provider.cuda.user_stream",
                std::to_string(reinterpret_cast<std::uintptr_t>(stream)));
  return options;
}

std::vector<std::int64_t> dims_of(const ValueInfo& info, const Request& request) {
  std::vector<std::int64_t> dims = info.dims;
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    if (dims[axis] >= 0) continue;
    const auto given = request.dims.find(info.symbols.at(axis));
    if (given == request.dims.end())
      throw std::runtime_error("input '" + info.name + "' has an unknown dimension '" +
                               info.symbols[axis] + "': give it by --dim");
    dims[axis] = given->second;
  }
  return dims;
}

/// Numbers from -1 to 1, the same every time.
Value random_feed(const ValueInfo& info, const Request& request) {
  const ElementType type =
      info.type == "tensor(float16)" ? ElementType::Float16 : ElementType::Float;
  Value value = Value::tensor(type, dims_of(info, request));
  std::vector<double> numbers(value.size());
  std::uint32_t state = 2463534242u;
  for (double& number : numbers) {
    state = state * 1664525u + 1013904223u;
    number = static_cast<double>(state >> 8) / (1 << 23) - 1;
  }
  value.write_numbers(numbers);
  return value;
}

/// A model's runs, their feeds and fetches on the device where it has memory of its own.
class Runs {
 public:
  Runs(const Request& request, const Cuda* cuda, CUstream stream)
      : options_(options_of(request, cuda, stream)),
        session_(environment_, request.model, options_),
        binding_(session_) {
    asynchronous_.set("synchronize", "false");
    const ValueInfo x = session_.inputs().at(0);
    feed_ = random_feed(x, request);
    if (!request.feed_model.empty()) {
      source_ = std::make_unique<Session>(environment_, request.feed_model, options_);
      source_binding_ = std::make_unique<Binding>(*source_);
      const std::string y = source_->outputs().at(0).name;
      source_binding_->bind_input(source_->inputs().at(0).name, feed_);
      source_binding_->bind_output_to(y, request.provider);
      source_binding_->run();
      binding_.bind_input(x.name, source_binding_->output(y));
    } else {
      binding_.bind_input(x.name, feed_);
    }
    for (const ValueInfo& y : session_.outputs()) binding_.bind_output_to(y.name, request.provider);
    binding_.run();
    plain_ = results();
    const Clock::time_point start = Clock::now();
    for (int i = 1; i < kWarmUp || since_us(start) < 1e6 * request.warm_up_s; ++i) binding_.run();
  }

  void run() { binding_.run(); }
  void enqueue() { binding_.run(asynchronous_); }
  void wait() { session_.synchronize(); }
  std::string explanation() const { return session_.explain(); }
  /// What was traced since it was last asked for.
  std::string trace() const { return session_.trace(); }
  /// By how much the last run's results differ from those of the first, which replays nothing, relative to the largest.
  double difference() const {
    const std::vector<double> now = results();
    double apart = 0, largest = 0;
    for (std::size_t i = 0; i < now.size(); ++i) {
      const double each = std::abs(now[i] - plain_.at(i));
      if (std::isnan(each)) return each;
      apart = std::max(apart, each);
      largest = std::max(largest, std::abs(plain_[i]));
    }
    return apart == 0 ? 0 : apart / largest;
  }

 private:
  std::vector<double> results() const {
    std::vector<double> all;
    for (const ValueInfo& y : session_.outputs()) {
      const std::vector<double> numbers = binding_.output(y.name).to_host().numbers();
      all.insert(all.end(), numbers.begin(), numbers.end());
    }
    return all;
  }

  static constexpr int kWarmUp = 10;
  Environment environment_;
  Options options_;
  Session session_;
  std::unique_ptr<Session> source_;
  std::unique_ptr<Binding> source_binding_;
  Value feed_;
  Binding binding_;
  RunOptions asynchronous_;
  std::vector<double> plain_;
};

/// What one run takes on the device when the host is ahead: a delay on the stream lets the host put everything behind it.
double device_ms(Runs& runs, const Cuda& cuda, CUstream stream, double host_us, int times) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  const CUdeviceptr memory = cuda.allocate(kBytes);
  CUevent begin = cuda.make_event(), end = cuda.make_event();
  const auto delay = [&] {
    GPU_CALL(cuda, cuMemsetD32Async, memory, 0, kBytes / sizeof(std::uint32_t), stream);
  };
  const double delay_us = 1e3 * cuda.least_ms(stream, 8, 0, delay);
  constexpr double kSlack = 2, kMostUs = 50'000;
  const int delays =
      1 + static_cast<int>(std::min(kSlack * host_us + 100, kMostUs) / std::max(delay_us, 1.0));
  std::vector<double> found;
  for (int i = 0; i < times; ++i) {
    for (int k = 0; k < delays; ++k) delay();
    GPU_CALL(cuda, cuEventRecord, begin, stream);
    runs.enqueue();
    GPU_CALL(cuda, cuEventRecord, end, stream);
    runs.wait();
    GPU_CALL(cuda, cuStreamSynchronize, stream);
    found.push_back(cuda.elapsed_ms(begin, end));
  }
  cuda.free(memory);
  return median(found);
}

/// What took how long of a trace, by the device's clock; without one, by the host's.
Json times_of(const Json& trace) {
  Json by_device = Json::array(), by_host = Json::array();
  for (const Json& span : trace.at("traceEvents")) {
    const std::string category = span.value("cat", "");
    if (category != "device" && category != "node") continue;
    std::string name = span.at("name");
    const char* const detail = category == "device" ? "work" : "kernel";
    if (span.at("args").contains(detail)) name += ": " + span["args"][detail].get<std::string>();
    (category == "device" ? by_device : by_host)
        .push_back({{"name", std::move(name)}, {"us", span.at("dur")}});
  }
  return by_device.empty() ? by_host : by_device;
}

/// How many of a model's nodes have which kernel, in words; those that are part of another count once with it.
Json kernels_of(const Json& explanation) {
  std::map<std::string, std::set<std::string>> nodes;
  for (const Json& node : explanation.value("nodes", Json::array())) {
    if (!node.contains("kernel") || !node["kernel"].is_string()) continue;
    const bool is_part = node.contains("fused_into") && node["fused_into"].is_string();
    nodes[node["kernel"]].insert(node[is_part ? "fused_into" : "name"]);
  }
  Json counts = Json::object();
  for (const auto& [kernel, names] : nodes) counts[kernel] = names.size();
  return counts;
}

}  // namespace

double median(std::vector<double> numbers) {
  if (numbers.empty()) return 0;
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

Json one_run(const Request& request) {
  std::unique_ptr<Cuda> cuda;
  CUstream stream = nullptr;
  if (request.provider == "cuda") {
    cuda = std::make_unique<Cuda>();
    stream = cuda->make_stream();
  }
  Request traced = request;
  if (request.one_run == "traced") traced.options["profile"] = "true";
  Runs runs(traced, cuda.get(), stream);
  if (request.one_run == "traced") {
    runs.trace();
    runs.run();
    return {{"kernels", times_of(Json::parse(runs.trace()))}};
  }
  if (cuda != nullptr) GPU_CALL(*cuda, cuProfilerStart);
  runs.run();
  if (cuda != nullptr) GPU_CALL(*cuda, cuProfilerStop);
  return {{"marked", cuda != nullptr}};
}

Json model_times(const Request& request) {
  std::unique_ptr<Cuda> cuda;
  CUstream stream = nullptr;
  if (request.provider == "cuda") {
    cuda = std::make_unique<Cuda>();
    stream = cuda->make_stream();
  }
  Runs runs(request, cuda.get(), stream);
  std::vector<double> whole_us, host_us;
  for (int i = 0; i < request.runs; ++i) {
    const Clock::time_point start = Clock::now();
    runs.run();
    whole_us.push_back(since_us(start));
  }
  for (int i = 0; i < request.runs; ++i) {
    const Clock::time_point start = Clock::now();
    runs.enqueue();
    host_us.push_back(since_us(start));
    runs.wait();
  }
  Json result{{"latency_ms", median(whole_us) / 1e3}, {"host_us", median(host_us)}};
  result["device_ms"] = nullptr;
  if (cuda != nullptr)
    result["device_ms"] =
        device_ms(runs, *cuda, stream, median(host_us), std::min(request.runs, 30));
  result["difference"] = runs.difference();
  const Json explained = Json::parse(runs.explanation(), nullptr, false);
  if (explained.is_object() && explained.contains("capture"))
    result["capture"] = explained["capture"];
  if (explained.is_object()) result["kernels"] = kernels_of(explained);
  return result;
}

}  // namespace backplane::gpu
