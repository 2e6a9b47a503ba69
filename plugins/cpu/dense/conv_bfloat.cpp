#include "plugins/cpu/dense/conv_bfloat.hpp"

#include <cstring>

#include "plugins/cpu/kernels/half_f32.hpp"
#include "plugins/cpu/kernels/parallel.hpp"
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

/// Pixels of an odd number of channels get a zero behind them.
void pad_pixels(const uint16_t* from, int64_t channels, int64_t pixels, uint16_t* to) {
  for (int64_t i = 0; i < pixels; ++i, from += channels, to += channels + 1) {
    std::memcpy(to, from, static_cast<std::size_t>(channels) * sizeof(uint16_t));
    to[channels] = 0;
  }
}

}  // namespace

bool BFloatConv::applies(const ConvShape& shape) {
  return shape.groups == 1 || shape.in_channels / shape.groups % 2 == 0;
}

BFloatConv::BFloatConv(const ConvShape& shape, const Activation& activation, Isa isa,
                       unsigned threads)
    : shape_(shape),
      isa_(isa),
      rounds_rows_(has_one_position(shape)),
      pairs_(ceil_div(shape.in_channels, 2)),
      direct_(make(shape, activation, isa, threads)) {}

uint64_t BFloatConv::image_bytes() const {
  if (rounds_rows_) return 0;
  const common::Checked bytes =
      common::checked_product(shape_.window.in) * shape_.batch * pairs_ * 4;
  return align64(static_cast<uint64_t>(bytes.value("Conv: a rounded copy of x")));
}

uint64_t BFloatConv::workspace_bytes() const { return image_bytes() + direct_.workspace_bytes(); }

void BFloatConv::pack(const float* weights, const float* scales, float* packed,
                      const sdk::Threads& threads) const {
  const Product& product = direct_.product();
  const int64_t pairs = ceil_div(shape_.in_channels / shape_.groups, 2);
  for (int64_t group = 0; group < shape_.groups; ++group) {
    const WeightView filters = filters_of_group(shape_, weights, scales, group);
    auto* to = reinterpret_cast<uint32_t*>(packed + group * product.group_floats());
    for_each_panel(product.panels(), threads, [&](const Panels::Panel& panel) {
      pack_panel_pairs(product.panels(), filters, sdk::DataType::Float, panel, isa_,
                       to + panel.column * filters.taps * pairs);
    });
  }
}

void BFloatConv::round_image(const ConvArgs& args, float* to, const sdk::Threads& threads) const {
  const std::array<int64_t, 3>& in = shape_.window.in;
  const ImageStrides& strides = args.x_strides;
  const int64_t channels = shape_.in_channels;
  const HalfConversion& rounding = half_conversion(isa_, sdk::DataType::BFloat16);
  // As many pixels at a time as fit the stack, where they follow each other; else one.
  constexpr int64_t kPart = 2048;
  const int64_t run = strides.width == channels ? std::max<int64_t>(1, kPart / channels) : 1;
  split_loop(threads, shape_.batch * in[0] * in[1], static_cast<double>(in[2] * channels), 1,
             [&](int64_t begin, int64_t end) {
               uint16_t part[kPart];
               for (int64_t i = begin; i < end; ++i) {
                 const float* line = args.x + i % in[1] * strides.height +
                                     i / in[1] % in[0] * strides.depth +
                                     i / (in[0] * in[1]) * strides.batch;
                 auto* out = reinterpret_cast<uint16_t*>(to + i * in[2] * pairs_);
                 for (int64_t x = 0; x < in[2]; x += run) {
                   const int64_t pixels = std::min(run, in[2] - x);
                   const float* from = line + x * strides.width;
                   uint16_t* pixel = out + x * 2 * pairs_;
                   if (channels % 2 == 0) {
                     rounding.from_float(from, pixel, pixels * channels);
                   } else if (channels <= kPart) {
                     rounding.from_float(from, part, pixels * channels);
                     pad_pixels(part, channels, pixels, pixel);
                   } else {
                     rounding.from_float(from, pixel, channels);
                     pixel[channels] = 0;
                   }
                 }
               }
             });
}

void BFloatConv::run(const ConvArgs& args, void* workspace, const sdk::Threads& threads) const {
  if (rounds_rows_) {
    direct_.run(args, workspace, threads);
    return;
  }
  auto* image = static_cast<float*>(workspace);
  round_image(args, image, threads);
  ConvArgs pairs = args;
  pairs.x = image;
  pairs.x_strides = ImageStrides::dense(shape_.window.in, pairs_);
  direct_.run(pairs, static_cast<char*>(workspace) + image_bytes(), threads);
}

}  // namespace backplane::cpu
