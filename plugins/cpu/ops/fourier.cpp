// DFT, STFT: https://onnx.ai/onnx/operators/onnx__DFT.html, onnx__STFT.html
#include "plugins/cpu/kernels/fourier.hpp"

#include <algorithm>

#include "backplane/plugin.hpp"
#include "plugins/common/axes.hpp"
#include "plugins/common/checked.hpp"
#include "plugins/common/types.hpp"

namespace backplane::cpu {
namespace {

/// The one whole number of a host input; `otherwise` where the input is absent.
std::int64_t scalar_of(const char* what, const sdk::Tensor& tensor, std::int64_t otherwise) {
  if (!tensor.present()) return otherwise;
  const std::vector<std::int64_t> values = tensor.to_ints();
  if (values.size() != 1) sdk::invalid(what, " has ", values.size(), " elements, 1 is needed");
  return values[0];
}

/// A transform's length. Tables of the greatest take gigabytes, however little is transformed.
std::int64_t checked_length(const char* what, common::Checked length) {
  constexpr std::int64_t kLongest = std::int64_t{1} << 28;
  const std::int64_t value = length.at_most(kLongest, what);
  if (value < 1) sdk::invalid(what, " is ", value, "; it must be positive");
  return value;
}

/// A number of one part (real) or two (real and imaginary side by side).
template <class T>
Complex load(const T* at, int parts) {
  return {static_cast<double>(common::widen(at[0])),
          parts == 2 ? static_cast<double>(common::widen(at[1])) : 0.0};
}

/// Calls line(index, x, scratch) for lines 0 to count, with room for a transform beside each thread.
template <class Body>
void for_each_line(const sdk::ComputeContext& ctx, const Fourier& fourier, std::int64_t count,
                   const Body& line) {
  const std::int64_t room = fourier.length() + fourier.scratch_size();
  auto* workspace = ctx.workspace().mutable_data<Complex>();
  const auto grain = static_cast<std::uint64_t>(2000 / std::max<std::int64_t>(1, room) + 1);
  ctx.threads().parallel_for(static_cast<std::uint64_t>(count), grain,
                             [&](std::uint64_t begin, std::uint64_t end, std::uint32_t worker) {
                               Complex* x = workspace + static_cast<std::int64_t>(worker) * room;
                               for (auto i = static_cast<std::int64_t>(begin);
                                    i < static_cast<std::int64_t>(end); ++i)
                                 line(i, x, x + fourier.length());
                             });
}

void reserve_lines(sdk::PrepareContext& ctx, const Fourier& fourier) {
  const auto room = static_cast<std::uint64_t>(fourier.length() + fourier.scratch_size());
  ctx.set_workspace(room * sizeof(Complex) * ctx.threads().count());
}

class Dft {
 public:
  struct Prepared {
    Fourier fourier;
    sdk::DataType type;
    std::int64_t outer, inner, in, out;
    int in_parts, out_parts;
    bool inverse, onesided;

    void compute(const sdk::ComputeContext& ctx) const {
      if (ctx.output(0).size() == 0) return;
      common::with_float(type, [&](auto tag) { run<typename decltype(tag)::type>(ctx); });
    }

    template <class T>
    void run(const sdk::ComputeContext& ctx) const {
      const T* from = ctx.input(0).data<T>();
      T* to = ctx.output(0).mutable_data<T>();
      for_each_line(ctx, fourier, outer * inner, [&](std::int64_t i, Complex* x, Complex* scratch) {
        const std::int64_t first = i / inner * in * inner + i % inner;
        read(from + first * in_parts, x);
        inverse ? fourier.inverse(x, scratch) : fourier.forward(x, scratch);
        T* y = to + (i / inner * out * inner + i % inner) * out_parts;
        for (std::int64_t k = 0; k < out; ++k, y += inner * out_parts) {
          y[0] = common::narrow<T>(x[k].re);
          if (out_parts == 2) y[1] = common::narrow<T>(x[k].im);
        }
      });
    }

    template <class T>
    void read(const T* from, Complex* x) const {
      const std::int64_t n = fourier.length();
      const bool half = inverse && onesided;
      const std::int64_t stored = std::min(in, half ? n / 2 + 1 : n);
      for (std::int64_t k = 0; k < stored; ++k) x[k] = load(from + k * inner * in_parts, in_parts);
      std::fill(x + stored, x + n, Complex{});
      if (!half) return;
      // The spectrum of a real signal: what is at 0, and at the middle of an even length, is real.
      x[0].im = 0;
      if (n % 2 == 0) x[n / 2].im = 0;
      for (std::int64_t k = 1; 2 * k < n; ++k) x[n - k] = {x[k].re, -x[k].im};
    }
  };

  Dft(const sdk::CreateContext&, const sdk::Node& node)
      : inverse_(node.get_int("inverse", 0) != 0),
        onesided_(node.get_int("onesided", 0) != 0),
        axis_(node.since_version() < 20 ? node.get_int("axis", 1) : -2),
        axis_is_input_(node.since_version() >= 20) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const int rank = x.rank();
    if (rank < 2 || (x.dim(rank - 1) != 1 && x.dim(rank - 1) != 2)) {
      sdk::invalid("DFT: the input has dims ", sdk::to_string(x.dims()),
                   "; the last one must be 1 (real numbers) or 2 (complex ones)");
    }
    const int axis = common::normalize_axis(
        axis_is_input_ ? scalar_of("axis", ctx.input(2), axis_) : axis_, rank);
    if (axis == rank - 1) sdk::invalid("DFT: the axis is the last one, that of the complex parts");
    const bool is_complex = x.dim(rank - 1) == 2;
    if (onesided_ && is_complex != inverse_) {
      sdk::invalid("DFT: with onesided = 1 the input must be ",
                   inverse_ ? "complex (last dimension 2)" : "real (last dimension 1)");
    }
    const bool half = inverse_ && onesided_;
    const common::Checked whole =
        half ? 2 * (common::Checked(x.dim(axis)) - 1) : common::Checked(x.dim(axis));
    const std::int64_t length = checked_length(
        "DFT: the transform's length",
        ctx.input(1).present() ? common::Checked(scalar_of("dft_length", ctx.input(1), 0)) : whole);
    sdk::Dims dims(x.dims().begin(), x.dims().end());
    const std::int64_t out = onesided_ && !inverse_ ? length / 2 + 1 : length;
    dims[static_cast<std::size_t>(axis)] = out;
    dims.back() = half ? 1 : 2;
    ctx.set_output(0, x.type(), dims);
    const bool is_empty = common::checked_product(dims).value("DFT: the output") == 0;
    Prepared prepared{is_empty ? Fourier() : Fourier(length),
                      x.type(),
                      common::product(x.dims(), 0, axis),
                      common::product(x.dims(), axis + 1, rank - 1),
                      x.dim(axis),
                      out,
                      is_complex ? 2 : 1,
                      half ? 1 : 2,
                      inverse_,
                      onesided_};
    reserve_lines(ctx, prepared.fourier);
    return prepared;
  }

 private:
  bool inverse_, onesided_;
  std::int64_t axis_;
  bool axis_is_input_;
};

/// How many parts a number of the signal has. Without an axis for them it is real: the specification has
/// [batch, samples, 1], but PyTorch's exporter and ONNX Runtime know [batch, samples], too.
std::int64_t parts_of(const sdk::Tensor& signal) {
  const std::int64_t parts = signal.rank() == 3 ? signal.dim(2) : 1;
  if (signal.rank() < 2 || signal.rank() > 3 || (parts != 1 && parts != 2)) {
    sdk::invalid("STFT: the signal has dims ", sdk::to_string(signal.dims()),
                 ", expected [batch, samples, 1 or 2] or [batch, samples]");
  }
  return parts;
}

class Stft {
 public:
  struct Prepared {
    Fourier fourier;
    sdk::DataType type;
    std::int64_t batch, samples, frames, step, bins;
    int parts;
    bool has_window;

    void compute(const sdk::ComputeContext& ctx) const {
      if (ctx.output(0).size() == 0) return;
      common::with_float(type, [&](auto tag) { run<typename decltype(tag)::type>(ctx); });
    }

    template <class T>
    void run(const sdk::ComputeContext& ctx) const {
      const T* signal = ctx.input(0).data<T>();
      const T* window = has_window ? ctx.input(2).data<T>() : nullptr;
      T* to = ctx.output(0).mutable_data<T>();
      for_each_line(ctx, fourier, batch * frames,
                    [&](std::int64_t i, Complex* x, Complex* scratch) {
                      const T* from = signal + (i / frames * samples + i % frames * step) * parts;
                      for (std::int64_t n = 0; n < fourier.length(); ++n) {
                        x[n] = load(from + n * parts, parts);
                        if (window == nullptr) continue;
                        const auto weight = static_cast<double>(common::widen(window[n]));
                        x[n] = {x[n].re * weight, x[n].im * weight};
                      }
                      fourier.forward(x, scratch);
                      T* y = to + i * bins * 2;
                      for (std::int64_t k = 0; k < bins; ++k) {
                        y[2 * k] = common::narrow<T>(x[k].re);
                        y[2 * k + 1] = common::narrow<T>(x[k].im);
                      }
                    });
    }
  };

  Stft(const sdk::CreateContext&, const sdk::Node& node)
      : onesided_(node.get_int("onesided", 1) != 0) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor signal = ctx.input(0);
    const sdk::Tensor window = ctx.input(2);
    const std::int64_t parts = parts_of(signal);
    if (onesided_ && parts == 2)
      sdk::invalid("STFT: a complex signal has no onesided spectrum; set onesided = 0");
    const std::int64_t step = scalar_of("frame_step", ctx.input(1), 1);
    const std::int64_t length =
        scalar_of("frame_length", ctx.input(3), window.present() ? window.size() : signal.dim(1));
    if (step < 1) sdk::invalid("STFT: frame_step is ", step);
    checked_length("STFT: frame_length", length);
    if (window.present() && (window.rank() != 1 || window.dim(0) != length)) {
      sdk::invalid("STFT: the window has dims ", sdk::to_string(window.dims()), ", expected [",
                   length, "]");
    }
    const std::int64_t samples = signal.dim(1);
    const std::int64_t frames = samples < length ? 0 : (samples - length) / step + 1;
    const std::int64_t bins = onesided_ ? length / 2 + 1 : length;
    ctx.set_output(0, signal.type(), sdk::Dims{signal.dim(0), frames, bins, 2});
    const bool is_empty = signal.dim(0) == 0 || frames == 0;
    Prepared prepared{is_empty ? Fourier() : Fourier(length),
                      signal.type(),
                      signal.dim(0),
                      samples,
                      frames,
                      step,
                      bins,
                      static_cast<int>(parts),
                      window.present()};
    reserve_lines(ctx, prepared.fourier);
    return prepared;
  }

 private:
  bool onesided_;
};

}  // namespace

sdk::KernelList fourier_kernels() {
  return {sdk::op("DFT")
              .name("cpu:DFT")
              .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE, BP_INPUT_HOST_VALUE})
              .types("T1", common::float_types())
              .kernel<Dft>(),
          sdk::op("STFT")
              .name("cpu:STFT")
              .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE, BP_INPUT_DATA, BP_INPUT_HOST_VALUE})
              .types("T1", common::float_types())
              .kernel<Stft>()};
}

}  // namespace backplane::cpu
