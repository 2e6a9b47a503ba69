#include "core/runtime/plan_key.hpp"

#include <algorithm>
#include <cstring>

namespace backplane::core {
namespace {

void append_places(const BodyPlaces* places, PlanKey& key) {
  if (places == nullptr) return;
  key.insert(key.end(), places->feeds.begin(), places->feeds.end());
  key.insert(key.end(), places->fetches.begin(), places->fetches.end());
}

}  // namespace

void append_shape(PlanKey& key, const RuntimeValue& value) {
  key.push_back(value.kind);
  key.push_back(value.description.dtype);
  key.push_back(value.description.rank);
  for (std::int32_t axis = 0; axis < value.description.rank; ++axis)
    key.push_back(value.description.dims[axis]);
}

void append_contents(PlanKey& key, const RuntimeValue& value) {
  const auto* bytes = static_cast<const char*>(value.description.host_ptr);
  for (std::uint64_t done = 0; done < value.description.bytes; done += sizeof(std::int64_t)) {
    std::int64_t word = 0;
    std::memcpy(&word, bytes + done,
                std::min<std::uint64_t>(sizeof(word), value.description.bytes - done));
    key.push_back(word);
  }
}

bool is_keyed(const RuntimeValue& value) {
  return value.is_tensor() && value.element() != DataType::String &&
         value.description.bytes <= kMaxKeyedFeedBytes && value.description.host_ptr != nullptr;
}

void make_plan_key(const Program& program, const std::vector<RuntimeValue*>& feeds,
                   const BodyPlaces* places, PlanKey& key) {
  key.clear();
  append_places(places, key);
  for (const RuntimeValue* feed : feeds) append_shape(key, *feed);
  for (const std::size_t index : program.keyed_feeds()) {
    if (is_keyed(*feeds[index])) append_contents(key, *feeds[index]);
  }
}

bool try_make_plan_key(const Program& program, const std::vector<ValueState>& feeds,
                       const BodyPlaces& places, PlanKey& key) {
  append_places(&places, key);
  for (const ValueState& feed : feeds) {
    if (feed.kind != ValueState::Kind::Tensor && feed.kind != ValueState::Kind::Object)
      return false;
    RuntimeValue value;
    if (feed.kind == ValueState::Kind::Object) {
      value.set_type(Type::parse(feed.object_type));
    } else {
      value.set_tensor(feed.type, feed.dims);
    }
    append_shape(key, value);
  }
  for (const std::size_t index : program.keyed_feeds()) {
    const ValueState& feed = feeds[index];
    if (feed.known == nullptr && has_memory(feed) && feed.bytes <= kMaxKeyedFeedBytes) return false;
    if (feed.known != nullptr && is_keyed(*feed.known)) append_contents(key, *feed.known);
  }
  return true;
}

}  // namespace backplane::core
