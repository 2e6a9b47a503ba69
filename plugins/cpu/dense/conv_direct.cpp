#include "plugins/cpu/dense/conv_direct.hpp"

#include <algorithm>
#include <cstring>

#include "plugins/cpu/dense/conv_rows.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

/// Few channels make short inner loops. Where the positions of a kernel row lie one after another in a
/// padded copy of the input, they are read as one long run instead.
bool should_merge(const ConvShape& shape) {
  return shape.groups == 1 && shape.in_channels <= 8 && shape.window.kernel[2] > 1 &&
         shape.window.dilation[2] == 1;
}

ProductShape product_shape(const ConvShape& shape, bool merged, ConvOperands operands) {
  const Window& window = shape.window;
  ProductShape product;
  product.rows = shape.batch * window.out_pixels();
  product.groups = shape.groups;
  product.columns = shape.out_channels / shape.groups;
  product.taps = merged ? window.taps() / window.kernel[2] : window.taps();
  product.depth = shape.in_channels / shape.groups * (merged ? window.kernel[2] : 1);
  product.pairs = operands != ConvOperands::kFloats;
  if (operands == ConvOperands::kRounded) {
    product.rounded_depth = product.depth;
    product.depth = ceil_div(product.depth, 2);
  }
  return product;
}

}  // namespace

ConvShape conv_shape(const WindowAttributes& attributes, int64_t groups, sdk::DimsView x,
                     sdk::DimsView w, bool channels_first) {
  if (x.size() < 3) sdk::invalid("Conv: x has rank ", x.size(), ", at least 3 is needed");
  if (w.size() != x.size()) sdk::invalid("Conv: W has rank ", w.size(), ", x has rank ", x.size());
  const std::size_t spatial = x.size() - 2;
  ConvShape shape;
  shape.window = attributes.resolve_convolution({x.data() + (channels_first ? 2 : 1), spatial},
                                                {w.data() + 2, spatial});
  shape.batch = x[0];
  shape.in_channels = channels_first ? x[1] : x.back();
  shape.out_channels = w[0];
  shape.groups = groups;
  if (groups < 1 || shape.out_channels % groups != 0 || shape.in_channels != w[1] * groups) {
    sdk::invalid("Conv: x has ", shape.in_channels, " channels, W dims ", sdk::to_string(w),
                 " and ", groups,
                 " groups; channels must be W's second dimension times the groups, and the groups "
                 "divide W's first");
  }
  return shape;
}

sdk::Dims output_dims(const ConvShape& shape, std::size_t rank, bool channels_first) {
  sdk::Dims dims{shape.batch};
  if (channels_first) dims.push_back(shape.out_channels);
  for (std::size_t axis = 5 - rank; axis < 3; ++axis) dims.push_back(shape.window.out[axis]);
  if (!channels_first) dims.push_back(shape.out_channels);
  return dims;
}

void pack_filters(const Product& product, const ConvShape& shape, const float* weights,
                  const float* scales, float* packed, const sdk::Threads& threads) {
  const int64_t columns = shape.out_channels / shape.groups;
  WeightView view;
  view.taps = shape.window.taps();
  view.depth = shape.in_channels / shape.groups;
  view.tap_stride = 1;
  view.depth_stride = view.taps;
  view.column_stride = view.depth * view.taps;
  for (int64_t group = 0; group < shape.groups; ++group) {
    view.data = weights + group * columns * view.column_stride;
    view.column_scales = scales != nullptr ? scales + group * columns : nullptr;
    product.pack(view, group, packed, threads);
  }
}

DirectConv::DirectConv(const ConvShape& shape, const Activation& activation, Isa isa,
                       unsigned threads, ConvOperands operands)
    : shape_(shape),
      isa_(isa),
      merged_(should_merge(shape)),
      product_(product_shape(shape, merged_, operands), activation, isa, threads) {
  const Window& window = shape.window;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const int64_t extent = (window.kernel[axis] - 1) * window.dilation[axis] + 1;
    copy_[axis] = std::max(window.in[axis] + window.pad_begin[axis],
                           (window.out[axis] - 1) * window.stride[axis] + extent);
  }
}

uint64_t DirectConv::workspace_bytes() const {
  const common::Checked floats =
      merged_ ? common::checked_product(copy_) * shape_.batch * shape_.in_channels
              : common::Checked(shape_.in_channels);
  const int64_t bytes = (floats * 4).value("Conv: a copy of x with its padding");
  return align64(static_cast<uint64_t>(bytes)) + product_.scratch_bytes();
}

void DirectConv::pack(const float* weights, const float* scales, float* packed,
                      const sdk::Threads& threads) const {
  pack_filters(product_, shape_, weights, scales, packed, threads);
}

void DirectConv::run(const ConvArgs& args, void* workspace, const sdk::Threads& threads) const {
  if (merged_) {
    run_merged(args, static_cast<char*>(workspace), threads);
  } else {
    run_indirect(args, static_cast<char*>(workspace), threads);
  }
}

template <class Fill>
void DirectConv::run_product(const ConvArgs& args, const float* zeros, char* scratch,
                             const sdk::Threads& threads, const Fill& fill) const {
  const Window& window = shape_.window;
  const ImageStrides& strides = args.y_strides;
  ProductArgs product;
  product.packed = args.packed;
  product.bias = args.bias;
  product.residual = args.residual;
  product.residual_stride = shape_.out_channels;
  product.zeros = zeros;
  product.out_stride = strides.width;
  product.out = args.y;
  product.out_lines = out_lines(window.out, shape_.batch, strides);
  product_.run(product, 0, product_.shape().rows, threads, scratch, fill);
}

void DirectConv::run_indirect(const ConvArgs& args, char* workspace,
                              const sdk::Threads& threads) const {
  auto* zeros = reinterpret_cast<float*>(workspace);
  std::memset(zeros, 0, static_cast<std::size_t>(shape_.in_channels) * 4);
  char* scratch = workspace + align64(static_cast<uint64_t>(shape_.in_channels) * 4);
  const RowSource<float> source{shape_.window, args.x, args.x_strides};
  run_product(args, shape_.window.padded() ? zeros : nullptr, scratch, threads,
              [&](const float** table, int64_t pitch, int64_t row, int64_t count) {
                fill_taps<float>(table, pitch, source, zeros, row, count);
              });
}

void DirectConv::run_merged(const ConvArgs& args, char* workspace,
                            const sdk::Threads& threads) const {
  const Window& window = shape_.window;
  auto* copy = reinterpret_cast<float*>(workspace);
  const int64_t channels = shape_.in_channels;
  const int64_t floats = shape_.batch * copy_[0] * copy_[1] * copy_[2] * channels;
  char* scratch = workspace + align64(static_cast<uint64_t>(floats) * 4);
  PaddedCopy padded;
  padded.batch = shape_.batch;
  padded.channels = channels;
  padded.in = window.in;
  padded.out = copy_;
  padded.begin = window.pad_begin;
  padded.x_strides = args.x_strides;
  padded.isa = isa_;
  padded.x_channels_first = args.x_channels_first;
  padded_copy(padded, args.x, copy, threads);
  const ImageStrides strides = ImageStrides::dense(copy_, channels);
  const auto fill_line = [&](const float** table, const float* base, int64_t row, int64_t rows) {
    for_each_line(
        window, row, rows,
        [&](int64_t image, int64_t z, int64_t y, int64_t x, int64_t first, int64_t count) {
          const float* pixel = base + image * strides.batch + z * window.stride[0] * strides.depth +
                               y * window.stride[1] * strides.height +
                               x * window.stride[2] * strides.width;
          for (int64_t i = 0; i < count; ++i, pixel += window.stride[2] * strides.width)
            table[first + i] = pixel;
        });
  };
  run_product(args, nullptr, scratch, threads,
              [&](const float** table, int64_t pitch, int64_t row, int64_t count) {
                for (int64_t z = 0; z < window.kernel[0]; ++z) {
                  for (int64_t y = 0; y < window.kernel[1]; ++y, table += pitch) {
                    const float* base = copy + z * window.dilation[0] * strides.depth +
                                        y * window.dilation[1] * strides.height;
                    fill_line(table, base, row, count);
                  }
                }
              });
}

}  // namespace backplane::cpu
