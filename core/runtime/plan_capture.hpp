// Work of a segment's steps that a device recorded, to be done again as one: of one run context.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/capture_ranges.hpp"
#include "core/plugin_host/device.hpp"

struct bp_plan_capture;
struct bp_recording;

namespace backplane::core {

/// Where the memory is that steps work on. Lists that are equal mean the same memory, with the same contents' owner:
/// a handle alone may be that of a buffer which took a dead one's place.
class MemoryKey {
 public:
  void clear();
  void add(std::uint64_t word) { words_.push_back(word); }
  void add(const bp_tensor& place, const std::shared_ptr<void>& owner);
  bool operator==(const MemoryKey& other) const;

 private:
  std::vector<std::uint64_t> words_;
  std::vector<std::weak_ptr<void>> owners_;
};

/// RAII over bp_recording; ends before the stream it was recorded on.
class Recording {
 public:
  Recording() = default;
  Recording(Device& device, bp_recording* raw) : device_(&device), raw_(raw) {}
  Recording(Recording&& other) noexcept
      : device_(other.device_), raw_(std::exchange(other.raw_, nullptr)) {}
  Recording& operator=(Recording&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Recording();
  bp_recording* raw() const { return raw_; }
  /// Gives it up without ending it: the device made it into another one.
  void forget() { raw_ = nullptr; }

 private:
  Device* device_ = nullptr;
  bp_recording* raw_ = nullptr;
};

/// The recordings of one range in one run context: one for each memory that it was run with lately.
class RangeCapture {
 public:
  RangeCapture(const CaptureRange& range, CaptureTally& tally) : range_(range), tally_(tally) {}

  const CaptureRange& range() const { return range_; }
  CaptureTally& tally() { return tally_; }

  /// What was recorded with this memory, or null.
  const bp_recording* find(const MemoryKey& key);
  /// To be asked where find() has none: true when the range ran with this memory lately, and may be recorded.
  bool should_record(const MemoryKey& key);
  /// The recording that a new one will replace; null while there is room.
  bp_recording* oldest() const;
  /// Keeps `made`, in place of oldest().
  const bp_recording* keep(const MemoryKey& key, Device& device, bp_recording* made);
  /// After a failure that need not come again: whether recording may be tried in another run. The third in a row says no.
  bool forgives() { return ++disturbances_ < kTries; }
  /// Nothing is recorded or replayed any more in this context, and what was is ended.
  void refuse(const std::string& reason);

 private:
  /// Runs take turns with at most so many sets of memory: a ring of bindings, what a loop carries.
  static constexpr std::size_t kMostKept = 4;
  /// After so many recordings each must have served twice, or recording is a loss.
  static constexpr std::uint64_t kTrials = 16;
  static constexpr int kTries = 3;
  struct Kept {
    MemoryKey key;
    Recording recording;
    std::uint64_t used = 0;
  };

  const CaptureRange& range_;
  CaptureTally& tally_;
  std::vector<Kept> kept_;
  std::size_t last_ = 0;         ///< index of what was found last
  std::vector<MemoryKey> seen_;  ///< of the last runs that found nothing
  std::size_t next_seen_ = 0;
  std::uint64_t clock_ = 0, recorded_ = 0, replayed_ = 0;
  int disturbances_ = 0;  ///< since the last recording that was kept
  bool is_refused_ = false;
};

}  // namespace backplane::core
