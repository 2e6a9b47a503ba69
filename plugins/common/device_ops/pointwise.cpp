#include "plugins/common/device_ops/pointwise.hpp"

#include <algorithm>
#include <bit>

#include "plugins/common/broadcast.hpp"
#include "plugins/common/device_ops/walk.hpp"
#include "plugins/common/kernels/planes.hpp"

namespace backplane::device_ops {
namespace {

bool is_double(const std::vector<View>& operands, const View& out) {
  return out.type == DataType::Double ||
         std::any_of(operands.begin(), operands.end(),
                     [](const View& view) { return view.type == DataType::Double; });
}

/// Processors loop along the last axis: where it is short, as in a transposition of blocks, a longer one whose elements lie
/// together takes its place.
void put_long_axis_last(common::StridedLoops& loops) {
  constexpr std::int64_t kShort = 8;
  const std::size_t last = loops.dims.size() - 1;
  if (loops.dims[last] >= kShort) return;
  std::size_t best = last;
  for (std::size_t axis = 0; axis < last; ++axis) {
    const bool lies_together = std::any_of(loops.strides.begin(), loops.strides.end(),
                                           [&](const Dims& strides) { return strides[axis] == 1; });
    if (lies_together && loops.dims[axis] > loops.dims[best]) best = axis;
  }
  std::swap(loops.dims[best], loops.dims[last]);
  for (Dims& strides : loops.strides) std::swap(strides[best], strides[last]);
}

}  // namespace

std::array<std::size_t, 3> group_for(const Device& device, std::int64_t inner, std::int64_t outer) {
  constexpr std::size_t kMost = 256;
  const std::size_t most = std::bit_floor(std::min(kMost, device.limits().max_group_items));
  if (device.limits().is_processor) {
    // Few sizes: on PoCL each is compiled anew.
    const std::size_t wanted = inner <= 1 ? 1 : inner <= 16 ? 16 : inner <= 64 ? 64 : kMost;
    return {std::min(wanted, most), 1, 1};
  }
  const std::size_t along = std::min(most, std::bit_ceil(static_cast<std::size_t>(inner)));
  return {along, std::min(most / along, std::bit_ceil(static_cast<std::size_t>(outer))), 1};
}

View broadcast_view(const MemoryRef& memory, DataType type, DimsView dims, DimsView out) {
  View view{memory, type, Dims(out.size(), 0)};
  const std::vector<std::int64_t> strides = common::dense_strides(dims);
  const std::size_t shift = out.size() - dims.size();
  for (std::size_t axis = 0; axis < dims.size(); ++axis)
    view.strides[shift + axis] = dims[axis] == 1 ? 0 : strides[axis];
  return view;
}

View dense_view(const MemoryRef& memory, DataType type, DimsView dims) {
  return {memory, type, common::dense_strides(dims)};
}

MadeDims::MadeDims(const sdk::Node& node)
    : is_known_(node.has("dims")), dims_(node.get_ints("dims")) {}

Dims MadeDims::of(const sdk::PrepareContext& ctx, std::uint32_t operands) const {
  std::vector<DimsView> shapes;
  for (std::uint32_t i = 0; i < operands; ++i) shapes.push_back(ctx.input(i).dims());
  Dims dims = is_known_ ? dims_ : common::broadcast_dims(shapes);
  for (const DimsView& shape : shapes) {
    if (!common::broadcasts_to(shape, dims))
      sdk::invalid("an operand of dims ", to_string(shape), " for ", sdk::to_string(dims));
  }
  return dims;
}

const char* finite_text(DataType to) {
  if (to == DataType::Float16)
    return "IS_INF(v0) ? v0 : v0 > 65504.0f ? 65504.0f : v0 < -65504.0f ? -65504.0f : v0";
  // The least float is nearer to the infinity of bfloat16 than to its least number.
  if (to == DataType::BFloat16)
    return "IS_INF(v0) ? v0 : v0 > 3.38953139e38f ? 3.38953139e38f : v0 < -3.38953139e38f ? "
           "-3.38953139e38f : v0";
  return "v0";
}

void add_pointwise(Work& work, DimsView dims, const std::vector<View>& operands, const View& out,
                   const Expression& expression, int unless_inside) {
  if (sdk::element_count(dims) == 0) return;
  common::StridedLoops loops;
  loops.dims.assign(dims.begin(), dims.end());
  std::vector<common::PointwiseOperand> places;
  LaunchPlan plan;
  const auto add = [&](const View& view) {
    loops.strides.push_back(view.strides);
    places.push_back({type_code(view.type), view.memory.offset});
    plan.arg(view.memory, view.type);
  };
  for (const View& operand : operands) add(operand);
  add(out);
  loops = common::merge_axes(loops);
  const bool is_processor = work.device().limits().is_processor;
  if (is_processor) put_long_axis_last(loops);

  const bool real_is_double = is_double(operands, out);
  const common::PointwiseForm form{is_processor,
                                   is_processor ? 1 : common::vector_width(loops, places)};
  const common::PointwiseBody body{expression.statements, expression.text,
                                   expression.parameters.size(),
                                   real_is_double ? "double" : "float"};
  const std::optional<common::Planes> planes =
      is_processor || form.width > 1 ? std::nullopt : common::Planes::of(loops, places);
  const common::PointwiseText kernel = planes ? common::planes_text(*planes, places, body)
                                              : common::pointwise_text(loops, places, body, form);
  plan.source = KernelText()
                    .define("REAL", real_is_double ? "double" : "float")
                    .define("LIT(x)", real_is_double ? "x" : "JOIN(x, f)")
                    .define("TO_16_BITS", is_half(out.type) ? 1 : 0)
                    .add(expression.functions)
                    .add(kernel.text)
                    .str();
  for (const std::int64_t argument : kernel.arguments) plan.scalar(argument);
  for (const double parameter : expression.parameters) {
    if (real_is_double) {
      plan.scalar(parameter);
    } else {
      plan.scalar(static_cast<float>(parameter));
    }
  }
  if (is_processor) {
    set_bands(plan, loops.dims, common::Band(loops.dims));
  } else {
    set_sizes(plan, work.device(), planes ? planes->pixels.dims : loops.dims,
              planes ? planes->width : form.width);
  }
  plan.unless_inside = unless_inside;
  work.add(std::move(plan));
}

void add_strided_copy(Work& work, DataType type, StridedCopy copy) {
  int bytes = sdk::element_bytes(type);
  if (bytes == 0) sdk::unsupported("elements of type ", sdk::type_name(type), " are not moved");
  copy.from.offset += static_cast<std::uint64_t>(copy.from_offset * bytes);
  copy.to.offset += static_cast<std::uint64_t>(copy.to_offset * bytes);
  if (bytes == 16) {  // two words of eight
    bytes = 8;
    copy.dims.push_back(2);
    for (Dims* strides : {&copy.from_strides, &copy.to_strides}) {
      for (std::int64_t& stride : *strides) stride *= 2;
      strides->push_back(1);
    }
  }
  const DataType word = bytes == 1   ? DataType::UInt8
                        : bytes == 2 ? DataType::UInt16
                        : bytes == 4 ? DataType::UInt32
                                     : DataType::UInt64;
  add_pointwise(work, copy.dims, {{copy.from, word, copy.from_strides}},
                {copy.to, word, copy.to_strides}, {"v0", "", {}}, copy.unless_inside);
}

}  // namespace backplane::device_ops
