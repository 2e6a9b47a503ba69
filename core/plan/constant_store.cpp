#include "core/plan/constant_store.hpp"

#include <algorithm>
#include <functional>

#include "core/base/mapped_file.hpp"

namespace backplane::core {
namespace {

/// Below this, a constant costs less than knowing it.
constexpr std::size_t kSmallestShared = 1024;

bool is_lent(const std::byte* data, const ConstantStore::Lent& lent) {
  return std::any_of(lent.begin(), lent.end(), [&](const std::span<const std::byte>& bytes) {
    return std::less_equal<>()(bytes.data(), data) &&
           std::less<>()(data, bytes.data() + bytes.size());
  });
}

}  // namespace

ConstantStore::Key ConstantStore::key_of(const Constant& constant, const Lent& lent) {
  const std::span<const std::byte> bytes = constant.stored_bytes();
  Key key;
  if (is_lent(bytes.data(), lent) || MappedFile::holds(bytes.data())) {
    // The place is enough, and reading it would bring all of the file into memory.
    key = {0, reinterpret_cast<std::uintptr_t>(bytes.data()), bytes.size(),
           static_cast<std::uint64_t>(constant.type())};
    for (const std::int64_t dim : constant.dims()) key.push_back(static_cast<std::uint64_t>(dim));
  } else {
    const ContentHash hash = constant.hash();
    key = {1, hash.high, hash.low};
  }
  return key;
}

ConstantPtr ConstantStore::share(const ConstantPtr& constant, const Lent& lent) {
  if (constant == nullptr || constant->stored_bytes().size() < kSmallestShared) return constant;
  Key key = key_of(*constant, lent);
  const std::lock_guard lock(mutex_);
  if (constants_.size() >= sweep_at_) {
    std::erase_if(constants_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = 2 * constants_.size() + 64;
  }
  std::weak_ptr<const Constant>& known = constants_[std::move(key)];
  if (ConstantPtr same = known.lock()) return same;
  known = constant;
  return constant;
}

void ConstantStore::share_all(Graph& graph, const Lent& lent) {
  for (Value& value : graph.values()) {
    if (value.constant != nullptr) value.constant = share(value.constant, lent);
  }
  for (const NodeId id : graph.node_ids())
    for_each_body(graph.node(id), [&](Graph& body) { share_all(body, lent); });
}

}  // namespace backplane::core
