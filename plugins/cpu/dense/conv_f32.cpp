#include "plugins/cpu/dense/conv_f32.hpp"

namespace backplane::cpu {
namespace {

using Method =
    std::variant<DirectConv, WinogradConv, DepthwiseConv, BFloatConv, PlanesConv, DepthwisePlanes>;

Method make(const ConvShape& shape, const Activation& activation, ConvMethod method, Isa isa,
            unsigned threads) {
  switch (method) {
    case ConvMethod::kWinograd:
      return WinogradConv(shape, activation, isa, threads);
    case ConvMethod::kDepthwise:
      return DepthwiseConv(shape, activation, isa);
    case ConvMethod::kBFloat:
      return BFloatConv(shape, activation, isa, threads);
    case ConvMethod::kPlanes:
      return PlanesConv(shape, activation, isa, threads);
    case ConvMethod::kDepthwisePlanes:
      return DepthwisePlanes(shape, activation, isa, threads);
    case ConvMethod::kDirect:
      break;
  }
  return DirectConv(shape, activation, isa, threads);
}

}  // namespace

ConvMethod choose_conv_method(const ConvShape& shape, bool planes, bool rounds, Isa isa,
                              unsigned threads) {
  if (planes && PlanesConv::pays(shape, isa)) return ConvMethod::kPlanes;
  if (planes && DepthwisePlanes::pays(shape)) return ConvMethod::kDepthwisePlanes;
  if (DepthwiseConv::applies(shape)) return ConvMethod::kDepthwise;
  const bool bfloat = rounds && BFloatConv::applies(shape);
  const double direct_rate = bfloat ? BFloatConv::rate(isa) : 1;
  if (WinogradConv::pays(shape, direct_rate, isa, threads)) return ConvMethod::kWinograd;
  return bfloat ? ConvMethod::kBFloat : ConvMethod::kDirect;
}

ConvF32::ConvF32(const ConvShape& shape, const Activation& activation, ConvMethod method, Isa isa,
                 unsigned threads)
    : method_(make(shape, activation, method, isa, threads)) {}

int64_t ConvF32::packed_floats() const {
  return std::visit([](const auto& method) { return method.packed_floats(); }, method_);
}

uint64_t ConvF32::workspace_bytes() const {
  return std::visit([](const auto& method) { return method.workspace_bytes(); }, method_);
}

void ConvF32::pack(const float* weights, const float* scales, float* packed,
                   const sdk::Threads& threads) const {
  std::visit([&](const auto& method) { method.pack(weights, scales, packed, threads); }, method_);
}

void ConvF32::run(const ConvArgs& args, void* workspace, const sdk::Threads& threads) const {
  std::visit([&](const auto& method) { method.run(args, workspace, threads); }, method_);
}

bool ConvF32::takes_channels_first() const {
  const auto* direct = std::get_if<DirectConv>(&method_);
  return has_planes() || (direct != nullptr && direct->merged());
}

bool ConvF32::takes_residual_in_place() const {
  if (const auto* direct = std::get_if<DirectConv>(&method_)) return direct->single_block();
  if (has_planes()) return false;
  const auto* rounded = std::get_if<BFloatConv>(&method_);
  return rounded == nullptr || rounded->single_block();
}

std::string ConvF32::variant() const {
  if (std::holds_alternative<WinogradConv>(method_)) return "winograd 4x4";
  if (std::holds_alternative<DepthwiseConv>(method_)) return "depthwise";
  if (std::holds_alternative<BFloatConv>(method_)) return "rounded to bfloat16";
  if (std::holds_alternative<DepthwisePlanes>(method_)) return "depthwise planes";
  if (has_planes()) return "planes";
  return takes_channels_first() ? "direct merged" : "direct";
}

}  // namespace backplane::cpu
