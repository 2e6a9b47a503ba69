// backplane.examples::DecodeBoxes: what a detector's head says of its anchors, as boxes. See README.md.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "backplane/plugin.hpp"

namespace {

namespace sdk = backplane::sdk;
using sdk::DataType;

constexpr const char* kDomain = "backplane.examples";
constexpr std::int64_t kCoordinates = 4;

/// Checks the dims of a node's inputs as far as they are known (-1: not): deltas [..., anchors, 4],
/// anchors [anchors, 4].
void check_dims(sdk::DimsView deltas, sdk::DimsView anchors) {
  const auto differ = [](std::int64_t a, std::int64_t b) { return a >= 0 && b >= 0 && a != b; };
  const std::size_t rank = deltas.size();
  if (rank < 2 || differ(deltas[rank - 1], kCoordinates)) {
    sdk::invalid("DecodeBoxes: deltas are [..., anchors, 4], got ", to_string(deltas));
  }
  if (anchors.size() != 2 || differ(anchors[1], kCoordinates) ||
      differ(anchors[0], deltas[rank - 2])) {
    sdk::invalid("DecodeBoxes: anchors are [anchors, 4], got ", to_string(anchors), " for deltas ",
                 to_string(deltas));
  }
}

sdk::OpSchema schema() {
  return sdk::OpSchema(kDomain, "DecodeBoxes", 1)
      .doc(
          "Boxes (x1, y1, x2, y2) from a single-shot detector's deltas (dx, dy, dw, dh) and its "
          "anchors (centre x, "
          "centre y, width, height): centre = anchor centre + delta * center_variance * anchor "
          "size, "
          "size = anchor size * exp(delta * size_variance), corners = centre -+ size / 2.")
      .type_param("T", {DataType::Float, DataType::Double})
      .input("deltas", "T")
      .input("anchors", "T")
      .output("boxes", "T")
      .attribute("center_variance", BP_ATTRIBUTE_FLOAT, false, "Default 0.1.")
      .attribute("size_variance", BP_ATTRIBUTE_FLOAT, false, "Default 0.2.")
      .attribute("clip", BP_ATTRIBUTE_INT, false, "1: corners are kept within [0, 1]. Default 0.")
      .infer([](sdk::InferContext& ctx) {
        const sdk::ValueInfo deltas = ctx.node().input(0), anchors = ctx.node().input(1);
        if (deltas.rank() >= 0 && anchors.rank() >= 0) check_dims(deltas.dims(), anchors.dims());
        ctx.set_output_like(0, deltas);
      });
}

/// One pass over the deltas, where the model's own nodes (two Slice, three Mul, Exp, Add, Sub, Concat ...)
/// make a dozen.
template <class T>
class DecodeBoxes {
 public:
  struct Prepared {
    T center_variance, size_variance;
    bool clip;
    std::int64_t boxes, anchors;
    void compute(const sdk::ComputeContext& ctx) const;
  };

  DecodeBoxes(const sdk::CreateContext&, const sdk::Node& node)
      : center_variance_(node.get_float("center_variance", 0.1f)),
        size_variance_(node.get_float("size_variance", 0.2f)),
        clip_(node.get_int("clip", 0) != 0) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor deltas = ctx.input(0), anchors = ctx.input(1);
    check_dims(deltas.dims(), anchors.dims());
    ctx.set_output(0, deltas.type(), deltas.dims());
    ctx.allow_in_place(0, 0);  // a box is written after its deltas are read
    return {static_cast<T>(center_variance_), static_cast<T>(size_variance_), clip_,
            deltas.size() / kCoordinates, anchors.dim(0)};
  }

 private:
  float center_variance_, size_variance_;
  bool clip_;
};

template <class T>
void DecodeBoxes<T>::Prepared::compute(const sdk::ComputeContext& ctx) const {
  const T* deltas = ctx.input(0).data<T>();
  const T* all_anchors = ctx.input(1).data<T>();
  T* result = ctx.output(0).mutable_data<T>();
  const auto decode = [=](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
    for (auto box = static_cast<std::int64_t>(begin); box < static_cast<std::int64_t>(end); ++box) {
      const T* delta = deltas + box * kCoordinates;
      const T* anchor = all_anchors + box % anchors * kCoordinates;
      T corners[kCoordinates];
      for (int axis = 0; axis < 2; ++axis) {
        const T size = anchor[axis + 2];
        const T centre = anchor[axis] + delta[axis] * center_variance * size;
        const T half = size * std::exp(delta[axis + 2] * size_variance) / 2;
        corners[axis] = centre - half;
        corners[axis + 2] = centre + half;
      }
      for (int i = 0; i < kCoordinates; ++i) {
        const bool outside = clip && !std::isnan(corners[i]);
        result[box * kCoordinates + i] = outside ? std::clamp(corners[i], T{0}, T{1}) : corners[i];
      }
    }
  };
  ctx.threads().parallel_for(static_cast<std::uint64_t>(boxes), 1024, decode);
}

template <class T>
sdk::KernelEntry entry(const char* name) {
  return sdk::op("DecodeBoxes", kDomain)
      .name(name)
      .types("T", {sdk::data_type_of<T>()})
      .template kernel<DecodeBoxes<T>>();
}

sdk::KernelList cpu_kernels() {
  return {entry<float>("decode_boxes:float"), entry<double>("decode_boxes:double")};
}

}  // namespace

BP_PLUGIN("decode_boxes", "1.0.0", [](sdk::Plugin& plugin) {
  plugin.schema(schema());
  plugin.kernels_for("cpu", cpu_kernels);
});
