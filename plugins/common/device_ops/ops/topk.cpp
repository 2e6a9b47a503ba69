// TopK: https://onnx.ai/onnx/operators/onnx__TopK.html
#include "op_table.hpp"
#include "plugins/common/device_ops/walk.hpp"

namespace backplane::device_ops {
namespace {

/// Each line is gone through once; what is better than the last of the k found so far is put in its place.
constexpr char kBody[] = R"kernel(
  x += i1 * n * inner + i0;
  y += i1 * k * inner + i0;
  at += i1 * k * inner + i0;
  i64 found = 0;
  for (i64 j = 0; j < n; ++j) {
    VALUE(T) v = LOAD(T, x, j * inner);
    if (found == k && !(BETTER(v, LOAD(T, y, (k - 1) * inner)))) continue;
    i64 place = found < k ? found : k - 1;
    for (; place > 0 && (BETTER(v, LOAD(T, y, (place - 1) * inner))); --place) {
      y[place * inner] = y[(place - 1) * inner];
      at[place * inner] = at[(place - 1) * inner];
    }
    STORE(T, y, place * inner, v);
    at[place * inner] = j;
    if (found < k) ++found;
  }
)kernel";

class TopK {
 public:
  TopK(const Device&, const sdk::Node& node)
      : axis_(node.get_int("axis", -1)),
        largest_(node.get_int("largest", 1) != 0),
        k_(node.get_int("k", -1)) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    const int axis = normalize_axis(axis_, x.rank());
    const std::int64_t k = ctx.input(1).present() ? ctx.input(1).to_ints().at(0) : k_;
    const std::int64_t n = x.dim(axis);
    if (k < 0 || k > n) sdk::invalid("TopK of ", k, " of ", n, " elements");
    // One work item a line: past this the time grows with the product of both.
    if (k > 1024) sdk::unsupported("TopK of ", k, " elements; the kernel takes 1024");
    Dims dims(x.dims().begin(), x.dims().end());
    dims[static_cast<std::size_t>(axis)] = k;
    ctx.set_output(0, x.type(), dims);
    ctx.set_output(1, DataType::Int64, dims);
    if (k == 0) return;
    const std::int64_t inner = common::product(x.dims(), axis + 1, x.rank());
    Walk walk(Dims{common::product(x.dims(), 0, axis), inner});
    walk.in("x", input(0), x.type()).out("y", output(0), x.type());
    walk.out("at", output(1), DataType::Int64).number("n", n).number("k", k).number("inner", inner);
    walk.define("T", type_code(x.type()));
    // NaN counts as greater than every number.
    walk.define("BETTER(a, b)", largest_ ? "(a) > (b) || ((a) != (a) && (b) == (b))"
                                         : "(a) < (b) || ((b) != (b) && (a) == (a))");
    walk.body = kBody;
    walk.add_to(work);
  }

 private:
  std::int64_t axis_;
  bool largest_;
  std::int64_t k_;
};

}  // namespace

KernelList topk_kernels() {
  return {device_kernel<TopK>(sdk::op("TopK")
                                  .name(kernel_name("topk"))
                                  .types("T", number_types())
                                  .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE}))};
}

}  // namespace backplane::device_ops
