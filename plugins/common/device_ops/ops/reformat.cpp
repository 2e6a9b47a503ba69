// Reformat, a node that rewrites put at the edges of regions whose values are stored otherwise: in another element type,
// with axes in another order, or both at once.
#include <algorithm>

#include "op_table.hpp"
#include "plugins/common/device_ops/pointwise.hpp"
#include "plugins/common/device_ops/types.hpp"

namespace backplane::device_ops {
namespace {

/// "to": the element type, or the input's; "perm": as Transpose has it, or none.
class Reformat {
 public:
  Reformat(const Device&, const sdk::Node& node)
      : to_(static_cast<DataType>(node.get_int("to", BP_NONE))), order_(node.get_ints("perm")) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    const auto rank = static_cast<std::size_t>(x.rank());
    const DataType to = to_ == DataType::None ? x.type() : to_;
    if (to != x.type() && !(is_float(to) && is_float(x.type())))
      sdk::unsupported("a value of ", sdk::type_name(x.type()), " is not stored as ",
                       sdk::type_name(to));
    Dims order = order_;
    for (std::size_t axis = 0; order_.empty() && axis < rank; ++axis)
      order.push_back(static_cast<std::int64_t>(axis));
    if (order.size() != rank)
      sdk::invalid("a value of dims ", to_string(x.dims()), " in the order ",
                   sdk::to_string(order));
    const Dims strides = common::dense_strides(x.dims());
    Dims dims, from;
    std::int64_t last = -1;  // of the axes with more than one element
    bool keeps_order = true;
    for (const std::int64_t axis : order) {
      const auto at = static_cast<std::size_t>(normalize_axis(axis, x.rank()));
      dims.push_back(x.dims()[at]);
      from.push_back(strides[at]);
      if (dims.back() == 1) continue;
      keeps_order = keeps_order && static_cast<std::int64_t>(at) > last;
      last = static_cast<std::int64_t>(at);
    }
    ctx.set_output(0, to, dims);
    if (to == x.type()) {
      ctx.set_variant(keeps_order ? "view" : "transpose");
      if (keeps_order) {
        ctx.set_view(0, 0);
        return work.add_copy(input(0), output(0), x.bytes());
      }
      return add_strided_copy(work, to,
                              {dims, input(0), output(0), from, common::dense_strides(dims)});
    }
    ctx.set_variant(keeps_order ? "cast" : "cast, transpose");
    add_pointwise(work, dims, {{input(0), x.type(), from}}, dense_view(output(0), to, dims),
                  {finite_text(to), "", {}});
  }

 private:
  DataType to_;
  Dims order_;
};

}  // namespace

KernelList reformat_kernels() {
  return {
      device_kernel<Reformat>(sdk::op("Reformat", private_domain()).name(kernel_name("reformat")))};
}

}  // namespace backplane::device_ops
