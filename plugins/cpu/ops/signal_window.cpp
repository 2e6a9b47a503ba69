// HannWindow, HammingWindow, BlackmanWindow, MelWeightMatrix:
// https://onnx.ai/onnx/operators/onnx__HannWindow.html, onnx__MelWeightMatrix.html
#include <algorithm>
#include <cmath>

#include "backplane/plugin.hpp"
#include "plugins/common/checked.hpp"
#include "plugins/common/types.hpp"

namespace backplane::cpu {
namespace {

constexpr double kPi = 3.14159265358979323846;

/// The one element of a host input of any number type.
double number_of(const char* what, const sdk::Tensor& tensor) {
  if (tensor.size() != 1) sdk::invalid(what, " has ", tensor.size(), " elements, 1 is needed");
  return common::with_number(tensor.type(), [&](auto tag) {
    return static_cast<double>(common::widen(tensor.data<typename decltype(tag)::type>()[0]));
  });
}

std::int64_t whole_number_of(const char* what, const sdk::Tensor& tensor) {
  const double value = number_of(what, tensor);
  if (value < 0) sdk::invalid(what, " is ", value, "; it must not be negative");
  return common::whole_size(value, what, ' ', value);
}

/// a - b cos(t) + c cos(2 t) over one turn of t.
struct Coefficients {
  double a, b, c;
};

class CosineWindow {
 public:
  struct Prepared {
    Coefficients coefficients;
    std::int64_t size, period;
    sdk::DataType type;

    void compute(const sdk::ComputeContext& ctx) const {
      common::with_number(type, [&](auto tag) {
        using T = typename decltype(tag)::type;
        T* y = ctx.output(0).mutable_data<T>();
        for (std::int64_t n = 0; n < size; ++n) y[n] = common::narrow<T>(value(n));
      });
    }

    double value(std::int64_t n) const {
      if (period == 0) return 1;  // a symmetric window of one element
      const double turn = 2 * kPi * static_cast<double>(n) / static_cast<double>(period);
      return coefficients.a - coefficients.b * std::cos(turn) + coefficients.c * std::cos(2 * turn);
    }
  };

  CosineWindow(const Coefficients& coefficients, const sdk::Node& node)
      : coefficients_(coefficients),
        periodic_(node.get_int("periodic", 1) != 0),
        type_(static_cast<sdk::DataType>(node.get_int("output_datatype", 1))) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const std::int64_t size = whole_number_of("the window's size", ctx.input(0));
    ctx.set_output(0, type_, sdk::Dims{size});
    return {coefficients_, size, periodic_ ? size : size - 1, type_};
  }

 private:
  Coefficients coefficients_;
  bool periodic_;
  sdk::DataType type_;
};

struct Hann : CosineWindow {
  Hann(const sdk::CreateContext&, const sdk::Node& node) : CosineWindow({0.5, 0.5, 0}, node) {}
};
struct Hamming : CosineWindow {
  Hamming(const sdk::CreateContext&, const sdk::Node& node)
      : CosineWindow({25.0 / 46, 21.0 / 46, 0}, node) {}
};
struct Blackman : CosineWindow {
  Blackman(const sdk::CreateContext&, const sdk::Node& node)
      : CosineWindow({0.42, 0.5, 0.08}, node) {}
};

/// Triangles of height 1 over the bins of a spectrum, evenly spaced on the mel scale.
class MelWeightMatrix {
 public:
  struct Prepared {
    std::int64_t bins, bands;
    std::vector<std::int64_t> edges;  // bands + 2 bins: where triangles begin, peak and end
    sdk::DataType type;

    void compute(const sdk::ComputeContext& ctx) const {
      common::with_number(type, [&](auto tag) {
        using T = typename decltype(tag)::type;
        T* y = ctx.output(0).mutable_data<T>();
        for (std::int64_t i = 0; i < bins * bands; ++i) {
          y[i] = common::narrow<T>(weight(i / bands, static_cast<std::size_t>(i % bands)));
        }
      });
    }

    double weight(std::int64_t bin, std::size_t band) const {
      const std::int64_t begin = edges[band];
      const std::int64_t peak = edges[band + 1];
      const std::int64_t end = edges[band + 2];
      if (bin == peak) return 1;
      if (bin >= begin && bin < peak)
        return static_cast<double>(bin - begin) / static_cast<double>(peak - begin);
      if (bin > peak && bin < end)
        return static_cast<double>(end - bin) / static_cast<double>(end - peak);
      return 0;
    }
  };

  MelWeightMatrix(const sdk::CreateContext&, const sdk::Node& node)
      : type_(static_cast<sdk::DataType>(node.get_int("output_datatype", 1))) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const std::int64_t bands = whole_number_of("num_mel_bins", ctx.input(0));
    const std::int64_t length = whole_number_of("dft_length", ctx.input(1));
    const std::int64_t rate = whole_number_of("sample_rate", ctx.input(2));
    const double low = number_of("lower_edge_hertz", ctx.input(3));
    const double high = number_of("upper_edge_hertz", ctx.input(4));
    constexpr std::int64_t kMostBands = 1 << 20;
    if (bands > kMostBands)
      sdk::invalid("MelWeightMatrix: num_mel_bins is ", bands, "; at most ", kMostBands,
                   " are handled");
    if (rate < 1 || !(low >= 0 && high >= low)) {
      sdk::invalid("MelWeightMatrix: sample_rate ", rate, ", lower_edge_hertz ", low,
                   " and upper_edge_hertz ", high, " do not fit each other");
    }
    const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
    const auto hertz = [](double mels) { return 700 * (std::pow(10, mels / 2595) - 1); };
    Prepared prepared{length / 2 + 1, bands, {}, type_};
    ctx.set_output(0, type_, sdk::Dims{prepared.bins, bands});
    // As ONNX's reference has it: by one edge fewer than there are, so that the last ends before `high`.
    const double step = (mel(high) - mel(low)) / static_cast<double>(bands + 2);
    for (std::int64_t i = 0; i < bands + 2; ++i) {
      const double edge = hertz(mel(low) + static_cast<double>(i) * step);
      const double bin =
          std::floor((static_cast<double>(length) + 1) * edge / static_cast<double>(rate));
      prepared.edges.push_back(common::whole_size(bin, "MelWeightMatrix: bin ", bin));
    }
    return prepared;
  }

 private:
  sdk::DataType type_;
};

}  // namespace

sdk::KernelList signal_window_kernels() {
  const auto roles = {BP_INPUT_HOST_VALUE};
  return {
      sdk::op("HannWindow").name("cpu:HannWindow").roles(roles).kernel<Hann>(),
      sdk::op("HammingWindow").name("cpu:HammingWindow").roles(roles).kernel<Hamming>(),
      sdk::op("BlackmanWindow").name("cpu:BlackmanWindow").roles(roles).kernel<Blackman>(),
      sdk::op("MelWeightMatrix").name("cpu:MelWeightMatrix").roles(roles).kernel<MelWeightMatrix>(),
  };
}

}  // namespace backplane::cpu
