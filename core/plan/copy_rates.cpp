#include "core/plan/copy_rates.hpp"

#define XXH_INLINE_ALL
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <vector>
#include <xxhash.h>

#include "core/base/atomic_file.hpp"
#include "core/base/quote.hpp"
#include "core/base/text_stream.hpp"
#include "core/plugin_host/copy_mode.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

constexpr std::uint64_t kSmallBytes = 4096;
constexpr std::uint64_t kLargeBytes = 4u << 20;
constexpr int kTurns = 7;
constexpr char kFirstWords[] = "backplane copy rates ";
constexpr char kFirstLine[] = "backplane copy rates 1";

/// Memory at one end of a copy, with what describes it to the device that copies.
struct End {
  DeviceBuffer buffer;
  bp_tensor tensor{};

  End(const DevicePtr& device, bp_memory_kind kind)
      : buffer(kind == BP_MEMORY_HOST ? nullptr : device, kind, kLargeBytes,
               kind == BP_MEMORY_HOST ? 64 : device->alignment(kind)) {
    tensor.struct_size = sizeof(tensor);
    tensor.dtype = BP_UINT8;
    tensor.memory = kind;
    tensor.buffer = buffer.raw();
    tensor.host_ptr = buffer.host_ptr();
    if (buffer.host_ptr() != nullptr) std::memset(buffer.host_ptr(), 1, kLargeBytes);
  }
};

/// Copies between two ends, over the host's pinned memory where the device wants that.
class Meter {
 public:
  Meter(const DeviceSet& devices, int from, int to)
      : executing_(devices.entry(from >= 0 ? from : to).device),
        stream_(executing_),
        from_(device_of(devices, from), kind_of(from)),
        to_(device_of(devices, to), kind_of(to)),
        is_download_(to < 0) {
    const bool over_host = from < 0 || to < 0;
    const bp_memory_kind other = over_host ? BP_MEMORY_HOST : BP_MEMORY_DEVICE;
    const std::int32_t mode = from < 0 ? copy_mode(devices.at(to), BP_MEMORY_HOST, BP_MEMORY_DEVICE)
                                       : copy_mode(devices.at(from), BP_MEMORY_DEVICE, other,
                                                   over_host ? nullptr : &devices.at(to));
    if (over_host && mode == BP_COPY_NONE)
      pinned_ = std::make_unique<End>(executing_, BP_MEMORY_PINNED);
    if (from >= 0) fill_source(devices, from);
  }

  double nanoseconds(std::uint64_t bytes) {
    const auto start = std::chrono::steady_clock::now();
    if (pinned_ == nullptr) {
      copy(from_, to_, bytes);
    } else if (is_download_) {
      copy(from_, *pinned_, bytes);
      std::memcpy(to_.buffer.host_ptr(), pinned_->buffer.host_ptr(), bytes);
    } else {
      std::memcpy(pinned_->buffer.host_ptr(), from_.buffer.host_ptr(), bytes);
      copy(*pinned_, to_, bytes);
    }
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start)
        .count();
  }

 private:
  static DevicePtr device_of(const DeviceSet& devices, int device) {
    return device < 0 ? nullptr : devices.entry(device).device;
  }
  static bp_memory_kind kind_of(int device) {
    return device < 0 ? BP_MEMORY_HOST : BP_MEMORY_DEVICE;
  }

  /// What was never written may not be read.
  void fill_source(const DeviceSet& devices, int from) {
    const bool direct =
        copy_mode(devices.at(from), BP_MEMORY_HOST, BP_MEMORY_DEVICE) != BP_COPY_NONE;
    End source(executing_, direct ? BP_MEMORY_HOST : BP_MEMORY_PINNED);
    copy(source, from_, kLargeBytes);
  }

  void copy(End& from, End& to, std::uint64_t bytes) {
    dims_[0] = static_cast<std::int64_t>(bytes);
    for (End* const end : {&from, &to}) {
      end->tensor.rank = 1;
      end->tensor.dims = dims_;
      end->tensor.bytes = bytes;
    }
    executing_->check(
        executing_->call(executing_->api().copy, stream_.raw(), &from.tensor, &to.tensor),
        "measuring its copies");
    if (auto error = stream_.drain()) throw error->within(executing_->label());
  }

  DevicePtr executing_;
  Stream stream_;
  End from_, to_;
  std::unique_ptr<End> pinned_;
  std::int64_t dims_[1] = {0};
  bool is_download_;
};

double median(Meter& meter, std::uint64_t bytes) {
  std::vector<double> times;
  meter.nanoseconds(bytes);  // wakes the device
  for (int turn = 0; turn < kTurns; ++turn) times.push_back(meter.nanoseconds(bytes));
  std::nth_element(times.begin(), times.begin() + kTurns / 2, times.end());
  return times[kTurns / 2];
}

/// Rates by what is copied between: "HASH HASH", an end that is the host being "host".
class RateFile {
 public:
  explicit RateFile(std::filesystem::path path) : path_(std::move(path)) {
    std::ifstream file(path_);
    std::string line;
    const bool has_line = static_cast<bool>(std::getline(file, line));
    // Rates of another version are measured again; what is no file of rates is somebody's.
    is_foreign_ = has_line && !line.starts_with(kFirstWords);
    if (!has_line || line != kFirstLine) return;
    while (std::getline(file, line)) {
      TextInput words(line);
      std::string from, to, rest;
      CopyRate rate;
      words >> from >> to >> rate.latency_ns >> rate.bytes_per_ns;
      if (words.fail() || words >> rest || rate.latency_ns < 0 || !(rate.bytes_per_ns > 0))
        continue;
      rates_[text(from, ' ', to)] = rate;
    }
  }

  /// Null where it is not known.
  const CopyRate* find(const std::string& key) const {
    const auto found = rates_.find(key);
    return found != rates_.end() ? &found->second : nullptr;
  }

  void add(const std::string& key, const CopyRate& rate) {
    // As it will be read: a session that measured places nodes as those do that read.
    TextInput(words(rate)) >> rates_[key].latency_ns >> rates_[key].bytes_per_ns;
    changed_ = true;
  }

  void save(const Logger& logger) const {
    if (!changed_ || path_.empty()) return;
    std::string all = text(kFirstLine, '\n');
    for (const auto& [key, rate] : rates_) all += text(key, ' ', words(rate), '\n');
    try {
      if (is_foreign_) invalid(quoted(path_.string()), " is there and is no file of copy rates");
      std::error_code ignored;  // the file says what is wrong
      std::filesystem::create_directories(path_.parent_path(), ignored);
      AtomicFile file(path_.string());
      file.write(std::as_bytes(std::span(all)));
      file.commit();
    } catch (const Error& error) {
      logger.warning("the measured copy rates are not kept: ", error.message(),
                     "; set the option copy_rates to a file that can be written, or to off");
    }
  }

 private:
  static std::string words(const CopyRate& rate) {
    TextOutput out;
    out.precision(4);
    out << rate.latency_ns << ' ' << rate.bytes_per_ns;
    return out.str();
  }

  std::filesystem::path path_;
  std::map<std::string, CopyRate> rates_;
  bool changed_ = false, is_foreign_ = false;
};

std::string key_of(const Device* device) {
  if (device == nullptr) return "host";
  const std::string& identity = device->identity();
  return text(std::hex, XXH3_64bits(identity.data(), identity.size()));
}

}  // namespace

std::filesystem::path default_copy_rate_file() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/')
    return std::filesystem::path(cache) / "backplane" / "copy_rates";
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home == '/')
    return std::filesystem::path(home) / ".cache" / "backplane" / "copy_rates";
  return {};
}

CopyRate measure_copy(const DeviceSet& devices, int from, int to) {
  Meter meter(devices, from, to);
  const double small = median(meter, kSmallBytes), large = median(meter, kLargeBytes);
  const auto more = static_cast<double>(kLargeBytes - kSmallBytes);
  return {small, more / std::max(large - small, 1.0)};
}

CostModel measured_costs(const DeviceSet& devices, const std::filesystem::path& file,
                         const Logger& logger) {
  CostModel model(devices);
  RateFile rates(file);
  const auto rate = [&](int from, int to) {
    const std::string key = key_of(from < 0 ? nullptr : &devices.at(from)) + ' ' +
                            key_of(to < 0 ? nullptr : &devices.at(to));
    if (rates.find(key) == nullptr) rates.add(key, measure_copy(devices, from, to));
    return *rates.find(key);
  };
  const auto count = static_cast<int>(devices.devices.size());
  for (int device = 0; device < count; ++device) {
    if (devices.at(device).on_host_memory()) continue;
    model.set_host_copies(device, rate(-1, device), rate(device, -1));
    for (int peer = 0; peer < count; ++peer) {
      if (peer == device || devices.at(peer).on_host_memory() ||
          devices.at(peer).provider_name() != devices.at(device).provider_name() ||
          copy_mode(devices.at(device), BP_MEMORY_DEVICE, BP_MEMORY_DEVICE, &devices.at(peer)) ==
              BP_COPY_NONE)
        continue;
      model.set_peer_copy(device, peer, rate(device, peer));
    }
  }
  rates.save(logger);
  return model;
}

}  // namespace backplane::core
