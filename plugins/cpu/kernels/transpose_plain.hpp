// Transposing a matrix with what the compiler's own target has.
#pragma once

#include <cstdint>

namespace backplane::cpu {

/// As transpose_tile, which calls it for the baseline and for what is smaller than its vectors.
void transpose_plain(std::int64_t bytes, const char* source, std::int64_t source_pitch,
                     char* target, std::int64_t target_pitch, std::int64_t rows,
                     std::int64_t columns);

}  // namespace backplane::cpu
