// backplane.cpu::ScaleShift: y = activation(x * scale[channel] + shift[channel]), channels last, or with the attribute
// channels_first the second axis.
// backplane.cpu::Add: y = activation(a + b), equal dims.
// backplane.cpu::Gelu: y = x * (1 + erf(x / sqrt(2))) / 2.
#include <algorithm>

#include "plugins/cpu/dense/activation_attributes.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/normalize.hpp"

namespace backplane::cpu {
namespace {

constexpr uint64_t kGrainFloats = 16384;  // worth a thread's attention

/// A tensor as rows of its last axis, whose step may be larger than they are long.
struct Rows {
  int64_t count = 1, columns = 1, step = 1;

  /// Throws where rows do not follow each other at a fixed step; see uniform().
  explicit Rows(const sdk::Tensor& tensor) {
    const int rank = tensor.rank();
    if (rank == 0) return;
    columns = tensor.dim(rank - 1);
    step = columns;
    for (int axis = 0; axis + 1 < rank; ++axis) count *= tensor.dim(axis);
    if (tensor.strides() != nullptr && rank > 1) step = tensor.strides()[rank - 2];
  }

  static bool uniform(const sdk::Tensor& tensor) {
    if (tensor.strides() == nullptr || tensor.rank() < 2) return true;
    int64_t expected = tensor.strides()[tensor.rank() - 2];
    for (int axis = tensor.rank() - 2; axis >= 0; --axis) {
      if (tensor.dim(axis) != 1 && tensor.strides()[axis] != expected) return false;
      expected *= tensor.dim(axis);
    }
    return true;
  }
};

/// Calls body(x offset, y offset, rows) for parts of the rows; tensors whose rows do not lie at a fixed step
/// are taken row by row.
template <class Body>
void for_rows(const sdk::Tensor& x, const sdk::Tensor& y, const sdk::Threads& threads,
              const Body& body) {
  const Rows x_rows(x);
  const Rows y_rows(y);
  const bool uniform = Rows::uniform(x) && Rows::uniform(y);
  const auto offset = [](const sdk::Tensor& tensor, const Rows& rows, int64_t row) {
    if (tensor.strides() == nullptr) return row * rows.step;
    int64_t at = 0;
    for (int axis = tensor.rank() - 2; axis >= 0; --axis) {
      at += row % tensor.dim(axis) * tensor.strides()[axis];
      row /= tensor.dim(axis);
    }
    return at;
  };
  const uint64_t grain =
      kGrainFloats / static_cast<uint64_t>(std::max<int64_t>(1, x_rows.columns)) + 1;
  threads.parallel_for(static_cast<uint64_t>(x_rows.count), grain,
                       [&](uint64_t begin, uint64_t end, uint32_t) {
                         const auto first = static_cast<int64_t>(begin);
                         const auto last = static_cast<int64_t>(end);
                         if (uniform) {
                           body(first * x_rows.step, first * y_rows.step, last - first);
                           return;
                         }
                         for (int64_t row = first; row < last; ++row)
                           body(offset(x, x_rows, row), offset(y, y_rows, row), int64_t{1});
                       });
}

class ScaleShift {
 public:
  struct Prepared {
    Activation activation;
    const ActivationKernels* kernels;
    const NormalizeLoops<float>* loops;
    int64_t channels = 0, inner = 0;  // channels first: elements of a channel of one image

    void compute(const sdk::ComputeContext& ctx) const {
      if (inner > 0) return compute_planes(ctx);
      const sdk::Tensor x = ctx.input(0);
      const sdk::Tensor y = ctx.output(0);
      if (y.size() == 0) return;
      const auto* scale = ctx.input(1).data<float>();
      const auto* shift = ctx.input(2).data<float>();
      const Rows x_rows(x);
      const Rows y_rows(y);
      for_rows(x, y, ctx.threads(), [&](int64_t from, int64_t to, int64_t rows) {
        kernels->scale_shift(activation, x.data<float>() + from, x_rows.step, scale, shift,
                             y.mutable_data<float>() + to, y_rows.step, rows, x_rows.columns);
      });
    }

    /// Parts of planes, which the activation finds in the first-level cache.
    void compute_planes(const sdk::ComputeContext& ctx) const {
      constexpr int64_t kPart = 4096;
      const auto* x = ctx.input(0).data<float>();
      auto* y = ctx.output(0).mutable_data<float>();
      const auto* scale = ctx.input(1).data<float>();
      const auto* shift = ctx.input(2).data<float>();
      const int64_t parts = (inner + kPart - 1) / kPart;
      const auto count = static_cast<uint64_t>(ctx.output(0).size() / inner * parts);
      const uint64_t grain = kGrainFloats / static_cast<uint64_t>(std::min(inner, kPart)) + 1;
      ctx.threads().parallel_for(count, grain, [&](uint64_t begin, uint64_t end, uint32_t) {
        for (auto i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end); ++i) {
          const int64_t plane = i / parts, first = i % parts * kPart;
          const int64_t at = plane * inner + first, n = std::min(kPart, inner - first);
          loops->affine(x + at, y + at, n, scale[plane % channels], shift[plane % channels]);
          if (activation.changes()) kernels->apply(activation, y + at, n, 1, n);
        }
      });
    }
  };

  ScaleShift(const sdk::CreateContext& ctx, const sdk::Node& node)
      : activation_(read_activation(node)),
        first_(node.get_int("channels_first", 0) != 0),
        isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const int axis = first_ ? 1 : x.rank() - 1;
    for (uint32_t i = 1; i < 3; ++i) {
      const sdk::Tensor factor = ctx.input(i);
      if (factor.rank() != 1 || axis < 0 || x.rank() <= axis || factor.dim(0) != x.dim(axis)) {
        sdk::invalid("ScaleShift: x has dims ", sdk::to_string(x.dims()), ", input ", i, " has ",
                     sdk::to_string(factor.dims()), "; it needs one element per channel");
      }
    }
    ctx.set_output(0, sdk::DataType::Float, x.dims());
    ctx.allow_in_place(0, 0);
    Prepared prepared{activation_, &activation_kernels(isa_), &normalize_loops<float>(isa_)};
    if (first_) {
      prepared.channels = x.dim(1);
      prepared.inner = std::max<int64_t>(1, x.size() / std::max<int64_t>(1, x.dim(0) * x.dim(1)));
    } else {
      ctx.allow_strided_input(0);
      ctx.allow_strided_output(0);
    }
    return prepared;
  }

 private:
  Activation activation_;
  bool first_;
  Isa isa_;
};

class AddActivation {
 public:
  struct Prepared {
    Activation activation;
    const ActivationKernels* kernels;

    void compute(const sdk::ComputeContext& ctx) const {
      const int64_t count = ctx.output(0).size();
      const auto* a = ctx.input(0).data<float>();
      const auto* b = ctx.input(1).data<float>();
      auto* y = ctx.output(0).mutable_data<float>();
      ctx.threads().parallel_for(static_cast<uint64_t>(count), kGrainFloats,
                                 [&](uint64_t begin, uint64_t end, uint32_t) {
                                   kernels->add(activation, a + begin, 0, b + begin, 0, y + begin,
                                                0, 1, static_cast<int64_t>(end - begin));
                                 });
    }
  };

  AddActivation(const sdk::CreateContext& ctx, const sdk::Node& node)
      : activation_(read_activation(node)), isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor a = ctx.input(0);
    if (sdk::to_string(a.dims()) != sdk::to_string(ctx.input(1).dims())) {
      sdk::invalid("Add: inputs of dims ", sdk::to_string(a.dims()), " and ",
                   sdk::to_string(ctx.input(1).dims()), " must be equal in this fused form");
    }
    ctx.set_output(0, sdk::DataType::Float, a.dims());
    ctx.allow_in_place(0, 0);
    ctx.allow_in_place(0, 1);
    return {activation_, &activation_kernels(isa_)};
  }

 private:
  Activation activation_;
  Isa isa_;
};

class Gelu {
 public:
  struct Prepared {
    const ActivationKernels* kernels;

    void compute(const sdk::ComputeContext& ctx) const {
      const auto* x = ctx.input(0).data<float>();
      auto* y = ctx.output(0).mutable_data<float>();
      const Activation gelu{Activation::kGelu, 0.0f, 0.0f};
      ctx.threads().parallel_for(static_cast<uint64_t>(ctx.output(0).size()), kGrainFloats,
                                 [&](uint64_t begin, uint64_t end, uint32_t) {
                                   kernels->scale_shift(gelu, x + begin, 0, nullptr, nullptr,
                                                        y + begin, 0, 1,
                                                        static_cast<int64_t>(end - begin));
                                 });
    }
  };

  Gelu(const sdk::CreateContext& ctx, const sdk::Node&) : isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output(0, sdk::DataType::Float, ctx.input(0).dims());
    ctx.allow_in_place(0, 0);
    return {&activation_kernels(isa_)};
  }

 private:
  Isa isa_;
};

}  // namespace

sdk::KernelList scale_shift_kernels() {
  return {
      sdk::op("ScaleShift", "backplane.cpu").name("cpu:scale_shift").kernel<ScaleShift>(),
      sdk::op("Add", "backplane.cpu").name("cpu:add_activation").kernel<AddActivation>(),
      sdk::op("Gelu", "backplane.cpu").name("cpu:gelu_erf").kernel<Gelu>(),
  };
}

}  // namespace backplane::cpu
