// Convolution of floats: chooses among the methods of this folder.
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "plugins/cpu/dense/conv_bfloat.hpp"
#include "plugins/cpu/dense/conv_planes.hpp"
#include "plugins/cpu/dense/conv_winograd.hpp"
#include "plugins/cpu/dense/depthwise_planes.hpp"
#include "plugins/cpu/dense/sliding.hpp"

namespace backplane::cpu {

enum class ConvMethod { kDirect, kWinograd, kDepthwise, kBFloat, kPlanes, kDepthwisePlanes };
constexpr std::size_t kConvMethods = 6;

/// The method that is expected to be the fastest; `planes`: x is channels first, and y is to be; `rounds`: images and weights
/// may be rounded to bfloat16, and has_bfloat_products() is true.
ConvMethod choose_conv_method(const ConvShape& shape, bool planes, bool rounds, Isa isa,
                              unsigned threads);

/// A convolution by one of the methods, made ready. Immutable.
class ConvF32 {
 public:
  ConvF32(const ConvShape& shape, const Activation& activation, ConvMethod method, Isa isa,
          unsigned threads);

  int64_t packed_floats() const;
  uint64_t workspace_bytes() const;
  /// As DirectConv::pack.
  void pack(const float* weights, const float* scales, float* packed,
            const sdk::Threads& threads) const;
  void run(const ConvArgs& args, void* workspace, const sdk::Threads& threads) const;
  /// Whether `run` takes x channels first too.
  bool takes_channels_first() const;
  /// Whether x, y and the residual are channels first.
  bool has_planes() const {
    return std::holds_alternative<PlanesConv>(method_) ||
           std::holds_alternative<DepthwisePlanes>(method_);
  }
  /// Whether y may be the residual's memory.
  bool takes_residual_in_place() const;
  /// For people: "winograd 4x4".
  std::string variant() const;

 private:
  std::variant<DirectConv, WinogradConv, DepthwiseConv, BFloatConv, PlanesConv, DepthwisePlanes>
      method_;
};

}  // namespace backplane::cpu
