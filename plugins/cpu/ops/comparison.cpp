// Equal, Less, LessOrEqual, Greater, GreaterOrEqual: https://onnx.ai/onnx/operators/onnx__Equal.html and
// the pages beside it.
#include <string>
#include <string_view>

#include "backplane/plugin.hpp"
#include "plugins/common/broadcast.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/binary_plan.hpp"
#include "plugins/cpu/kernels/compare.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

/// An operator and its comparison.
struct Row {
  const char* op_type;
  Compare compare;
};

constexpr Row kRows[] = {
    {"Equal", Compare::kEqual},
    {"Less", Compare::kLess},
    {"LessOrEqual", Compare::kLessOrEqual},
    {"Greater", Compare::kGreater},
    {"GreaterOrEqual", Compare::kGreaterOrEqual},
};

Compare compare_of(std::string_view op_type) {
  for (const Row& row : kRows) {
    if (op_type == row.op_type) return row.compare;
  }
  sdk::unsupported("the comparison kernel does not know operator '", op_type, "'");
}

/// y = a op b, as bool.
class Comparison {
 public:
  struct Prepared {
    BroadcastRows rows;
    void compute(const sdk::ComputeContext& ctx) const {
      rows.run(ctx.input(0).bytes_data(), ctx.input(1).bytes_data(),
               ctx.output(0).mutable_data<char>(), ctx.threads());
    }
  };

  Comparison(const sdk::CreateContext& ctx, const sdk::Node& node)
      : compare_(compare_of(node.op_type())), isa_(isa_of(ctx)), legacy_(node) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor a = ctx.input(0);
    const sdk::Dims second = legacy_.second_dims(a.dims(), ctx.input(1).dims());
    const sdk::Dims out = common::broadcast_dims({a.dims(), second});
    ctx.set_output(0, DataType::Bool, out);
    const bool is_half = a.type() == DataType::Float16 || a.type() == DataType::BFloat16;
    const RowLoops loops = compare_loops(isa_, compare_, is_half ? DataType::Float : a.type());
    const HalfConversion* half = is_half ? &half_conversion(isa_, a.type()) : nullptr;
    const std::int64_t bytes = sdk::element_bytes(a.type());
    const BroadcastRows::Elements elements{bytes, bytes, 1, 0.15};
    return {BroadcastRows(a.dims(), second, out, elements, loops, half, false)};
  }

 private:
  Compare compare_;
  Isa isa_;
  LegacyBroadcast legacy_;
};

/// Equal of strings, element by element on the caller's thread.
class EqualStrings {
 public:
  struct Prepared {
    common::BroadcastLoops loops;
    std::int64_t count;

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Value a = ctx.input_value(0);
      const sdk::Value b = ctx.input_value(1);
      auto* y = ctx.output(0).mutable_data<std::uint8_t>();
      for (std::int64_t i = 0; i < count; ++i) {
        y[i] = a.string_at(offset(0, i)) == b.string_at(offset(1, i)) ? 1 : 0;
      }
    }

    std::uint64_t offset(std::size_t operand, std::int64_t index) const {
      std::int64_t result = 0;
      for (std::size_t axis = loops.dims.size(); axis-- > 0;) {
        result += index % loops.dims[axis] * loops.strides[operand][axis];
        index /= loops.dims[axis];
      }
      return static_cast<std::uint64_t>(result);
    }
  };

  EqualStrings(const sdk::CreateContext&, const sdk::Node&) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::DimsView a = ctx.input(0).dims();
    const sdk::DimsView b = ctx.input(1).dims();
    const sdk::Dims out = common::broadcast_dims({a, b});
    ctx.set_output(0, DataType::Bool, out);
    return {common::plan_broadcast(out, {a, b}), sdk::element_count(out)};
  }
};

}  // namespace

sdk::KernelList comparison_kernels() {
  const common::TypeList numbers = common::number_types();
  sdk::KernelList list;
  for (const Row& row : kRows) {
    const bool equal = row.compare == Compare::kEqual;
    list.push_back(sdk::op(row.op_type)
                       .name(std::string("cpu:") + row.op_type)
                       .types("T", equal ? common::join(numbers, {DataType::Bool}) : numbers)
                       .kernel<Comparison>());
  }
  list.push_back(sdk::op("Equal")
                     .name("cpu:Equal strings")
                     .since(19)
                     .types("T", {DataType::String})
                     .kernel<EqualStrings>());
  return list;
}

}  // namespace backplane::cpu
