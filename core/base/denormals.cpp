#include "core/base/denormals.hpp"

namespace backplane::core {
namespace {

// The control registers: Intel, "Software Developer's Manual", volume 1, MXCSR; Arm, "Architecture Reference Manual", FPCR.
#if defined(__x86_64__)
constexpr std::uint32_t kBits = 1U << 15U | 1U << 6U;  // results (FTZ), operands (DAZ)
std::uint32_t read_register() { return __builtin_ia32_stmxcsr(); }
void write_register(std::uint32_t value) { __builtin_ia32_ldmxcsr(value); }
#elif defined(__aarch64__)
constexpr std::uint32_t kBits = 1U << 24U;  // FZ: both
std::uint32_t read_register() {
  std::uint64_t value = 0;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return static_cast<std::uint32_t>(value);
}
void write_register(std::uint32_t value) {
  asm volatile("msr fpcr, %0" : : "r"(static_cast<std::uint64_t>(value)));
}
#else
constexpr std::uint32_t kBits = 0;
std::uint32_t read_register() { return 0; }
void write_register(std::uint32_t) {}
#endif

}  // namespace

DenormalControl DenormalControl::of_thread() {
  DenormalControl control;
  control.bits_ = read_register() & kBits;
  return control;
}

DenormalControl DenormalControl::zero() {
  DenormalControl control;
  control.bits_ = kBits;
  return control;
}

void DenormalControl::apply() const {
  const std::uint32_t before = read_register();
  if ((before & kBits) != bits_) write_register((before & ~kBits) | bits_);
}

}  // namespace backplane::core
