// MatMulInteger, QLinearMatMul, ConvInteger, QLinearConv: https://onnx.ai/onnx/operators/onnx__QLinearConv.html and the
// pages beside it. They are the products and convolutions of floats, over operands that become floats, less their zero points,
// where they are spread or packed: sums stay exact (see common/kernels/product.hpp), and what is stored is what the plain
// kernels of plugins/common give, bit for bit.
#include <algorithm>

#include "plugins/common/device_ops/matrix_batch.hpp"
#include "plugins/common/device_ops/saturation.hpp"
#include "plugins/opencl/kernels/depthwise.hpp"
#include "plugins/opencl/kernels/image.hpp"
#include "plugins/opencl/kernels/product.hpp"

namespace backplane::opencl {
namespace {

constexpr std::uint32_t kNone = 0xFFFFFFFFu;

/// Places of the inputs.
struct Places {
  std::uint32_t b = 1, a_zero = 2, b_zero = 3;
  std::uint32_t a_scale = kNone, b_scale = kNone, y_scale = kNone, y_zero = kNone, bias = kNone;
  bool has_scales() const { return y_scale != kNone; }
};
constexpr Places kSums{};
constexpr Places kScaledMatMul{3, 2, 5, 1, 4, 6, 7, kNone};
constexpr Places kScaledConv{3, 2, 5, 1, 4, 6, 7, 8};

/// Constants of eight bits as floats less their zero points, in panels. The zero point is source 1, where there is one: of all,
/// or of each row (convolutions' filters) or column (matrices').
struct IntegerPacker {
  bool is_rows = true;                ///< rows of weights, else columns of a matrix
  std::int64_t lines = 0, depth = 0;  ///< of a group
  std::int64_t groups = 1, panel = 1;

  std::int64_t group_floats() const { return (lines + panel - 1) / panel * panel * depth; }
  std::uint64_t bytes() const {
    return static_cast<std::uint64_t>(group_floats() * groups) * sizeof(float);
  }
  std::string key() const {
    return sdk::message("integer ", is_rows ? "rows " : "columns ", panel, " of ", lines, "x",
                        depth, "x", groups);
  }
  void pack(const sdk::PackContext& ctx) const {
    const bool is_signed = ctx.source(0).type() == DataType::Int8;
    const std::vector<float> values =
        is_signed ? floats<std::int8_t>(ctx) : floats<std::uint8_t>(ctx);
    std::vector<float> all;
    for (std::int64_t group = 0; group < groups; ++group) {
      const float* const from = values.data() + group * lines * depth;
      const std::vector<float> part = is_rows ? pack_rows(from, lines, depth, panel)
                                              : pack_columns(from, depth, lines, lines, 1, panel);
      all.insert(all.end(), part.begin(), part.end());
    }
    upload_packed(ctx, all);
  }

 private:
  template <class T>
  std::vector<float> floats(const sdk::PackContext& ctx) const {
    const auto* const from = ctx.source(0).data<T>();
    const T none = 0;
    const T* const zeros = ctx.source_count() > 1 ? ctx.source(1).data<T>() : &none;
    const bool is_one = ctx.source_count() < 2 || ctx.source(1).size() == 1;
    std::vector<float> values(static_cast<std::size_t>(groups * lines * depth));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const std::int64_t line = is_rows ? at / depth : at % lines;
      values[i] = static_cast<float>(from[i] - zeros[is_one ? 0 : line]);
    }
    return values;
  }
};

/// What both operators share: the constants' packers, which live as long as the kernel, and a workspace laid out piece by piece.
class IntegerOperator {
 protected:
  explicit IntegerOperator(const Places& places) : places_(places) {}

  static void require_bytes(const sdk::Tensor& a, const sdk::Tensor& b) {
    if (sdk::element_bytes(a.type()) != 1 || sdk::element_bytes(b.type()) != 1)
      sdk::unsupported("integer products of ", sdk::type_name(a.type()), " and ",
                       sdk::type_name(b.type()), " are not handled");
  }

  /// The weights are packed where they and their zero points are constants.
  bool is_constant(const sdk::PrepareContext& ctx) const {
    return ctx.input_constant(places_.b) &&
           (!ctx.input(places_.b_zero).present() || ctx.input_constant(places_.b_zero));
  }
  /// The way's one constant.
  MemoryRef request(const sdk::PrepareContext& ctx, const IntegerPacker& wanted, Way& way) const {
    const bool has_zero = ctx.input(places_.b_zero).present();
    const std::string key = wanted.key();
    const IntegerPacker* packer = nullptr;
    {
      const std::lock_guard lock(mutex_);
      auto& held = packers_[key];
      if (held == nullptr) held = std::make_unique<IntegerPacker>(wanted);
      packer = held.get();
    }
    way.packed_bytes = packer->bytes();
    way.request_packed = [packer, has_zero, b = places_.b,
                          b_zero = places_.b_zero](sdk::PrepareContext& host) {
      if (has_zero) {
        host.request_pack(packer->key(), {b, b_zero}, packer->bytes(), packer);
        host.ignore_input(b_zero);
      } else {
        host.request_pack(packer->key(), {b}, packer->bytes(), packer);
      }
      host.ignore_input(b);
    };
    return packed(0);
  }

  /// The operand as floats less its zero point, dense; `zero_axis`: that the zero points go along, where there are several.
  void add_floats(const sdk::PrepareContext& ctx, Work& work, std::uint32_t place,
                  std::uint32_t zero_place, std::size_t zero_axis, const MemoryRef& to) const {
    const sdk::Tensor x = ctx.input(place), zero = ctx.input(zero_place);
    std::vector<View> views{dense_view(input(place), x.type(), x.dims())};
    if (zero.present()) {
      View view{input(zero_place), zero.type(), Dims(x.dims().size(), 0)};
      if (zero.size() != 1) {
        if (zero.size() != x.dims()[zero_axis])
          sdk::unsupported("zero points of dims ", to_string(zero.dims()), " for ",
                           to_string(x.dims()), " are not handled");
        view.strides[zero_axis] = 1;
      }
      views.push_back(view);
    }
    add_pointwise(work, x.dims(), views, dense_view(to, DataType::Float, x.dims()),
                  {zero.present() ? "(float)((i32)v0 - (i32)v1)" : "(float)v0", "", {}});
  }

  DataType result_type(const sdk::PrepareContext& ctx) const {
    return places_.has_scales() ? ctx.input(places_.y_zero).type() : DataType::Int32;
  }

  std::uint64_t output_bytes(const sdk::PrepareContext& ctx, const Dims& dims) const {
    return static_cast<std::uint64_t>(sdk::element_count(dims) *
                                      sdk::element_bytes(result_type(ctx)));
  }

  IntegerResult result(const sdk::PrepareContext& ctx, IntegerResult::Scales several) const {
    IntegerResult result;
    result.type = result_type(ctx);
    result.has_scales = places_.has_scales();
    if (!result.has_scales) return result;
    result.scale_type = ctx.input(places_.a_scale).type();
    result.a_scale = input(places_.a_scale);
    result.b_scale = input(places_.b_scale);
    result.y_scale = input(places_.y_scale);
    result.y_zero = input(places_.y_zero);
    if (ctx.input(places_.b_scale).size() != 1) result.b_scales = several;
    return result;
  }

  /// Bytes of floats, up to where another piece of a workspace may begin.
  static std::uint64_t piece(const Work& work, std::int64_t floats) {
    const std::uint64_t alignment = work.device().limits().alignment;
    return (static_cast<std::uint64_t>(floats) * sizeof(float) + alignment - 1) / alignment *
           alignment;
  }

  const Places& places() const { return places_; }

 private:
  Places places_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::unique_ptr<IntegerPacker>> packers_;
};

void set_cost(sdk::PrepareContext& ctx, std::int64_t sums, std::uint32_t b) {
  ctx.set_cost(2 * static_cast<std::uint64_t>(sums), ctx.input(0).bytes() + ctx.input(b).bytes());
}

class IntegerMatMul : IntegerOperator {
 public:
  IntegerMatMul(const device_ops::Device&, const sdk::Node& node)
      : IntegerOperator(node.op_type() == "MatMulInteger" ? kSums : kScaledMatMul) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor a = ctx.input(0), b = ctx.input(places().b);
    require_bytes(a, b);
    if (a.rank() < 2 || b.rank() < 2)
      sdk::unsupported("integer products of ", to_string(a.dims()), " and ", to_string(b.dims()),
                       " are not handled");
    device_ops::MatrixBatch matrices(a.dims(), b.dims());
    ctx.set_output(0, result_type(ctx), matrices.y_dims);
    if (sdk::element_count(matrices.y_dims) == 0) return;
    const common::StridedLoops loops = matrices.merge();
    const std::size_t rank = loops.dims.size();
    if (rank > 2) sdk::unsupported("a batch whose axes merge into ", rank, " is not handled");
    Product product;
    product.rows = matrices.rows;
    product.columns = matrices.columns;
    product.channels = matrices.depth;
    product.integer = result(ctx, IntegerResult::Scales::kByColumn);
    product.a = workspace();
    product.a_row = matrices.depth;
    product.y = output(0);
    product.y_row = matrices.columns;
    product.inner = loops.dims[rank - 1];
    product.batch = product.inner * (rank > 1 ? loops.dims[0] : 1);
    const auto steps = [&](std::size_t operand) {
      return BatchSteps{rank > 1 ? loops.strides[operand][0] : 0, loops.strides[operand][rank - 1]};
    };
    product.a_batch = steps(0);
    product.b_batch = steps(1);
    product.y_batch = steps(2);
    set_cost(ctx, product.batch * product.rows * product.columns * product.channels, places().b);
    const bool is_packed = is_constant(ctx) && rank == 1 && loops.strides[1][0] == 0;
    std::vector<Way> ways;
    for (const Tile& tile :
         tiles_to_try(device_of(work), DataType::Float, product.rows, product.columns, is_packed))
      ways.push_back(way_of(ctx, work, product, tile, is_packed));
    take_best(ctx, work, std::move(ways), output_bytes(ctx, matrices.y_dims));
  }

 private:
  Way way_of(const sdk::PrepareContext& ctx, const Work& work, Product product, const Tile& tile,
             bool is_packed) const {
    const sdk::Tensor a = ctx.input(0), b = ctx.input(places().b);
    Way way(work);
    way.name = "exact floats, " + tile.name();
    add_floats(ctx, way.work, 0, places().a_zero, a.dims().size() - 2, workspace());
    way.workspace_bytes = piece(work, a.size());
    if (is_packed && tile.tiling == Tiling::kVector) {
      product.b = request(ctx, {false, product.columns, product.channels, 1, tile.columns()}, way);
      product.b_is_panel = true;
    } else {
      product.b = workspace(way.workspace_bytes);
      product.b_channel = product.columns;
      add_floats(ctx, way.work, places().b, places().b_zero, b.dims().size() - 1, product.b);
      way.workspace_bytes += piece(work, b.size() + kImageSlack);
    }
    add_product(way.work, product, tile);
    return way;
  }
};

class IntegerConv : IntegerOperator {
 public:
  IntegerConv(const device_ops::Device&, const sdk::Node& node)
      : IntegerOperator(node.op_type() == "ConvInteger" ? kSums : kScaledConv),
        attributes_(node),
        groups_(node.get_int("group", 1)) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0), w = ctx.input(places().b);
    require_bytes(x, w);
    const Window window = attributes_.resolve_convolution(x, w, groups_);
    const Dims dims = output_dims(x.dims(), w.dim(0), window);
    ctx.set_output(0, result_type(ctx), dims);
    if (sdk::element_count(dims) == 0) return;
    set_cost(ctx, sdk::element_count(dims) * w.dim(1) * window.taps(), places().b);
    if (groups_ > 1 && w.dim(1) == 1 && is_planar(window) &&
        is_exact_by_vectors(static_cast<std::size_t>(window.taps())))
      return prepare_depthwise(ctx, work, window, dims);
    Product product;
    product.rows = w.dim(0) / groups_;
    product.channels = w.dim(1);
    product.batch = x.dim(0) * groups_;
    product.inner = groups_;
    product.integer = result(ctx, IntegerResult::Scales::kByRow);
    product.b = workspace();
    place_image(window, x.dim(1), groups_, product);
    product.b_has_slack = true;
    product.y = output(0);
    product.y_row = window.out_points();
    product.y_batch = {w.dim(0) * window.out_points(), product.rows * window.out_points()};
    product.has_bias = ctx.input(places().bias).present();
    product.bias = input(places().bias);
    product.bias_row = 1;
    product.bias_inner = product.rows;
    std::vector<Tile> tiles =
        tiles_to_try(device_of(work), DataType::Float, product.rows, product.columns, true);
    if (!is_exact_by_vectors(product.tap_offsets.size())) tiles = {Tile{Tiling::kDot}};
    std::vector<Way> ways;
    for (const Tile& tile : tiles) ways.push_back(way_of(ctx, work, window, product, tile));
    take_best(ctx, work, std::move(ways), output_bytes(ctx, dims));
  }

 private:
  Way way_of(const sdk::PrepareContext& ctx, const Work& work, const Window& window,
             Product product, const Tile& tile) const {
    Way way(work);
    way.name = sdk::message(needs_spread(window) ? "exact floats, spread, " : "exact floats, ",
                            tile.name());
    way.workspace_bytes = add_image(ctx, way.work, window);
    set_weights(ctx, tile, product, way);
    add_product(way.work, product, tile);
    return way;
  }

  /// The image as floats at the beginning of the workspace, spread where that is needed; how many bytes it takes.
  std::uint64_t add_image(const sdk::PrepareContext& ctx, Work& work, const Window& window) const {
    const sdk::Tensor x = ctx.input(0), zero = ctx.input(places().a_zero);
    if (zero.present() && zero.size() != 1)
      sdk::unsupported("a convolution with ", zero.size(), " zero points of its image");
    if (!needs_spread(window)) {
      add_floats(ctx, work, 0, places().a_zero, 1, workspace());
      return piece(work, x.size() + kImageSlack);
    }
    const std::int64_t planes = x.dim(0) * x.dim(1);
    const std::int64_t elements = spread_elements(window, planes);
    add_spread(work, {input(0), x.type(), true, zero.present(), input(places().a_zero)},
               DataType::Float, planes, window);
    return piece(work, elements);
  }

  /// In panels for tiles of vectors, dense for others, behind what the way has in its workspace.
  void set_weights(const sdk::PrepareContext& ctx, const Tile& tile, Product& product,
                   Way& way) const {
    const std::int64_t depth =
        product.channels * static_cast<std::int64_t>(product.tap_offsets.size());
    product.a_row = depth;
    product.a_batch.inner = product.rows * depth;
    if (is_constant(ctx)) {
      product.a_is_panel = tile.tiling == Tiling::kVector;
      const IntegerPacker packer{true, product.rows, depth, groups_,
                                 product.a_is_panel ? tile.rows : 1};
      product.a = request(ctx, packer, way);
      product.a_batch.inner = packer.group_floats();
      return;
    }
    product.a = workspace(way.workspace_bytes);
    add_floats(ctx, way.work, places().b, places().b_zero, 0, product.a);
    way.workspace_bytes += piece(way.work, ctx.input(places().b).size());
  }

  /// Floats all through, and what is stored made of them.
  void prepare_depthwise(sdk::PrepareContext& ctx, Work& work, const Window& window,
                         const Dims& dims) const {
    const sdk::Tensor x = ctx.input(0), w = ctx.input(places().b),
                      zero = ctx.input(places().a_zero);
    if (zero.present() && zero.size() != 1)
      sdk::unsupported("a convolution with ", zero.size(), " zero points of its image");
    Depthwise conv;
    conv.images = x.dim(0);
    conv.channels = w.dim(0);
    conv.multiplier = conv.channels / groups_;
    conv.window = window;
    conv.x = workspace();
    Way way(work);
    std::uint64_t& bytes = way.workspace_bytes;
    bytes = piece(work, x.size() + kImageSlack);
    conv.y = workspace(bytes);
    bytes += piece(work, sdk::element_count(dims) + kImageSlack);
    add_floats(ctx, way.work, 0, places().a_zero, 1, conv.x);
    if (is_constant(ctx)) {
      conv.weights = request(ctx, {true, w.dim(0), window.taps(), 1, 1}, way);
    } else {
      conv.weights = workspace(bytes);
      add_floats(ctx, way.work, places().b, places().b_zero, 0, conv.weights);
      bytes += piece(work, w.size());
    }
    way.name = "exact floats, " + add_depthwise(way.work, conv);
    add_result(ctx, way.work, conv.y, dims);
    take_best(ctx, work, {way}, output_bytes(ctx, dims));
  }

  /// What is stored of sums that lie dense.
  void add_result(const sdk::PrepareContext& ctx, Work& work, const MemoryRef& sums,
                  const Dims& dims) const {
    const auto by_filter = [&](std::uint32_t place) {
      View view{input(place), ctx.input(place).type(), Dims(dims.size(), 0)};
      if (ctx.input(place).size() != 1) view.strides[1] = 1;
      return view;
    };
    std::vector<View> views{dense_view(sums, DataType::Float, dims)};
    std::string sum = "(i32)v0";
    if (ctx.input(places().bias).present()) {
      views.push_back(by_filter(places().bias));
      sum = "((i32)v0 + v1)";
    }
    const View y = dense_view(output(0), result_type(ctx), dims);
    if (!places().has_scales()) return add_pointwise(work, dims, views, y, {sum, "", {}});
    const std::size_t first = views.size();
    for (const std::uint32_t place :
         {places().a_scale, places().b_scale, places().y_scale, places().y_zero})
      views.push_back(by_filter(place));
    const auto v = [&](std::size_t i) { return sdk::message("v", first + i); };
    add_pointwise(work, dims, views, y,
                  {sdk::message("saturate((float)", sum, " * ((float)", v(0), " * (float)", v(1),
                                " / (float)", v(2), "), (i32)", v(3), ")"),
                   device_ops::saturation_text(result_type(ctx)),
                   {}});
  }

  WindowAttributes attributes_;
  std::int64_t groups_;
};

}  // namespace

KernelList integer_kernels() {
  return {
      device_kernel<IntegerMatMul>(sdk::op("MatMulInteger").name(kernel_name("exact matmul"))),
      device_kernel<IntegerMatMul>(sdk::op("QLinearMatMul").name(kernel_name("exact matmul"))),
      device_kernel<IntegerConv>(sdk::op("ConvInteger").name(kernel_name("exact conv"))),
      device_kernel<IntegerConv>(sdk::op("QLinearConv").name(kernel_name("exact conv"))),
  };
}

}  // namespace backplane::opencl
