// Pow: https://onnx.ai/onnx/operators/onnx__Pow.html
#include <cmath>

#include "backplane/plugin.hpp"
#include "plugins/common/broadcast.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/binary_plan.hpp"
#include "plugins/cpu/kernels/binary_scalar.hpp"

namespace backplane::cpu {
namespace {

/// a^b in a's type for operands of different types: whole powers of integers exactly, all else in double.
struct MixedPower {
  template <class A, class B>
  A operator()(A base, B exponent) const {
    if constexpr (std::is_integral_v<A> && std::is_integral_v<B>) {
      return integer_power(base, static_cast<std::int64_t>(exponent));
    } else {
      return common::narrow<A>(std::pow(static_cast<double>(common::widen(base)),
                                        static_cast<double>(common::widen(exponent))));
    }
  }
};

RowLoops mixed_loops(sdk::DataType base, sdk::DataType exponent) {
  return common::with_type<float, double, common::Half, common::BFloat16, std::int32_t,
                           std::int64_t>(base, [exponent](auto base_tag) {
    using A = typename decltype(base_tag)::type;
    return common::with_number(exponent, [](auto exponent_tag) {
      return scalar_loops<MixedPower, A, typename decltype(exponent_tag)::type, A>();
    });
  });
}

/// The number of a tensor of one, in the type T; false where T does not hold it.
template <class T>
bool number_in(const sdk::Tensor& tensor, T& number) {
  return common::with_number(tensor.type(), [&](auto tag) {
    using From = typename decltype(tag)::type;
    const auto given = common::widen(*tensor.data<From>());
    // Whole numbers up to 2^24 are the same in all types.
    if (!(std::fabs(static_cast<double>(given)) <= 16777216.0)) return false;
    number = static_cast<T>(given);
    return static_cast<double>(number) == static_cast<double>(given);
  });
}

class Pow {
 public:
  struct Prepared {
    BroadcastRows rows;
    BroadcastRows same;  // where one exponent of another type is a number of the base's type, too
    bool is_one_of_another = false;

    void compute(const sdk::ComputeContext& ctx) const {
      if (is_one_of_another) {
        if (ctx.input(0).type() == sdk::DataType::Float) {
          if (run_same<float>(ctx)) return;
        } else if (run_same<double>(ctx)) {
          return;
        }
      }
      rows.run(ctx.input(0).bytes_data(), ctx.input(1).bytes_data(),
               ctx.output(0).mutable_data<char>(), ctx.threads());
    }

   private:
    template <class T>
    bool run_same(const sdk::ComputeContext& ctx) const {
      T exponent = 0;
      if (!number_in(ctx.input(1), exponent)) return false;
      same.run(ctx.input(0).bytes_data(), &exponent, ctx.output(0).mutable_data<char>(),
               ctx.threads());
      return true;
    }
  };

  Pow(const sdk::CreateContext& ctx, const sdk::Node& node) : isa_(isa_of(ctx)), legacy_(node) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor base = ctx.input(0);
    const sdk::Tensor exponent = ctx.input(1);
    const sdk::Dims second = legacy_.second_dims(base.dims(), exponent.dims());
    const sdk::Dims out = common::broadcast_dims({base.dims(), second});
    ctx.set_output(0, base.type(), out);
    if (sdk::Dims(base.dims().begin(), base.dims().end()) == out) ctx.allow_in_place(0, 0);
    if (base.type() == exponent.type()) {
      return {plan_binary(BinaryOp::kPow, base.type(), isa_, base.dims(), second, out), {}};
    }
    const std::int64_t bytes = sdk::element_bytes(base.type());
    const BroadcastRows::Elements elements{bytes, sdk::element_bytes(exponent.type()), bytes, 15};
    Prepared prepared{BroadcastRows(base.dims(), second, out, elements,
                                    mixed_loops(base.type(), exponent.type())),
                      {}};
    const bool is_float =
        base.type() == sdk::DataType::Float || base.type() == sdk::DataType::Double;
    if (is_float && exponent.size() == 1) {
      prepared.is_one_of_another = true;
      prepared.same = plan_binary(BinaryOp::kPow, base.type(), isa_, base.dims(), second, out);
    }
    return prepared;
  }

 private:
  Isa isa_;
  LegacyBroadcast legacy_;
};

}  // namespace

sdk::KernelList pow_kernels() {
  const common::TypeList bases =
      common::join(common::float_types(), {sdk::DataType::Int32, sdk::DataType::Int64});
  return {sdk::op("Pow")
              .name("cpu:Pow")
              .since(1, 11)
              .types("T", bases)
              .flags(BP_KERNEL_WIDENS_HALF)
              .kernel<Pow>(),
          sdk::op("Pow")
              .name("cpu:Pow")
              .since(12)
              .types("T", bases)
              .types("T1", common::number_types())
              .flags(BP_KERNEL_WIDENS_HALF)
              .kernel<Pow>()};
}

}  // namespace backplane::cpu
