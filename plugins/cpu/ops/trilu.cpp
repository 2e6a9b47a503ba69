// Trilu, ReverseSequence: https://onnx.ai/onnx/operators/onnx__Trilu.html, onnx__ReverseSequence.html
#include "backplane/plugin.hpp"
#include "plugins/cpu/kernels/dims.hpp"
#include "plugins/cpu/kernels/strided_copy.hpp"

namespace backplane::cpu {
namespace {

/// The upper or lower triangle of each matrix; the rest is zero.
class Trilu {
 public:
  struct Prepared {
    std::int64_t matrices, rows, columns, bytes;  // bytes of an element
    bool upper;

    void compute(const sdk::ComputeContext& ctx) const {
      const std::int64_t k = ctx.has_input(1) ? std::clamp(ctx.input(1).data<std::int64_t>()[0],
                                                           -rows - 1, columns + 1)
                                              : 0;
      const char* from = ctx.input(0).data<char>();
      char* to = ctx.output(0).mutable_data<char>();
      for (std::int64_t n = 0; n < matrices * rows; ++n) {
        // The elements from the diagonal on belong to the upper triangle, those before it and on it to the lower.
        const std::int64_t edge =
            std::clamp<std::int64_t>(n % rows + k + (upper ? 0 : 1), 0, columns);
        const std::int64_t begin = (n * columns + (upper ? edge : 0)) * bytes,
                           kept = (upper ? columns - edge : edge) * bytes;
        const std::int64_t zeros = (n * columns + (upper ? 0 : edge)) * bytes;
        if (from != to && kept > 0)
          std::memcpy(to + begin, from + begin, static_cast<std::size_t>(kept));
        if (columns * bytes > kept)
          std::memset(to + zeros, 0, static_cast<std::size_t>(columns * bytes - kept));
      }
    }
  };

  Trilu(const sdk::CreateContext&, const sdk::Node& node) : upper_(node.get_int("upper", 1) != 0) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor input = ctx.input(0);
    const int bytes = sdk::element_bytes(input.type());
    if (bytes == 0) sdk::unsupported("Trilu of elements of type ", sdk::type_name(input.type()));
    if (input.rank() < 2)
      sdk::invalid("Trilu: the input has dims ", sdk::to_string(input.dims()),
                   ", two are needed at least");
    if (ctx.input(1).present() && ctx.input(1).size() != 1)
      sdk::invalid("Trilu: k has ", ctx.input(1).size(), " elements, 1 is needed");
    ctx.set_output(0, input.type(), input.dims());
    ctx.allow_in_place(0, 0);
    const auto rank = static_cast<std::size_t>(input.rank());
    const std::int64_t columns = input.dims()[rank - 1];
    return {columns == 0 ? 0 : dims_product(input.dims(), 0, rank - 2), input.dims()[rank - 2],
            columns, bytes, upper_};
  }

 private:
  bool upper_;
};

/// Reverses the first lengths[b] steps of each batch.
class ReverseSequence {
 public:
  struct Prepared {
    std::int64_t batches, steps, batch_stride, step_stride, run;

    void compute(const sdk::ComputeContext& ctx) const {
      const auto* lengths = ctx.input(1).data<std::int64_t>();
      for (std::int64_t b = 0; b < batches; ++b) {
        if (lengths[b] < 0 || lengths[b] > steps) {
          sdk::failed("ReverseSequence: length ", lengths[b], " of batch ", b, " is not in [0, ",
                      steps, "]");
        }
      }
      if (batches * steps * run == 0) return;
      const ElementMover mover(ctx.input_value(0), ctx.output_value(0));
      for (std::int64_t b = 0; b < batches; ++b) {
        for (std::int64_t t = 0; t < steps; ++t) {
          const std::int64_t from = t < lengths[b] ? lengths[b] - 1 - t : t;
          mover.copy(b * batch_stride + t * step_stride, b * batch_stride + from * step_stride,
                     run);
        }
      }
    }
  };

  ReverseSequence(const sdk::CreateContext&, const sdk::Node& node)
      : batch_axis_(node.get_int("batch_axis", 1)), time_axis_(node.get_int("time_axis", 0)) {
    if (batch_axis_ + time_axis_ != 1 || batch_axis_ * time_axis_ != 0) {
      sdk::invalid("ReverseSequence: batch_axis ", batch_axis_, " and time_axis ", time_axis_,
                   " must be 0 and 1");
    }
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor input = ctx.input(0), lengths = ctx.input(1);
    require_storable(input.type());
    if (input.rank() < 2 || lengths.size() != input.dim(static_cast<int>(batch_axis_))) {
      sdk::invalid("ReverseSequence: ", lengths.size(), " lengths for an input of dims ",
                   sdk::to_string(input.dims()));
    }
    ctx.set_output(0, input.type(), input.dims());
    const std::int64_t run = dims_product(input.dims(), 2, input.dims().size());
    const std::int64_t first = input.dim(1) * run;
    const bool time_first = time_axis_ == 0;
    return {lengths.size(), input.dim(static_cast<int>(time_axis_)), time_first ? run : first,
            time_first ? first : run, run};
  }

 private:
  std::int64_t batch_axis_, time_axis_;
};

}  // namespace

sdk::KernelList trilu_kernels() {
  return {sdk::op("Trilu").name("cpu:trilu").kernel<Trilu>(),
          sdk::op("ReverseSequence").name("cpu:reverse_sequence").kernel<ReverseSequence>()};
}

}  // namespace backplane::cpu
