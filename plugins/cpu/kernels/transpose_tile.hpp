// Transposing a matrix of elements of 1 to 16 bytes.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// target[r][c] = source[c][r] for `rows` by `columns` elements of `bytes` bytes (1, 2, 4, 8 or 16). The
/// source is dense along r, the target along c; pitches are in bytes, of the source from c to c + 1 and of
/// the target from r to r + 1. The two do not overlap. Nothing outside of the target's rows is written, so that
/// threads can share them out.
void transpose_tile(Isa isa, std::int64_t bytes, const char* source, std::int64_t source_pitch,
                    char* target, std::int64_t target_pitch, std::int64_t rows,
                    std::int64_t columns);

}  // namespace backplane::cpu
