// LSTM, GRU and RNN: the products of all inputs by this provider's products, the steps by the shared kernels.
#include "plugins/common/device_ops/recurrent.hpp"

#include "plugins/common/device_ops/types.hpp"
#include "plugins/opencl/kernel.hpp"
#include "plugins/opencl/kernels/columns.hpp"
#include "plugins/opencl/kernels/product.hpp"

namespace backplane::opencl {
namespace {

using common::RecurrentInput;
using device_ops::RecurrentForm;
using device_ops::WorkspacePieces;

/// A constant R in panels, as floats.
struct StatePacker {
  RecurrentForm form;
  std::string key() const {
    return sdk::message("recurrent panels ", form.panel, " of ", form.directions, "x", form.gates(),
                        "x", form.hidden, form.two_products() ? " apart" : "",
                        sdk::type_name(form.type));
  }
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(form.panel_bytes()); }
  void pack(const sdk::PackContext& ctx) const {
    upload_packed(ctx, recurrent_panels(form, widened_elements(ctx.source(0)).data()));
  }
};

/// Has a constant packed, and not given to the kernel as it is.
template <class Packer>
MemoryRef packed_input(sdk::PrepareContext& ctx, const KeptPackers<Packer>& packers,
                       std::uint32_t place, const Packer& wanted) {
  const Packer* const packer = packers.find(wanted);
  const std::uint32_t index = ctx.request_pack(packer->key(), {place}, packer->bytes(), packer);
  ctx.ignore_input(place);
  return packed(index);
}

class RecurrentOp {
 public:
  RecurrentOp(const device_ops::Device&, const sdk::Node& node) : shared_(node) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    RecurrentForm form = shared_.begin(ctx, work.device());
    if (form.is_empty()) return;
    WorkspacePieces pieces(work.device());
    form.place(pieces);
    std::string name = "steps";
    if (form.has_products()) name = add_inputs(ctx, work, form, pieces) + ", then steps";
    if (form.panel > 0 && form.steps > 0) lay_out_panels(ctx, work, form, pieces);
    add_recurrent_steps(work, form);
    ctx.set_workspace(pieces.bytes(), work.device().limits().alignment);
    ctx.set_variant(name);
  }

 private:
  /// The products of X, all steps and directions being the rows and columns of one. Returns what multiplies.
  std::string add_inputs(sdk::PrepareContext& ctx, Work& work, const RecurrentForm& form,
                         WorkspacePieces& pieces) const {
    Product product;
    product.type = form.sum_type;
    product.rows = form.steps * form.batch;
    product.columns = product.y_row = form.columns();
    product.channels = product.a_row = form.input;
    product.a = widened(work, form, input(RecurrentInput::kX), product.rows, pieces);
    product.y = form.from_x;
    product.b_channel = product.columns;
    const bool is_constant =
        ctx.input_constant(RecurrentInput::kW) && form.sum_type == DataType::Float;
    const Tile tile =
        choose_tile(device_of(work), product.type, product.rows, product.columns, is_constant);
    const bool has_panels = tile.tiling == Tiling::kVector;
    if (is_constant) {
      product.b_is_panel = has_panels;
      product.b = packed_input(ctx, columns_, RecurrentInput::kW,
                               {form.input, form.columns(),
                                has_panels ? tile.columns() : form.columns(), true, form.type});
    } else {
      set_columns(work, form, pieces, product);
    }
    add_product(work, product, tile);
    return tile.name();
  }

  /// The columns of a W that is not constant are laid out in every run.
  static void set_columns(Work& work, const RecurrentForm& form, WorkspacePieces& pieces,
                          Product& product) {
    const MemoryRef w = widened(work, form, input(RecurrentInput::kW), form.columns(), pieces);
    product.b = pieces.add(form.columns() * form.input * sdk::element_bytes(form.sum_type));
    add_strided_copy(work, form.sum_type,
                     {Dims{form.input, form.columns()}, w, product.b, Dims{1, form.input},
                      Dims{form.columns(), 1}, 0, 0, -1});
  }

  /// Rows of X or W as products multiply them: those of 16 bits as floats.
  static MemoryRef widened(Work& work, const RecurrentForm& form, const MemoryRef& from,
                           std::int64_t rows, WorkspacePieces& pieces) {
    if (form.type == form.sum_type) return from;
    const Dims dims{rows, form.input};
    const MemoryRef to = pieces.add(rows * form.input * sdk::element_bytes(form.sum_type));
    add_pointwise(work, dims, {dense_view(from, form.type, dims)},
                  dense_view(to, form.sum_type, dims), {"v0", "", {}});
    return to;
  }

  void lay_out_panels(sdk::PrepareContext& ctx, Work& work, RecurrentForm& form,
                      WorkspacePieces& pieces) const {
    if (ctx.input_constant(RecurrentInput::kR) && form.sum_type == DataType::Float) {
      form.r = packed_input(ctx, states_, RecurrentInput::kR, {form});
      return;
    }
    const MemoryRef panels = pieces.add(form.panel_bytes());
    add_recurrent_panels(work, form, panels);
    form.r = panels;
  }

  device_ops::Recurrent shared_;
  ColumnPackers columns_;
  KeptPackers<StatePacker> states_;
};

}  // namespace

sdk::KernelList recurrent_kernels() {
  sdk::KernelList kernels;
  for (const sdk::KernelBuilder& op : device_ops::recurrent_ops())
    kernels.push_back(device_kernel<RecurrentOp>(op));
  return kernels;
}

}  // namespace backplane::opencl
