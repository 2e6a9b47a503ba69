#include "plugins/cuda/integer_images.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "plugins/common/device_ops/walk.hpp"
#include "plugins/cuda/kernels/integer_images.hpp"

namespace backplane::cuda {
namespace {

constexpr std::int64_t kSumBytes = sizeof(std::int32_t);

/// Whole vectors of the loads that fast engines use: of 4, 8 or 16 bytes.
std::int64_t whole_vectors(std::int64_t count) {
  if (count <= kInt8Word) return kInt8Word;
  constexpr std::int64_t kTwoWords = 2 * kInt8Word;
  return count <= kTwoWords ? kTwoWords : padded_depth(count);
}

}  // namespace

std::int64_t Filters::laid_filters() const { return whole_vectors(filters + (has_ones ? 1 : 0)); }
std::int64_t Filters::laid_channels() const { return whole_vectors(channels); }

std::uint64_t FilterPacker::sums_at() const { return sums_behind(filters.bytes()); }

std::uint64_t FilterPacker::bytes() const {
  return sums_at() + static_cast<std::uint64_t>(filters.all_filters() * kSumBytes);
}

std::string FilterPacker::key() const {
  return sdk::message("int8 filters, channels last, ", filters.groups, " of ", filters.filters, "x",
                      filters.channels, "x", filters.taps, " to ", filters.laid_filters(), "x",
                      filters.laid_channels(), filters.has_ones ? " with ones" : "");
}

void FilterPacker::pack(const sdk::PackContext& ctx) const {
  const auto* const from = ctx.source(0).data<std::uint8_t>();
  const auto flip = static_cast<std::uint8_t>(shift_of(ctx.source(0).type()));
  const std::int64_t width = filters.laid_channels();
  std::vector<unsigned char> packed(bytes(), 0);
  std::vector<std::int32_t> sums(static_cast<std::size_t>(filters.all_filters()), 0);
  for (std::int64_t group = 0; group < filters.groups; ++group) {
    for (std::int64_t filter = 0; filter < filters.filters; ++filter) {
      const std::int64_t at = group * filters.laid_filters() + filter;
      const std::uint8_t* const source =
          from + (group * filters.filters + filter) * filters.channels * filters.taps;
      std::int32_t sum = 0;
      for (std::int64_t i = 0; i < filters.channels * filters.taps; ++i) {
        const auto byte = static_cast<std::uint8_t>(source[i] ^ flip);
        packed[static_cast<std::size_t>(at * filters.line() + i % filters.taps * width +
                                        i / filters.taps)] = byte;
        sum += static_cast<std::int8_t>(byte);
      }
      sums[static_cast<std::size_t>(at)] = sum;
    }
    if (!filters.has_ones) continue;
    const std::int64_t ones = (group * filters.laid_filters() + filters.filters) * filters.line();
    for (std::int64_t tap = 0; tap < filters.taps; ++tap)
      std::fill_n(packed.begin() + ones + tap * width, filters.channels, 1);
  }
  upload_with_sums(ctx, packed, sums, sums_at());
}

LaidOut lay_out_filters(sdk::PrepareContext& ctx, NodeWork& work, const FilterPackers& packers,
                        std::uint32_t place, const Filters& filters, bool wants_sums,
                        WorkspacePieces& pieces) {
  if (ctx.input_constant(place)) return packers.request(ctx, work, place, {filters});
  LaidOut laid;
  laid.lines = pieces.add(filters.bytes());
  const std::int64_t words = filters.laid_channels() / kInt8Word;
  device_ops::Walk walk(Dims{filters.all_filters(), filters.taps, words});
  walk.in("w", input(place), DataType::UInt8).out("y", laid.lines, DataType::UInt32);
  walk.define("FLIP", shift_of(filters.type));
  walk.number("filters", filters.filters).number("channels", filters.channels);
  walk.number("laid_filters", filters.laid_filters()).number("words", words);
  walk.number("taps", filters.taps).number("ones", filters.has_ones ? filters.filters : -1);
  walk.name("filters as int8, channels last");
  walk.body = kLayFiltersBody;
  walk.add_to(work.launches());
  if (!wants_sums) return laid;
  laid.sums = pieces.add(filters.all_filters() * kSumBytes);
  add_line_sums(work.launches(), filters.all_filters(), filters.line(), laid.lines, laid.sums);
  return laid;
}

void add_lay_image(device_ops::Work& work, const Image& image, const Filters& filters,
                   const MemoryRef& from, const MemoryRef* zero, const MemoryRef& to) {
  constexpr std::size_t kAcross = 64, kDown = 4, kTileWords = 8;
  device_ops::LaunchPlan plan;
  plan.source = device_ops::KernelText()
                    .define("FLIP", shift_of(image.type))
                    .define("ZERO", zero != nullptr ? "LOAD(u8, zero, 0)" : "0")
                    .add(kLayImage)
                    .str();
  plan.name = "image as int8, channels last";
  // Where there is no zero point the kernel reads none.
  plan.arg(from, DataType::UInt8).arg(zero != nullptr ? *zero : from, DataType::UInt8);
  plan.arg(to, DataType::UInt32);
  for (const std::int64_t in : image.window.in) plan.scalar(in);
  for (const std::int64_t begin : image.window.pad_begin) plan.scalar(begin);
  for (const std::int64_t number : {image.padded(1), image.padded(2), image.padded_points(),
                                    filters.channels, filters.laid_channels(), filters.groups})
    plan.scalar(number);
  const auto words = static_cast<std::size_t>(filters.groups * filters.laid_channels() / kInt8Word);
  plan.items = {static_cast<std::size_t>(image.padded_points()),
                (words + kTileWords - 1) / kTileWords * kDown,
                static_cast<std::size_t>(image.images)};
  plan.group = {kAcross, kDown, 1};
  work.add(std::move(plan));
}

Convolution library_form(const Image& image, const Filters& filters, std::size_t rank) {
  Convolution form;
  form.type = DataType::Int8;
  form.rank = std::max<std::size_t>(rank, 2);  // one axis is two, the first of one element
  form.batch = image.images;
  form.groups = filters.groups;
  form.channels = filters.groups * filters.laid_channels();
  form.filters = filters.all_filters();
  form.is_channels_last = true;
  for (std::size_t axis = 0; axis < form.rank; ++axis) {
    const std::size_t from = axis + 3 - form.rank;
    form.in[axis] = image.padded(from);
    form.out[axis] = image.window.out[from];
    form.kernel[axis] = image.window.kernel[from];
    form.stride[axis] = image.window.stride[from];
    form.dilation[axis] = image.window.dilation[from];
  }
  return form;
}

}  // namespace backplane::cuda
