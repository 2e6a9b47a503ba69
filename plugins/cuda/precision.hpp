// The arithmetic of float32 nodes and the layout of images: the device's, and what the user wants of some.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plugins/cuda/products.hpp"

namespace backplane::cuda {

/// Errors: BP_INVALID_ARGUMENT naming the option for a name that is none.
Precision precision_named(const std::string& name, const char* option);

/// How a Gelu that is defined by erf may be computed where a product takes it over: as that, or by tanh, which differs by up to
/// 0.0005.
enum class GeluForm : std::uint8_t { kExact, kTanh };

/// Which convolutions want images channels last. Automatic: those on tensor cores, with 16 bits or TF32.
enum class ImageLayout : std::uint8_t { kAuto, kChannelsFirst, kChannelsLast };

/// Which nodes are computed how.
class PrecisionRules {
 public:
  PrecisionRules() = default;
  /// `rules`: "PATTERN=PRECISION" separated by commas, a pattern of names as a shell has them or "op:TYPE"; the last
  /// one that fits a node counts. Errors: BP_INVALID_ARGUMENT naming the option.
  PrecisionRules(Precision otherwise, const std::string& rules);
  /// A node of a rewrite is the node that it grew from: its operator without "Fused" or "Joined", and the name in "origin".
  Precision of(const sdk::Node& node) const;

 private:
  struct Rule {
    std::string pattern, op_type;  ///< one of them is empty
    Precision precision;
  };
  Precision otherwise_ = Precision::kFp32;
  std::vector<Rule> rules_;
};

}  // namespace backplane::cuda
