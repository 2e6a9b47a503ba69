// LSTM, GRU and RNN: the products of all inputs by cuBLASLt, the steps by the shared kernels.
#include "plugins/common/device_ops/recurrent.hpp"

#include <string>
#include <utility>

#include "op_table.hpp"
#include "plugins/cuda/integer_lines.hpp"
#include "plugins/cuda/kernel.hpp"
#include "plugins/cuda/product_work.hpp"

namespace backplane::cuda {
namespace {

using common::RecurrentInput;
using device_ops::RecurrentForm;

class RecurrentOp {
 public:
  RecurrentOp(const Device& device, const sdk::Node& node)
      : shared_(node), precision_(device.settings().precision.of(node)) {}

  void prepare(sdk::PrepareContext& ctx, NodeWork& work) const {
    RecurrentForm form = shared_.begin(ctx, work.device());
    if (form.is_empty()) return;
    WorkspacePieces pieces(work.device());
    form.place(pieces);
    std::uint64_t bytes = pieces.bytes();
    std::string name = "steps";
    if (form.has_products()) {
      auto products = products_of(ctx, work, form, bytes);
      bytes += products->workspace_bytes();
      name = products->way() + products->rounding() + ", then steps";
      work.add(std::move(products));
    }
    add_recurrent_steps(work.launches(), form);
    ctx.set_workspace(bytes, work.device().limits().alignment);
    ctx.set_variant(name);
  }

 private:
  /// Of X, all steps and directions being the rows and columns of one product, whose results are not rounded to 16 bits.
  std::unique_ptr<ProductWork> products_of(const sdk::PrepareContext& ctx, NodeWork& work,
                                           const RecurrentForm& form, std::uint64_t kept) const {
    ProductPlan plan;
    Product& product = plan.product;
    product.type = form.type;
    product.result = form.sum_type;
    product.rows = form.steps * form.batch;
    product.columns = form.columns();
    product.depth = product.a.step = product.b.step = form.input;
    product.b.is_transposed = true;
    if (form.type == DataType::Float) product.precision = precision_;
    plan.a = input(RecurrentInput::kX);
    plan.b = input(RecurrentInput::kW);
    plan.b_is_constant = ctx.input_constant(RecurrentInput::kW);
    plan.y = form.from_x;
    plan.workspace = device_ops::workspace(kept);
    return std::make_unique<ProductWork>(work.device(), work.label(), std::move(plan),
                                         work.choosing());
  }

  device_ops::Recurrent shared_;
  Precision precision_;
};

}  // namespace

KernelList recurrent_kernels() {
  KernelList kernels;
  for (const sdk::KernelBuilder& op : device_ops::recurrent_ops())
    kernels.push_back(cuda_kernel<RecurrentOp>(op));
  return kernels;
}

}  // namespace backplane::cuda
