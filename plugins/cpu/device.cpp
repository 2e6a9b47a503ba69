#include "plugins/cpu/device.hpp"

#include <array>
#include <cstring>
#include <string_view>

#include "op_table.hpp"
#include "plugins/cpu/rewrite/rewrite.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace backplane::cpu {
namespace {

Isa choose_isa(std::string_view wanted) {
  const Isa best = best_isa();
  if (wanted == "auto") return best;
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (wanted != isa_name(isa)) continue;
    if (isa > best) {
      sdk::invalid("option 'isa' of provider 'cpu': this processor has no ", wanted,
                   "; the best it has is ", isa_name(best), " (use auto)");
    }
    return isa;
  }
  sdk::invalid("option 'isa' of provider 'cpu' is '", wanted,
               "'; use auto, amx, avx512, avx2 or baseline");
}

ProductPrecision choose_products(std::string_view precision, Isa isa) {
  if (precision != "bf16") return ProductPrecision::kFloat;
  if (has_bfloat_products(isa)) return ProductPrecision::kBFloat;
  return isa == Isa::kBaseline ? ProductPrecision::kFloat : ProductPrecision::kBFloatWeights;
}

}  // namespace

std::string processor_name() {
#if defined(__x86_64__)
  // Leaves 0x80000002 to 0x80000004 hold the brand string (Intel SDM, volume 2, CPUID).
  constexpr unsigned kFirst = 0x80000002u;
  constexpr unsigned kLast = 0x80000004u;
  if (static_cast<unsigned>(__get_cpuid_max(0x80000000u, nullptr)) >= kLast) {
    std::array<unsigned, 12> words{};
    for (unsigned leaf = kFirst; leaf <= kLast; ++leaf) {
      unsigned* four = words.data() + 4 * (leaf - kFirst);
      __get_cpuid(leaf, &four[0], &four[1], &four[2], &four[3]);
    }
    std::array<char, sizeof(words) + 1> text{};
    std::memcpy(text.data(), words.data(), sizeof(words));
    const std::string_view raw(text.data());
    const std::size_t begin = raw.find_first_not_of(' ');
    const std::size_t end = raw.find_last_not_of(' ');
    if (begin != std::string_view::npos) return std::string(raw.substr(begin, end - begin + 1));
  }
#endif
  return "CPU";
}

CpuDevice::CpuDevice(const sdk::OpenContext& ctx)
    : isa_(choose_isa(ctx.option("isa"))),
      products_(choose_products(ctx.option("precision"), isa_)) {}

const sdk::KernelList& CpuDevice::kernels() const {
  // Made once for the process: definitions stay valid until shutdown and do not depend on options.
  static const sdk::KernelList list = [] {
    sdk::KernelList all;
    for (sdk::KernelList& family : all_kernels()) {
      for (sdk::KernelEntry& kernel : family) all.push_back(std::move(kernel));
    }
    return all;
  }();
  return list;
}

void CpuDevice::rewrite(const sdk::Graph& graph, sdk::Rewrite& edit) const {
  rewrite_graph(graph, edit, *this);
}

}  // namespace backplane::cpu
