// Views of feeds and fetches that runs keep for the next one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/plan/control_flow.hpp"
#include "core/plan/host_views.hpp"
#include "core/plan/session_device.hpp"
#include "core/plugin_host/host_memory.hpp"

namespace backplane::core {

/// The views of whoever owns the memory below them, such as a binding.
///
/// Lifetime: of what lies below; clear() comes before any of it goes.
/// Threads:  one run at a time.
class HostViews {
 public:
  /// The view of the last run where it still fits, else a new one. Null with `status` when the device gives none.
  std::shared_ptr<HostView> get(const DevicePtr& device, const HostView::Extent& extent,
                                bp_status*& status);
  /// A run begins, and then one has ended well: views that it did not get go.
  void begin() { ++run_; }
  void sweep();
  void clear() { views_.clear(); }

 private:
  struct Kept {
    std::shared_ptr<HostView> view;
    std::uint64_t run;
  };
  std::vector<Kept> views_;
  std::uint64_t run_ = 0;
};

/// Fills in which feeds and fetches of a run can be viewed: aligned memory of the host that no fetch shares. Where memory
/// is still to be made, it will be aligned. `places`: where they lie; null: all on the host.
void find_wishes(const HostViewPlaces& candidates, const std::vector<RuntimeValue*>& feeds,
                 const std::vector<RuntimeValue*>& fetches, const BodyPlaces* places,
                 HostViewWishes& wishes);

/// Thrown by a run when a device views no memory after all: it is to be planned again, with copies.
struct ViewRefused {
  std::string text;
};

}  // namespace backplane::core
