#include "plugins/cpu/dense/attention_heads.hpp"

#include <array>

namespace backplane::cpu {

Heads heads_of(const sdk::Tensor& tensor, std::int64_t count, bool positions_first,
               const char* name) {
  const sdk::DimsView d = tensor.dims();
  if (tensor.rank() == 4) {
    return positions_first ? Heads::of_axes(d[0], d[2], d[1], d[3], true)
                           : Heads::of_axes(d[0], d[1], d[2], d[3], false);
  }
  if (tensor.rank() != 3)
    sdk::invalid(name, " has dims ", to_string(d), ", 3 or 4 of them are needed");
  if (count <= 0 || d[2] % count != 0)
    sdk::invalid(name, " has dims ", to_string(d), ", whose last one is not a multiple of its ",
                 count, " heads (q_num_heads, kv_num_heads)");
  return Heads::of_axes(d[0], count, d[1], d[2] / count, true);
}

void check_same_size(std::int64_t a, std::int64_t b, const char* what) {
  if (a != b) sdk::invalid(what, " differ: ", a, " and ", b);
}

void plan_mask(const sdk::Tensor& mask, const sdk::Dims& dims, const AttentionShape& shape,
               bool pads, AttentionArgs& args) {
  const std::array<std::int64_t, 4> wanted{shape.batch, shape.kv_heads * shape.group, shape.queries,
                                           shape.keys};
  std::array<std::int64_t, 4> steps{};
  std::int64_t step = 1;
  for (std::size_t axis = 4; axis-- > 0; step *= dims[axis]) {
    const bool is_shorter = axis == 3 && pads && dims[axis] <= wanted[axis];
    if (dims[axis] != wanted[axis] && dims[axis] != 1 && !is_shorter)
      sdk::invalid("the mask has dims ", to_string(mask.dims()), ", which do not broadcast to [",
                   wanted[0], ", ", wanted[1], ", ", wanted[2], ", ", wanted[3], "]");
    steps[axis] = dims[axis] == 1 && !is_shorter ? 0 : step;
  }
  args.mask_kind =
      mask.type() == sdk::DataType::Bool ? AttentionArgs::Mask::Chosen : AttentionArgs::Mask::Added;
  args.mask_steps = {steps[0], steps[1], steps[2]};
  args.mask_spreads = steps[3] == 0;
  args.mask_keys = args.mask_spreads ? shape.keys : dims[3];
}

std::uint64_t attention_flops(const AttentionShape& shape) {
  return static_cast<std::uint64_t>(2 * shape.batch * shape.kv_heads * shape.group * shape.queries *
                                    shape.keys * (shape.width + shape.value_width));
}

}  // namespace backplane::cpu
