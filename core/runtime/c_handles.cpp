#include "core/runtime/c_handles.hpp"

#ifndef NDEBUG
#include <mutex>
#include <unordered_set>
#endif

namespace backplane::core {

#ifndef NDEBUG
namespace {

struct LiveHandles {
  std::mutex mutex;
  std::unordered_set<const Handle*> handles;
};

/// Never destroyed: handles may outlive static objects.
LiveHandles& live_handles() {
  static auto* const live = new LiveHandles;
  return *live;
}

}  // namespace

Handle::Handle() {
  LiveHandles& live = live_handles();
  const std::lock_guard lock(live.mutex);
  live.handles.insert(this);
}

Handle::~Handle() {
  LiveHandles& live = live_handles();
  const std::lock_guard lock(live.mutex);
  live.handles.erase(this);
}

bool is_alive(const Handle* handle) {
  LiveHandles& live = live_handles();
  const std::lock_guard lock(live.mutex);
  return live.handles.contains(handle);
}
#endif

}  // namespace backplane::core
