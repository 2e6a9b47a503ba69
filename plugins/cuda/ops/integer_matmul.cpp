// MatMulInteger, QLinearMatMul, and QuantizedMatMul of a rewrite, by cuBLASLt's int8:
// https://onnx.ai/onnx/operators/onnx__QLinearMatMul.html
#include "op_table.hpp"
#include "plugins/common/broadcast.hpp"
#include "plugins/common/device_ops/matrix_batch.hpp"
#include "plugins/cuda/integer_lines.hpp"
#include "plugins/cuda/integer_places.hpp"

namespace backplane::cuda {
namespace {

/// Products of a batch that merges into no single axis.
constexpr std::int64_t kMostIntegerCalls = 64;

class IntegerMatMul {
 public:
  IntegerMatMul(const Device&, const sdk::Node& node)
      : places_(node.op_type() == "MatMulInteger"   ? kSums
                : node.op_type() == "QLinearMatMul" ? kScaled
                                                    : kChain),
        a_is_transposed_(node.get_int("transA", 0) != 0),
        b_is_transposed_(node.get_int("transB", 0) != 0),
        has_relu_(node.get_string("activation", "") == "Relu"),
        chain_type_(chain_type(node)) {}

  void prepare(sdk::PrepareContext& ctx, NodeWork& work) const {
    const sdk::Tensor a = ctx.input(0), b = ctx.input(places_.b);
    require_bytes(a, b);
    if (a.rank() < 2 || b.rank() < 2)
      sdk::unsupported("integer products of ", to_string(a.dims()), " and ", to_string(b.dims()),
                       " are not handled");
    device_ops::MatrixBatch matrices(stored(a.dims(), a_is_transposed_),
                                     stored(b.dims(), b_is_transposed_));
    const DataType type = result_type(ctx, places_, chain_type_);
    ctx.set_output(0, type, matrices.y_dims);
    if (sdk::element_count(matrices.y_dims) == 0) return;
    const std::int64_t rows = matrices.rows, columns = matrices.columns, depth = matrices.depth;
    LineResult result;
    result.type = type;
    result.a_shift = shift_of(a.type());
    result.b_shift = shift_of(b.type());
    result.depth = depth;
    result.has_relu = has_relu_;
    result.is_chain = places_.is_chain;
    const common::StridedLoops loops = merge(ctx, matrices);
    set_dims(loops, matrices, result);
    set_parameters(ctx, matrices, result);

    // Matrices of the operands by how far apart they lie, in matrices.
    WorkspacePieces pieces(work.device());
    Lines a_lines = lines_of(a, rows, depth, a_is_transposed_, 1);
    Lines b_lines = lines_of(b, columns, depth, !b_is_transposed_, kInt8Word);
    const bool stays = a_lines.lies_right() && !result.has_b_zero();
    a_lines.out_depth = b_lines.out_depth = stays ? depth : padded_depth(depth);
    LineProduct product;
    product.rows = matrices.rows;
    product.columns = columns;
    product.out_columns = b_lines.out_lines;
    product.depth = a_lines.out_depth;
    product.b =
        lay_out(ctx, work, packers_, places_.b, b_lines, result.has_a_zero(), false, pieces);
    product.a = lay_out(ctx, work, packers_, 0, a_lines, result.has_b_zero(), true, pieces);
    set_batch(loops, rows * depth, depth * columns, product, a_lines, b_lines);
    const bool is_direct = result.is_plain() && product.out_columns == columns;
    product.sums = is_direct ? output(0) : pieces.add(sums_of(loops, product) * 4);
    const std::string variant = add_line_product(work, product, pieces);
    if (!is_direct) {
      set_views(loops, matrices, product, {rows * depth, depth * columns}, result);
      add_result(work.launches(), result);
    }
    ctx.set_variant(variant);
    ctx.set_workspace(pieces.bytes(), work.device().limits().alignment);
    ctx.set_cost(2 * static_cast<std::uint64_t>(sdk::element_count(matrices.y_dims) * depth),
                 a.bytes() + b.bytes());
  }

 private:
  /// The dims as the product sees them.
  static Dims stored(DimsView dims, bool is_transposed) {
    Dims seen(dims.begin(), dims.end());
    if (is_transposed) std::swap(seen[seen.size() - 1], seen[seen.size() - 2]);
    return seen;
  }

  /// `is_across`: the lines' elements lie a line's count apart.
  static Lines lines_of(const sdk::Tensor& x, std::int64_t count, std::int64_t depth,
                        bool is_across, std::int64_t multiple) {
    Lines lines;
    lines.type = x.type();
    lines.lines = count;
    lines.depth = depth;
    lines.matrices = depth == 0 ? 1 : x.size() / (count * depth);
    lines.matrix_step = count * depth;
    lines.line_step = is_across ? 1 : depth;
    lines.step = is_across ? count : 1;
    lines.out_lines = (count + multiple - 1) / multiple * multiple;
    lines.out_depth = depth;
    return lines;
  }

  /// The batch's axes. Rows are not merged with it where each has its own parameters.
  common::StridedLoops merge(const sdk::PrepareContext& ctx,
                             device_ops::MatrixBatch& matrices) const {
    const bool has_batch = sdk::element_count(matrices.batch) > 1;
    for (const std::uint32_t place :
         {places_.a_zero, places_.a_scale, places_.y_scale, places_.y_zero}) {
      if (has_batch && ctx.input(place).present() && ctx.input(place).size() > 1)
        sdk::unsupported("scales or zero points of each row, dims ",
                         to_string(ctx.input(place).dims()), ", of a batch of products");
    }
    common::StridedLoops loops = matrices.merge();
    std::int64_t calls = 1;
    for (std::size_t axis = 0; axis + 1 < loops.dims.size(); ++axis) calls *= loops.dims[axis];
    if (calls > kMostIntegerCalls)
      sdk::unsupported("a batch whose axes merge into ", loops.dims.size(), " of ", calls,
                       " products; there may be ", kMostIntegerCalls);
    return loops;
  }

  static void set_dims(const common::StridedLoops& loops, const device_ops::MatrixBatch& matrices,
                       LineResult& result) {
    result.dims.assign(loops.dims.begin(), loops.dims.end());
    result.dims.insert(result.dims.end(), {matrices.rows, matrices.columns});
  }

  /// A parameter of one element, or one for each row (`axis` 2) or column (1), counted from the end.
  std::optional<View> parameter(const sdk::PrepareContext& ctx, std::uint32_t place,
                                std::size_t axis, const LineResult& result) const {
    const sdk::Tensor tensor = ctx.input(place);
    if (!tensor.present()) return std::nullopt;
    View view{input(place), tensor.type(), Dims(result.dims.size(), 0)};
    if (tensor.size() == 1) return view;
    if (tensor.size() != result.dims[result.dims.size() - axis])
      sdk::unsupported("scales or zero points of dims ", to_string(tensor.dims()), " for ",
                       result.dims[result.dims.size() - axis], axis == 1 ? " columns" : " rows");
    view.strides[view.strides.size() - axis] = 1;
    return view;
  }

  void set_parameters(const sdk::PrepareContext& ctx, const device_ops::MatrixBatch& matrices,
                      LineResult& result) const {
    constexpr std::size_t kOfRow = 2, kOfColumn = 1;
    if (!is_known_zero(ctx, places_.a_zero, result.a_shift))
      result.a_zero = parameter(ctx, places_.a_zero, kOfRow, result);
    if (!is_known_zero(ctx, places_.b_zero, result.b_shift))
      result.b_zero = parameter(ctx, places_.b_zero, kOfColumn, result);
    result.a_scale = parameter(ctx, places_.a_scale, kOfRow, result);
    result.b_scale = parameter(ctx, places_.b_scale, kOfColumn, result);
    result.y_scale = parameter(ctx, places_.y_scale, kOfRow, result);
    result.y_zero = parameter(ctx, places_.y_zero, kOfRow, result);
    const sdk::Tensor bias = ctx.input(places_.bias);
    if (!bias.present()) return;
    // Its axes are those of the result as ONNX has it; of a batch it is a row, whatever has become of the axes.
    const Dims dims = result.dims.size() == matrices.y_dims.size() + 1 && result.dims[0] == 1
                          ? Dims(result.dims.begin() + 1, result.dims.end())
                          : result.dims;
    if (bias.rank() > 1 && dims != matrices.y_dims)
      sdk::unsupported("a bias of dims ", to_string(bias.dims()), " for a batch");
    if (!common::broadcasts_to(bias.dims(), dims))
      sdk::invalid("a product of ", sdk::to_string(matrices.y_dims), " with a bias of ",
                   to_string(bias.dims()));
    result.bias = device_ops::broadcast_view(input(places_.bias), bias.type(), bias.dims(), dims);
    result.bias->strides.insert(result.bias->strides.begin(), result.dims.size() - dims.size(), 0);
  }

  static std::int64_t sums_of(const common::StridedLoops& loops, const LineProduct& product) {
    std::int64_t matrices = 1;
    for (const std::int64_t dim : loops.dims) matrices *= dim;
    return matrices * product.rows * product.out_columns;
  }

  /// Steps of the batch through matrices of other sizes than the operands have as they lie.
  static void set_batch(const common::StridedLoops& loops, std::int64_t a_matrix,
                        std::int64_t b_matrix, LineProduct& product, const Lines& a,
                        const Lines& b) {
    const std::size_t last = loops.dims.size() - 1;
    const std::int64_t y_matrix = product.rows * product.columns;
    const auto moved = [&](std::size_t operand, std::size_t axis) {
      const std::int64_t from = operand == 0 ? a_matrix : operand == 1 ? b_matrix : y_matrix;
      const std::int64_t to = operand == 0   ? a.matrix_bytes()
                              : operand == 1 ? b.matrix_bytes()
                                             : product.rows * product.out_columns;
      return from == 0 ? 0 : loops.strides[operand][axis] / from * to;
    };
    product.batch = loops.dims[last];
    product.a_step = moved(0, last);
    product.b_step = moved(1, last);
    product.sums_step = moved(2, last);
    std::int64_t calls = 1;
    for (std::size_t axis = 0; axis < last; ++axis) calls *= loops.dims[axis];
    product.calls.assign(static_cast<std::size_t>(calls), {});
    for (std::int64_t call = 0; call < calls; ++call) {
      ProductPlan::Call& each = product.calls[static_cast<std::size_t>(call)];
      std::int64_t rest = call;
      for (std::size_t axis = last; axis-- > 0;) {
        const std::int64_t at = rest % loops.dims[axis];
        rest /= loops.dims[axis];
        each.a += static_cast<std::uint64_t>(at * moved(0, axis));
        each.b += static_cast<std::uint64_t>(at * moved(1, axis));
        each.y += static_cast<std::uint64_t>(at * moved(2, axis)) * sizeof(std::int32_t);
      }
    }
  }

  /// Where the sums and the operands' lines are, seen in a walk over the result.
  static void set_views(const common::StridedLoops& loops, const device_ops::MatrixBatch& matrices,
                        const LineProduct& product, std::array<std::int64_t, 2> matrix,
                        LineResult& result) {
    const std::int64_t y_matrix = product.rows * product.columns;
    const auto view = [&](const MemoryRef& memory, DataType type, std::size_t operand,
                          std::int64_t from, std::int64_t to, std::int64_t row,
                          std::int64_t column) {
      View made{memory, type, Dims()};
      for (const std::int64_t stride : loops.strides[operand])
        made.strides.push_back(from == 0 ? 0 : stride / from * to);
      made.strides.insert(made.strides.end(), {row, column});
      return made;
    };
    result.sums = view(product.sums, DataType::Int32, 2, y_matrix,
                       product.rows * product.out_columns, product.out_columns, 1);
    result.y = view(output(0), result.type, 2, y_matrix, y_matrix, matrices.columns, 1);
    if (result.has_b_zero())
      result.a_sums = view(product.a.sums, DataType::Int32, 0, matrix[0], product.rows, 1, 0);
    if (result.has_a_zero())
      result.b_sums =
          view(product.b.sums, DataType::Int32, 1, matrix[1], product.out_columns, 0, 1);
  }

  IntegerPlaces places_;
  bool a_is_transposed_, b_is_transposed_, has_relu_;
  DataType chain_type_;
  LinePackers packers_;
};

}  // namespace

KernelList integer_matmul_kernels() {
  KernelList list;
  for (const char* const op_type : {"MatMulInteger", "QLinearMatMul"})
    list.push_back(cuda_kernel<IntegerMatMul>(sdk::op(op_type).name(kernel_name("int8 matmul"))));
  list.push_back(cuda_kernel<IntegerMatMul>(
      sdk::op("QuantizedMatMul", private_domain()).name(kernel_name("int8 matmul"))));
  return list;
}

}  // namespace backplane::cuda
