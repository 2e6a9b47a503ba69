// RNN, GRU, LSTM: https://onnx.ai/onnx/operators/onnx__RNN.html, onnx__GRU.html, onnx__LSTM.html
#include "plugins/cpu/dense/recurrent.hpp"

#include "plugins/common/types.hpp"
#include "plugins/cpu/dense/recurrent_node.hpp"
#include "plugins/cpu/device.hpp"

namespace backplane::cpu {
namespace {

/// Elements of type T, computed in W (T itself, or float for the 16-bit types).
template <class T, Cell kCell>
class RecurrentKernel : RecurrentInput {
 public:
  using W = std::conditional_t<common::kIsHalfType<T>, float, T>;
  static constexpr bool kConverts = common::kIsHalfType<T>;

  struct Prepared {
    Recurrent<W> layer;
    bool w_packed, r_packed;
    std::uint64_t converted_bytes;
    bool is_empty = false;  // no sequences, of any number of steps

    void compute(const sdk::ComputeContext& ctx) const {
      if (ctx.has_input(kLengths)) check_lengths(ctx.input(kLengths), layer.steps());
      if (is_empty) return;
      char* place = ctx.workspace().mutable_data<char>();
      char* workspace = place + converted_bytes;
      const auto take = [&](std::int64_t count) {
        W* part = reinterpret_cast<W*>(place);
        place += bytes_of(count);
        return part;
      };
      const auto input = [&](std::uint32_t index) -> const W* {
        if (!ctx.has_input(index)) return nullptr;
        const sdk::Tensor tensor = ctx.input(index);
        if constexpr (kConverts) {
          W* to = take(tensor.size());
          const T* from = tensor.data<T>();
          for (std::int64_t i = 0; i < tensor.size(); ++i) to[i] = common::to_float(from[i]);
          return to;
        } else {
          return tensor.data<W>();
        }
      };
      const auto output = [&](std::uint32_t index) -> W* {
        if (!ctx.has_output(index)) return nullptr;
        const sdk::Tensor tensor = ctx.output(index);
        if constexpr (kConverts) {
          return take(tensor.size());
        } else {
          return tensor.mutable_data<W>();
        }
      };
      RecurrentArgs<W> args = recurrent_args<W>(ctx, kCell, input, output);
      args.w_packed = weights(ctx, 0, w_packed, input, take);
      args.r_packed = weights(ctx, 1, r_packed, input, take);
      layer.run(args, workspace, ctx.threads());
      if constexpr (kConverts) {
        const W* results[] = {args.y, args.y_h, args.y_c};
        for (std::uint32_t i = 0; i < 3; ++i) {
          if (results[i] != nullptr) narrow(results[i], ctx.output(i));
        }
      }
    }

    /// W (which = 0) or R (1), packed.
    template <class Input, class Take>
    const W* weights(const sdk::ComputeContext& ctx, std::uint32_t which, bool packed,
                     const Input& input, const Take& take) const {
      if (packed) return ctx.packed(which == 0 || !w_packed ? 0 : 1).template data<W>();
      const W* from = input(which == 0 ? kW : kR);
      W* to = take(which == 0 ? layer.w_size() : layer.r_size());
      if (which == 0) {
        layer.pack_w(from, to, ctx.threads());
      } else {
        layer.pack_r(from, to, ctx.threads());
      }
      return to;
    }

    static void narrow(const float* from, const sdk::Tensor& output) {
      T* to = output.mutable_data<T>();
      for (std::int64_t i = 0; i < output.size(); ++i) to[i] = common::narrow<T>(from[i]);
    }
  };

  RecurrentKernel(const sdk::CreateContext& ctx, const sdk::Node& node)
      : shape_(recurrent_shape(node, kCell)),
        isa_(isa_of(ctx)),
        w_packer_{this, 0},
        r_packer_{this, 1} {
    // Weights that are fed are packed in every run: as they are.
    if (!kConverts && node.input(kW).is_constant() && node.input(kR).is_constant())
      shape_.products = products_of(ctx);
  }
  RecurrentKernel(const RecurrentKernel&) = delete;
  RecurrentKernel& operator=(const RecurrentKernel&) = delete;

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor r = ctx.input(kR);
    if (r.rank() != 3) sdk::invalid("R has rank ", r.rank(), ", expected 3");
    RecurrentShape shape = shape_;
    set_recurrent_dims(ctx, r.dim(2), shape);
    const std::int64_t rows = shape.gates() * shape.hidden;
    check_recurrent_dims(ctx, kW, "W", {shape.directions, rows, shape.input});
    check_recurrent_dims(ctx, kR, "R", {shape.directions, rows, shape.hidden});
    Prepared p{Recurrent<W>(shape, isa_, ctx.threads().count()), false, false, 0};
    if constexpr (!kConverts) request_weights(ctx, p);
    if constexpr (kConverts) {
      for (const std::uint32_t i : {kX, kW, kR, kBiases, kH, kC, kP})
        p.converted_bytes += bytes_of(ctx.input(i).present() ? ctx.input(i).size() : 0);
      const std::int64_t state = shape.directions * shape.batch * shape.hidden;
      p.converted_bytes += bytes_of(shape.steps * state) + 2 * bytes_of(state);
    }
    if (!p.w_packed) p.converted_bytes += bytes_of(p.layer.w_size());
    if (!p.r_packed) p.converted_bytes += bytes_of(p.layer.r_size());
    p.is_empty = shape.batch == 0;
    if (!p.is_empty) ctx.set_workspace(p.converted_bytes + p.layer.workspace_bytes());
    ctx.set_variant(p.w_packed && p.r_packed
                        ? packed_variant(product_weights(shape.products), shape.products)
                        : "packing");
    ctx.set_cost(shape.operations(), ctx.input(kR).bytes());
    return p;
  }

 private:
  struct Packer {
    const RecurrentKernel* kernel;
    int which;

    void pack(const sdk::PackContext& ctx) const {
      if constexpr (!kConverts) {
        const sdk::Tensor source = ctx.source(0);
        RecurrentShape shape = kernel->shape_;
        shape.hidden = source.dim(1) / shape.gates();
        shape.input = source.dim(2);
        const Recurrent<W> layer(shape, kernel->isa_, 1);
        W* to = ctx.target().mutable_data<W>();
        if (which == 0) {
          layer.pack_w(source.data<W>(), to, ctx.threads());
        } else {
          layer.pack_r(source.data<W>(), to, ctx.threads());
        }
      }
    }
  };

  static std::uint64_t bytes_of(std::int64_t count) {
    return (static_cast<std::uint64_t>(count) * sizeof(W) + 63) / 64 * 64;
  }

  void request_weights(sdk::PrepareContext& ctx, Prepared& p) const {
    p.w_packed = ctx.input_constant(kW);
    p.r_packed = ctx.input_constant(kR);
    const auto request = [&](std::uint32_t input, std::int64_t size, const Packer* packer) {
      const std::string key =
          sdk::message("recurrent ", static_cast<int>(kCell), " part ", packer->which, " type ",
                       sdk::type_name(ctx.input(input).type()), " isa ", static_cast<int>(isa_),
                       " dims ", sdk::to_string(ctx.input(input).dims()), " before reset ",
                       shape_.linear_before_reset, " products ", static_cast<int>(shape_.products));
      ctx.request_pack(key, {input}, static_cast<std::uint64_t>(size) * sizeof(W), packer);
      ctx.ignore_input(input);
    };
    if (p.w_packed) request(kW, p.layer.w_size(), &w_packer_);
    if (p.r_packed) request(kR, p.layer.r_size(), &r_packer_);
  }

  RecurrentShape shape_;
  Isa isa_;
  Packer w_packer_, r_packer_;
};

template <class T, Cell kCell>
sdk::KernelEntry entry(const char* op_type, int since) {
  constexpr sdk::DataType kType = sdk::data_type_of<T>();
  return sdk::op(op_type)
      .name(std::string("cpu:") + op_type + "_" + sdk::type_name(kType))
      .since(since)
      .types("T", {kType})
      .flags(BP_KERNEL_WIDENS_HALF)
      .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_WEIGHT, BP_INPUT_DATA})
      .template kernel<RecurrentKernel<T, kCell>>();
}

template <Cell kCell>
void add(sdk::KernelList& list, const char* op_type) {
  constexpr int kFirst = 7;  // versions before had an output_sequence and other optional inputs
  list.push_back(entry<float, kCell>(op_type, kFirst));
  list.push_back(entry<double, kCell>(op_type, kFirst));
  list.push_back(entry<sdk::Half, kCell>(op_type, kFirst));
  list.push_back(entry<sdk::BFloat16, kCell>(op_type, 22));
}

}  // namespace

sdk::KernelList recurrent_kernels() {
  sdk::KernelList list;
  add<Cell::kRnn>(list, "RNN");
  add<Cell::kGru>(list, "GRU");
  add<Cell::kLstm>(list, "LSTM");
  return list;
}

}  // namespace backplane::cpu
