// Identity, Dropout (inference): https://onnx.ai/onnx/operators/onnx__Identity.html,
// onnx__Dropout.html
#include <cstring>
#include <limits>
#include <string>

#include "backplane/plugin.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/kernels/convert.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

/// Copies a tensor's memory unless both are the same.
void copy_memory(const sdk::Tensor& from, const sdk::Tensor& to, const sdk::Threads& threads) {
  const char* x = from.data<char>();
  char* y = to.mutable_data<char>();
  if (x == y) return;
  split_elements(threads, static_cast<std::int64_t>(to.bytes()), 0.05,
                 [&](std::int64_t begin, std::int64_t end) {
                   std::memcpy(y + begin, x + begin, static_cast<std::size_t>(end - begin));
                 });
}

void copy_strings(const sdk::Value& from, const sdk::Value& to) {
  const auto count = static_cast<std::uint64_t>(from.tensor().size());
  for (std::uint64_t i = 0; i < count; ++i) to.set_string(i, from.string_at(i));
}

/// The input, of any type; a tensor's as a view where the host grants it.
class Identity {
 public:
  struct Prepared {
    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Value x = ctx.input_value(0);
      const sdk::Value y = ctx.output_value(0);
      if (x.kind() != BP_VALUE_TENSOR) {
        for (std::uint64_t i = 0; i < x.sequence_size(); ++i) y.append(x.sequence_at(i));
      } else if (x.tensor().type() == DataType::String) {
        copy_strings(x, y);
      } else {
        copy_memory(x.tensor(), y.tensor(), ctx.threads());
      }
    }
  };

  Identity(const sdk::CreateContext&, const sdk::Node& node) : type_(node.input(0).type_string()) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    if (ctx.input_value(0).kind() != BP_VALUE_TENSOR && !x.present()) {
      ctx.set_output_type(0, type_.c_str());
      return {};
    }
    ctx.set_output(0, x.type(), x.dims());
    if (x.type() != DataType::String) ctx.set_view(0, 0);
    return {};
  }

 private:
  std::string type_;
};

/// The input, and a mask of ones: nothing is dropped in inference.
class Dropout {
 public:
  struct Prepared {
    std::int64_t count = 0;
    void compute(const sdk::ComputeContext& ctx) const {
      copy_memory(ctx.input(0), ctx.output(0), ctx.threads());
      if (!ctx.has_output(1)) return;
      const sdk::Tensor mask = ctx.output(1);
      if (mask.type() == DataType::Bool) {
        std::fill_n(mask.mutable_data<std::uint8_t>(), count, std::uint8_t{1});
        return;
      }
      common::with_float(mask.type(), [&](auto tag) {  // before opset 10
        using T = typename decltype(tag)::type;
        std::fill_n(mask.mutable_data<T>(), count, common::narrow<T>(1.0f));
      });
    }
  };

  Dropout(const sdk::CreateContext&, const sdk::Node& node)
      : bool_mask_(node.since_version() >= 10),
        trains_(node.since_version() < 7 && node.get_int("is_test", 0) == 0 && node.output(1)) {
    if (trains_) {
      sdk::unsupported(
          "Dropout drops elements here (attribute 'is_test' is 0 and the mask is used), "
          "which is training");
    }
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    if (ctx.input(2).present() && *ctx.input(2).data<std::uint8_t>() != 0 && !ratio_is_zero(ctx)) {
      sdk::unsupported(
          "Dropout drops elements here (input 'training_mode' is true), which is training");
    }
    ctx.set_output(0, x.type(), x.dims());
    ctx.set_view(0, 0);
    if (ctx.output_wanted(1)) ctx.set_output(1, bool_mask_ ? DataType::Bool : x.type(), x.dims());
    return {x.size()};
  }

 private:
  /// The ratio is 0.5 where the node does not give one.
  static bool ratio_is_zero(const sdk::PrepareContext& ctx) {
    const sdk::Tensor ratio = ctx.input(1);
    if (!ratio.present()) return false;
    float value = 0;
    Converter(ratio.type(), DataType::Float, {}, Isa::kBaseline)
        .run(ratio.bytes_data(), &value, 0, 1);
    return value == 0;
  }

  bool bool_mask_;
  bool trains_;
};

}  // namespace

sdk::KernelList identity_kernels() {
  const common::TypeList floats =
      common::join(common::float_types(), {DataType::Float8E4M3FN, DataType::Float8E4M3FNUZ,
                                           DataType::Float8E5M2, DataType::Float8E5M2FNUZ});
  const auto dropout = [&](int first, int last) {
    return sdk::op("Dropout").name("cpu:Dropout").since(first, last).types("T", floats);
  };
  return {sdk::op("Identity").name("cpu:Identity").kernel<Identity>(),
          dropout(1, 11).kernel<Dropout>(),
          dropout(12, std::numeric_limits<int>::max())
              .types("T1", floats)
              .types("T2", {DataType::Bool})
              .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE, BP_INPUT_HOST_VALUE})
              .kernel<Dropout>()};
}

}  // namespace backplane::cpu
