// The instruction sets that the dense kernels are compiled for, and how one of them is chosen.
#pragma once

namespace backplane::cpu {

/// What the vector kernels may use. A device fixes one when it is opened; the kernels of a lower one
/// run on every processor that has a higher one.
enum class Isa {
  kBaseline,
  kAvx2,
  kAvx512,
  kAmx  ///< AVX-512 with VNNI and AVX512_BF16, and beside them tiles of bytes and of bfloat16
};

/// The best one that this processor, its system and this build have. The first call asks Linux for the tiles' registers, once for
/// the process. On other architectures than x86-64 the
/// baseline is what the compiler targets (NEON on Arm).
Isa best_isa();

/// As the option `isa` says it.
const char* isa_name(Isa isa);

/// Whether there are instructions, within what `isa` stands for, that multiply numbers of bfloat16 and add the products to
/// floats: as many multiplications in half of the instructions.
bool has_bfloat_products(Isa isa);

}  // namespace backplane::cpu
