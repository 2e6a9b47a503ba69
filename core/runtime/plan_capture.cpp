#include "core/runtime/plan_capture.hpp"

#include <algorithm>

#include "backplane/plugin_api/optional/plan_capture.h"
#include "core/plugin_host/plugin_description.hpp"

namespace backplane::core {

void MemoryKey::clear() {
  words_.clear();
  owners_.clear();
}

void MemoryKey::add(const bp_tensor& place, const std::shared_ptr<void>& owner) {
  words_.push_back(reinterpret_cast<std::uintptr_t>(place.buffer));
  words_.push_back(place.offset);
  owners_.emplace_back(owner);
}

bool MemoryKey::operator==(const MemoryKey& other) const {
  const auto same = [](const std::weak_ptr<void>& a, const std::weak_ptr<void>& b) {
    return !a.owner_before(b) && !b.owner_before(a);
  };
  return words_ == other.words_ && std::equal(owners_.begin(), owners_.end(), other.owners_.begin(),
                                              other.owners_.end(), same);
}

Recording::~Recording() {
  if (raw_ != nullptr && !process_is_ending())
    device_->tell("release", device_->plan_capture()->release, raw_);
}

const bp_recording* RangeCapture::find(const MemoryKey& key) {
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    const std::size_t at = last_ + i < kept_.size() ? last_ + i : last_ + i - kept_.size();
    if (!(kept_[at].key == key)) continue;
    last_ = at;
    kept_[at].used = ++clock_;
    ++replayed_;
    return kept_[at].recording.raw();
  }
  return nullptr;
}

bool RangeCapture::should_record(const MemoryKey& key) {
  if (is_refused_) return false;
  if (std::find(seen_.begin(), seen_.end(), key) == seen_.end()) {
    if (seen_.size() < kMostKept) seen_.resize(kMostKept);
    seen_[next_seen_] = key;
    next_seen_ = (next_seen_ + 1) % kMostKept;
    return false;
  }
  if (recorded_ >= kTrials && replayed_ < 2 * recorded_) {
    refuse("its memory changes from run to run, so that recordings do not pay");
    return false;
  }
  return true;
}

bp_recording* RangeCapture::oldest() const {
  if (kept_.size() < kMostKept) return nullptr;
  const auto by_use = [](const Kept& a, const Kept& b) { return a.used < b.used; };
  return std::min_element(kept_.begin(), kept_.end(), by_use)->recording.raw();
}

const bp_recording* RangeCapture::keep(const MemoryKey& key, Device& device, bp_recording* made) {
  disturbances_ = 0;
  const bp_recording* const former = oldest();
  for (Kept& kept : kept_) {
    if (former == nullptr || kept.recording.raw() != former) continue;
    if (made == former) kept.recording.forget();
    kept.recording = Recording(device, made);
    kept.key = key;
    kept.used = ++clock_;
    ++recorded_;
    return made;
  }
  kept_.push_back({key, Recording(device, made), ++clock_});
  ++recorded_;
  return made;
}

void RangeCapture::refuse(const std::string& reason) {
  is_refused_ = true;
  kept_.clear();
  last_ = 0;
  tally_.refuse(reason);
}

}  // namespace backplane::core
