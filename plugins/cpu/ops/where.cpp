// Where: https://onnx.ai/onnx/operators/onnx__Where.html
#include "backplane/plugin.hpp"
#include "plugins/common/broadcast.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/kernels/select_row.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

/// out = condition ? x : y, with all three broadcast.
class Where {
 public:
  struct Prepared {
    common::BroadcastLoops loops;
    std::int64_t rows = 0;
    std::int64_t n = 0;
    std::int64_t bytes = 0;  // 0: strings
    SelectLoop select = nullptr;

    void compute(const sdk::ComputeContext& ctx) const {
      if (rows * n == 0) return;
      if (bytes == 0) {
        compute_strings(ctx);
        return;
      }
      const auto* condition = ctx.input(0).data<std::uint8_t>();
      const char* x = ctx.input(1).data<char>();
      const char* y = ctx.input(2).data<char>();
      char* out = ctx.output(0).mutable_data<char>();
      const auto select_rows = [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          select({condition + loops.row_offset(0, row), loops.strides[0].back(),
                  x + loops.row_offset(1, row) * bytes, loops.strides[1].back(),
                  y + loops.row_offset(2, row) * bytes, loops.strides[2].back(),
                  out + row * n * bytes, n});
        }
      };
      if (rows > 1) {
        split_loop(ctx.threads(), rows, 0.4 * static_cast<double>(n), 1, select_rows);
        return;
      }
      split_elements(ctx.threads(), n, 0.4, [&](std::int64_t begin, std::int64_t end) {
        select({condition + begin * loops.strides[0][0], loops.strides[0][0],
                x + begin * bytes * loops.strides[1][0], loops.strides[1][0],
                y + begin * bytes * loops.strides[2][0], loops.strides[2][0], out + begin * bytes,
                end - begin});
      });
    }

    void compute_strings(const sdk::ComputeContext& ctx) const {
      const auto* condition = ctx.input(0).data<std::uint8_t>();
      for (std::int64_t i = 0; i < rows * n; ++i) {
        const bool chosen = condition[loops.offset(0, i)] != 0;
        const sdk::Value from = ctx.input_value(chosen ? 1 : 2);
        const auto index = static_cast<std::uint64_t>(loops.offset(chosen ? 1 : 2, i));
        ctx.output_value(0).set_string(static_cast<std::uint64_t>(i), from.string_at(index));
      }
    }
  };

  Where(const sdk::CreateContext& ctx, const sdk::Node&) : isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const std::vector<sdk::DimsView> shapes = {ctx.input(0).dims(), ctx.input(1).dims(),
                                               ctx.input(2).dims()};
    const sdk::Dims out = common::broadcast_dims(shapes);
    const DataType type = ctx.input(1).type();
    ctx.set_output(0, type, out);
    for (const std::uint32_t k : {1u, 2u}) {
      if (type != DataType::String && sdk::Dims(shapes[k].begin(), shapes[k].end()) == out) {
        ctx.allow_in_place(0, k);
      }
    }
    Prepared prepared;
    prepared.loops = common::plan_broadcast(out, shapes);
    prepared.n = prepared.loops.dims.back();
    prepared.rows = prepared.n == 0 ? 0 : sdk::element_count(out) / prepared.n;
    prepared.bytes = sdk::element_bytes(type);
    if (type != DataType::String) prepared.select = select_loop(isa_, sdk::element_bytes(type));
    return prepared;
  }

 private:
  Isa isa_;
};

}  // namespace

sdk::KernelList where_kernels() {
  const common::TypeList types =
      common::join(common::number_types(),
                   {DataType::Bool, DataType::String, DataType::Complex64, DataType::Complex128});
  return {sdk::op("Where").name("cpu:Where").types("T", types).kernel<Where>()};
}

}  // namespace backplane::cpu
