// Constants whose smallest numbers are taken as 0. A processor multiplies numbers below the normal ones (2^-126) about a hundred
// times slower than others, and training leaves many in weights that have died away.
#pragma once

#include <cstdint>

namespace backplane::cpu {

/// Whether floats at any alignment have numbers below the normal ones, and one of at least 2^-60 that these are nothing beside.
/// Of more than 64 KiB one cache line in 16 is looked at: such numbers cost time where they are many.
bool has_idle_subnormals(const void* floats, std::int64_t count);

/// Makes 0 of the numbers below the normal ones where one of the others is at least 2^-60: a sum of products with them changes by less
/// than 2^-66 of its largest possible product, for each. Otherwise nothing: they may be what the constant is about.
void flush_idle_subnormals(float* floats, std::int64_t count);

}  // namespace backplane::cpu
