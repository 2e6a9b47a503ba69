#include "core/runtime/host_views.hpp"

#include <algorithm>

namespace backplane::core {
namespace {

/// A run of bytes of the host; of none: begin == end.
struct Range {
  std::uintptr_t begin = 0, end = 0;
  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};

Range range_of(const RuntimeValue& value) {
  if (!value.is_tensor() || value.description.host_ptr == nullptr) return {};
  const auto begin = reinterpret_cast<std::uintptr_t>(value.description.host_ptr);
  return {begin, begin + value.description.bytes};
}

bool is_on_host(const std::vector<int>* spaces, std::size_t index) {
  return spaces == nullptr || spaces->empty() || (*spaces)[index] == kHostSpace;
}

/// Whether memory that is there is aligned; what is still to be made will be.
bool is_aligned(const RuntimeValue& value, std::uint64_t alignment) {
  return range_of(value).begin % alignment == 0;
}

bool may_view_feed(const RuntimeValue& feed, std::uint64_t alignment,
                   const std::vector<RuntimeValue*>& fetches) {
  if (!feed.is_tensor() || feed.element() == DataType::String || feed.description.bytes == 0 ||
      feed.description.strides != nullptr || !is_aligned(feed, alignment))
    return false;
  const Range range = range_of(feed);
  return std::none_of(fetches.begin(), fetches.end(),
                      [&](const RuntimeValue* fetch) { return range_of(*fetch).overlaps(range); });
}

bool may_view_fetch(const RuntimeValue& fetch, std::uint64_t alignment,
                    const std::vector<RuntimeValue*>& feeds,
                    const std::vector<RuntimeValue*>& fetches) {
  if (fetch.kind != BP_VALUE_ABSENT &&
      (!fetch.is_tensor() || fetch.element() == DataType::String || !is_aligned(fetch, alignment)))
    return false;
  const Range range = range_of(fetch);
  const auto is_apart = [&](const RuntimeValue* other) {
    return other == &fetch || !range_of(*other).overlaps(range);
  };
  return std::all_of(feeds.begin(), feeds.end(), is_apart) &&
         std::all_of(fetches.begin(), fetches.end(), is_apart);
}

}  // namespace

std::shared_ptr<HostView> HostViews::get(const DevicePtr& device, const HostView::Extent& extent,
                                         bp_status*& status) {
  for (Kept& kept : views_) {
    // One that another run in flight has as well is that run's.
    if (&kept.view->device() != device.get() || !(kept.view->extent() == extent) ||
        kept.view->is_broken() || kept.view.use_count() > 1)
      continue;
    kept.run = run_;
    return kept.view;
  }
  auto made = std::make_shared<HostView>(device, extent, status);
  if (status != nullptr) return nullptr;
  views_.push_back({made, run_});
  return made;
}

void HostViews::sweep() {
  std::erase_if(views_,
                [&](const Kept& kept) { return kept.run != run_ || kept.view->is_broken(); });
}

void find_wishes(const HostViewPlaces& candidates, const std::vector<RuntimeValue*>& feeds,
                 const std::vector<RuntimeValue*>& fetches, const BodyPlaces* places,
                 HostViewWishes& wishes) {
  wishes.feeds.assign(candidates.feeds.size(), 0);
  wishes.fetches.assign(candidates.fetches.size(), 0);
  for (std::size_t i = 0; i < candidates.feeds.size(); ++i) {
    const bool on_host = is_on_host(places != nullptr ? &places->feeds : nullptr, i);
    if (candidates.feeds[i] != 0 && on_host)
      wishes.feeds[i] = may_view_feed(*feeds[i], candidates.feeds[i], fetches) ? 1 : 0;
  }
  for (std::size_t k = 0; k < candidates.fetches.size(); ++k) {
    const bool on_host = is_on_host(places != nullptr ? &places->fetches : nullptr, k);
    if (candidates.fetches[k] == 0 || !on_host) continue;
    // Planned without a run: its memory is still to be made.
    const bool may =
        k >= fetches.size() || may_view_fetch(*fetches[k], candidates.fetches[k], feeds, fetches);
    wishes.fetches[k] = may ? 1 : 0;
  }
}

}  // namespace backplane::core
