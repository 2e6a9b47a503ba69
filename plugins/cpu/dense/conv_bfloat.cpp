#include "plugins/cpu/dense/conv_bfloat.hpp"

#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

bool has_one_position(const ConvShape& shape) {
  return shape.groups == 1 && shape.window.taps() == 1;
}

DirectConv make(ConvShape shape, const Activation& activation, Isa isa, unsigned threads) {
  if (has_one_position(shape))
    return DirectConv(shape, activation, isa, threads, ConvOperands::kRounded);
  shape.in_channels = ceil_div(shape.in_channels, 2);
  return DirectConv(shape, activation, isa, threads, ConvOperands::kPairs);
}

}  // namespace

BFloatConv::BFloatConv(const ConvShape& shape, const Activation& activation, Isa isa,
                       unsigned threads)
    : shape_(shape),
      rounds_rows_(has_one_position(shape)),
      image_(shape, isa),
      direct_(make(shape, activation, isa, threads)) {}

uint64_t BFloatConv::workspace_bytes() const {
  return (rounds_rows_ ? 0 : image_.bytes()) + direct_.workspace_bytes();
}

void BFloatConv::pack(const float* weights, const float* scales, float* packed,
                      const sdk::Threads& threads) const {
  pack_filters(direct_.product(), shape_, weights, scales, packed, threads);
}

void BFloatConv::run(const ConvArgs& args, void* workspace, const sdk::Threads& threads) const {
  if (rounds_rows_) {
    direct_.run(args, workspace, threads);
    return;
  }
  auto* image = static_cast<float*>(workspace);
  image_.fill(args.x, args.x_strides, image, threads);
  ConvArgs pairs = args;
  pairs.x = image;
  pairs.x_strides = image_.strides();
  direct_.run(pairs, static_cast<char*>(workspace) + image_.bytes(), threads);
}

}  // namespace backplane::cpu
