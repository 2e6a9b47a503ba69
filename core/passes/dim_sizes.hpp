// Which dimensions of a graph's values surely have one size.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/passes/passes.hpp"

namespace backplane::core {

/// The size of a dimension: a number; or unknown; or what is smaller names an unknown size, equal ones being equal.
using DimSize = std::int64_t;
inline constexpr DimSize kUnknownSize = -1;
inline bool is_named(DimSize size) { return size < kUnknownSize; }

/// An axis of a value.
struct DimPlace {
  ValueId value;
  std::size_t axis = 0;
};

/// What is known of dimensions before a run: feeds' symbols, what inference made of them, and sums that Concat makes, since
/// inference gives each of those a symbol of its own. A symbol that inference did not find is not believed.
class DimSizes {
 public:
  DimSizes(const Graph& graph, const PassOptions& options);

  /// By axis; null where the rank is unknown, or the value is younger than this.
  const std::vector<DimSize>* of(ValueId value) const;
  /// Where a named size is to be found: feeds first, in their order, then what nodes make, each after what it is made of.
  const std::vector<DimPlace>& places(DimSize named) const { return places_[index(named)]; }

 private:
  /// A known size and the sum of named ones that are no sums, in order.
  using Sum = std::pair<std::int64_t, std::vector<DimSize>>;

  static std::size_t index(DimSize named) {
    return static_cast<std::size_t>(kUnknownSize - 1 - named);
  }
  void find_unproven(const Graph& graph, const PassOptions& options);
  void add_feeds(const Graph& graph, const std::vector<std::string>& feeds);
  void add_outputs(const Graph& graph, const Node& node);
  void add_concat(const Graph& graph, const Node& node);
  void add(const Value& value, std::vector<DimSize> sizes);
  std::optional<std::vector<DimSize>> inferred(const Value& value);
  /// Whether the size is a number, or one that an earlier value has.
  bool is_elsewhere(DimSize size) const {
    return size >= 0 || (is_named(size) && !places(size).empty());
  }
  DimSize new_name();
  DimSize named_by(const std::string& symbol);
  DimSize sum_of(const std::vector<DimSize>& sizes);

  PerValue<std::optional<std::vector<DimSize>>> sizes_;
  std::vector<std::vector<DimPlace>> places_;  ///< by index of the name
  std::vector<Sum> sums_;                      ///< likewise; of no sum, its own name
  std::map<Sum, DimSize> names_of_sums_;
  std::map<std::string, DimSize> symbols_;
  std::set<std::string> unproven_;
};

}  // namespace backplane::core
