// Rows of a table of 4 or 8 bits, dequantized as they are picked: com.microsoft::GatherBlockQuantized,
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GatherBlockQuantized
// and backplane.cpu::GatherBlockQuantized, which a rewrite makes of a Gather that reads a DequantizeLinear. Inputs data
// [rows, columns], indices, scales, zero points. Attributes of the private one: block_size, 0 where the table has one
// scale or one for each row; to: the type of the result.
#include <algorithm>

#include "backplane/plugin.hpp"
#include "plugins/common/half.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/half_f32.hpp"
#include "plugins/cpu/kernels/index_tensor.hpp"
#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

constexpr std::int64_t kPiece = 512;  // elements that are converted at a time; even

/// The table, as its node describes it.
struct NarrowTable {
  std::int64_t rows = 0, columns = 0;
  int bits = 4;
  bool is_signed = false;
  std::int64_t block = 0;     // columns that share a scale
  std::int64_t row_step = 0;  // of the scales
  std::int64_t zero_row_step = 0;
  float default_zero = 0;

  float number(const std::uint8_t* values, std::int64_t index) const {
    std::uint32_t q = values[bits == 8 ? index : index / 2];
    if (bits == 4) q = index % 2 != 0 ? q >> 4 : q & 15U;
    if (!is_signed) return static_cast<float>(q);
    const std::uint32_t sign = bits == 4 ? 8 : 128;
    return static_cast<float>(static_cast<std::int32_t>(q ^ sign) -
                              static_cast<std::int32_t>(sign));
  }
};

float scale_at(const sdk::Tensor& scales, std::int64_t index) {
  switch (scales.type()) {
    case DataType::Float16:
      return common::to_float(scales.data<sdk::Half>()[index]);
    case DataType::BFloat16:
      return common::to_float(scales.data<sdk::BFloat16>()[index]);
    default:
      return scales.data<float>()[index];
  }
}

class GatherBlockQuantized {
 public:
  static constexpr std::uint32_t kData = 0, kIndices = 1, kScales = 2, kZeros = 3;

  struct Prepared {
    NarrowTable table;
    const HalfConversion* half = nullptr;  // null: floats
    std::int64_t picks = 0;

    void compute(const sdk::ComputeContext& ctx) const {
      if (picks * table.columns == 0) return;
      with_index_type(ctx.input(kIndices), [&](const auto* indices) {
        check_indices("GatherBlockQuantized", indices, picks, table.rows, 0);
        const double ns = 0.5 * static_cast<double>(table.columns);
        split_loop(ctx.threads(), picks, ns, 1, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t n = begin; n < end; ++n)
            write_row(ctx, wrap_index(indices[n], table.rows), n * table.columns);
        });
      });
    }

   private:
    void write_row(const sdk::ComputeContext& ctx, std::int64_t row, std::int64_t to) const {
      const sdk::Tensor scales = ctx.input(kScales);
      const std::uint8_t* zeros =
          ctx.has_input(kZeros) ? static_cast<const std::uint8_t*>(ctx.input(kZeros).bytes_data())
                                : nullptr;
      for (std::int64_t block = 0; block * table.block < table.columns; ++block) {
        const std::int64_t begin = block * table.block;
        const std::int64_t end = std::min(begin + table.block, table.columns);
        const float scale = scale_at(scales, row * table.row_step + block);
        const float zero = zeros != nullptr ? table.number(zeros, row * table.zero_row_step + block)
                                            : table.default_zero;
        write_block(ctx, row * table.columns + begin, end - begin, scale, zero, to + begin);
      }
    }

    void write_block(const sdk::ComputeContext& ctx, std::int64_t from, std::int64_t n, float scale,
                     float zero, std::int64_t to) const {
      const auto* values = static_cast<const std::uint8_t*>(ctx.input(kData).bytes_data());
      const sdk::Tensor y = ctx.output(0);
      if (half == nullptr) {
        float* out = y.mutable_data<float>() + to;
        for (std::int64_t i = 0; i < n; ++i)
          out[i] = (table.number(values, from + i) - zero) * scale;
        return;
      }
      float piece[kPiece];
      for (std::int64_t first = 0; first < n; first += kPiece) {
        const std::int64_t some = std::min(kPiece, n - first);
        for (std::int64_t i = 0; i < some; ++i)
          piece[i] = (table.number(values, from + first + i) - zero) * scale;
        half->from_float(piece, y.mutable_data<std::uint16_t>() + to + first, some);
      }
    }
  };

  GatherBlockQuantized(const sdk::CreateContext& ctx, const sdk::Node& node)
      : contrib_(node.domain() != "backplane.cpu"),
        bits_(static_cast<int>(node.get_int("bits", 4))),
        block_(node.get_int("block_size", contrib_ ? 128 : 0)),
        to_(static_cast<DataType>(node.get_int("to", 0))),
        isa_(isa_of(ctx)) {
    if (contrib_ && (node.get_int("gather_axis", 0) != 0 || node.input(kData).rank() > 2))
      sdk::unsupported("GatherBlockQuantized: picks that are not rows of a matrix");
    const std::int64_t axis = node.get_int("quantize_axis", 1);
    if (contrib_ && axis != 1 && axis != -1)
      sdk::unsupported("GatherBlockQuantized: blocks along axis ", axis);
    if (contrib_ && bits_ != 4 && bits_ != 8)
      sdk::unsupported("GatherBlockQuantized: numbers of ", bits_, " bits");
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor data = ctx.input(kData);
    const sdk::Tensor scales = ctx.input(kScales);
    if (data.rank() != 2) sdk::unsupported("GatherBlockQuantized: data of rank ", data.rank());
    Prepared prepared;
    prepared.table = table(data, scales, ctx.input(kZeros));
    const DataType type = to_ != DataType::None ? to_ : scales.type();
    if (type != DataType::Float) prepared.half = &half_conversion(isa_, type);
    const sdk::DimsView indices = ctx.input(kIndices).dims();
    sdk::Dims dims(indices.begin(), indices.end());
    dims.push_back(prepared.table.columns);
    ctx.set_output(0, type, dims);
    prepared.picks = ctx.input(kIndices).size();
    return prepared;
  }

 private:
  NarrowTable table(const sdk::Tensor& data, const sdk::Tensor& scales,
                    const sdk::Tensor& zeros) const {
    NarrowTable table;
    const bool packed = contrib_ && data.type() == DataType::UInt8;  // two in an element, of 4 bits
    table.bits = packed ? bits_ : sdk::element_bits(data.type());
    table.rows = data.dim(0);
    table.columns = data.dim(1) * (packed ? 8 / bits_ : 1);
    table.is_signed = data.type() == DataType::Int4 || data.type() == DataType::Int8;
    if (packed) table.default_zero = static_cast<float>(1 << (bits_ - 1));
    table.block = block_ > 0 ? block_ : std::max<std::int64_t>(table.columns, 1);
    const std::int64_t blocks = ceil_div(table.columns, table.block);
    if (scales.size() != 1 || table.rows * blocks == 1) {
      table.row_step = blocks;
      table.zero_row_step = packed && bits_ == 4 ? ceil_div(blocks, 2) * 2 : blocks;
    }
    if (table.row_step * table.rows > scales.size()) {
      sdk::invalid("GatherBlockQuantized: the scales have dims ", sdk::to_string(scales.dims()),
                   ", data ", sdk::to_string(data.dims()), " in blocks of ", table.block);
    }
    if (zeros.present() &&
        zeros.size() * (packed ? 8 / bits_ : 1) < table.zero_row_step * table.rows)
      sdk::invalid("GatherBlockQuantized: the zero points have dims ",
                   sdk::to_string(zeros.dims()));
    return table;
  }

  bool contrib_;
  int bits_;
  std::int64_t block_;
  DataType to_;
  Isa isa_;
};

}  // namespace

sdk::KernelList gather_nbits_kernels() {
  return {sdk::op("GatherBlockQuantized", "com.microsoft")
              .name("cpu:gather_block_quantized")
              .flags(BP_KERNEL_WIDENS_HALF)
              .kernel<GatherBlockQuantized>(),
          sdk::op("GatherBlockQuantized", "backplane.cpu")
              .name("cpu:gather_dequantized")
              .kernel<GatherBlockQuantized>()};
}

}  // namespace backplane::cpu
