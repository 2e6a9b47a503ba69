// Constants of models, set up once for all sessions that have them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/graph/graph.hpp"

namespace backplane::core {

/// Knows the constants of the sessions of an environment, as long as one of them holds it. Two of them are the same
/// when they lie at the same place of a mapped file or of borrowed bytes, or, where they have memory of their own
/// (folded, converted), when their contents are equal.
///
/// Threads: all functions may run concurrently.
class ConstantStore {
 public:
  /// Bytes that a caller lent, and keeps as long as anything made from them lives.
  using Lent = std::vector<std::span<const std::byte>>;

  /// The constant that serves for this one: perhaps itself.
  ConstantPtr share(const ConstantPtr& constant, const Lent& lent = {});
  /// Replaces the constants of a graph and of its bodies.
  void share_all(Graph& graph, const Lent& lent);

 private:
  using Key = std::vector<std::uint64_t>;
  static Key key_of(const Constant& constant, const Lent& lent);

  std::mutex mutex_;
  std::map<Key, std::weak_ptr<const Constant>> constants_;
  std::size_t sweep_at_ = 64;  ///< entries at which those that nobody holds are dropped
};

}  // namespace backplane::core
