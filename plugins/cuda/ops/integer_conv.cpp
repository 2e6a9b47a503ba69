// ConvInteger, QLinearConv, and QuantizedConv of a rewrite, in int8: by cuDNN where it has a plan, and else as products by
// cuBLASLt, for which the image's windows become lines, a line for each point of the output. Windows of one element are such lines
// at no cost, so they are products always. https://onnx.ai/onnx/operators/onnx__QLinearConv.html
#include <algorithm>

#include "op_table.hpp"
#include "plugins/common/device_ops/walk.hpp"
#include "plugins/common/device_ops/window.hpp"
#include "plugins/cuda/convolution_work.hpp"
#include "plugins/cuda/integer_images.hpp"
#include "plugins/cuda/integer_lines.hpp"
#include "plugins/cuda/integer_places.hpp"
#include "plugins/cuda/kernels/integer_lines.hpp"

namespace backplane::cuda {
namespace {

using device_ops::Window;

/// Windows of as many images as fit here, at least of one, are laid out at a time.
constexpr std::int64_t kWindowBytes = std::int64_t{256} << 20;
constexpr std::int64_t kMostTurns = 64;
/// Groups of which the library multiplies each by itself. More are convolved where a group fills a word; others, as in
/// depthwise convolutions, are a kernel's, which reads the image as it lies, not four times as much of it.
constexpr std::int64_t kMostGroups = 16;

class IntegerConv {
 public:
  IntegerConv(const Device&, const sdk::Node& node)
      : places_(node.op_type() == "ConvInteger"   ? kSums
                : node.op_type() == "QLinearConv" ? kScaled
                                                  : kChain),
        attributes_(node),
        groups_(node.get_int("group", 1)),
        has_relu_(node.get_string("activation", "") == "Relu"),
        chain_type_(chain_type(node)) {}

  void prepare(sdk::PrepareContext& ctx, NodeWork& work) const {
    const sdk::Tensor x = ctx.input(0), w = ctx.input(places_.b);
    require_bytes(x, w);
    const Window window = attributes_.resolve_convolution(x, w, groups_);
    const Dims dims = device_ops::output_dims(x.dims(), w.dim(0), window);
    const DataType type = result_type(ctx, places_, chain_type_);
    ctx.set_output(0, type, dims);
    if (sdk::element_count(dims) == 0) return;
    const sdk::Tensor zero = ctx.input(places_.a_zero);
    if (zero.present() && zero.size() != 1)
      sdk::unsupported("a convolution with ", zero.size(), " zero points of its image");
    LineResult result = result_of(ctx, dims, type);
    result.a_shift = shift_of(w.type());
    result.b_shift = shift_of(x.type());
    result.depth = w.dim(1) * window.taps();
    WorkspacePieces pieces(work.device());
    const bool is_product = groups_ <= kMostGroups || places_.is_chain;
    if (x.size() > 0 && (is_product ? window.taps() > 1 : w.dim(1) >= kInt8Word) &&
        add_convolution(ctx, work, window, result, pieces)) {
      ctx.set_variant("cudnn, int8");
    } else if (is_product) {
      ctx.set_variant(add_lines(ctx, work, window, result, pieces));
    } else {
      sdk::unsupported("an int8 convolution in ", groups_, " groups of ", w.dim(1),
                       " channels; products of up to ", kMostGroups, " groups are");
    }
    ctx.set_workspace(pieces.bytes(), work.device().limits().alignment);
    ctx.set_cost(2 * static_cast<std::uint64_t>(sdk::element_count(dims) * result.depth),
                 x.bytes() + w.bytes());
  }

 private:
  /// What is the same for the images of each turn.
  struct Turn {
    DataType x = DataType::Int8;
    bool zero = false;
    Window window;
    std::int64_t channels = 0;
    LineProduct product;
    MemoryRef windows, sums, window_sums;
  };

  /// What is of filters and of the tensor; the sums' places are added for each turn.
  LineResult result_of(const sdk::PrepareContext& ctx, const Dims& dims, DataType type) const {
    LineResult result;
    result.type = type;
    result.has_relu = has_relu_;
    result.is_chain = places_.is_chain;
    result.dims = {dims[0], dims[1], sdk::element_count(dims) / (dims[0] * dims[1])};
    const auto parameter = [&](std::uint32_t place, bool is_of_filters) {
      std::optional<View> view;
      const sdk::Tensor tensor = ctx.input(place);
      if (!tensor.present()) return view;
      if (tensor.size() != 1 && !(is_of_filters && tensor.size() == dims[1]))
        sdk::unsupported("scales or zero points of dims ", to_string(tensor.dims()), " for ",
                         dims[1], " filters");
      view = View{input(place), tensor.type(), Dims{0, tensor.size() == 1 ? 0 : 1, 0}};
      return view;
    };
    // The filters are the product's rows.
    if (!is_known_zero(ctx, places_.b_zero, shift_of(ctx.input(places_.b).type())))
      result.a_zero = parameter(places_.b_zero, true);
    if (!is_known_zero(ctx, places_.a_zero, shift_of(ctx.input(0).type())))
      result.b_zero = parameter(places_.a_zero, false);
    result.a_scale = parameter(places_.a_scale, false);
    result.b_scale = parameter(places_.b_scale, true);
    result.bias = parameter(places_.bias, true);
    result.y_scale = parameter(places_.y_scale, false);
    result.y_zero = parameter(places_.y_zero, false);
    return result;
  }

  /// By the library that convolves. False: it has no plan, and nothing was added.
  bool add_convolution(sdk::PrepareContext& ctx, NodeWork& work, const Window& window,
                       const LineResult& result, WorkspacePieces& pieces) const {
    if (!work.device().convolutions().has_library()) return false;
    const sdk::Tensor x = ctx.input(0), w = ctx.input(places_.b);
    const Image image{x.type(), x.dim(0), window};
    const Filters filters{w.type(), groups_,       w.dim(0) / groups_,
                          w.dim(1), window.taps(), result.has_a_zero()};
    const std::int64_t all = filters.all_filters(), points = window.out_points();
    const Convolution form = library_form(image, filters, x.rank() - 2);
    const ConvolutionWork::Plan plan =
        work.device().convolutions().find(form, work.choosing()).plan;
    if (plan == nullptr) return false;
    ConvolutionPlaces places;
    places.x =
        pieces.add(image.images * image.padded_points() * filters.groups * filters.laid_channels());
    const LaidOut laid = lay_out_filters(ctx, work, filter_packers_, places_.b, filters,
                                         result.has_b_zero(), pieces);
    places.w = laid.lines;
    places.y = pieces.add(image.images * points * all * kSumBytes);
    places.workspace = device_ops::workspace(pieces.bytes());
    const MemoryRef zero = input(places_.a_zero);
    add_lay_image(work.launches(), image, filters, input(0),
                  ctx.input(places_.a_zero).present() ? &zero : nullptr, places.x);
    pieces.add(static_cast<std::int64_t>(plan->workspace_bytes()));
    work.add(std::make_unique<ConvolutionWork>(work.label(), form, places, plan, plan));
    // Sums lie channels last. Filters of groups follow each other where none stand between them.
    const std::int64_t parts = filters.laid_filters() == filters.filters ? 1 : groups_;
    const std::int64_t count = groups_ / parts * filters.filters;
    for (std::int64_t i = 0; i < parts; ++i) {
      const std::int64_t at = i * filters.laid_filters();
      LineResult each = result_of_part(result, {0, image.images, i * count, count});
      each.sums = {moved(places.y, DataType::Int32, at), DataType::Int32, {points * all, 1, all}};
      if (each.has_b_zero())
        each.a_sums = View{moved(laid.sums, DataType::Int32, at), DataType::Int32, {0, 1, 0}};
      if (each.has_a_zero())
        each.b_sums = View{
            moved(places.y, DataType::Int32, at + count), DataType::Int32, {points * all, 0, all}};
      add_result(work.launches(), each);
    }
    return true;
  }

  /// As products of lines; says whose.
  std::string add_lines(sdk::PrepareContext& ctx, NodeWork& work, const Window& window,
                        const LineResult& result, WorkspacePieces& pieces) const {
    const sdk::Tensor x = ctx.input(0), w = ctx.input(places_.b);
    Turn turn;
    turn.x = x.type();
    turn.zero = ctx.input(places_.a_zero).present();
    turn.window = window;
    turn.channels = x.dim(1);
    turn.product.rows = w.dim(0) / groups_;
    turn.product.columns = window.out_points();
    turn.product.out_columns = (turn.product.columns + kInt8Word - 1) / kInt8Word * kInt8Word;
    turn.product.depth = padded_depth(result.depth);
    Lines lines;
    lines.type = w.type();
    lines.lines = lines.out_lines = w.dim(0);
    lines.depth = lines.line_step = result.depth;
    lines.out_depth = turn.product.depth;
    turn.product.a =
        lay_out(ctx, work, line_packers_, places_.b, lines, result.has_b_zero(), false, pieces);
    return add_turns(ctx, work, turn, result, x.dim(0), pieces);
  }

  /// As many turns as it takes.
  std::string add_turns(const sdk::PrepareContext& ctx, NodeWork& work, Turn& turn,
                        const LineResult& result, std::int64_t images,
                        WorkspacePieces& pieces) const {
    const LineProduct& product = turn.product;
    const std::int64_t bytes = groups_ * product.out_columns * product.depth;
    const std::int64_t at_once =
        std::clamp<std::int64_t>(kWindowBytes / std::max<std::int64_t>(bytes, 1), 1, images);
    if ((images + at_once - 1) / at_once > kMostTurns)
      sdk::unsupported("the windows of a convolution of ", images, " images, of ", bytes,
                       " bytes each");
    turn.windows = pieces.add(at_once * bytes);
    if (result.has_a_zero())
      turn.window_sums = pieces.add(at_once * groups_ * product.out_columns * kSumBytes);
    const bool is_direct = result.is_plain() && product.out_columns == product.columns;
    turn.sums =
        is_direct ? output(0)
                  : pieces.add(at_once * groups_ * product.rows * product.out_columns * kSumBytes);
    std::string variant;
    // Later turns use the same pieces, the library's last.
    const WorkspacePieces before = pieces;
    WorkspacePieces most = pieces;
    for (std::int64_t first = 0; first < images; first += at_once) {
      WorkspacePieces each = before;
      variant = add_turn(ctx, work, turn, result, first, std::min(at_once, images - first),
                         is_direct, each);
      if (each.bytes() > most.bytes()) most = each;
    }
    pieces = most;
    return variant;
  }

  std::string add_turn(const sdk::PrepareContext& ctx, NodeWork& work, const Turn& turn,
                       const LineResult& result, std::int64_t first, std::int64_t images,
                       bool is_direct, WorkspacePieces& pieces) const {
    LineProduct product = turn.product;
    const std::int64_t matrix = product.out_columns * product.depth;
    add_windows(ctx, work.launches(), turn, first, images);
    if (result.has_a_zero())
      add_line_sums(work.launches(), groups_ * images * product.out_columns, product.depth,
                    turn.windows, turn.window_sums);
    const std::int64_t plane = product.rows * product.out_columns;
    product.batch = images;
    product.b_step = matrix;
    product.sums_step = groups_ * plane;
    product.b.lines = turn.windows;
    product.sums = turn.sums;
    if (is_direct) product.sums.offset += sum_bytes(first * product.sums_step);
    product.calls.assign(static_cast<std::size_t>(groups_), {});
    for (std::int64_t group = 0; group < groups_; ++group) {
      ProductPlan::Call& call = product.calls[static_cast<std::size_t>(group)];
      call.a = static_cast<std::uint64_t>(group * product.rows * product.depth);
      call.b = static_cast<std::uint64_t>(group * images * matrix);
      call.y = sum_bytes(group * plane);
    }
    std::string variant = add_line_product(work, product, pieces);
    if (is_direct) return variant;
    for (std::int64_t group = 0; group < groups_; ++group)
      add_group_result(work.launches(), turn, result, group,
                       {first, images, group * product.rows, product.rows});
    return variant;
  }

  struct Part {
    std::int64_t first_image, images, first_filter, filters;
  };

  static MemoryRef moved(MemoryRef memory, DataType type, std::int64_t elements) {
    memory.offset += static_cast<std::uint64_t>(elements * sdk::element_bytes(type));
    return memory;
  }

  /// What is of some filters, and where their result is; sums are left to be set.
  static LineResult result_of_part(LineResult result, const Part& part) {
    const std::int64_t filters = result.dims[1], points = result.dims[2];
    result.dims = {part.images, part.filters, points};
    result.y = {
        moved(output(0), result.type, (part.first_image * filters + part.first_filter) * points),
        result.type,
        {filters * points, points, 1}};
    for (std::optional<View>* const view : {&result.a_zero, &result.b_scale, &result.bias}) {
      if (view->has_value() && (*view)->strides[1] != 0)
        (*view)->memory = moved((*view)->memory, (*view)->type, part.first_filter);
    }
    return result;
  }

  /// A group's sums, of the turn's images.
  static void add_group_result(device_ops::Work& work, const Turn& turn, const LineResult& all,
                               std::int64_t group, const Part& part) {
    const LineProduct& product = turn.product;
    LineResult result = result_of_part(all, part);
    result.sums = {moved(turn.sums, DataType::Int32, part.first_filter * product.out_columns),
                   DataType::Int32,
                   {all.dims[1] * product.out_columns, product.out_columns, 1}};
    if (result.has_b_zero())
      result.a_sums = View{
          moved(product.a.sums, DataType::Int32, part.first_filter), DataType::Int32, {0, 1, 0}};
    if (result.has_a_zero())
      result.b_sums =
          View{moved(turn.window_sums, DataType::Int32, group * part.images * product.out_columns),
               DataType::Int32,
               {product.out_columns, 0, 1}};
    add_result(work, result);
  }

  void add_windows(const sdk::PrepareContext&, device_ops::Work& work, const Turn& turn,
                   std::int64_t first, std::int64_t images) const {
    const Window& window = turn.window;
    const std::int64_t words = turn.product.depth / kInt8Word;
    device_ops::Walk walk(Dims{groups_ * images, turn.product.out_columns, words});
    walk.in("x", input(0), DataType::UInt8);
    if (turn.zero) walk.in("zero", input(places_.a_zero), DataType::UInt8);
    walk.out("y", turn.windows, DataType::UInt32);
    walk.define("FLIP", shift_of(turn.x)).define("ZERO", turn.zero ? "LOAD(u8, zero, 0)" : "0");
    device_ops::add_numbers(walk, window);
    walk.number("images", images).number("first_image", first).number("channels", turn.channels);
    walk.number("group_channels", turn.channels / groups_).number("points", window.out_points());
    walk.number("out_lines", turn.product.out_columns).number("words", words);
    walk.name("windows as int8");
    walk.body = kWindowsBody;
    walk.add_to(work);
  }

  static constexpr std::int64_t kSumBytes = sizeof(std::int32_t);
  static std::uint64_t sum_bytes(std::int64_t sums) {
    return static_cast<std::uint64_t>(sums * kSumBytes);
  }

  IntegerPlaces places_;
  device_ops::WindowAttributes attributes_;
  std::int64_t groups_;
  bool has_relu_;
  DataType chain_type_;
  LinePackers line_packers_;
  FilterPackers filter_packers_;
};

}  // namespace

KernelList integer_conv_kernels() {
  KernelList list;
  for (const char* const op_type : {"ConvInteger", "QLinearConv"})
    list.push_back(cuda_kernel<IntegerConv>(sdk::op(op_type).name(kernel_name("int8 conv"))));
  list.push_back(cuda_kernel<IntegerConv>(
      sdk::op("QuantizedConv", private_domain()).name(kernel_name("int8 conv"))));
  return list;
}

}  // namespace backplane::cuda
