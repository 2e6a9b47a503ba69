// Numbers below the normal ones, which processors compute with a hundred times slower than with others.
#pragma once

#include <cstdint>

namespace backplane::core {

/// Whether a thread takes such numbers as 0, those that it reads and those that it makes: the bits of its control register that
/// say so. Always the same where the processor is neither x86-64 nor AArch64.
class DenormalControl {
 public:
  static DenormalControl of_thread();
  static DenormalControl zero();
  /// Sets the calling thread's.
  void apply() const;
  bool operator==(const DenormalControl&) const = default;

 private:
  std::uint32_t bits_ = 0;
};

/// While it lives the calling thread takes such numbers as 0, if `wanted`; otherwise it does what it did.
class DenormalsAsZero {
 public:
  explicit DenormalsAsZero(bool wanted) : wanted_(wanted) {
    if (!wanted_) return;
    before_ = DenormalControl::of_thread();
    DenormalControl::zero().apply();
  }
  ~DenormalsAsZero() {
    if (wanted_) before_.apply();
  }
  DenormalsAsZero(const DenormalsAsZero&) = delete;
  DenormalsAsZero& operator=(const DenormalsAsZero&) = delete;

 private:
  const bool wanted_;
  DenormalControl before_;
};

}  // namespace backplane::core
