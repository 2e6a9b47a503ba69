// FusedAttention of a rewrite: the few rows of a model that decodes by the shared kernels, more of them by this provider's products, with
// scores between them that are bounded and masked where Softmax reads them. That is what the nodes compute apart, without the
// repetitions of heads and most transpositions.
#include "plugins/common/device_ops/fused_attention.hpp"

#include <utility>

#include "plugins/common/device_ops/attention_scores.hpp"
#include "plugins/opencl/kernel.hpp"
#include "plugins/opencl/kernels/product.hpp"

namespace backplane::opencl {
namespace {

using device_ops::AttentionScores;
using device_ops::HeadRows;
using device_ops::RowSteps;
using device_ops::SizedAttention;
using device_ops::WorkspacePieces;

class AttentionByProducts {
 public:
  AttentionByProducts(Work& work, const SizedAttention& sized)
      : work_(work), sized_(sized), pieces_(work.device()) {}

  /// Returns the workspace's bytes.
  std::uint64_t add() {
    const device_ops::AttentionExtent& extent = sized_.extent;
    if (extent.masked.back() == 0) {
      fill(output(0), sdk::element_count(extent.result));
      return 0;
    }
    AttentionScores scores;
    scores.type = sized_.type;
    scores.dims = extent.scores;
    scores.memory = pieces_.add(bytes_of(extent.scores));
    scores.softcap = sized_.softcap;
    scores.empty = sized_.empty;
    if (sized_.mask) {
      scores.mask = sized_.mask_form;
      scores.mask_is_along = device_ops::is_along(*sized_.mask);
    }
    add_scores(scores.memory);
    if (extent.masked != extent.scores)
      scores = device_ops::add_masked(work_, scores, *sized_.mask, extent.masked,
                                      pieces_.add(bytes_of(extent.masked)));
    device_ops::add_weights(
        work_, scores,
        pieces_.add(static_cast<std::int64_t>(device_ops::weights_bytes(work_.device(), scores))));
    add_values(scores.memory);
    return pieces_.bytes();
  }

 private:
  std::int64_t bytes_of(const Dims& dims) const {
    return sdk::element_count(dims) * sdk::element_bytes(sized_.type);
  }

  void fill(const MemoryRef& to, std::int64_t count) {
    Walk walk(Dims{count});
    walk.out("y", to, sized_.type).define("T", type_code(sized_.type));
    walk.body = "  STORE(T, y, i0, 0);";
    walk.add_to(work_);
  }

  /// Steps over [batch, heads of keys, group]; `heads` and `batch` of one element are the same for all.
  Dims batch_steps(std::int64_t batch, std::int64_t heads, const RowSteps& steps,
                   bool is_shared) const {
    const std::int64_t head = heads == 1 ? 0 : steps.head;
    return {batch == 1 ? 0 : steps.batch, is_shared ? head : head * sized_.group,
            is_shared ? 0 : head};
  }
  common::StridedLoops over(const Dims& dims) const {
    common::StridedLoops loops;
    loops.dims = {dims[0], dims[1] / sized_.group, sized_.group};
    return loops;
  }
  /// Where heads of k and v are shared, each is that of a group.
  Dims shared_steps(const HeadRows& operand, const RowSteps& steps) const {
    return batch_steps(operand.batch, operand.heads, steps, sized_.group > 1);
  }
  Dims dense_steps(const Dims& dims) const {
    return batch_steps(dims[0], dims[1], RowSteps::by_head(dims[1], dims[2], dims[3]), false);
  }

  void add_scores(const MemoryRef& to) {
    const HeadRows &q = sized_.q, &k = sized_.k;
    const Dims& dims = sized_.extent.scores;
    if (q.width == 0) return fill(to, sdk::element_count(dims));
    Product product = product_of(dims[2], dims[3], q.width);
    const Tile tile =
        choose_tile(device_of(work_), product.type, product.rows, product.columns, false);
    product.factor = static_cast<float>(sized_.scale);
    product.a = input(0);
    product.a_row = q.steps.position;
    product.b = input(1);
    product.b_channel = 1;
    product.b_step = k.steps.position;
    RowSteps steps = k.steps;
    // Vectors load neighbouring columns, which of keys are rows.
    if (tile.tiling == Tiling::kVector) steps = lay_out(product, k, input(1), true);
    product.y = to;
    product.y_row = dims[3];
    common::StridedLoops loops = over(dims);
    loops.strides = {batch_steps(q.batch, q.heads, q.steps, false), shared_steps(k, steps),
                     dense_steps(dims)};
    add_products(work_, product, common::merge_axes(loops), tile);
  }

  /// Rows of k or v as [batch, heads, lines, columns], dense: their rows or, of keys, their columns.
  RowSteps lay_out(Product& product, const HeadRows& operand, const MemoryRef& from,
                   bool is_turned) {
    const RowSteps steps = RowSteps::by_head(operand.heads, product.channels, product.columns);
    StridedCopy copy;
    copy.dims = {operand.batch, operand.heads, product.channels, product.columns};
    copy.from = from;
    copy.to = pieces_.add(bytes_of(copy.dims));
    copy.from_strides = {operand.steps.batch, operand.steps.head, operand.steps.position, 1};
    if (is_turned) std::swap(copy.from_strides[2], copy.from_strides[3]);
    copy.to_strides = {steps.batch, steps.head, steps.position, 1};
    product.b = copy.to;
    product.b_channel = product.columns;
    product.b_step = 1;
    add_strided_copy(work_, sized_.type, std::move(copy));
    return steps;
  }

  void add_values(const MemoryRef& weights) {
    const HeadRows& v = sized_.v;
    const Dims &dims = sized_.extent.result, &masked = sized_.extent.masked;
    Product product = product_of(dims[2], dims[3], masked[3]);
    product.a = weights;
    product.a_row = masked[3];
    product.b = input(2);
    product.b_channel = v.steps.position;
    product.y = output(0);
    product.y_row = sized_.y.position;
    const Tile tile =
        choose_tile(device_of(work_), product.type, product.rows, product.columns, false);
    // Every tile of rows reads all of them: where they lie apart, caches hold fewer.
    RowSteps steps = v.steps;
    if (tile.tiling == Tiling::kVector && v.steps.position != v.width)
      steps = lay_out(product, v, input(2), false);
    common::StridedLoops loops = over(dims);
    loops.strides = {dense_steps(masked), shared_steps(v, steps),
                     batch_steps(dims[0], dims[1], sized_.y, false)};
    add_products(work_, product, common::merge_axes(loops), tile);
  }

  Product product_of(std::int64_t rows, std::int64_t columns, std::int64_t depth) const {
    Product product;
    product.type = sized_.type;
    product.rows = rows;
    product.columns = columns;
    product.channels = depth;
    return product;
  }

  Work& work_;
  const SizedAttention& sized_;
  WorkspacePieces pieces_;
};

class FusedAttention {
 public:
  FusedAttention(const device_ops::Device&, const sdk::Node& node) : shared_(node) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const SizedAttention sized = shared_.begin(ctx);
    if (!sized.has_result()) return;
    const bool is_by_rows = sized.is_of_few_rows(work.device()) && sized.is_whole();
    const std::uint64_t bytes = is_by_rows ? device_ops::add_row_attention(work, sized.rows(), 0)
                                           : AttentionByProducts(work, sized).add();
    if (bytes > 0) ctx.set_workspace(bytes, work.device().limits().alignment);
    ctx.set_variant(is_by_rows ? "by rows" : "by products");
  }

 private:
  device_ops::FusedAttention shared_;
};

}  // namespace

sdk::KernelList fused_attention_kernels() {
  return {device_kernel<FusedAttention>(
      sdk::op("FusedAttention", private_domain()).name(kernel_name("attention")))};
}

}  // namespace backplane::opencl
