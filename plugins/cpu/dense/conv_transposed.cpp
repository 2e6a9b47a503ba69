#include "plugins/cpu/dense/conv_transposed.hpp"

#include <algorithm>
#include <cstring>

#include "plugins/cpu/dense/window_checks.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

/// The remainder that is not negative.
int64_t modulo(int64_t value, int64_t divisor) {
  const int64_t rest = value % divisor;
  return rest < 0 ? rest + divisor : rest;
}

int64_t entry(const std::vector<int64_t>& values, std::size_t index, int64_t absent) {
  return values.empty() ? absent : values[index];
}

/// Copies the weights of one tap, `count` of them, one behind the other; returns where the next ones go.
float* copy_tap(const float* weights, const Window& window, int64_t tap, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) *to++ = weights[i * window.taps() + tap];
  return to;
}

}  // namespace

TransposedAttributes::TransposedAttributes(const sdk::Node& node)
    : kernel_shape(node.get_ints("kernel_shape")),
      strides(node.get_ints("strides")),
      dilations(node.get_ints("dilations")),
      pads(node.get_ints("pads")),
      output_padding(node.get_ints("output_padding")),
      output_shape(node.get_ints("output_shape")),
      auto_pad(node.get_string("auto_pad", "NOTSET")) {
  check_window(auto_pad, {&kernel_shape, &strides, &dilations});
  for (const auto* values : {&pads, &output_padding, &output_shape}) {
    for (const int64_t value : *values) {
      if (value < 0)
        sdk::invalid("pads, output_padding and output_shape must not be negative, got ", value);
    }
  }
}

Window TransposedAttributes::resolve(sdk::DimsView in, sdk::DimsView kernel) const {
  const std::size_t axes = in.size();
  if (axes > kSpatialAxes) {
    sdk::unsupported("the input has ", axes, " spatial axes; up to ", kSpatialAxes, " are handled");
  }
  check_count("kernel_shape", kernel_shape, axes);
  check_count("strides", strides, axes);
  check_count("dilations", dilations, axes);
  check_count("pads", pads, 2 * axes);
  check_count("output_padding", output_padding, axes);
  if (output_shape.size() != axes + 2) check_count("output_shape", output_shape, axes);
  Window window;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    if (entry(kernel_shape, axis, kernel[axis]) != kernel[axis]) {
      sdk::invalid("attribute 'kernel_shape' says ", kernel_shape[axis], " along spatial axis ",
                   axis, ", W has ", kernel[axis]);
    }
    const std::size_t to = axis + kSpatialAxes - axes;
    window.kernel[to] = kernel[axis];
    window.stride[to] = entry(strides, axis, 1);
    // Of one position, it says nothing.
    window.dilation[to] = kernel[axis] <= 1 ? 1 : entry(dilations, axis, 1);
    window.in[to] = in[axis];
    resolve_output(axis, axes, window);
    if (in[axis] > 0 && window.out[to] < 1) {
      sdk::invalid("ConvTranspose: the output would have the size ", window.out[to],
                   " along spatial axis ", axis, "; 'pads' are too large");
    }
    window.out[to] = std::max<int64_t>(0, window.out[to]);
  }
  constexpr int64_t kMostTaps = int64_t{1} << 40;
  common::checked_product(kernel).at_most(kMostTaps, "a kernel of ", sdk::to_string(kernel));
  // Weights are packed for each remainder modulo the strides.
  constexpr int64_t kMostClasses = 1 << 20;
  common::checked_product(window.stride)
      .at_most(kMostClasses, "ConvTranspose: the product of strides ", sdk::to_string(strides));
  return window;
}

/// The size of the output and the padding along one of `axes` axes, the rest of which the window has.
void TransposedAttributes::resolve_output(std::size_t axis, std::size_t axes,
                                          Window& window) const {
  const std::size_t to = axis + kSpatialAxes - axes;
  const int64_t full =
      common::transposed_size(axis, window.in[to], window.stride[to],
                              common::window_extent(axis, window.kernel[to], window.dilation[to]),
                              entry(output_padding, axis, 0));
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  if (output_shape.empty() && !same) {
    const bool padded = auto_pad == "NOTSET";
    window.pad_begin[to] = padded ? entry(pads, axis, 0) : 0;
    window.pad_end[to] = padded ? entry(pads, axis + axes, 0) : 0;
    window.out[to] = (common::Checked(full) - window.pad_begin[to] - window.pad_end[to])
                         .value("ConvTranspose: the sum of 'pads' along spatial axis ", axis);
    return;
  }
  // Some exporters write the whole shape of the output, with batch and channels.
  const std::size_t leading = output_shape.size() == axes + 2 ? 2 : 0;
  window.out[to] = output_shape.empty() ? (common::Checked(window.in[to]) * window.stride[to])
                                              .value("ConvTranspose: ", window.in[to],
                                                     " elements by stride ", window.stride[to])
                                        : output_shape[axis + leading];
  const int64_t total = std::max<int64_t>(0, full - window.out[to]);
  window.pad_begin[to] = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
  window.pad_end[to] = total - window.pad_begin[to];
}

TransposedConv::TransposedConv(const ConvShape& shape, const Activation& activation, bool rounds,
                               Isa isa, unsigned threads)
    : shape_(shape), rounds_(rounds) {
  if (!rounds && DepthwiseTransposed::applies(shape)) {
    depthwise_.emplace(shape, activation, isa);
    packed_floats_ = depthwise_->packed_floats();
    return;
  }
  if (!rounds && SpreadConv::pays(shape, isa)) {
    spread_.emplace(shape, activation, isa, threads);
    packed_floats_ = spread_->packed_floats();
    pack_floats_ = spread_->pack_floats();
    return;
  }
  if (rounds) image_ = PairImage(shape, isa);
  const Window& window = shape.window;
  const Extents& stride = window.stride;
  const int64_t depth = shape.in_channels / shape.groups;
  const int64_t columns = shape.out_channels / shape.groups;
  for (int64_t z = 0; z < stride[0]; ++z) {
    for (int64_t y = 0; y < stride[1]; ++y) {
      for (int64_t x = 0; x < stride[2]; ++x) classes_.push_back(class_of({z, y, x}));
    }
  }
  for (Class& one : classes_) {
    one.packed_offset = packed_floats_;
    one.product = Product(product_shape(1, one), Activation{}, isa, 1);
    packed_floats_ += one.product.packed_floats();
    pack_floats_ = std::max(pack_floats_, one.taps() * depth * columns);
  }
  for (int64_t z = 0; z < std::min(stride[0], window.out[0]); ++z) {
    for (int64_t y = 0; y < std::min(stride[1], window.out[1]); ++y) {
      for (int64_t x = 0; x < std::min(stride[2], window.out[2]); ++x) {
        add_phase({z, y, x}, activation, isa, threads);
      }
    }
  }
}

ProductShape TransposedConv::product_shape(int64_t rows, const Class& positions) const {
  ProductShape product;
  product.rows = rows;
  product.taps = positions.taps();
  product.depth = shape_.in_channels / shape_.groups;
  product.columns = shape_.out_channels / shape_.groups;
  product.groups = shape_.groups;
  product.pairs = rounds_;
  if (rounds_) product.depth = ceil_div(product.depth, 2);
  return product;
}

TransposedConv::Class TransposedConv::class_of(const Extents& remainder) const {
  const Window& window = shape_.window;
  Class result;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    for (int64_t k = 0; k < window.kernel[axis]; ++k) {
      if (k * window.dilation[axis] % window.stride[axis] == remainder[axis])
        result.positions[axis].push_back(k);
    }
  }
  return result;
}

void TransposedConv::add_phase(const Extents& first, const Activation& activation, Isa isa,
                               unsigned threads) {
  const Window& window = shape_.window;
  Phase phase;
  phase.first = first;
  int64_t index = 0;
  int64_t rows = shape_.batch;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const int64_t stride = window.stride[axis];
    phase.count[axis] = (window.out[axis] - first[axis] + stride - 1) / stride;
    rows *= phase.count[axis];
    index = index * stride + modulo(first[axis] + window.pad_begin[axis], stride);
  }
  phase.class_index = static_cast<std::size_t>(index);
  phase.product =
      Product(product_shape(rows, classes_[phase.class_index]), activation, isa, threads);
  scratch_bytes_ = std::max(scratch_bytes_, phase.product.scratch_bytes());
  phases_.push_back(std::move(phase));
}

void TransposedConv::copy_taps(const Class& one, const float* from, int64_t floats,
                               float* to) const {
  const Window& window = shape_.window;
  for (const int64_t kz : one.positions[0]) {
    for (const int64_t ky : one.positions[1]) {
      for (const int64_t kx : one.positions[2])
        to = copy_tap(from, window, (kz * window.kernel[1] + ky) * window.kernel[2] + kx, floats,
                      to);
    }
  }
}

void TransposedConv::pack(const float* weights, const float* scales, float* packed, float* beside,
                          const sdk::Threads& threads) const {
  if (depthwise_) return depthwise_->pack(weights, scales, packed);
  if (spread_) return spread_->pack(weights, scales, packed, beside, threads);
  const Window& window = shape_.window;
  const int64_t depth = shape_.in_channels / shape_.groups;
  const int64_t columns = shape_.out_channels / shape_.groups;
  for (const Class& one : classes_) {
    const int64_t taps = one.taps();
    if (taps == 0) continue;
    for (int64_t group = 0; group < shape_.groups; ++group) {
      const float* from = weights + group * depth * columns * window.taps();
      copy_taps(one, from, depth * columns, beside);
      WeightView view;
      view.data = beside;
      view.taps = taps;
      view.depth = depth;
      view.tap_stride = depth * columns;
      view.depth_stride = columns;
      view.column_stride = 1;
      view.column_scales = scales != nullptr ? scales + group * columns : nullptr;
      one.product.pack(view, group, packed + one.packed_offset, threads);
    }
  }
}

uint64_t TransposedConv::workspace_bytes() const {
  if (depthwise_) return 0;
  if (spread_) return spread_->workspace_bytes();
  return align64(static_cast<uint64_t>(shape_.in_channels) * 4) + scratch_bytes_ +
         (rounds_ ? image_.bytes() : 0);
}

void TransposedConv::fill(const Phase& phase, const RowSource<float>& x, const float* zeros,
                          const float** table, int64_t pitch, int64_t row, int64_t rows) const {
  const Window& window = shape_.window;
  const auto shift = [&](std::size_t axis,
                         int64_t k) {  // exact: the phase's class has that remainder
    return (phase.first[axis] + window.pad_begin[axis] - k * window.dilation[axis]) /
           window.stride[axis];
  };
  const auto& positions = classes_[phase.class_index].positions;
  for (const int64_t kz : positions[0]) {
    for (const int64_t ky : positions[1]) {
      for (const int64_t kx : positions[2]) {
        fill_tap(table, x, zeros, {shift(0, kz), shift(1, ky), shift(2, kx)}, row, rows);
        table += pitch;
      }
    }
  }
}

void TransposedConv::run(const ConvArgs& args, char* workspace, const sdk::Threads& threads) const {
  if (depthwise_) return depthwise_->run(args, threads);
  if (spread_) return spread_->run(args, workspace, threads);
  const Extents& stride = shape_.window.stride;
  auto* zeros = reinterpret_cast<float*>(workspace);
  std::memset(zeros, 0, static_cast<std::size_t>(shape_.in_channels) * 4);
  char* scratch = workspace + align64(static_cast<uint64_t>(shape_.in_channels) * 4);
  const float* image = args.x;
  ImageStrides image_strides = args.x_strides;
  if (rounds_) {
    auto* copy = reinterpret_cast<float*>(scratch + scratch_bytes_);
    image_.fill(args.x, args.x_strides, copy, threads);
    image = copy;
    image_strides = image_.strides();
  }
  for (const Phase& phase : phases_) {
    const ImageStrides& y = args.y_strides;
    const Extents& first = phase.first;
    ProductArgs product;
    product.packed = args.packed + classes_[phase.class_index].packed_offset;
    product.bias = args.bias;
    product.zeros = zeros;
    product.out = args.y + first[0] * y.depth + first[1] * y.height + first[2] * y.width;
    const ImageStrides strides{y.batch, stride[0] * y.depth, stride[1] * y.height,
                               stride[2] * y.width};
    product.out_stride = strides.width;
    product.out_lines = out_lines(phase.count, shape_.batch, strides);
    // A position reads the pixels that lie at one distance from those of the phase.
    Window pixels;
    pixels.in = shape_.window.in;
    pixels.out = phase.count;
    const RowSource<float> x{pixels, image, image_strides};
    phase.product.run(product, 0, phase.product.shape().rows, threads, scratch,
                      [&](const float** table, int64_t pitch, int64_t row, int64_t rows) {
                        fill(phase, x, zeros, table, pitch, row, rows);
                      });
  }
}

}  // namespace backplane::cpu
