// Conv, ConvTranspose, and FusedConv of a rewrite, by cuDNN, or of few channels by a kernel of the provider's own (few_channels.hpp):
// https://onnx.ai/onnx/operators/onnx__Conv.html
//
// What a FusedConv adds and its Relu are part of the library's plan where it has one for all of them, and otherwise a
// kernel after the convolution.
#include <algorithm>

#include "op_table.hpp"
#include "plugins/common/device_ops/types.hpp"
#include "plugins/common/device_ops/window.hpp"
#include "plugins/cuda/convolution_work.hpp"
#include "plugins/cuda/kernel.hpp"

namespace backplane::cuda {
namespace {

using device_ops::Window;

class Conv {
 public:
  Conv(const Device& device, const sdk::Node& node)
      : attributes_(node),
        groups_(node.get_int("group", 1)),
        is_transposed_(node.op_type() == "ConvTranspose"),
        has_relu_(node.get_string("activation", "") == "Relu"),
        is_channels_last_(node.get_int("channels_last", 0) != 0),
        precision_(device.settings().precision.of(node)) {
    const std::string activation = node.get_string("activation", "");
    if (!activation.empty() && !has_relu_)
      sdk::unsupported("activation '", activation, "' after a convolution; Relu can be done");
  }

  void prepare(sdk::PrepareContext& ctx, NodeWork& work) const {
    if (is_transposed_) return prepare_transposed(ctx, work);
    const sdk::Tensor x = ctx.input(0);
    const Dims image = channels_first(x.dims()), filter = channels_first(ctx.input(1).dims());
    if (image.size() < 3 || filter.size() != image.size() || image[1] != filter[1] * groups_ ||
        filter[0] % groups_ != 0)
      sdk::invalid("Conv of ", to_string(x.dims()), " with weights ",
                   to_string(ctx.input(1).dims()), " in ", groups_, " groups",
                   is_channels_last_ ? ", channels last" : "");
    const Window window = attributes_.resolve(DimsView(image.data() + 2, image.size() - 2),
                                              DimsView(filter.data() + 2, filter.size() - 2));
    Dims dims = device_ops::output_dims(image, filter[0], window);
    if (is_channels_last_) std::rotate(dims.begin() + 1, dims.begin() + 2, dims.end());
    ctx.set_output(0, x.type(), dims);
    if (sdk::element_count(dims) == 0) return;
    Convolution form = form_of(x.type(), image, filter[0], window);
    form.has_bias = ctx.input(2).present();
    form.has_addend = ctx.input(3).present();
    form.has_relu = has_relu_;
    if (x.size() == 0) return add_sums_of_nothing(ctx, work, form, dims);
    if (x.type() == DataType::Float) form.precision = precision_;
    add(ctx, work, form, dims);
    const auto sums =
        static_cast<std::uint64_t>(sdk::element_count(dims) * filter[1] * window.taps());
    ctx.set_cost(2 * sums, x.bytes() + ctx.input(1).bytes());
  }

 private:
  void prepare_transposed(sdk::PrepareContext& ctx, NodeWork& work) const {
    const sdk::Tensor x = ctx.input(0), w = ctx.input(1);
    const Dims image = channels_first(x.dims()), filter = channels_first(w.dims());
    if (image.size() < 3 || filter.size() != image.size() || image[1] != filter[0] ||
        filter[0] % groups_ != 0)
      sdk::invalid("ConvTranspose of ", to_string(x.dims()), " with weights ", to_string(w.dims()),
                   " in ", groups_, " groups", is_channels_last_ ? ", channels last" : "");
    const std::int64_t filters = filter[1] * groups_;
    Window window = attributes_.resolve_transposed(DimsView(image.data() + 2, image.size() - 2),
                                                   DimsView(filter.data() + 2, filter.size() - 2));
    Dims dims = device_ops::output_dims(image, filters, window);
    if (is_channels_last_) std::rotate(dims.begin() + 1, dims.begin() + 2, dims.end());
    ctx.set_output(0, x.type(), dims);
    if (sdk::element_count(dims) == 0) return;
    Convolution form = form_of(x.type(), image, filters, window);
    form.is_transposed = true;
    form.has_bias = ctx.input(2).present();
    if (x.size() == 0) return add_sums_of_nothing(ctx, work, form, dims);
    for (std::size_t axis = 0; axis < window.in.size(); ++axis) set_gradient_pads(window, axis);
    set_window(window, form);
    if (x.type() == DataType::Float) form.precision = precision_;
    add(ctx, work, form, dims);
    const auto sums = static_cast<std::uint64_t>(x.size() * filter[1] * window.taps());
    ctx.set_cost(2 * sums, x.bytes() + w.bytes());
  }

  /// The padding with which a convolution of the result has the input's size: the library knows no output_padding.
  static void set_gradient_pads(Window& window, std::size_t axis) {
    const std::int64_t in = window.in[axis], out = window.out[axis], stride = window.stride[axis],
                       begin = window.pad_begin[axis];
    const std::int64_t reach = (window.kernel[axis] - 1) * window.dilation[axis] + 1;
    const std::int64_t end = std::max<std::int64_t>(0, (in - 1) * stride + reach - out - begin);
    const std::int64_t span = out + begin + end - reach;
    if (begin < 0 || span < 0 || span / stride + 1 != in)
      sdk::unsupported("a transposed convolution from ", in, " to ", out, " elements by ", reach,
                       " with stride ", stride, ", which is no convolution's gradient");
    window.pad_end[axis] = end;
  }

  /// Dims with the channels behind the batch, as ONNX has them.
  Dims channels_first(DimsView from) const {
    Dims dims(from.begin(), from.end());
    if (is_channels_last_ && dims.size() > 2)
      std::rotate(dims.begin() + 1, dims.end() - 1, dims.end());
    return dims;
  }

  /// One spatial axis is two, the first of one element.
  Convolution form_of(DataType type, const Dims& image, std::int64_t filters,
                      const Window& window) const {
    Convolution form;
    form.type = type;
    form.rank = image.size() == 5 ? 3 : 2;
    form.batch = image[0];
    form.channels = image[1];
    form.filters = filters;
    form.groups = groups_;
    form.is_channels_last = is_channels_last_;
    set_window(window, form);
    return form;
  }

  static void set_window(const Window& window, Convolution& form) {
    const std::size_t skipped = 3 - form.rank;
    const auto take = [skipped, &form](const std::array<std::int64_t, 3>& from,
                                       std::array<std::int64_t, 3>& to) {
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(skipped), form.rank, to.begin());
    };
    take(window.in, form.in);
    take(window.kernel, form.kernel);
    take(window.out, form.out);
    take(window.stride, form.stride);
    take(window.dilation, form.dilation);
    take(window.pad_begin, form.pad_begin);
    take(window.pad_end, form.pad_end);
  }

  static void add(sdk::PrepareContext& ctx, NodeWork& work, const Convolution& whole,
                  const Dims& dims) {
    std::string why;
    std::unique_ptr<ConvolutionWork> part = try_add(ctx, work, whole, why);
    bool is_whole = part != nullptr;
    Convolution bare = whole;
    bare.has_bias = bare.has_addend = bare.has_relu = false;
    // What takes its time to plan is planned only where both ways can be compared. The provider's own kernel has been compared with
    // what the library does whole, and has nothing to gain apart.
    const std::uint64_t whole_ns =
        is_whole && whole.is_fused() && whole.channels <= kFewChannels &&
                part->own_name() == nullptr
            ? work.device().convolutions().fastest_ns(whole, work.choosing())
            : 0;
    if (!is_whole && whole.is_fused()) {
      part = try_add(ctx, work, bare, why);
    } else if (whole_ns > 0) {
      std::unique_ptr<ConvolutionWork> apart = try_add(ctx, work, bare, why);
      if (apart != nullptr && pays_apart(work, whole, bare, whole_ns)) {
        part = std::move(apart);
        is_whole = false;
      }
    }
    if (part == nullptr)
      sdk::unsupported("cuDNN has no plan within ", kConvolutionWorkspace >> 20,
                       " MiB of workspace for the convolution ", bare.key(), ": ", why);
    if (part->workspace_bytes() > 0)
      ctx.set_workspace(part->workspace_bytes(), work.device().limits().alignment);
    const char* const own_name = part->own_name();
    work.add(std::move(part));
    if (!is_whole) finish(work, whole, dims, {device_ops::dense_view(output(0), whole.type, dims)});
    ctx.set_variant(sdk::message(own_name != nullptr ? own_name : "cudnn",
                                 !whole.is_fused() ? ""
                                 : is_whole        ? ", fused"
                                                   : ", then",
                                 is_whole ? "" : " pointwise",
                                 whole.is_channels_last ? ", channels last" : ""));
  }

  /// cuDNN has kernels for the first layer of a network, which do nothing but the convolution, and are more than twice as fast as
  /// those that fuse what follows (3 channels, 7 x 7, batch 32 on an H100: 86 us and 193 us): then it pays to do that apart.
  static bool pays_apart(NodeWork& work, const Convolution& whole, const Convolution& bare,
                         std::uint64_t whole_ns) {
    const std::uint64_t bare_ns = work.device().convolutions().fastest_ns(bare, work.choosing());
    const double rate = kReachedShare * work.device().traits().memory_bytes_per_ns;
    if (bare_ns == 0 || rate <= 0) return false;
    const std::vector<std::uint64_t> bytes = operand_bytes(whole);
    const std::uint64_t moved = 2 * bytes[4] + bytes[3];
    return static_cast<double>(bare_ns) + kLaunchNs + static_cast<double>(moved) / rate <
           static_cast<double>(whole_ns);
  }

  static std::unique_ptr<ConvolutionWork> try_add(const sdk::PrepareContext& ctx, NodeWork& work,
                                                  const Convolution& form, std::string& why) {
    ConvolutionPlaces places;
    places.w_is_constant = ctx.input_constant(1);
    return ConvolutionWork::find(work.device(), work.label(), form, places, work.choosing(), why);
  }

  /// Of an image of no elements only its padding is seen.
  static void add_sums_of_nothing(sdk::PrepareContext& ctx, NodeWork& work, const Convolution& form,
                                  const Dims& dims) {
    finish(work, form, dims, {});
    ctx.set_variant("no elements");
  }

  /// Bias, addend and Relu. The first operand, where there is one, is what they are applied to.
  static void finish(NodeWork& work, const Convolution& form, const Dims& dims,
                     std::vector<device_ops::View> operands) {
    std::string sum = operands.empty() ? "0" : "v0";
    const auto add = [&](const device_ops::View& view) {
      sum += sdk::message(" + v", operands.size());
      operands.push_back(view);
    };
    if (form.has_bias) {
      Dims row(form.is_channels_last ? 1 : dims.size() - 1, 1);
      row[0] = form.filters;
      add(device_ops::broadcast_view(input(2), form.type, row, dims));
    }
    if (form.has_addend) add(device_ops::dense_view(input(3), form.type, dims));
    if (form.has_relu) sum = sdk::message("(", sum, ") > 0 ? (", sum, ") : 0");
    device_ops::add_pointwise(work.launches(), dims, operands,
                              device_ops::dense_view(output(0), form.type, dims), {sum, "", {}});
  }

  static constexpr std::int64_t kFewChannels = 4;
  static constexpr double kReachedShare = 0.85, kLaunchNs = 2000;  // of element-wise kernels

  device_ops::WindowAttributes attributes_;
  std::int64_t groups_;
  bool is_transposed_, has_relu_, is_channels_last_;
  Precision precision_;
};

}  // namespace

KernelList conv_kernels() {
  return {
      cuda_kernel<Conv>(sdk::op("Conv")
                            .name(kernel_name("conv"))
                            .types("T", device_ops::float_types())
                            .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_DATA})),
      cuda_kernel<Conv>(sdk::op("ConvTranspose")
                            .name(kernel_name("cudnn conv transpose"))
                            .types("T", device_ops::float_types())
                            .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_DATA})),
      cuda_kernel<Conv>(
          sdk::op("FusedConv", private_domain())
              .name(kernel_name("conv"))
              .input_types(0, {DataType::Float, DataType::Float16, DataType::BFloat16})
              .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_DATA})),
      cuda_kernel<Conv>(
          sdk::op("ConvTranspose", private_domain())
              .name(kernel_name("cudnn conv transpose"))
              .input_types(0, {DataType::Float, DataType::Float16, DataType::BFloat16})
              .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_DATA})),
  };
}

}  // namespace backplane::cuda
