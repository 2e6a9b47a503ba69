#include "core/runtime/named_values.hpp"

#include <algorithm>

#include "core/base/nearest_name.hpp"
#include "core/base/quote.hpp"
#include "core/plugin_host/imported_memory.hpp"

namespace backplane::core {

DevicePtr find_device(const DeviceSet& set, const std::string& name) {
  std::vector<std::string> labels;
  std::vector<DevicePtr> of_provider;
  for (const SessionDevice& candidate : set.devices) {
    labels.push_back(candidate.device->label());
    if (labels.back() == name) return candidate.device;
    if (candidate.device->provider_name() == name) of_provider.push_back(candidate.device);
  }
  if (of_provider.size() == 1) return of_provider.front();
  std::string list;
  for (const std::string& label : labels) list += (list.empty() ? "" : ", ") + quoted(label);
  if (of_provider.size() > 1)
    invalid("the session has several devices of ", quoted(name), ": it has ", list);
  invalid("the session has no device ", quoted(name), did_you_mean(name, labels), "; it has ",
          list);
}

int space_of(const DeviceSet& set, const std::string& name, const DevicePtr& device) {
  if (device == nullptr) return kHostSpace;
  for (std::size_t i = 0; i < set.devices.size(); ++i) {
    if (set.devices[i].device == device) return set.space_of(static_cast<int>(i));
  }
  invalid("'", name, "' is in the memory of ", device->label(),
          ", which the session does not use; copy it to the host first");
}

bool is_off_host(const BodyPlaces& places) {
  const auto on_device = [](int space) { return space != kHostSpace; };
  return std::any_of(places.feeds.begin(), places.feeds.end(), on_device) ||
         std::any_of(places.fetches.begin(), places.fetches.end(), on_device);
}

void refuse_shared_memory(const std::string& fetch, const char* what, const std::string& other) {
  invalid("the output '", fetch, "' and the ", what, " '", other,
          "' are given the same memory; a run may write an output before it has read its inputs");
}

void check_may_be_written(const std::string& name, const RuntimeValue& value,
                          const DevicePtr& device) {
  if (value.read_only) {
    invalid("the value given for output '", name,
            "' lies in memory that was lent for reading alone (backplane_value_borrow_const)");
  }
  if (device == nullptr) return;
  if (value.imported == nullptr) {
    invalid("the value given for output '", name, "' is one that a session made in the memory of ",
            device->label(), ", which no other run writes; bind the output to the device");
  }
  if (!value.imported->may_write()) {
    invalid("the value given for output '", name, "' lies in memory that ", device->label(),
            " may only read");
  }
}

namespace {

std::uintptr_t host_begin(const RuntimeValue& value) {
  return value.is_tensor() ? reinterpret_cast<std::uintptr_t>(value.description.host_ptr) : 0;
}

bool share_host_memory(const RuntimeValue& a, const RuntimeValue& b) {
  if (host_begin(a) == 0 || host_begin(b) == 0) return false;
  return host_begin(a) < host_begin(b) + b.description.bytes &&
         host_begin(b) < host_begin(a) + a.description.bytes;
}

/// Whether a tensor has elements that lie in host memory as they are.
bool has_host_bytes(const RuntimeValue& value) {
  return host_begin(value) != 0 && value.description.bytes > 0;
}

void check_pair(const NamedValue& fetch, bool is_feed, const NamedValue& other) {
  // A feed and a fetch in one place, or one value as both: its plan tells whether that may be (Executable::check_apart).
  const bool depends = is_feed && host_begin(*fetch.value) == host_begin(*other.value);
  const bool is_one = fetch.value == other.value;
  const char* what = is_feed ? "input" : "output";
  if (is_one ? !depends || !has_host_bytes(*fetch.value)
             : !depends && share_host_memory(*fetch.value, *other.value))
    refuse_shared_memory(fetch.name, what, other.name);
  if (fetch.value->imported == nullptr || other.value->imported == nullptr) return;
  if (!fetch.value->imported->overlaps(*other.value->imported)) return;
  invalid("the output '", fetch.name, "' and the ", what, " '", other.name,
          "' are given the same memory of ", fetch.value->imported->device().label(),
          "; a run may write an output before it has read its inputs");
}

}  // namespace

std::string quoted_names(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 30;
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i == kMost) return list + text(" and ", names.size() - kMost, " more");
    list += (i > 0 ? ", " : "") + quoted(names[i]);
  }
  return list.empty() ? "none" : list;
}

void check_apart(const std::vector<NamedValue>& feeds, const std::vector<NamedValue>& fetches) {
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    for (const NamedValue& feed : feeds) check_pair(fetches[i], true, feed);
    for (std::size_t k = 0; k < i; ++k) check_pair(fetches[i], false, fetches[k]);
  }
}

void check_values(const std::vector<NamedValue>& feeds, const std::vector<NamedValue>& fetches) {
  for (const NamedValue& fetch : fetches)
    check_may_be_written(fetch.name, *fetch.value, fetch.device);
  check_apart(feeds, fetches);
}

}  // namespace backplane::core
