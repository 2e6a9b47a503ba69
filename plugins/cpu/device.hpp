// The CPU device: which instruction set its kernels use, and the list of its kernels.
#pragma once

#include <string>

#include "backplane/plugin.hpp"
#include "backplane/plugin_api/optional/widening.h"
#include "plugins/cpu/dense/isa.hpp"
#include "plugins/cpu/dense/weight_attributes.hpp"

namespace backplane::cpu {

/// The processor's brand string ("AMD EPYC 7763 64-Core Processor"); "CPU" where it does not tell.
std::string processor_name();

/// The processor, opened with one choice of instruction set.
///
/// Lifetime: kernels reach it by CreateContext::device<CpuDevice>() and do not outlive it.
/// Threads:  immutable after construction; every method may run concurrently.
class CpuDevice : public sdk::HostDevice {
 public:
  /// Errors: an `isa` that this processor does not have.
  explicit CpuDevice(const sdk::OpenContext& ctx);

  /// What vector kernels may use.
  Isa isa() const { return isa_; }

  /// How products and convolutions of constant weights compute.
  ProductPrecision products() const { return products_; }

  /// Every kernel of ops/, in the order of the file names.
  const sdk::KernelList& kernels() const;

  /// Fuses nodes and packs constants: see rewrite/rewrite.hpp.
  void rewrite(const sdk::Graph& graph, sdk::Rewrite& edit) const;

 private:
  Isa isa_;
  ProductPrecision products_;
};

/// The instruction set for the kernels of one node.
inline Isa isa_of(const sdk::CreateContext& ctx) { return ctx.device<const CpuDevice>()->isa(); }

/// How the products of one node compute.
inline ProductPrecision products_of(const sdk::CreateContext& ctx) {
  return ctx.device<const CpuDevice>()->products();
}

}  // namespace backplane::cpu
