// And, Or, Xor, Not, BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseNot, BitShift:
// https://onnx.ai/onnx/operators/onnx__And.html and the pages beside it.
#include <string>
#include <string_view>

#include "backplane/plugin.hpp"
#include "plugins/common/broadcast.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/binary_plan.hpp"
#include "plugins/cpu/kernels/binary_scalar.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

// On bools these work too: their bytes are 0 and 1.
struct BitAnd {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct BitOr {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct BitXor {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};
// A shift by the width of the type or more, which in C++ is undefined, moves every bit out; a negative
// amount is such a one. Signed numbers keep their sign when they move to the right.
template <class T>
constexpr bool moves_all_out(T amount) {
  return static_cast<std::make_unsigned_t<T>>(amount) >= 8 * sizeof(T);
}
struct ShiftLeft {
  template <class T>
  T operator()(T a, T b) const {
    return moves_all_out(b) ? T(0) : static_cast<T>(static_cast<Wrapping<T>>(a) << b);
  }
};
struct ShiftRight {
  template <class T>
  T operator()(T a, T b) const {
    return moves_all_out(b) ? static_cast<T>(a < 0 ? -1 : 0) : static_cast<T>(a >> b);
  }
};

/// With bits, signedness does not matter: the loop is that of the unsigned type of the same size.
template <class Op>
RowLoops loops_of_size(DataType type) {
  switch (sdk::element_bytes(type)) {
    case 1:
      return scalar_loops<Op, std::uint8_t>();
    case 2:
      return scalar_loops<Op, std::uint16_t>();
    case 4:
      return scalar_loops<Op, std::uint32_t>();
    default:
      return scalar_loops<Op, std::uint64_t>();
  }
}

template <class Op>
RowLoops loops_of_type(DataType type) {
  return common::with_type<std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t,
                           std::uint16_t, std::uint32_t, std::uint64_t>(
      type, [](auto tag) { return scalar_loops<Op, typename decltype(tag)::type>(); });
}

using ChooseLoops = RowLoops (*)(DataType type);

ChooseLoops choose_loops(const sdk::Node& node) {
  const std::string_view op = node.op_type();
  if (op == "And" || op == "BitwiseAnd") return loops_of_size<BitAnd>;
  if (op == "Or" || op == "BitwiseOr") return loops_of_size<BitOr>;
  if (op == "Xor" || op == "BitwiseXor") return loops_of_size<BitXor>;
  const std::string direction = node.get_string("direction", "");
  if (direction == "LEFT") return loops_of_type<ShiftLeft>;
  if (direction == "RIGHT") return loops_of_type<ShiftRight>;
  sdk::invalid("attribute 'direction' of BitShift is '", direction, "'; use LEFT or RIGHT");
}

/// y = a op b, bit by bit.
class BitwiseBinary {
 public:
  struct Prepared {
    BroadcastRows rows;
    void compute(const sdk::ComputeContext& ctx) const {
      rows.run(ctx.input(0).bytes_data(), ctx.input(1).bytes_data(),
               ctx.output(0).mutable_data<char>(), ctx.threads());
    }
  };

  BitwiseBinary(const sdk::CreateContext&, const sdk::Node& node)
      : choose_(choose_loops(node)), legacy_(node) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor a = ctx.input(0);
    const sdk::Dims second = legacy_.second_dims(a.dims(), ctx.input(1).dims());
    const sdk::Dims out = common::broadcast_dims({a.dims(), second});
    ctx.set_output(0, a.type(), out);
    if (sdk::Dims(a.dims().begin(), a.dims().end()) == out) ctx.allow_in_place(0, 0);
    const std::int64_t bytes = sdk::element_bytes(a.type());
    const BroadcastRows::Elements elements{bytes, bytes, bytes, 0.2};
    return {BroadcastRows(a.dims(), second, out, elements, choose_(a.type()))};
  }

 private:
  ChooseLoops choose_;
  LegacyBroadcast legacy_;
};

/// Not (bools) and BitwiseNot (integers) flip bits: the lowest one, or all.
class Flip {
 public:
  struct Prepared {
    std::int64_t bytes;
    std::uint8_t mask;
    void compute(const sdk::ComputeContext& ctx) const {
      const auto* x = ctx.input(0).data<std::uint8_t>();
      auto* y = ctx.output(0).mutable_data<std::uint8_t>();
      split_elements(ctx.threads(), bytes, 0.1,
                     [x, y, flipped = mask](std::int64_t begin, std::int64_t end) {
                       // Copies, which stores to bytes cannot change.
                       const std::uint8_t* from = x;
                       std::uint8_t* to = y;
                       const std::uint8_t bits = flipped;
                       for (std::int64_t i = begin; i < end; ++i)
                         to[i] = static_cast<std::uint8_t>(from[i] ^ bits);
                     });
    }
  };

  Flip(const sdk::CreateContext&, const sdk::Node& node) : mask_(node.is("Not") ? 1 : 0xFF) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    ctx.set_output(0, x.type(), x.dims());
    ctx.allow_in_place(0, 0);
    return {x.size() * sdk::element_bytes(x.type()), mask_};
  }

 private:
  std::uint8_t mask_;
};

}  // namespace

sdk::KernelList logical_kernels() {
  sdk::KernelList list;
  for (const char* op : {"And", "Or", "Xor"}) {
    list.push_back(sdk::op(op)
                       .name(std::string("cpu:") + op)
                       .types("T", {DataType::Bool})
                       .kernel<BitwiseBinary>());
  }
  for (const char* op : {"BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift"}) {
    list.push_back(sdk::op(op)
                       .name(std::string("cpu:") + op)
                       .types("T", common::integer_types())
                       .kernel<BitwiseBinary>());
  }
  list.push_back(sdk::op("Not").name("cpu:Not").types("T", {DataType::Bool}).kernel<Flip>());
  list.push_back(sdk::op("BitwiseNot")
                     .name("cpu:BitwiseNot")
                     .types("T", common::integer_types())
                     .kernel<Flip>());
  return list;
}

}  // namespace backplane::cpu
