#include "plugins/cpu/dense/conv_u8.hpp"

#include <cstring>
#include <vector>

#include "plugins/cpu/dense/sliding.hpp"
#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

// With more channels than this a pixel is a row of its own.
constexpr std::int64_t kMostMerged = 16;
// Pixels of a block of a depthwise convolution: as many pointers for each tap.
constexpr std::int64_t kBlockPixels = 32;
// Multiply-adds of a depthwise convolution below which a thread is not woken.
constexpr std::int64_t kGrainWork = 400'000;

bool is_depthwise(const ConvShape& shape) {
  return shape.groups > 1 && shape.groups == shape.in_channels &&
         shape.in_channels == shape.out_channels && shape.window.taps() <= kMostTapsU8;
}

/// A signed byte, of unsigned weights whose zero point is 128 too.
std::int8_t signed_weight(const std::uint8_t* weights, std::int64_t index, bool is_signed) {
  return static_cast<std::int8_t>(is_signed ? weights[index] : weights[index] ^ 0x80);
}

/// Four planes become pixels of four channels.
void interleave(const std::uint8_t* a, const std::uint8_t* b, const std::uint8_t* c,
                const std::uint8_t* d, std::uint8_t* to, std::int64_t pixels) {
  for (std::int64_t i = 0; i < pixels; ++i) {
    const std::uint32_t pixel =
        a[i] | std::uint32_t{b[i]} << 8 | std::uint32_t{c[i]} << 16 | std::uint32_t{d[i]} << 24;
    std::memcpy(to + 4 * i, &pixel, sizeof(pixel));
  }
}

}  // namespace

bool ConvU8::applies(const ConvShape& shape) {
  return shape.groups == 1 || is_depthwise(shape) || shape.in_channels / shape.groups % 4 == 0;
}

bool ConvU8::transforms_pay(const ConvShape& shape, const BytesX& x, Isa isa) {
  return !x.channels_first && WinogradU8::pays(shape, isa);
}

ConvU8::ConvU8(const ConvShape& shape, const BytesX& x, Isa isa, unsigned threads, bool transformed)
    : shape_(shape),
      x_(x),
      depthwise_(is_depthwise(shape)),
      transformed_(transformed),
      kernels_(&kernels_u8(isa)),
      threads_(threads) {
  if (transformed_) {
    winograd_ = WinogradU8(shape, isa, threads);
    return;
  }
  const Window& window = shape.window;
  const std::int64_t channels = shape.in_channels;
  merged_ = !depthwise_ && shape.groups == 1 && channels <= kMostMerged && window.kernel[2] > 1 &&
            window.dilation[2] == 1;
  if (depthwise_ && channels >= kernels_->depthwise_channels && window.dilation[2] == 1 &&
      window.kernel == std::array<std::int64_t, 3>{1, 3, 3}) {
    slide_ = slide_u8(isa);
  }
  framed_ = merged_ || x.channels_first || (!depthwise_ && channels % 4 != 0);
  frame_channels_ = framed_ && !depthwise_ ? (channels + 3) / 4 * 4 : channels;
  widens_pixels_ = merged_ && frame_channels_ == 4 && kernels_->wide != nullptr;
  row_channels_ = widens_pixels_ ? channels : frame_channels_;
  frame_window_ = window;
  if (framed_) {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const std::int64_t extent = (window.kernel[axis] - 1) * window.dilation[axis] + 1;
      frame_window_.in[axis] = std::max(window.in[axis] + window.pad_begin[axis],
                                        (window.out[axis] - 1) * window.stride[axis] + extent);
      frame_window_.pad_begin[axis] = 0;
      frame_window_.pad_end[axis] = 0;
    }
  }
  if (depthwise_) return;
  if (merged_) frame_window_.kernel[2] = 1;
  ShapeU8 product;
  product.rows = shape.batch * window.out_pixels();
  product.taps = frame_window_.taps();
  product.depth = row_channels_ / shape.groups * (merged_ ? window.kernel[2] : 1);
  product.columns = shape.out_channels / shape.groups;
  product.groups = shape.groups;
  product_ = ProductU8(product, isa, threads);
}

const char* ConvU8::variant() const {
  if (transformed_) return "winograd";
  if (depthwise_) return slide_ != nullptr ? "sliding" : "depthwise";
  return merged_ ? "merged" : "indirect";
}

std::uint64_t ConvU8::frame_bytes() const {
  // Without a frame, a pixel of zero points that stands for padding.
  const common::Checked bytes =
      framed_ ? common::checked_product(frame_window_.in) * shape_.batch * frame_channels_
              : common::Checked(frame_channels_);
  // See ArgsU8::pixel_channels.
  const std::uint64_t behind = framed_ ? kBehindRowU8 : 0;
  return align64(static_cast<std::uint64_t>(bytes.value("a copy of x with its padding")) + behind);
}

std::uint64_t ConvU8::packed_bytes() const {
  if (transformed_) return winograd_.packed_bytes();
  if (!depthwise_) return product_.packed_bytes();
  return ColumnTableU8::end(depthwise_bytes(), depthwise_lanes());
}

std::uint64_t ConvU8::depthwise_bytes() const {
  return static_cast<std::uint64_t>(kernels_->depthwise_bytes(packed_taps(), shape_.out_channels));
}

std::int64_t ConvU8::depthwise_lanes() const {
  const std::int64_t unit = kernels_->depthwise_channels;
  return ceil_div(shape_.out_channels, unit) * unit;
}

std::uint64_t ConvU8::workspace_bytes() const {
  if (transformed_) return winograd_.workspace_bytes();
  const auto table = align64(static_cast<std::uint64_t>(shape_.window.taps() * kBlockPixels) * 8);
  return frame_bytes() + (depthwise_ ? table * threads_ : product_.scratch_bytes());
}

void ConvU8::pack(const sdk::Tensor& weights, const float* scale, const float* shift, void* packed,
                  const sdk::Threads& threads) const {
  if (depthwise_) {
    pack_depthwise(weights, scale, shift, packed);
    return;
  }
  const auto* w = static_cast<const std::uint8_t*>(weights.bytes_data());
  const bool is_signed = weights.type() == sdk::DataType::Int8;
  const std::int64_t channels = shape_.in_channels / shape_.groups;
  const std::int64_t padded = row_channels_;
  const std::int64_t columns = shape_.out_channels / shape_.groups;
  const std::int64_t taps = shape_.window.taps();
  const auto weight_of = [=](std::int64_t filter, std::int64_t channel, std::int64_t position) {
    if (channel >= channels) return std::int8_t{0};
    return signed_weight(w, (filter * channels + channel) * taps + position, is_signed);
  };
  if (transformed_) {
    winograd_.pack(scale, shift, x_.unsigned_zero(), packed, threads, weight_of);
    return;
  }
  const ColumnSourceU8 source{scale, shift, x_.unsigned_zero()};
  if (!merged_) {
    product_.pack(
        source, packed, threads,
        [=](std::int64_t group, std::int64_t tap, std::int64_t depth, std::int64_t column) {
          return weight_of(group * columns + column, depth, tap);
        });
    return;
  }
  const std::int64_t width = shape_.window.kernel[2];
  product_.pack(source, packed, threads,
                [=](std::int64_t, std::int64_t tap, std::int64_t depth, std::int64_t column) {
                  return weight_of(column, depth % padded, tap * width + depth / padded);
                });
}

void ConvU8::pack_depthwise(const sdk::Tensor& weights, const float* scale, const float* shift,
                            void* packed) const {
  const std::int64_t taps = shape_.window.taps();
  const std::int64_t channels = shape_.out_channels;
  const auto* w = static_cast<const std::uint8_t*>(weights.bytes_data());
  std::vector<std::int8_t> signed_weights(static_cast<std::size_t>(channels * taps));
  for (std::size_t i = 0; i < signed_weights.size(); ++i) {
    signed_weights[i] =
        signed_weight(w, static_cast<std::int64_t>(i), weights.type() == sdk::DataType::Int8);
  }
  if (slide_ != nullptr) {
    std::vector<std::int8_t> pairs(static_cast<std::size_t>(channels * kSlidingTaps));
    for (std::int64_t c = 0; c < channels; ++c)
      sliding_taps(signed_weights.data() + c * taps, pairs.data() + c * kSlidingTaps);
    kernels_->pack_depthwise(pairs.data(), kSlidingTaps, channels, packed);
  } else {
    kernels_->pack_depthwise(signed_weights.data(), taps, channels, packed);
  }
  const ColumnTableU8 table = ColumnTableU8::behind(packed, depthwise_bytes(), depthwise_lanes());
  for (std::int64_t lane = 0; lane < depthwise_lanes(); ++lane) table.set(lane, 0, 0, 0);
  for (std::int64_t c = 0; c < channels; ++c) {
    const int lane = kernels_->depthwise_lane(static_cast<int>(c));
    std::int32_t sum = 0;
    for (std::int64_t t = 0; t < taps; ++t)
      sum += signed_weights[static_cast<std::size_t>(c * taps + t)];
    table.set(lane, -x_.unsigned_zero() * sum, scale[c], shift[c]);
  }
}

/// Writes a line of the image to its place in the frame; `to` is the first pixel of the image there.
void ConvU8::copy_line(const std::uint8_t* x, std::int64_t image, std::int64_t z, std::int64_t y,
                       std::uint8_t* to) const {
  const Window& window = shape_.window;
  const std::int64_t channels = shape_.in_channels;
  const std::int64_t line = (z * window.in[1] + y) * window.in[2];
  if (!x_.channels_first) {
    const std::uint8_t* from = x + (image * window.in_pixels() + line) * channels;
    for (std::int64_t i = 0; i < window.in[2]; ++i) {
      std::memcpy(to + i * frame_channels_, from + i * channels,
                  static_cast<std::size_t>(channels));
    }
    return;
  }
  const std::uint8_t* planes = x + image * channels * window.in_pixels() + line;
  if (frame_channels_ == 4) {
    // One quad a pixel: what a plane that does not exist gives meets weights of zero.
    const auto plane = [&](std::int64_t c) {
      return planes + std::min(c, channels - 1) * window.in_pixels();
    };
    interleave(plane(0), plane(1), plane(2), plane(3), to, window.in[2]);
    return;
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    const std::uint8_t* from = planes + c * window.in_pixels();
    for (std::int64_t i = 0; i < window.in[2]; ++i) to[i * frame_channels_ + c] = from[i];
  }
}

void ConvU8::fill_frame(const ConvArgsU8& args, std::uint8_t* frame,
                        const sdk::Threads& threads) const {
  const Window& window = shape_.window;
  const std::array<std::int64_t, 3>& extents = frame_window_.in;
  const std::array<std::int64_t, 3>& begin = window.pad_begin;
  const std::int64_t line_bytes = extents[2] * frame_channels_;
  split_loop(threads, shape_.batch * extents[0] * extents[1], static_cast<double>(line_bytes), 1,
             [&](std::int64_t first, std::int64_t last) {
               for (std::int64_t i = first; i < last; ++i) {
                 std::uint8_t* to = frame + i * line_bytes;
                 std::memset(to, args.zero, static_cast<std::size_t>(line_bytes));
                 const std::int64_t y = i % extents[1] - begin[1];
                 const std::int64_t z = i / extents[1] % extents[0] - begin[0];
                 if (y < 0 || y >= window.in[1] || z < 0 || z >= window.in[0]) continue;
                 copy_line(args.x, i / (extents[0] * extents[1]), z, y,
                           to + begin[2] * frame_channels_);
               }
             });
}

void ConvU8::run(const ConvArgsU8& args, void* workspace, const sdk::Threads& threads) const {
  if (transformed_) {
    winograd_.run({args.x, x_.is_signed, args.zero, args.packed, args.finish, args.y}, workspace,
                  threads);
    return;
  }
  auto* frame = static_cast<std::uint8_t*>(workspace);
  if (framed_) {
    fill_frame(args, frame, threads);
  } else {
    std::memset(frame, args.zero, static_cast<std::size_t>(frame_channels_));
  }
  char* scratch = static_cast<char*>(workspace) + frame_bytes();
  const RowSource<std::uint8_t> source{frame_window_, framed_ ? frame : args.x,
                                       ImageStrides::dense(frame_window_.in, frame_channels_)};
  if (slide_ != nullptr) return run_sliding(args, source, frame, threads);
  if (depthwise_) return run_depthwise(args, source, frame, scratch, threads);
  ArgsU8 product;
  product.packed = args.packed;
  if (widens_pixels_) product.pixel_channels = row_channels_;
  if (lie_in_order()) product.x = args.x;
  product.finish = args.finish;
  product.x_signed = x_.is_signed;
  product.out = args.y;
  product.out_stride = shape_.out_channels;
  product.after = args.after;
  product_.run(
      product, threads, scratch,
      [&](const std::uint8_t** table, std::int64_t pitch, std::int64_t row, std::int64_t count) {
        fill_taps<std::uint8_t>(table, pitch, source, frame, row, count);
      });
}

/// Whether the rows of the product are the pixels of x, one behind the other.
bool ConvU8::lie_in_order() const {
  const Window& window = shape_.window;
  return !framed_ && shape_.groups == 1 && window.taps() == 1 && window.out == window.in &&
         window.pad_begin == std::array<std::int64_t, 3>{} &&
         window.stride == std::array<std::int64_t, 3>{1, 1, 1};
}

void ConvU8::run_depthwise(const ConvArgsU8& args, const RowSource<std::uint8_t>& source,
                           const std::uint8_t* zeros, char* scratch,
                           const sdk::Threads& threads) const {
  const std::int64_t taps = shape_.window.taps();
  const std::int64_t channels = shape_.out_channels;
  const std::uint64_t table_bytes = align64(static_cast<std::uint64_t>(taps * kBlockPixels) * 8);
  const std::int64_t pixels = shape_.batch * shape_.window.out_pixels();
  const std::int64_t blocks = (pixels + kBlockPixels - 1) / kBlockPixels;
  const std::int64_t work = kBlockPixels * channels * taps;
  const auto grain = static_cast<std::uint64_t>(kGrainWork / std::max<std::int64_t>(1, work) + 1);
  threads.parallel_for(
      static_cast<std::uint64_t>(blocks), grain,
      [&](std::uint64_t begin, std::uint64_t end, std::uint32_t worker) {
        auto** table = reinterpret_cast<const std::uint8_t**>(scratch + worker * table_bytes);
        DepthwiseU8Args part{};
        part.taps = taps;
        part.weights = args.packed;
        part.columns = ColumnTableU8::behind(args.packed, depthwise_bytes(), depthwise_lanes());
        part.finish = &args.finish;
        part.channels = channels;
        part.rows = table;
        for (auto block = static_cast<std::int64_t>(begin); block < static_cast<std::int64_t>(end);
             ++block) {
          const std::int64_t first = block * kBlockPixels;
          part.pixels = std::min(kBlockPixels, pixels - first);
          part.row_pitch = part.pixels;
          part.out = static_cast<char*>(args.y) + first * channels * args.finish.element_bytes();
          fill_taps(table, part.row_pitch, source, zeros, first, part.pixels);
          kernels_->depthwise(part, x_.is_signed);
        }
      });
}

void ConvU8::run_sliding(const ConvArgsU8& args, const RowSource<std::uint8_t>& source,
                         const std::uint8_t* zeros, const sdk::Threads& threads) const {
  const Window& window = source.window;
  const ImageStrides& strides = source.strides;
  const std::array<std::int64_t, 3>& out = window.out;
  SlidingU8Args all{};
  all.zeros = zeros;
  all.first = -window.pad_begin[2];
  all.width = window.in[2];
  all.stride = window.stride[2];
  all.pixels = out[2];
  all.weights = args.packed;
  all.columns = ColumnTableU8::behind(args.packed, depthwise_bytes(), depthwise_lanes());
  all.finish = &args.finish;
  all.channels = shape_.out_channels;
  const std::int64_t line_bytes = out[2] * shape_.out_channels * args.finish.element_bytes();
  const auto line = [&](std::int64_t i) {
    SlidingU8Args run = all;
    const std::int64_t y = i % out[1] * window.stride[1] - window.pad_begin[1];
    const std::int64_t z = i / out[1] % out[0] * window.stride[0] - window.pad_begin[0];
    const std::uint8_t* x = source.x + i / (out[1] * out[0]) * strides.batch + z * strides.depth;
    for (std::int64_t r = 0; r < 3; ++r) {
      const std::int64_t at = y + r * window.dilation[1];
      const bool inside = at >= 0 && at < window.in[1] && z >= 0 && z < window.in[0];
      run.lines[r] = inside ? x + at * strides.height : zeros;
      run.steps[r] = inside ? strides.width : 0;
    }
    run.out = static_cast<char*>(args.y) + i * line_bytes;
    slide_(run, x_.is_signed);
  };
  const std::int64_t work = std::max<std::int64_t>(1, out[2] * shape_.out_channels * 9);
  threads.parallel_for(static_cast<std::uint64_t>(shape_.batch * out[0] * out[1]),
                       static_cast<std::uint64_t>(kGrainWork / work + 1),
                       [&](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
                         for (std::uint64_t i = begin; i < end; ++i)
                           line(static_cast<std::int64_t>(i));
                       });
}

}  // namespace backplane::cpu
