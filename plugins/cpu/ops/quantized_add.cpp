// backplane.cpu::QuantizedAdd, which a rewrite makes of an Add of equal dims between DequantizeLinear and
// QuantizeLinear: inputs a and b (bytes); attributes a_scale and b_scale (their scales by y's), a_type,
// a_zero, b_type, b_zero and those of QuantizedResult.
// y = clamp(round((a - a_zero) * a_scale + (b - b_zero) * b_scale) + zero, least, most).
#include "plugins/cpu/dense/finish_attributes.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

class QuantizedAdd {
 public:
  struct Prepared {
    AddU8 add;
    const KernelsU8* kernels;

    void compute(const sdk::ComputeContext& ctx) const {
      AddU8 all = add;
      all.a = static_cast<const std::uint8_t*>(ctx.input(0).bytes_data());
      all.b = static_cast<const std::uint8_t*>(ctx.input(1).bytes_data());
      all.y = reinterpret_cast<std::uint8_t*>(ctx.output(0).mutable_data<char>());
      split_elements(ctx.threads(), ctx.output(0).size(), 0.15,
                     [&](std::int64_t begin, std::int64_t end) {
                       AddU8 part = all;
                       part.a += begin;
                       part.b += begin;
                       part.y += begin;
                       kernels->add(part, end - begin);
                     });
    }
  };

  QuantizedAdd(const sdk::CreateContext& ctx, const sdk::Node& node)
      : result_(node), isa_(isa_of(ctx)) {
    add_.finish = result_.finish;
    add_.a_scale = node.get_float("a_scale", 0);
    add_.b_scale = node.get_float("b_scale", 0);
    add_.a_flip = is_signed_input(node, "a") ? 0x80 : 0;
    add_.b_flip = is_signed_input(node, "b") ? 0x80 : 0;
    add_.a_zero = static_cast<std::int32_t>(node.get_int("a_zero", 0)) + add_.a_flip;
    add_.b_zero = static_cast<std::int32_t>(node.get_int("b_zero", 0)) + add_.b_flip;
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor a = ctx.input(0);
    if (sdk::to_string(a.dims()) != sdk::to_string(ctx.input(1).dims())) {
      sdk::invalid("a has dims ", sdk::to_string(a.dims()), ", b ",
                   sdk::to_string(ctx.input(1).dims()), "; they must be equal");
    }
    ctx.set_output(0, result_.type, a.dims());
    ctx.allow_in_place(0, 0);
    ctx.allow_in_place(0, 1);
    return {add_, &kernels_u8(isa_)};
  }

 private:
  QuantizedResult result_;
  AddU8 add_{};
  Isa isa_;
};

}  // namespace

sdk::KernelList quantized_add_kernels() {
  return {
      sdk::op("QuantizedAdd", "backplane.cpu").name("cpu:quantized_add").kernel<QuantizedAdd>()};
}

}  // namespace backplane::cpu
