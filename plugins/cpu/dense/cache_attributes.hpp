// In what type attention keeps keys and values, as the attribute of a node that a rewrite makes.
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"

namespace backplane::cpu {

constexpr const char* kCacheType = "cache_type";

/// Float, or a type of 16 bits, to which new keys and values are rounded when they join those of before.
inline sdk::DataType cache_type_of(const sdk::Node& node) {
  return static_cast<sdk::DataType>(
      node.get_int(kCacheType, static_cast<std::int64_t>(sdk::DataType::Float)));
}

}  // namespace backplane::cpu
