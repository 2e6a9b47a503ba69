#include "plugins/cuda/few_channels.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "plugins/common/device_ops/row_form.hpp"
#include "plugins/common/device_ops/types.hpp"
#include "plugins/common/kernels/matrix_units.hpp"
#include "plugins/common/kernels/neighbours.hpp"
#include "plugins/cuda/kernels/few_channels.hpp"
#include "plugins/cuda/own_plan.hpp"

namespace backplane::cuda {
namespace {

using device_ops::ceil_divide;

/// Taps of a step: four channels each are the depth of the unit's product.
constexpr std::int64_t kStepTaps = 4, kPixelBytes = 8;
/// Of the 48 KiB that a kernel may declare; the rest is for what tests declare beside it.
constexpr std::int64_t kMostLocalBytes = std::int64_t{44} << 10;

bool is_for_kernel(const Convolution& form, const DeviceTraits& traits) {
  constexpr int kLeastMajor = 8;
  constexpr std::int64_t kMostChannels = 4, kVector = 8, kMostFilters = 512;
  constexpr std::int64_t kMostWindow = 16, kMostSize = std::int64_t{1} << 24;  // places are ints
  if (traits.major < kLeastMajor || !device_ops::is_half(form.type) || !form.is_channels_last ||
      form.rank != 2 || form.groups != 1 || form.is_transposed)
    return false;
  if (form.channels > kMostChannels || form.filters % kVector != 0 || form.filters > kMostFilters)
    return false;
  for (std::size_t axis = 0; axis < form.rank; ++axis) {
    const bool is_dense = form.dilation[axis] == 1 || form.kernel[axis] == 1;
    if (!is_dense || form.kernel[axis] > kMostWindow || form.stride[axis] > kMostWindow ||
        form.in[axis] > kMostSize || form.out[axis] > kMostSize ||
        std::abs(form.pad_begin[axis]) > kMostSize)
      return false;
  }
  return true;
}

/// Local memory of a multiprocessor that its groups share.
std::int64_t shared_bytes(const DeviceTraits& traits) {
  constexpr int kLastLarge = 10;
  constexpr std::int64_t kLarge = std::int64_t{160} << 10, kSmall = std::int64_t{96} << 10;
  return traits.minor == 0 && traits.major <= kLastLarge ? kLarge : kSmall;
}

/// How many slices a group may have, best first: by what a step of all parts takes. Of a part that is its products, or, with one slice,
/// the local memory of which the pixels are read.
std::vector<std::int64_t> slices_in_order(std::int64_t filters) {
  constexpr std::int64_t kOfPixels = 16, kOfWeights = 4, kOfProducts = 13;  // in clocks, about
  std::vector<std::int64_t> order{4, 2, 1};
  const auto cost = [filters](std::int64_t slices) {
    return ceil_divide(filters, slices * FewChannels::kSliceFilters) *
           std::max(kOfProducts * slices, kOfPixels + kOfWeights * slices);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return cost(a) < cost(b); });
  return order;
}

/// Groups for which a multiprocessor's registers are divided; each item has 8 sums for each slice of a tile.
std::int64_t resident_of(std::int64_t slices) {
  constexpr std::int64_t kMany = 16, kSome = 8, kFew = 4;
  return slices >= kMany ? 3 : slices >= kSome ? 4 : slices >= kFew ? 5 : 6;
}

}  // namespace

std::int64_t FewChannels::parts() const {
  return ceil_divide(form.filters, slices * kSliceFilters);
}
std::int64_t FewChannels::down() const { return ceil_divide(form.out[0], tile_rows()); }
std::int64_t FewChannels::across() const { return ceil_divide(form.out[1], kColumns); }

/// The patch begins at an even pixel, so that where lines have an even number of them two are read at once.
std::int64_t FewChannels::shift() const { return form.pad_begin[1] & 1; }

std::int64_t FewChannels::steps() const {
  return ceil_divide(form.kernel[0] * form.kernel[1], kStepTaps);
}

std::int64_t FewChannels::patch_width() const {
  const std::int64_t needed = (kColumns - 1) * form.stride[1] + form.kernel[1] + shift();
  return needed + (needed & 1);
}

std::int64_t FewChannels::local_bytes() const {
  const std::int64_t rows = (tile_rows() - 1) * form.stride[0] + form.kernel[0];
  const std::int64_t weights = steps() * kStepTaps * slices * kSliceFilters * kPixelBytes;
  return rows * pitch * kPixelBytes + weights +
         slices * kSliceFilters * static_cast<std::int64_t>(sizeof(float));
}

/// How often local memory is asked for the pixels of all steps, of one row of 16 results: 16 lanes at once have those of four results and
/// four taps, of 8 bytes each, and are served together where no two ask the same of its 16 pairs of banks for different ones.
std::int64_t FewChannels::turns_of(std::int64_t wanted) const {
  constexpr std::int64_t kPairs = 16, kResults = 4;
  const std::int64_t taps = form.kernel[0] * form.kernel[1];
  std::int64_t turns = 0;
  for (std::int64_t step = 0; step < steps(); ++step) {
    std::array<std::set<std::int64_t>, kPairs> asked;
    std::size_t most = 0;
    for (std::int64_t lane = 0; lane < kResults * kStepTaps; ++lane) {
      const std::int64_t tap = step * kStepTaps + lane % kStepTaps;
      std::int64_t place = lane / kStepTaps * form.stride[1];
      if (tap < taps) place += tap / form.kernel[1] * wanted + tap % form.kernel[1];
      std::set<std::int64_t>& places = asked[static_cast<std::size_t>(place % kPairs)];
      places.insert(place);
      most = std::max(most, places.size());
    }
    turns += static_cast<std::int64_t>(most);
  }
  return turns;
}

void FewChannels::choose_pitch() {
  constexpr std::int64_t kPeriod = 16;
  pitch = patch_width();
  std::int64_t fewest = turns_of(pitch);
  for (std::int64_t each = pitch + 1; each < patch_width() + kPeriod; ++each) {
    const std::int64_t turns = turns_of(each);
    if (turns >= fewest) continue;
    fewest = turns;
    pitch = each;
  }
}

/// Of what is computed no more than half may lie outside of the results.
bool FewChannels::fits() const {
  return local_bytes() <= kMostLocalBytes &&
         2 * form.out[0] * form.out[1] >= down() * tile_rows() * across() * kColumns &&
         all_tiles() <= std::numeric_limits<std::int32_t>::max();
}

std::optional<FewChannels> FewChannels::of(const Convolution& form, const DeviceTraits& traits) {
  constexpr std::int64_t kMostTiles = 4, kGroupsOfEach = 2;
  if (!is_for_kernel(form, traits)) return std::nullopt;
  std::optional<FewChannels> found;
  for (const std::int64_t slices : slices_in_order(form.filters)) {
    // As many results as fit share what is read of the weights, unless that leaves multiprocessors idle.
    for (std::int64_t tiles = kMostTiles; tiles >= 1; tiles /= 2) {
      FewChannels made{form, tiles, slices};
      made.choose_pitch();
      if (!made.fits()) continue;
      made.resident = resident_of(tiles * slices);
      found = made;
      if (made.all_tiles() * made.parts() >= kGroupsOfEach * traits.multiprocessors) break;
    }
    if (found) break;
  }
  return found;
}

bool FewChannels::is_worthwhile() const {
  constexpr std::int64_t kLeastResults = 2048;
  return form.batch * form.out[0] * form.out[1] >= kLeastResults;
}

std::int64_t FewChannels::groups(const DeviceTraits& traits) const {
  constexpr std::int64_t kReserved = 1024;  // that the system takes of local memory for each
  const std::int64_t fitting =
      std::min(resident, shared_bytes(traits) / (local_bytes() + kReserved));
  const std::int64_t most = std::max<std::int64_t>(
      1, traits.multiprocessors * std::max<std::int64_t>(1, fitting) / parts());
  const std::int64_t turns = ceil_divide(all_tiles(), most);
  return ceil_divide(all_tiles(), turns);
}

std::string FewChannels::source() const {
  constexpr std::int64_t kMostUnrolled = 16;
  device_ops::KernelText text;
  text.define("T", device_ops::type_code(form.type));
  text.define("WARPS", kWarps).define("TILES", tiles).define("SLICES", slices);
  text.define("RESIDENT", resident).define("CHANNELS", form.channels);
  text.define("ROWS", form.kernel[0]).define("COLUMNS", form.kernel[1]);
  text.define("STRIDE_Y", form.stride[0]).define("STRIDE_X", form.stride[1]);
  text.define("SHIFT", shift()).define("PITCH", pitch);
  text.define("HAS_BIAS", form.has_bias ? 1 : 0).define("HAS_ADDEND", form.has_addend ? 1 : 0);
  text.define("RELU", form.has_relu ? "\".relu\"" : "\"\"");
  text.define("ACTIVATED(v)", form.has_relu ? "((v) < 0 ? 0 : (v))" : "(v)");
  text.define("UNROLL_STEPS", steps() <= kMostUnrolled ? "UNROLL" : "_Pragma(\"unroll 4\")");
  return text.add(common::kNeighbourWords)
      .add(common::kMatrixUnitWords)
      .add(common::kPairWords)
      .add(kFewChannels)
      .str();
}

namespace {

class FewChannelsPlan final : public PreparedConvolution {
 public:
  using How = FewChannels;
  using Prepared = PreparedConvolution;
  static constexpr char kKept[] = "few channels on matrix units";
  static constexpr int kTextNumber = 1;

  FewChannelsPlan(Device& device, const FewChannels& how)
      : kernel_(device.modules().get(how.source())),
        has_bias_(how.form.has_bias),
        has_addend_(how.form.has_addend),
        groups_{static_cast<unsigned>(how.groups(device.traits())),
                static_cast<unsigned>(how.parts()), 1} {
    const Convolution& form = how.form;
    const std::int64_t left = form.pad_begin[1] + (form.pad_begin[1] & 1);
    const std::array<std::int64_t, kNumbers> numbers{
        form.in[0], form.in[1], form.out[0],  form.out[1],     form.filters, form.pad_begin[0],
        left,       how.down(), how.across(), how.all_tiles(), groups_[0]};
    std::transform(numbers.begin(), numbers.end(), numbers_.begin(),
                   [](std::int64_t number) { return static_cast<std::int32_t>(number); });
  }
  std::uint64_t workspace_bytes() const override { return 0; }
  std::string kept() const override { return kKept; }
  const char* own_name() const override { return "tensor cores, few channels"; }

 private:
  static constexpr std::size_t kNumbers = 11;

  void put_on(KernelQueue& queue, const ConvolutionAddresses& at) const override {
    // What there is none of is not read.
    LaunchArguments arguments;
    arguments.tensor(at.x).tensor(at.w).tensor(has_bias_ ? at.bias : at.x);
    arguments.tensor(has_addend_ ? at.addend : at.x).tensor(at.y);
    for (const std::int32_t number : numbers_) arguments.add(number);
    constexpr unsigned kItems = 32 * FewChannels::kWarps;
    queue.launch(*kernel_, groups_, {kItems, 1, 1}, arguments.finish());
  }

  std::shared_ptr<const Kernel> kernel_;
  bool has_bias_, has_addend_;
  Extent groups_;
  std::array<std::int32_t, kNumbers> numbers_{};
};

}  // namespace

std::unique_ptr<ConvolutionLibrary> with_few_channels(Device& device,
                                                      std::unique_ptr<ConvolutionLibrary> library) {
  if (library == nullptr) return nullptr;
  return std::make_unique<WithOwnPlan<ConvolutionLibrary, FewChannelsPlan>>(device,
                                                                            std::move(library));
}

}  // namespace backplane::cuda
