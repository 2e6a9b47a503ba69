// Several ways to do one node's work: which one is taken, by measuring them on the device, and kept.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "plugins/common/device_ops/program_cache.hpp"
#include "plugins/common/device_ops/work.hpp"

namespace backplane::opencl {

class Device;

/// One way to do a node's work, with what it needs of the host; the host is asked only once the way is taken.
struct Way {
  explicit Way(const device_ops::Work& node) : work(node.device(), node.label()) {}

  std::string name;  ///< shown to users as the variant; no two ways of a node have the same
  device_ops::Work work;
  std::uint64_t workspace_bytes = 0;
  std::uint64_t packed_bytes = 0;  ///< of the node's one packed constant, packed(0); 0: none
  std::function<void(sdk::PrepareContext&)> request_packed;  ///< empty: none
};

/// Chooses for each form of work: once for the device, and with a folder once for all processes that share it. A form is
/// all that the launches of all its ways are: text (types, what is fused, the kernels' version), sizes and arguments.
/// Threads: any; one measures at a time, so that measurements do not disturb each other.
class Tuner {
 public:
  /// `device_key` names device and driver. Nothing is read or written unless `is_on`.
  Tuner(Device& device, const std::string& device_key, const std::string& folder, bool is_on);

  bool is_on() const { return is_on_; }
  /// The index of a way; of the first, which is the one by rule, where the tuner is off, there is no other, the session is
  /// to be deterministic, or the ways cannot be measured (for want of memory: that is logged). `ctx` shows the inputs' sizes.
  std::size_t choose(const sdk::PrepareContext& ctx, const std::vector<Way>& ways,
                     std::uint64_t output_bytes);

 private:
  std::string key_of(const std::vector<Way>& ways) const;

  Device& device_;
  std::string device_key_;
  bool is_on_;
  std::mutex mutex_;
  std::map<std::string, std::size_t> chosen_;  // by key
  device_ops::ProgramCache cache_;
};

/// Chooses, makes the way the node's work and asks the host for what it needs.
void take_best(sdk::PrepareContext& ctx, device_ops::Work& work, std::vector<Way> ways,
               std::uint64_t output_bytes);

}  // namespace backplane::opencl
