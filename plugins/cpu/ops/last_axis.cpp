// Operators of backplane.cpu that a rewrite makes:
// Concat (axis), Softmax over the last axis of x + addend, Repeat (factors: each pixel so many times along each spatial axis),
// Activate (an activation by itself). Images are channels last.
#include <cstring>

#include "plugins/common/checked.hpp"
#include "plugins/cpu/dense/activation_attributes.hpp"
#include "plugins/cpu/dense/channel_kernels.hpp"
#include "plugins/cpu/dense/image_tensor.hpp"
#include "plugins/cpu/device.hpp"

namespace backplane::cpu {
namespace {

constexpr int64_t kGrainFloats = 16384;  // worth a thread's attention

uint64_t row_grain(int64_t columns) {
  return static_cast<uint64_t>(kGrainFloats / std::max<int64_t>(1, columns) + 1);
}

sdk::Dims dense_strides_of(const sdk::Dims& dims) {
  sdk::Dims strides(dims.size(), 1);
  for (std::size_t axis = dims.size(); axis-- > 1;)
    strides[axis - 1] = strides[axis] * std::max<int64_t>(1, dims[axis]);
  return strides;
}

/// Calls body(offset) for each index of all axes of `dims` but the last, with the offset that `strides` give.
struct RowOffsets {
  const sdk::DimsView dims;
  const int64_t* strides;

  int64_t count() const {
    int64_t rows = 1;
    for (std::size_t axis = 0; axis + 1 < dims.size(); ++axis) rows *= dims[axis];
    return rows;
  }
  int64_t at(int64_t row) const {
    int64_t offset = 0;
    for (std::size_t axis = dims.size() - 1; axis-- > 0;) {
      offset += row % dims[axis] * strides[axis];
      row /= dims[axis];
    }
    return offset;
  }
};

class Concat {
 public:
  struct Prepared {
    sdk::Dims strides;            // of a dense output
    std::vector<int64_t> starts;  // of each input along the axis
    std::vector<sdk::Dims> input_strides;
    std::size_t axis;

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Tensor y = ctx.output(0);
      for (uint32_t i = 0; i < ctx.input_count(); ++i) {
        if (!ctx.input_inside(i) && ctx.input(i).size() > 0) copy(ctx, ctx.input(i), y, i);
      }
    }

    void copy(const sdk::ComputeContext& ctx, const sdk::Tensor& x, const sdk::Tensor& y,
              uint32_t index) const {
      const int64_t* to = y.strides() != nullptr ? y.strides() : strides.data();
      const int64_t* from = x.strides() != nullptr ? x.strides() : input_strides[index].data();
      const RowOffsets source{x.dims(), from};
      const RowOffsets target{x.dims(), to};
      const int64_t columns = x.dim(x.rank() - 1);
      float* first = y.mutable_data<float>() + starts[index] * to[axis];
      ctx.threads().parallel_for(
          static_cast<uint64_t>(source.count()), row_grain(columns),
          [&](uint64_t begin, uint64_t end, uint32_t) {
            for (auto row = static_cast<int64_t>(begin); row < static_cast<int64_t>(end); ++row) {
              std::memcpy(first + target.at(row), x.data<float>() + source.at(row),
                          static_cast<std::size_t>(columns) * 4);
            }
          });
    }
  };

  Concat(const sdk::CreateContext&, const sdk::Node& node)
      : axis_(static_cast<std::size_t>(node.get_int("axis", 1))) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::DimsView first = ctx.input(0).dims();
    sdk::Dims dims(first.begin(), first.end());
    if (axis_ >= dims.size())
      sdk::invalid("Concat: axis ", axis_, " of an input of rank ", dims.size());
    Prepared prepared;
    prepared.axis = axis_;
    int64_t start = 0;
    for (uint32_t i = 0; i < ctx.input_count(); ++i) {
      const sdk::DimsView part = ctx.input(i).dims();
      bool same = part.size() == dims.size();
      for (std::size_t axis = 0; same && axis < dims.size(); ++axis)
        same = axis == axis_ || part[axis] == first[axis];
      if (!same)
        sdk::invalid("Concat: input ", i, " has dims ", sdk::to_string(part), ", input 0 ",
                     sdk::to_string(first));
      prepared.starts.push_back(start);
      prepared.input_strides.push_back(dense_strides_of({part.begin(), part.end()}));
      start += part[axis_];
    }
    dims[axis_] = start;
    ctx.set_output(0, sdk::DataType::Float, dims);
    ctx.allow_strided_output(0);
    prepared.strides = dense_strides_of(dims);
    for (uint32_t i = 0; i < ctx.input_count(); ++i) {
      ctx.allow_strided_input(i);
      if (ctx.input(i).size() == 0) continue;
      const auto offset = static_cast<uint64_t>(prepared.starts[i] * prepared.strides[axis_] * 4);
      ctx.set_inside(i, 0, offset, prepared.strides.data());
    }
    return prepared;
  }

 private:
  std::size_t axis_;
};

class Softmax {
 public:
  struct Prepared {
    int64_t rows, columns;
    std::vector<int64_t>
        addend_rows;  // per row of x: where the addend's row starts; empty: one for all
    const ChannelKernels* kernels;

    void compute(const sdk::ComputeContext& ctx) const {
      const auto* x = ctx.input(0).data<float>();
      const float* addend = ctx.has_input(1) ? ctx.input(1).data<float>() : nullptr;
      auto* y = ctx.output(0).mutable_data<float>();
      if (columns == 0) return;
      ctx.threads().parallel_for(
          static_cast<uint64_t>(rows), row_grain(16 * columns),
          [&](uint64_t begin, uint64_t end, uint32_t) {
            const auto first = static_cast<int64_t>(begin);
            const auto last = static_cast<int64_t>(end);
            if (addend_rows.empty()) {
              kernels->softmax(x + first * columns, addend, y + first * columns, last - first,
                               columns);
              return;
            }
            for (int64_t row = first; row < last; ++row) {
              const float* own = addend + addend_rows[static_cast<std::size_t>(row)];
              kernels->softmax(x + row * columns, own, y + row * columns, 1, columns);
            }
          });
    }
  };

  Softmax(const sdk::CreateContext& ctx, const sdk::Node&) : isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::DimsView x = ctx.input(0).dims();
    ctx.set_output(0, sdk::DataType::Float, x);
    ctx.allow_in_place(0, 0);
    int64_t rows = 1;
    for (std::size_t axis = 0; axis + 1 < x.size(); ++axis) rows *= x[axis];
    Prepared prepared{rows, x.back(), {}, &channel_kernels(isa_)};
    if (ctx.input(1).present()) prepared.addend_rows = addend_rows(x, ctx.input(1).dims(), rows);
    return prepared;
  }

 private:
  static std::vector<int64_t> addend_rows(sdk::DimsView x, sdk::DimsView addend, int64_t rows) {
    const bool fits = addend.size() <= x.size() && !addend.empty() && addend.back() == x.back();
    if (!fits)
      sdk::invalid("Softmax: the addend's dims ", sdk::to_string(addend), " do not fit ",
                   sdk::to_string(x));
    if (sdk::element_count(addend) == addend.back()) return {};
    std::vector<int64_t> starts(static_cast<std::size_t>(rows), 0);
    for (int64_t row = 0; row < rows; ++row) {
      int64_t rest = row;
      int64_t step = x.back();
      for (std::size_t back = 2; back <= x.size(); ++back) {
        const int64_t extent = x[x.size() - back];
        const int64_t at = rest % extent;
        rest /= extent;
        if (back > addend.size()) continue;
        const int64_t own = addend[addend.size() - back];
        if (own != 1 && own != extent)
          sdk::invalid("Softmax: the addend's dims ", sdk::to_string(addend), " do not fit ",
                       sdk::to_string(x));
        starts[static_cast<std::size_t>(row)] += own == 1 ? 0 : at * step;
        step *= own;
      }
    }
    return starts;
  }

  Isa isa_;
};

class Repeat {
 public:
  struct Prepared {
    std::array<int64_t, 3> in, factors;
    int64_t batch, channels;

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Tensor x = ctx.input(0);
      const sdk::Tensor y = ctx.output(0);
      if (y.size() == 0) return;
      const ImageStrides from = image_strides(x);
      const ImageStrides to = image_strides(y);
      const auto bytes = static_cast<std::size_t>(channels) * 4;
      const int64_t lines = batch * in[0] * factors[0] * in[1] * factors[1];
      ctx.threads().parallel_for(
          static_cast<uint64_t>(lines), row_grain(in[2] * factors[2] * channels),
          [&](uint64_t begin, uint64_t end, uint32_t) {
            for (auto i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end); ++i) {
              const int64_t line = i % (in[1] * factors[1]);
              const int64_t plane = i / (in[1] * factors[1]) % (in[0] * factors[0]);
              const int64_t image = i / (in[1] * factors[1] * in[0] * factors[0]);
              const float* source = x.data<float>() + image * from.batch +
                                    plane / factors[0] * from.depth +
                                    line / factors[1] * from.height;
              float* target =
                  y.mutable_data<float>() + image * to.batch + plane * to.depth + line * to.height;
              for (int64_t p = 0; p < in[2] * factors[2]; ++p) {
                std::memcpy(target + p * to.width, source + p / factors[2] * from.width, bytes);
              }
            }
          });
    }
  };

  Repeat(const sdk::CreateContext&, const sdk::Node& node) : factors_(node.get_ints("factors")) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::DimsView x = ctx.input(0).dims();
    if (x.size() != factors_.size() + 2 || factors_.size() > 3) {
      sdk::invalid("Repeat: x has dims ", sdk::to_string(x), " and there are ", factors_.size(),
                   " factors");
    }
    Prepared prepared{{1, 1, 1}, {1, 1, 1}, x[0], x.back()};
    sdk::Dims dims(x.begin(), x.end());
    for (std::size_t axis = 0; axis < factors_.size(); ++axis) {
      const std::size_t to = axis + 3 - factors_.size();
      prepared.in[to] = x[axis + 1];
      prepared.factors[to] = factors_[axis];
      dims[axis + 1] = (common::Checked(dims[axis + 1]) * factors_[axis])
                           .value("Repeat: ", factors_[axis], " times ", dims[axis + 1], " pixels");
    }
    ctx.set_output(0, sdk::DataType::Float, dims);
    ctx.allow_strided_input(0);
    ctx.allow_strided_output(0);
    return prepared;
  }

 private:
  std::vector<int64_t> factors_;
};

class Activate {
 public:
  struct Prepared {
    Activation activation;
    const ActivationKernels* kernels;

    void compute(const sdk::ComputeContext& ctx) const {
      const auto* x = ctx.input(0).data<float>();
      auto* y = ctx.output(0).mutable_data<float>();
      ctx.threads().parallel_for(static_cast<uint64_t>(ctx.output(0).size()), kGrainFloats,
                                 [&](uint64_t begin, uint64_t end, uint32_t) {
                                   kernels->scale_shift(activation, x + begin, 0, nullptr, nullptr,
                                                        y + begin, 0, 1,
                                                        static_cast<int64_t>(end - begin));
                                 });
    }
  };

  Activate(const sdk::CreateContext& ctx, const sdk::Node& node)
      : activation_(read_activation(node)), isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output(0, sdk::DataType::Float, ctx.input(0).dims());
    ctx.allow_in_place(0, 0);
    return {activation_, &activation_kernels(isa_)};
  }

 private:
  Activation activation_;
  Isa isa_;
};

}  // namespace

sdk::KernelList last_axis_kernels() {
  return {
      sdk::op("Concat", "backplane.cpu").name("cpu:concat_last").kernel<Concat>(),
      sdk::op("Softmax", "backplane.cpu").name("cpu:softmax_last").kernel<Softmax>(),
      sdk::op("Repeat", "backplane.cpu").name("cpu:repeat_last").kernel<Repeat>(),
      sdk::op("Activate", "backplane.cpu").name("cpu:activate").kernel<Activate>(),
  };
}

}  // namespace backplane::cpu
