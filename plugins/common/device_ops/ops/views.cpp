// Operators whose output is the input under other dims: https://onnx.ai/onnx/operators/onnx__Reshape.html
// and the pages beside it. Where the host grants the view nothing is computed.
#include <algorithm>

#include "op_table.hpp"
#include "plugins/common/checked.hpp"
#include "plugins/common/device_ops/walk.hpp"

namespace backplane::device_ops {
namespace {

void set_as_view(sdk::PrepareContext& ctx, Work& work, DimsView dims) {
  const sdk::Tensor x = ctx.input(0);
  if (sdk::element_count(dims) != x.size())
    sdk::invalid("dims ", to_string(x.dims()), " cannot become ", sdk::to_string(dims));
  ctx.set_output(0, x.type(), dims);
  ctx.set_view(0, 0);
  work.add_copy(input(0), output(0), x.bytes());
}

class Reshape {
 public:
  Reshape(const Device&, const sdk::Node& node)
      : shape_(node.get_ints("shape")), keep_zeros_(node.get_int("allowzero", 0) != 0) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    Dims dims = ctx.input_count() > 1 ? ctx.input(1).to_ints() : shape_;
    std::size_t open = dims.size();
    for (std::size_t axis = 0; axis < dims.size(); ++axis) {
      if (dims[axis] == 0 && !keep_zeros_) {
        if (axis >= x.dims().size())
          sdk::invalid("Reshape keeps dimension ", axis, " of ", to_string(x.dims()));
        dims[axis] = x.dims()[axis];
      }
      if (dims[axis] >= 0) continue;
      if (dims[axis] != -1 || open != dims.size())
        sdk::invalid("Reshape to ", sdk::to_string(dims));
      open = axis;
    }
    if (open != dims.size()) dims[open] = 1;
    // Where a dim is 0 the others may be any.
    if (std::find(dims.begin(), dims.end(), 0) == dims.end())
      common::checked_product(dims).value("Reshape: shape ", sdk::to_string(dims));
    if (open != dims.size()) {
      const std::int64_t rest = sdk::element_count(dims);
      dims[open] = rest == 0 ? 0 : x.size() / rest;
    }
    set_as_view(ctx, work, dims);
  }

 private:
  Dims shape_;
  bool keep_zeros_;
};

class Flatten {
 public:
  Flatten(const Device&, const sdk::Node& node) : axis_(node.get_int("axis", 1)) {}
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    const int rank = x.rank();
    const int axis = axis_ == rank ? rank : normalize_axis(axis_, rank);
    set_as_view(ctx, work,
                Dims{common::product(x.dims(), 0, axis), common::product(x.dims(), axis, rank)});
  }

 private:
  std::int64_t axis_;
};

class Squeeze {
 public:
  Squeeze(const Device&, const sdk::Node& node)
      : axes_(node.get_ints("axes")), has_axes_(node.has("axes")) {}
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    const bool given = has_axes_ || ctx.input(1).present();
    const std::vector<int> axes =
        common::normalize_axes(ctx.input(1).present() ? ctx.input(1).to_ints() : axes_, x.rank());
    Dims dims;
    for (int axis = 0; axis < x.rank(); ++axis) {
      const bool named = std::find(axes.begin(), axes.end(), axis) != axes.end();
      if (named && x.dim(axis) != 1)
        sdk::invalid("Squeeze of axis ", axis, " of ", to_string(x.dims()));
      if (given ? !named : x.dim(axis) != 1) dims.push_back(x.dim(axis));
    }
    set_as_view(ctx, work, dims);
  }

 private:
  Dims axes_;
  bool has_axes_;
};

class Unsqueeze {
 public:
  Unsqueeze(const Device&, const sdk::Node& node) : axes_(node.get_ints("axes")) {}
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    const Dims given = ctx.input(1).present() ? ctx.input(1).to_ints() : axes_;
    const int rank = x.rank() + static_cast<int>(given.size());
    const std::vector<int> axes = common::normalize_axes(given, rank);
    Dims dims;
    int from = 0;
    for (int axis = 0; axis < rank; ++axis) {
      const bool is_new = std::find(axes.begin(), axes.end(), axis) != axes.end();
      dims.push_back(is_new ? 1 : x.dim(from++));
    }
    set_as_view(ctx, work, dims);
  }

 private:
  Dims axes_;
};

/// Identity, and Dropout of a model that does not train: the mask is all ones.
class Identity {
 public:
  Identity(const Device&, const sdk::Node& node)
      : is_dropout_(node.op_type() == "Dropout"), has_bool_mask_(node.since_version() >= 10) {}
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0), training = ctx.input(2);
    if (is_dropout_ && training.present() && training.size() > 0 && *training.data<bool>()) {
      const sdk::Tensor ratio = ctx.input(1);
      const bool is_none = ratio.present() && ratio.type() == DataType::Float &&
                           ratio.data<float>() != nullptr && *ratio.data<float>() == 0;
      if (!is_none) sdk::unsupported("Dropout in training draws random numbers");
    }
    set_as_view(ctx, work, x.dims());
    if (!is_dropout_ || !ctx.output_wanted(1)) return;
    const DataType mask = has_bool_mask_ ? DataType::Bool : x.type();
    ctx.set_output(1, mask, x.dims());
    Walk ones(Dims{x.size()});
    ones.out("y", output(1), mask).define("T", type_code(mask));
    ones.body = "  STORE(T, y, i0, 1);";
    ones.add_to(work);
  }

 private:
  bool is_dropout_, has_bool_mask_;
};

}  // namespace

KernelList views_kernels() {
  const common::TypeList types = element_types();
  KernelList kernels{
      device_kernel<Reshape>(sdk::op("Reshape")
                                 .name(kernel_name("view"))
                                 .types("T", types)
                                 .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE})),
      device_kernel<Flatten>(sdk::op("Flatten").name(kernel_name("view")).types("T", types)),
      device_kernel<Squeeze>(sdk::op("Squeeze")
                                 .name(kernel_name("view"))
                                 .types("T", types)
                                 .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE})),
      device_kernel<Unsqueeze>(sdk::op("Unsqueeze")
                                   .name(kernel_name("view"))
                                   .types("T", types)
                                   .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE})),
      device_kernel<Identity>(
          sdk::op("Identity").name(kernel_name("view")).since(1, 13).types("T", types)),
      device_kernel<Identity>(
          sdk::op("Identity").name(kernel_name("view")).since(14).types("V", types)),
      device_kernel<Identity>(
          sdk::op("Dropout").name(kernel_name("dropout")).since(7, 11).types("T", float_types())),
      device_kernel<Identity>(
          sdk::op("Dropout")
              .name(kernel_name("dropout"))
              .since(12)
              .types("T", float_types())
              .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE, BP_INPUT_HOST_VALUE})),
  };
  return kernels;
}

}  // namespace backplane::device_ops
