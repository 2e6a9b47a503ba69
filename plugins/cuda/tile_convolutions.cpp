#include "plugins/cuda/tile_convolutions.hpp"

#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "plugins/common/device_ops/types.hpp"
#include "plugins/cuda/device.hpp"

namespace backplane::cuda {
namespace {

constexpr std::string_view kKept = "tiles ";

/// Whether a pixel of the result is one of the image's: then the image is the left matrix as it lies.
bool is_pointwise(const Convolution& form) {
  for (std::size_t axis = 0; axis < form.rank; ++axis) {
    if (form.kernel[axis] != 1 || form.stride[axis] != 1 || form.pad_begin[axis] != 0 ||
        form.pad_end[axis] != 0)
      return false;
  }
  return true;
}

std::int64_t last_tap(const Convolution& form, std::size_t axis) {
  return (form.kernel[axis] - 1) * form.dilation[axis];
}

/// What the copies of pixels take: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TENSOR__MEMORY.html
bool takes_window(const Convolution& form) {
  constexpr std::int64_t kMostStride = 8, kMostOffset = 255, kLeast = -128, kMost = 127;
  for (std::size_t axis = 0; axis < form.rank; ++axis) {
    const std::int64_t lower = -form.pad_begin[axis],
                       upper = form.pad_end[axis] - last_tap(form, axis);
    const std::int64_t span = form.in[axis] - 1 + upper - lower;
    if (form.stride[axis] > kMostStride || last_tap(form, axis) > kMostOffset || lower < kLeast ||
        lower > kMost || upper < kLeast || upper > kMost || span < 0 ||
        span / form.stride[axis] + 1 != form.out[axis])
      return false;
  }
  return true;
}

class PreparedTileConvolution final : public PreparedConvolution {
 public:
  PreparedTileConvolution(Device& device, const TileConvolution& convolution, const TileForm& form)
      : context_(device.context()),
        kernel_(device, form, convolution.text, convolution.sizes),
        convolution_(convolution),
        form_(form),
        way_(way_of(form)) {}

  std::uint64_t workspace_bytes() const override { return 0; }
  std::string kept() const override { return sdk::message(kKept, form_.word()); }
  const char* own_name() const override { return way_.c_str(); }

 private:
  void put_on(KernelQueue& queue, const ConvolutionAddresses& at) const override {
    const auto [rows, columns, depth, matrices] = convolution_.sizes;
    const Convolution& form = convolution_.form;
    TileOperands operands;
    operands.a = convolution_.text.has_pixels
                     ? context_.describe_pixels(convolution_.image(at.x, form_))
                     : context_.describe(matrix(at.x, depth, rows, form_.rows()));
    operands.b = context_.describe(matrix(at.w, depth, columns, form_.columns));
    operands.made = matrix(at.y, columns, rows, form_.result_rows());
    operands.added = operands.made;
    if (form.has_addend) operands.added.address = at.addend;
    operands.y = context_.describe(operands.made);
    operands.c = form.has_addend ? context_.describe(operands.added) : operands.y;
    operands.bias = form.has_bias ? at.bias : at.y;
    operands.has_bias = form.has_bias;
    operands.b_is_constant = at.w_is_constant;
    operands.pixels = convolution_.pixels;
    kernel_.enqueue(queue, operands);
  }
  BoxedMatrices matrix(Address address, std::int64_t columns, std::int64_t rows,
                       std::int64_t box_rows) const {
    return boxed_matrix(address, convolution_.text.type, columns, rows, columns, box_rows);
  }

  Context& context_;
  TileKernel kernel_;
  TileConvolution convolution_;
  TileForm form_;
  std::string way_;
};

class TileConvolutions final : public ConvolutionLibrary {
 public:
  TileConvolutions(Device& device, std::unique_ptr<ConvolutionLibrary> library)
      : device_(device), library_(std::move(library)) {}

  std::string version() override { return library_->version() + ", tiles 3"; }

  void begin(const Convolution& form) override {
    library_->begin(form);
    const std::optional<TileConvolution> tiled = find(form);
    for (const TileForm& each : forms_for(tiled)) prepared(*tiled, each);
  }

  void make_ready(const Convolution& form) override { library_->make_ready(form); }

  std::string offer(const Convolution& form, std::uint64_t workspace_limit,
                    const Taker& take) override {
    const std::optional<TileConvolution> tiled = find(form);
    for (const TileForm& each : forms_for(tiled)) {
      const std::shared_ptr<const PreparedConvolution> plan = prepared(*tiled, each);
      if (plan != nullptr && take(plan)) return "";
    }
    return library_->offer(form, workspace_limit, take);
  }

  std::shared_ptr<const PreparedConvolution> restore(const Convolution& form,
                                                     const std::string& kept) override {
    if (kept.rfind(kKept, 0) != 0) return library_->restore(form, kept);
    std::uint64_t word = 0;
    std::from_chars(kept.data() + kKept.size(), kept.data() + kept.size(), word);
    const std::optional<TileConvolution> tiled = find(form);
    for (const TileForm& each : forms_for(tiled)) {
      if (each.word() == word) return prepared(*tiled, each);
    }
    return nullptr;
  }

 private:
  std::optional<TileConvolution> find(const Convolution& form) const {
    const std::optional<TileConvolution> tiled = TileConvolution::of(form, device_.traits());
    return tiled && tiled->is_worthwhile() ? tiled : std::nullopt;
  }
  std::vector<TileForm> forms_for(const std::optional<TileConvolution>& tiled) const {
    if (!tiled) return {};
    return tile_forms(tiled->sizes, device_.traits().multiprocessors, kMostTileForms);
  }
  /// Null where the compiler or the driver does not take it: then the library's plans are left.
  std::shared_ptr<const PreparedConvolution> prepared(const TileConvolution& tiled,
                                                      const TileForm& how) const {
    try {
      return to_plan(device_, tiled, how);
    } catch (const sdk::Error& error) {
      if (error.code() != BP_INTERNAL) throw;
    }
    return nullptr;
  }

  Device& device_;
  std::unique_ptr<ConvolutionLibrary> library_;
};

}  // namespace

std::optional<TileConvolution> TileConvolution::of(const Convolution& form,
                                                   const DeviceTraits& traits) {
  constexpr std::int64_t kTogether = 8, kStep = 64;
  constexpr std::int64_t kMost = std::int64_t{1} << 24;  // places are ints
  if (!has_tiles(traits) || !device_ops::is_half(form.type) || !form.is_channels_last ||
      form.rank != 2 || form.groups != 1 || form.is_transposed ||
      form.alignment % kLibraryAlignment != 0)
    return std::nullopt;
  TileConvolution made{form, {}, {}, {}};
  const bool has_pixels = !is_pointwise(form);
  // A step of the depth is of one tap.
  if (form.filters % kTogether != 0 || form.channels % (has_pixels ? kStep : kTogether) != 0 ||
      (has_pixels && !takes_window(form)))
    return std::nullopt;
  const std::int64_t out_pixels = form.out[0] * form.out[1];
  made.sizes = {form.batch * out_pixels, form.filters,
                form.channels * form.kernel[0] * form.kernel[1], 1};
  for (const std::int64_t size : {made.sizes.rows, made.sizes.columns, made.sizes.depth, form.in[0],
                                  form.in[1], form.batch}) {
    if (size < 1 || size > kMost) return std::nullopt;
  }
  made.text = {form.type, true, has_pixels, form.has_relu ? Epilogue::kRelu : Epilogue::kNone,
               form.has_addend};
  if (has_pixels) {
    made.pixels = {out_pixels,
                   form.out[1],
                   form.channels,
                   form.kernel[1],
                   {form.stride[0], form.stride[1]},
                   {form.pad_begin[0], form.pad_begin[1]},
                   {form.dilation[0], form.dilation[1]}};
  }
  return made;
}

bool TileConvolution::is_worthwhile() const {
  constexpr std::int64_t kLeastRows = 32, kLeastProducts = std::int64_t{1} << 22;
  return sizes.rows >= kLeastRows && sizes.rows * sizes.columns * sizes.depth >= kLeastProducts;
}

BoxedPixels TileConvolution::image(Address address, const TileForm& how) const {
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  return {
      address,
      form.type,
      form.channels,
      form.in[1],
      form.in[0],
      form.batch,
      {number(-form.pad_begin[1]), number(-form.pad_begin[0])},
      {number(form.pad_end[1] - last_tap(form, 1)), number(form.pad_end[0] - last_tap(form, 0))},
      {static_cast<std::uint32_t>(form.stride[1]), static_cast<std::uint32_t>(form.stride[0])},
      static_cast<std::uint32_t>(how.rows())};
}

std::shared_ptr<const PreparedConvolution> to_plan(Device& device,
                                                   const TileConvolution& convolution,
                                                   const TileForm& form) {
  return std::make_shared<const PreparedTileConvolution>(device, convolution, form);
}

std::unique_ptr<ConvolutionLibrary> with_tile_convolutions(
    Device& device, std::unique_ptr<ConvolutionLibrary> library) {
  if (library == nullptr) return nullptr;
  return std::make_unique<TileConvolutions>(device, std::move(library));
}

}  // namespace backplane::cuda
