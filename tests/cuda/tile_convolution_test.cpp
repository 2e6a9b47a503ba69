// Convolutions by tiles on warpgroups: what the kernel's text computes on the processor (warpgroups.hpp), and for which forms.
#include "plugins/cuda/tile_convolutions.hpp"
#include "tests/cuda/host_kernels.hpp"
#include "tests/cuda/node_on_device.hpp"
#include "tests/cuda/product_case.hpp"

namespace backplane::cuda {
namespace {

/// A convolution of images of [height, width], channels last.
struct Layer {
  std::int64_t batch = 1, channels = 64, filters = 8;
  std::array<std::int64_t, 2> in{7, 9}, kernel{3, 3}, stride{1, 1}, dilation{1, 1}, begin{1, 1},
      end{1, 1};
  bool has_addend = false, has_relu = true;
  DataType type = DataType::Float16;

  Convolution form() const {
    Convolution made;
    made.type = type;
    made.batch = batch;
    made.channels = channels;
    made.filters = filters;
    for (std::size_t axis = 0; axis < 2; ++axis) {
      made.in[axis] = in[axis];
      made.kernel[axis] = kernel[axis];
      made.stride[axis] = stride[axis];
      made.dilation[axis] = dilation[axis];
      made.pad_begin[axis] = begin[axis];
      made.pad_end[axis] = end[axis];
      made.out[axis] =
          (in[axis] + begin[axis] + end[axis] - (kernel[axis] - 1) * dilation[axis] - 1) /
              stride[axis] +
          1;
    }
    made.has_bias = made.is_channels_last = true;
    made.has_addend = has_addend;
    made.has_relu = has_relu;
    return made;
  }
};

class CudaTileConvolution : public CudaProcessTest {
 protected:
  /// Runs a form, and compares with sums of doubles.
  static void expect_right(Device& device, const Layer& layer, const TileForm& how) {
    const Convolution form = layer.form();
    const std::optional<TileConvolution> tiled = TileConvolution::of(form, device.traits());
    ASSERT_TRUE(tiled) << form.key();
    const std::int64_t pixels = form.out[0] * form.out[1], taps = form.kernel[0] * form.kernel[1];
    const Elements x(form.type, form.batch * form.in[0] * form.in[1] * form.channels, 0, 1);
    const Elements w(form.type, form.filters * taps * form.channels, 0, 2);
    const Elements bias(form.type, form.filters, 0, 3);
    const Elements addend(form.type, form.batch * pixels * form.filters, 0, 4);
    const Elements y(form.type, form.batch * pixels * form.filters, 0, 5);
    const StreamHandle stream = device.context().create_stream();
    PlainQueue queue(device.context(), stream);
    to_plan(device, *tiled, how)
        ->enqueue(queue,
                  {x.address(), w.address(), bias.address(), addend.address(), y.address(), 0});
    device.context().destroy_stream(stream);
    for (std::int64_t i = 0; i < y.count(); ++i) {
      const std::int64_t filter = i % form.filters, pixel = i / form.filters % pixels,
                         image = i / form.filters / pixels;
      double sum = bias.made(filter), size = 1;
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const std::int64_t v = pixel / form.out[1] * form.stride[0] - form.pad_begin[0] +
                               tap / form.kernel[1] * form.dilation[0];
        const std::int64_t u = pixel % form.out[1] * form.stride[1] - form.pad_begin[1] +
                               tap % form.kernel[1] * form.dilation[1];
        if (v < 0 || v >= form.in[0] || u < 0 || u >= form.in[1]) continue;
        for (std::int64_t c = 0; c < form.channels; ++c) {
          const double term =
              x.made(((image * form.in[0] + v) * form.in[1] + u) * form.channels + c) *
              w.made((filter * taps + tap) * form.channels + c);
          sum += term;
          size += std::abs(term);
        }
      }
      if (form.has_addend) sum += addend.made(i);
      if (form.has_relu) sum = std::max(sum, 0.0);
      const double relative = form.type == DataType::Float16 ? 0x1p-11 : 0x1p-8;
      ASSERT_NEAR(y.now(i), sum, relative * std::abs(sum) + 1e-6 * size)
          << i << ": " << form.key() << ": " << way_of(how);
    }
  }
  void expect_right(Device& device, const Layer& layer) {
    const TileSizes sizes = TileConvolution::of(layer.form(), device.traits())->sizes;
    for (const TileForm form : {TileForm{64, 1, 1, 3}, TileForm{128, 2, 2, 1}})
      expect_right(device, layer, form);
    constexpr std::array<TileForm, 3> kInParts{
        {{64, 2, 1, 1, 2}, {128, 2, 2, 1, 4}, {64, 1, 1, 1, 2}}};
    TileForm form = kInParts[in_parts_++ % kInParts.size()];
    ASSERT_TRUE(form.takes(sizes)) << layer.form().key();
    for (form.direct = 0; form.direct < 2; ++form.direct) expect_right(device, layer, form);
  }

 private:
  std::size_t in_parts_ = 0;
};

TEST_F(CudaTileConvolution, WindowsOfEveryKindAreRight) {
  run_kernels_on_host();
  const std::unique_ptr<Device> device = new_process();
  Layer same;
  same.filters = 72;
  same.in = {3, 5};
  expect_right(*device, same);
  Layer stepping = same;
  stepping.stride = {2, 3};
  stepping.begin = {0, 1};
  stepping.end = {1, 2};
  stepping.in = {9, 14};
  stepping.filters = 16;
  stepping.has_addend = true;
  stepping.type = DataType::BFloat16;
  expect_right(*device, stepping);
  Layer wide = same;
  wide.kernel = {2, 5};
  wide.dilation = {3, 2};
  wide.begin = {0, 4};
  wide.end = {3, 4};
  wide.in = {4, 9};
  wide.filters = 8;
  wide.batch = 2;
  wide.has_relu = false;
  expect_right(*device, wide);
  Layer cut = same;  // of which the first row and the last column are not seen
  cut.begin = {-1, 1};
  cut.end = {1, -1};
  expect_right(*device, cut);
}

TEST_F(CudaTileConvolution, SinglePixelsAreAMatrixAsTheyLie) {
  run_kernels_on_host();
  const std::unique_ptr<Device> device = new_process();
  Layer pointwise;
  pointwise.kernel = {1, 1};
  pointwise.begin = pointwise.end = {0, 0};
  pointwise.in = {13, 11};
  pointwise.channels = 200;
  pointwise.filters = 40;
  pointwise.has_addend = true;
  EXPECT_FALSE(TileConvolution::of(pointwise.form(), device->traits())->text.has_pixels);
  expect_right(*device, pointwise);
  pointwise.stride = {2, 1};
  EXPECT_FALSE(TileConvolution::of(pointwise.form(), device->traits()));
  pointwise.channels = 512;
  EXPECT_TRUE(TileConvolution::of(pointwise.form(), device->traits())->text.has_pixels);
  expect_right(*device, pointwise);
}

TEST_F(CudaTileConvolution, WindowsBeginAndEndWhereTheCopiesOfPixelsHaveThem) {
  Layer layer;
  layer.in = {20, 30};
  layer.kernel = {3, 5};
  layer.dilation = {2, 1};
  layer.begin = {1, 2};
  layer.end = {4, 3};
  layer.stride = {1, 2};
  const TileConvolution tiled = *TileConvolution::of(layer.form(), stand_in_device());
  const BoxedPixels image = tiled.image(0x1000, TileForm{64, 2, 1, 1});
  EXPECT_EQ(image.lower, (std::array<int, 2>{-2, -1}));
  EXPECT_EQ(image.upper, (std::array<int, 2>{-1, 0}));
  EXPECT_EQ(image.stride, (std::array<std::uint32_t, 2>{2, 1}));
  EXPECT_EQ(image.width, 30);
  EXPECT_EQ(image.height, 20);
  EXPECT_EQ(image.box_pixels, 128u);
}

TEST_F(CudaTileConvolution, WhatTheCopiesDoNotTakeIsTheLibrarys) {
  const Convolution right = Layer{}.form();
  EXPECT_TRUE(TileConvolution::of(right, stand_in_device()));
  const auto is_refused = [&](const std::function<void(Convolution&)>& change) {
    Convolution each = right;
    change(each);
    return !TileConvolution::of(each, stand_in_device());
  };
  EXPECT_TRUE(is_refused([](auto& c) { c.type = DataType::Float; }));
  EXPECT_TRUE(is_refused([](auto& c) { c.is_channels_last = false; }));
  EXPECT_TRUE(is_refused([](auto& c) { c.groups = 2; }));
  EXPECT_TRUE(is_refused([](auto& c) { c.is_transposed = true; }));
  EXPECT_TRUE(is_refused([](auto& c) { c.rank = 3; }));
  EXPECT_TRUE(is_refused([](auto& c) { c.channels = 32; }));
  EXPECT_TRUE(is_refused([](auto& c) { c.filters = 12; }));
  EXPECT_TRUE(is_refused([](auto& c) { c.alignment = 2; }));
  EXPECT_TRUE(is_refused([](auto& c) { c.pad_end[0] = 7; }));  // more than makes these results
  EXPECT_FALSE(TileConvolution::of(right, stand_in_device(8, 0)));
  Layer far;
  far.dilation = {200, 1};
  far.in = {600, 9};
  EXPECT_FALSE(TileConvolution::of(far.form(), stand_in_device()));
  Layer jumping;
  jumping.stride = {9, 1};
  jumping.in = {100, 9};
  EXPECT_FALSE(TileConvolution::of(jumping.form(), stand_in_device()));
}

TEST_F(CudaTileConvolution, WhereTheKernelDoesNotCompileTheLibrarysPlansAreLeft) {
  const std::unique_ptr<Device> device = new_process();
  Layer layer;
  layer.in = {40, 40};
  layer.filters = 64;
  const std::unique_ptr<ConvolutionLibrary> library =
      with_tile_convolutions(*device, load_stand_in_engine()->open_convolutions(device->context()));
  // An image that the driver does not take, for each of the forms, and again when they are offered.
  stand_in().failures["load"] =
      std::vector<std::string>(2 * kMostTileForms, "CUDA_ERROR_INVALID_IMAGE");
  library->begin(layer.form());
  std::shared_ptr<const PreparedConvolution> first;
  library->offer(layer.form(), 0, [&](auto plan) { return first = std::move(plan), true; });
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->own_name(), nullptr);
  stand_in().failures["load"] = {"CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_OUT_OF_MEMORY"};
  EXPECT_THROW(library->begin(layer.form()), sdk::Error);
}

TEST_F(CudaTileConvolution, WhatWasTakenIsKept) {
  const std::unique_ptr<Device> device = new_process();
  Layer layer;
  layer.in = {40, 40};
  layer.filters = 64;
  const Convolution form = layer.form();
  std::shared_ptr<const PreparedConvolution> first;
  const std::unique_ptr<ConvolutionLibrary> library =
      with_tile_convolutions(*device, load_stand_in_engine()->open_convolutions(device->context()));
  library->offer(form, 0, [&](auto plan) { return first = std::move(plan), true; });
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->kept().rfind("tiles ", 0), 0u);
  const std::shared_ptr<const PreparedConvolution> again = library->restore(form, first->kept());
  ASSERT_NE(again, nullptr);
  EXPECT_STREQ(again->own_name(), first->own_name());
  EXPECT_EQ(library->restore(form, "tiles 77"), nullptr);
  EXPECT_EQ(library->restore(form, "tiles x"), nullptr);
}

}  // namespace
}  // namespace backplane::cuda
