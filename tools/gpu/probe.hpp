// What gpu_probe measures; each part is one JSON object.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace backplane::gpu {

using Json = nlohmann::ordered_json;

struct Request {
  bool is_quick = false;
  std::string model, feed_model;  ///< the second makes the first one's input on the device
  std::string provider = "cuda";
  std::map<std::string, std::string> options;  ///< of the session
  std::map<std::string, std::int64_t> dims;    ///< of symbols
  int runs = 100;
  std::string one_run;     ///< after the warm-up there is one run and no more: "marked" or "traced"
  double warm_up_s = 0.5;  ///< at least so long: an idle device's clocks are low
};

/// What the device can do by itself: products of cuBLASLt, copies, launches of graphs. A part that fails is its reason
/// as text.
Json device_limits(const Request& request);

/// What a model's runs take on a device, feeds and fetches in its memory: waited for, on the host alone, on the device
/// alone. And which kernels its nodes have.
Json model_times(const Request& request);

/// One run whose kernels somebody else times: those between cuProfilerStart and cuProfilerStop ("marked"). Or what the
/// provider's own events say of its nodes ("traced").
Json one_run(const Request& request);

/// That the device does what it is asked for, and its name. Throws where it fails, and does not return where the device hangs.
Json device_is_alive();

/// Keeps the device initialised until standard input ends. Not where one process alone may use it.
Json hold_device();

/// By name: version and file of CUDA's libraries that `engine`, a shared library, links. Needs no device.
Json libraries_of(const std::string& engine);

/// The element in the middle.
double median(std::vector<double> numbers);

}  // namespace backplane::gpu
