// backplane.examples::WindowedMean: the moving average along an axis. See README.md.
#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include "backplane/plugin.hpp"

namespace {

namespace sdk = backplane::sdk;
using sdk::DataType;

constexpr const char* kDomain = "backplane.examples";

// [attributes]
/// The attributes of a node, judged in one place: by shape inference when a model is loaded, and by
/// every kernel.
struct Attributes {
  std::int64_t window;
  std::int64_t axis;
  bool shrink;  // border "shrink": windows at the ends are shorter; "valid": they are left out

  explicit Attributes(const sdk::Node& node)
      : window(node.get_int("window", 0)),
        axis(node.get_int("axis", -1)),
        shrink(node.get_string("border", "valid") == "shrink") {
    const std::string border = node.get_string("border", "valid");
    if (window < 1)
      sdk::invalid("WindowedMean '", node.name(), "': window is ", window, "; give 1 or more");
    if (border != "valid" && border != "shrink") {
      sdk::invalid("WindowedMean '", node.name(), "': border is '", border,
                   "'; give 'valid' or 'shrink'");
    }
  }

  std::size_t axis_of(int rank) const {
    if (axis < -rank || axis >= rank)
      sdk::invalid("WindowedMean: axis ", axis, " is out of range for rank ", rank);
    return static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
  }
  /// How many means there are of `size` elements; -1 (unknown) stays -1.
  std::int64_t result_size(std::int64_t size) const {
    if (shrink || size < 0) return size;
    if (size < window)
      sdk::invalid("WindowedMean: a window of ", window, " does not fit ", size, " elements");
    return size - window + 1;
  }
};
// [/attributes]

// [schema]
sdk::OpSchema schema() {
  return sdk::OpSchema(kDomain, "WindowedMean", 1)
      .doc(
          "The mean of each run of `window` elements along `axis`. Border 'valid' keeps whole "
          "windows alone; "
          "'shrink' gives a mean for every element, over those of its window (centred, the longer "
          "part before "
          "it) that exist. Integers are rounded towards zero.")
      .type_param("T", {DataType::Float, DataType::Double, DataType::Int32, DataType::Int64})
      .input("x", "T")
      .output("y", "T")
      .attribute("window", BP_ATTRIBUTE_INT, true, "Elements of a window, at least 1.")
      .attribute("axis", BP_ATTRIBUTE_INT, false, "Default -1, the last one.")
      .attribute("border", BP_ATTRIBUTE_STRING, false, "'valid' (default) or 'shrink'.")
      .infer([](sdk::InferContext& ctx) {
        const Attributes attributes(ctx.node());
        const sdk::ValueInfo x = ctx.node().input(0);
        if (x.rank() < 0 || attributes.shrink) return ctx.set_output_like(0, x);
        sdk::Dims dims(x.dims().begin(), x.dims().end());
        const std::size_t axis = attributes.axis_of(x.rank());
        dims[axis] = attributes.result_size(dims[axis]);
        ctx.set_output(0, x.type(), dims);
      });
}
// [/schema]

// [kernel]
/// x is seen as [outer, size, inner], y as [outer, means, inner]. Sums are made in double, for int64 in
/// 128 bits: each window anew, so that a NaN or infinity reaches its own windows and no other.
template <class T>
class WindowedMean {
 public:
  struct Prepared {
    std::int64_t outer, size, inner, means, window,
        lead;  // lead: elements of a window before its own
    void compute(const sdk::ComputeContext& ctx) const;
  };

  WindowedMean(const sdk::CreateContext&, const sdk::Node& node) : attributes_(node) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const std::size_t axis = attributes_.axis_of(x.rank());
    sdk::Dims dims(x.dims().begin(), x.dims().end());
    const std::int64_t size = dims[axis];
    dims[axis] = attributes_.result_size(size);
    ctx.set_output(0, x.type(), dims);
    Prepared prepared{1,
                      size,
                      1,
                      dims[axis],
                      attributes_.window,
                      attributes_.shrink ? attributes_.window / 2 : 0};
    for (std::size_t i = 0; i < axis; ++i) prepared.outer *= dims[i];
    for (std::size_t i = axis + 1; i < dims.size(); ++i) prepared.inner *= dims[i];
    return prepared;
  }

 private:
  Attributes attributes_;
};

template <class T>
void WindowedMean<T>::Prepared::compute(const sdk::ComputeContext& ctx) const {
  // A keyword before `typedef` silences -Wpedantic; none does before `using`.
  __extension__ typedef __int128 Int128;  // NOLINT(modernize-use-using)
  using Sum = std::conditional_t<std::is_integral_v<T>, Int128, double>;
  const T* x = ctx.input(0).data<T>();
  T* y = ctx.output(0).mutable_data<T>();
  const auto rows = static_cast<std::uint64_t>(outer * means);
  const auto grain = static_cast<std::uint64_t>(1 + 16384 / (1 + inner * window));
  ctx.threads().parallel_for(
      rows, grain, [this, x, y](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
        for (auto row = static_cast<std::int64_t>(begin); row < static_cast<std::int64_t>(end);
             ++row) {
          const std::int64_t start = row % means - lead;
          const std::int64_t first = std::max<std::int64_t>(start, 0),
                             last = std::min(start + window, size);
          const T* x_rows = x + (row / means * size + first) * inner;
          for (std::int64_t i = 0; i < inner; ++i) {
            Sum sum = 0;
            for (std::int64_t k = 0; k < last - first; ++k)
              sum += static_cast<Sum>(x_rows[k * inner + i]);
            y[row * inner + i] = static_cast<T>(sum / static_cast<Sum>(last - first));
          }
        }
      });
}
// [/kernel]

// [kernels]
template <class T>
sdk::KernelEntry entry(const char* name) {
  return sdk::op("WindowedMean", kDomain)
      .name(name)
      .types("T", {sdk::data_type_of<T>()})
      .template kernel<WindowedMean<T>>();
}

sdk::KernelList cpu_kernels() {
  return {entry<float>("windowed_mean:float"), entry<double>("windowed_mean:double"),
          entry<std::int32_t>("windowed_mean:int32"), entry<std::int64_t>("windowed_mean:int64")};
}
// [/kernels]

}  // namespace

// [plugin]
BP_PLUGIN("windowed_mean", "1.0.0", [](sdk::Plugin& plugin) {
  plugin.schema(schema());
  plugin.kernels_for("cpu", cpu_kernels);
});
// [/plugin]
