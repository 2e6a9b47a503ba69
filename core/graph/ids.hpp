// Indices of a graph's nodes and values, each a type of its own, and arrays by them.
//
//   NodeId id = graph.add_node(...);        ids come from the graph; NodeId(3) is the node with index 3
//   if (value.producer == kNone) ...        nobody, or left out; what an id is until it is set
//   for (const NodeId id : graph.node_ids())    the nodes that there are
//   for (const Value& value : graph.values())   all values
//   PerNode<int> step(graph.node_limit(), -1);  step[id]; an index of another kind does not compile
//
// Neither kind becomes the other or a number by itself: id.index() is the number. An id is as cheap as its std::int32_t.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <utility>
#include <vector>

namespace backplane::core {

/// No node and no value; becomes an id of either kind.
struct NoId {};
inline constexpr NoId kNone{};

/// An index into a graph's nodes or values; stable for the graph's lifetime, never reused.
template <class Kind>
class Id {
 public:
  constexpr Id() = default;
  constexpr Id(NoId) {}
  constexpr explicit Id(std::size_t index) : number_(static_cast<std::int32_t>(index)) {}

  /// Not of kNone.
  constexpr std::size_t index() const { return static_cast<std::size_t>(number_); }
  /// By index, kNone first.
  constexpr auto operator<=>(const Id&) const = default;  // NOLINT(modernize-use-nullptr): of its 0
  /// The index, or -1.
  friend std::ostream& operator<<(std::ostream& out, Id id) { return out << id.number_; }

 private:
  std::int32_t number_ = -1;
};

using NodeId = Id<struct NodeKind>;
using ValueId = Id<struct ValueKind>;

/// The ids below a limit, in their order.
template <class Key>
class IdRange {
 public:
  class Iterator {
   public:
    explicit Iterator(std::size_t index) : index_(index) {}
    Key operator*() const { return Key(index_); }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    std::size_t index_;
  };

  explicit IdRange(std::size_t limit) : limit_(limit) {}
  Iterator begin() const { return Iterator(0); }
  Iterator end() const { return Iterator(limit_); }

 private:
  std::size_t limit_;
};

/// A vector by id.
template <class Key, class T>
class IdVector {
 public:
  IdVector() = default;
  explicit IdVector(std::size_t size) : entries_(size) {}
  IdVector(std::size_t size, const T& entry) : entries_(size, entry) {}

  decltype(auto) operator[](Key id) { return entries_[id.index()]; }
  decltype(auto) operator[](Key id) const { return entries_[id.index()]; }
  /// Whether there is an entry for the id; there is none for kNone.
  bool contains(Key id) const { return id != kNone && id.index() < entries_.size(); }

  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  void clear() { entries_.clear(); }
  void reserve(std::size_t size) { entries_.reserve(size); }
  void resize(std::size_t size) { entries_.resize(size); }
  void assign(std::size_t size, const T& entry) { entries_.assign(size, entry); }
  /// The entry of the next id, which it gives.
  Key add(T entry) {
    entries_.push_back(std::move(entry));
    return Key(entries_.size() - 1);
  }

  auto begin() { return entries_.begin(); }
  auto end() { return entries_.end(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  bool operator==(const IdVector&) const = default;

 private:
  std::vector<T> entries_;
};

template <class T>
using PerNode = IdVector<NodeId, T>;
template <class T>
using PerValue = IdVector<ValueId, T>;

}  // namespace backplane::core

/// The index's own, so that tables by id have the order that tables by index would.
template <class Kind>
struct std::hash<backplane::core::Id<Kind>> {
  std::size_t operator()(backplane::core::Id<Kind> id) const noexcept {
    return std::hash<std::size_t>()(id.index());
  }
};
