// Operators of backplane.cpu on channels-last images that a rewrite makes:
// ChannelShuffle (groups): channel i of group g becomes channel i * groups + g.
// Deinterleave: even and odd channels, as two outputs.
// LRN: https://onnx.ai/onnx/operators/onnx__LRN.html
// DepthToSpace: https://onnx.ai/onnx/operators/onnx__DepthToSpace.html
// LayerNormalization: over the last axis, inputs x, scale, bias; any rank.
#include "plugins/common/checked.hpp"
#include "plugins/cpu/dense/channel_kernels.hpp"
#include "plugins/cpu/dense/image_tensor.hpp"
#include "plugins/cpu/device.hpp"

namespace backplane::cpu {
namespace {

constexpr int64_t kGrainFloats = 16384;  // worth a thread's attention

uint64_t row_grain(int64_t columns) {
  return static_cast<uint64_t>(kGrainFloats / std::max<int64_t>(1, columns) + 1);
}

/// The number of rows of the last axis.
int64_t row_count(const sdk::Tensor& tensor) {
  int64_t rows = 1;
  for (int axis = 0; axis + 1 < tensor.rank(); ++axis) rows *= tensor.dim(axis);
  return rows;
}

class ChannelShuffle {
 public:
  struct Prepared {
    int64_t pixels, channels, groups;
    const ChannelKernels* kernels;

    void compute(const sdk::ComputeContext& ctx) const {
      const auto* x = ctx.input(0).data<float>();
      auto* y = ctx.output(0).mutable_data<float>();
      ctx.threads().parallel_for(static_cast<uint64_t>(pixels), row_grain(channels),
                                 [&](uint64_t begin, uint64_t end, uint32_t) {
                                   const auto first = static_cast<int64_t>(begin) * channels;
                                   kernels->shuffle(x + first, y + first,
                                                    static_cast<int64_t>(end - begin), channels,
                                                    groups);
                                 });
    }
  };

  ChannelShuffle(const sdk::CreateContext& ctx, const sdk::Node& node)
      : groups_(node.get_int("groups", 1)), isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const int64_t channels = x.dim(x.rank() - 1);
    if (groups_ < 1 || channels % groups_ != 0)
      sdk::invalid("ChannelShuffle: ", channels, " channels in ", groups_, " groups");
    ctx.set_output(0, sdk::DataType::Float, x.dims());
    return {row_count(x), channels, groups_, &channel_kernels(isa_)};
  }

 private:
  int64_t groups_;
  Isa isa_;
};

class Deinterleave {
 public:
  struct Prepared {
    int64_t pixels, half;
    const ChannelKernels* kernels;

    void compute(const sdk::ComputeContext& ctx) const {
      const auto* x = ctx.input(0).data<float>();
      auto* even = ctx.output(0).mutable_data<float>();
      auto* odd = ctx.output(1).mutable_data<float>();
      ctx.threads().parallel_for(static_cast<uint64_t>(pixels), row_grain(2 * half),
                                 [&](uint64_t begin, uint64_t end, uint32_t) {
                                   const auto first = static_cast<int64_t>(begin) * half;
                                   kernels->deinterleave(x + 2 * first, even + first, odd + first,
                                                         static_cast<int64_t>(end - begin), half);
                                 });
    }
  };

  Deinterleave(const sdk::CreateContext& ctx, const sdk::Node&) : isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    sdk::Dims dims(x.dims().begin(), x.dims().end());
    if (dims.empty() || dims.back() % 2 != 0)
      sdk::invalid("Deinterleave: x has dims ", sdk::to_string(x.dims()));
    dims.back() /= 2;
    ctx.set_output(0, sdk::DataType::Float, dims);
    ctx.set_output(1, sdk::DataType::Float, dims);
    return {row_count(x), dims.back(), &channel_kernels(isa_)};
  }

 private:
  Isa isa_;
};

class LocalResponseNormalization {
 public:
  struct Prepared {
    LocalResponse response;
    int64_t pixels;
    uint64_t squares_bytes;
    const ChannelKernels* kernels;

    void compute(const sdk::ComputeContext& ctx) const {
      const auto* x = ctx.input(0).data<float>();
      auto* y = ctx.output(0).mutable_data<float>();
      char* workspace = ctx.workspace().mutable_data<char>();
      ctx.threads().parallel_for(
          static_cast<uint64_t>(pixels), row_grain(response.channels * response.size),
          [&](uint64_t begin, uint64_t end, uint32_t worker) {
            auto* squares = reinterpret_cast<float*>(workspace + worker * squares_bytes);
            for (uint64_t p = begin; p < end; ++p) {
              const int64_t at = static_cast<int64_t>(p) * response.channels;
              kernels->local_response(response, x + at, y + at, squares);
            }
          });
    }
  };

  LocalResponseNormalization(const sdk::CreateContext& ctx, const sdk::Node& node)
      : response_{0, node.get_int("size", 1), node.get_float("alpha", 1e-4f),
                  node.get_float("beta", 0.75f), node.get_float("bias", 1.0f)},
        isa_(isa_of(ctx)) {
    if (response_.size < 1)
      sdk::invalid("LRN: attribute 'size' is ", response_.size, ", it must be positive");
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    Prepared prepared{response_, row_count(x), 0, &channel_kernels(isa_)};
    prepared.response.channels = x.dim(x.rank() - 1);
    const common::Checked squares =
        (common::Checked(prepared.response.channels) + response_.size) * 4 + 63;
    prepared.squares_bytes =
        static_cast<uint64_t>(squares.value("LRN: attribute 'size' ", response_.size)) / 64 * 64;
    ctx.set_output(0, sdk::DataType::Float, x.dims());
    ctx.set_workspace(prepared.squares_bytes * ctx.threads().count());
    ctx.allow_in_place(0, 0);
    return prepared;
  }

 private:
  LocalResponse response_;
  Isa isa_;
};

class DepthToSpace {
 public:
  struct Prepared {
    int64_t lines, width, out_channels, block;
    bool depth_first;  // mode DCR

    /// Writes the `block` output lines that an input line becomes.
    void line(const float* x, float* y) const {
      const int64_t channels = out_channels * block * block;
      for (int64_t by = 0; by < block; ++by) {
        for (int64_t i = 0; i < width; ++i) {
          for (int64_t bx = 0; bx < block; ++bx) {
            const float* pixel = x + i * channels;
            const int64_t offset = by * block + bx;
            for (int64_t c = 0; c < out_channels; ++c) {
              *y++ = pixel[depth_first ? offset * out_channels + c : c * block * block + offset];
            }
          }
        }
      }
    }

    void compute(const sdk::ComputeContext& ctx) const {
      const auto* x = ctx.input(0).data<float>();
      auto* y = ctx.output(0).mutable_data<float>();
      const int64_t floats = width * out_channels * block * block;
      ctx.threads().parallel_for(static_cast<uint64_t>(lines), row_grain(floats),
                                 [&](uint64_t begin, uint64_t end, uint32_t) {
                                   for (auto i = static_cast<int64_t>(begin);
                                        i < static_cast<int64_t>(end); ++i) {
                                     line(x + i * floats, y + i * floats);
                                   }
                                 });
    }
  };

  DepthToSpace(const sdk::CreateContext&, const sdk::Node& node)
      : block_(node.get_int("blocksize", 1)),
        depth_first_(node.get_string("mode", "DCR") == "DCR") {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::DimsView x = ctx.input(0).dims();
    const int64_t block =
        (common::Checked(block_) * block_).value("DepthToSpace: the square of blocksize ", block_);
    if (x.size() != 4 || block_ < 1 || x[3] % block != 0) {
      sdk::invalid("DepthToSpace: x has ", x.empty() ? 0 : x.back(),
                   " channels, not a multiple of blocksize ", block_, " squared");
    }
    const int64_t channels = x[3] / block;
    const auto scaled = [&](int64_t dim) {
      return (common::Checked(dim) * block_)
          .value("DepthToSpace: ", block_, " times ", dim, " pixels");
    };
    const sdk::Dims dims{x[0], scaled(x[1]), scaled(x[2]), channels};
    ctx.set_output(0, sdk::DataType::Float, dims);
    return {x[0] * x[1], x[2], channels, block_, depth_first_};
  }

 private:
  int64_t block_;
  bool depth_first_;
};

class LayerNormalization {
 public:
  struct Prepared {
    int64_t rows, columns;
    float epsilon;
    const ChannelKernels* kernels;

    void compute(const sdk::ComputeContext& ctx) const {
      NormalizeRows all{};
      all.gamma = ctx.input(1).data<float>();
      all.beta = ctx.has_input(2) ? ctx.input(2).data<float>() : nullptr;
      all.columns = columns;
      all.epsilon = epsilon;
      const auto* x = ctx.input(0).data<float>();
      auto* y = ctx.output(0).mutable_data<float>();
      ctx.threads().parallel_for(static_cast<uint64_t>(rows), row_grain(4 * columns),
                                 [&](uint64_t begin, uint64_t end, uint32_t) {
                                   NormalizeRows part = all;
                                   part.x = x + static_cast<int64_t>(begin) * columns;
                                   part.y = y + static_cast<int64_t>(begin) * columns;
                                   part.rows = static_cast<int64_t>(end - begin);
                                   kernels->normalize(part);
                                 });
    }
  };

  LayerNormalization(const sdk::CreateContext& ctx, const sdk::Node& node)
      : epsilon_(node.get_float("epsilon", 1e-5f)), isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const int64_t columns = x.rank() > 0 ? x.dim(x.rank() - 1) : 1;
    for (uint32_t i = 1; i < 3; ++i) {
      const sdk::Tensor factor = ctx.input(i);
      if (factor.present() && factor.size() != columns) {
        sdk::invalid("LayerNormalization: x has dims ", sdk::to_string(x.dims()), ", input ", i,
                     " has ", sdk::to_string(factor.dims()));
      }
    }
    ctx.set_output(0, sdk::DataType::Float, x.dims());
    ctx.allow_in_place(0, 0);
    return {row_count(x), columns, epsilon_, &channel_kernels(isa_)};
  }

 private:
  float epsilon_;
  Isa isa_;
};

}  // namespace

sdk::KernelList channels_last_kernels() {
  return {
      sdk::op("ChannelShuffle", "backplane.cpu")
          .name("cpu:channel_shuffle")
          .kernel<ChannelShuffle>(),
      sdk::op("Deinterleave", "backplane.cpu").name("cpu:deinterleave").kernel<Deinterleave>(),
      sdk::op("LRN", "backplane.cpu").name("cpu:lrn_last").kernel<LocalResponseNormalization>(),
      sdk::op("DepthToSpace", "backplane.cpu")
          .name("cpu:depth_to_space_last")
          .kernel<DepthToSpace>(),
      sdk::op("LayerNormalization", "backplane.cpu")
          .name("cpu:layer_normalization_fused")
          .kernel<LayerNormalization>(),
  };
}

}  // namespace backplane::cpu
