// Results of several products in one value, one after another along its first axis: where each begins.
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"

namespace backplane::device_ops {

/// From one part's first element to the next one's: each begins where a tensor may, so that it can be a view whatever its size.
inline std::int64_t step_of_parts(std::int64_t elements, sdk::DataType type,
                                  std::uint64_t alignment) {
  const std::int64_t whole = static_cast<std::int64_t>(alignment) / sdk::element_bytes(type);
  return (elements + whole - 1) / whole * whole;
}

/// The dims of `count` parts together. Where parts leave gaps, the first axis is as much longer as these take.
inline sdk::Dims dims_of_parts(std::int64_t count, const sdk::Dims& part, sdk::DataType type,
                               std::uint64_t alignment) {
  const std::int64_t elements = sdk::element_count(part);
  if (elements > 0) {
    const std::int64_t gaps = (count - 1) * (step_of_parts(elements, type, alignment) - elements);
    count += (gaps + elements - 1) / elements;
  }
  sdk::Dims dims{count};
  dims.insert(dims.end(), part.begin(), part.end());
  return dims;
}

}  // namespace backplane::device_ops
