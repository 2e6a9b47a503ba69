#include "plugins/common/device_ops/fused_attention.hpp"

#include <algorithm>
#include <utility>

#include "plugins/common/broadcast.hpp"
#include "plugins/common/device_ops/attention_scores.hpp"
#include "plugins/common/device_ops/row_form.hpp"

namespace backplane::device_ops {
namespace {

constexpr std::uint32_t kQ = 0, kK = 1, kV = 2, kMask = 3;

/// The dims of what has three axes, [batch, positions, width], as of one head; of less, as they are.
Dims with_heads(const sdk::Tensor& x) {
  Dims dims(x.dims().begin(), x.dims().end());
  if (dims.size() == 3) dims.insert(dims.begin() + 1, 1);
  return dims;
}

}  // namespace

AttentionExtent attention_extent(const HeadRows& q, const HeadRows& k, const HeadRows& v,
                                 const std::optional<Dims>& mask, bool is_grouped) {
  const auto batch_of = [&](const HeadRows& operand) {
    return Dims{operand.batch, is_grouped ? q.heads : operand.heads};
  };
  AttentionExtent extent;
  if (q.width != k.width)
    sdk::invalid("attention of rows of ", q.width, " elements by rows of ", k.width);
  extent.scores = common::broadcast_dims({batch_of(q), batch_of(k)});
  extent.scores.insert(extent.scores.end(), {q.positions, k.positions});
  extent.masked = mask ? common::broadcast_dims({extent.scores, *mask}) : extent.scores;
  if (extent.masked.back() != v.positions)
    sdk::invalid("attention to ", extent.masked.back(), " positions, with values of ", v.positions);
  const Dims over{extent.masked[0], extent.masked[1]};
  extent.result = common::broadcast_dims({over, batch_of(v)});
  extent.result.insert(extent.result.end(), {extent.masked[2], v.width});
  return extent;
}

bool SizedAttention::is_of_few_rows(const Device& device) const {
  // Wider ones are more than items that share a row keep in registers.
  constexpr std::int64_t kFew = 4, kMost = 64, kPositionsOfRow = 16, kWidest = 1024;
  if (!shares_rows(device) && q.positions > 1) return false;
  if (shares_rows(device) && std::max(q.width, v.width) > kWidest) return false;
  const std::int64_t rows = q.positions;
  const bool is_masked_along = !mask || (!mask->empty() && mask->back() == k.positions);
  return is_masked_along &&
         (rows <= kFew || (rows < kMost && rows * kPositionsOfRow <= k.positions));
}

bool SizedAttention::is_whole() const {
  return k.batch == q.batch && v.batch == q.batch && k.heads * group == q.heads &&
         v.heads == k.heads && extent.masked == extent.scores && extent.result[0] == q.batch &&
         q.width > 0 && k.positions > 0;
}

RowAttention SizedAttention::rows() const {
  RowAttention rows;
  rows.type = type;
  rows.batch = q.batch;
  rows.kv_heads = k.heads;
  rows.group_heads = group;
  rows.queries = q.positions;
  rows.keys = k.positions;
  rows.width = q.width;
  rows.value_width = v.width;
  rows.q = {input(kQ), q.steps};
  rows.k = {input(kK), k.steps};
  rows.v = {input(kV), v.steps};
  rows.y = {output(0), y};
  if (mask) rows.mask = mask_form;
  rows.scale = scale;
  rows.cap = softcap;
  rows.empty = empty;
  return rows;
}

FusedAttention::FusedAttention(const sdk::Node& node)
    : axes_(node.get_string("axes", "bhsbhsbhsbhs")),
      group_(node.get_int("group", 1)),
      scale_(node.get_float("scale", 1)),
      softcap_(node.get_float("softcap", 0)),
      is_nan_zero_(node.get_int("is_nan_zero", 0) != 0),
      is_chosen_(node.has("chosen")),
      chosen_(node.get_int("chosen", 1) != 0),
      otherwise_(node.get_float("otherwise", 0)) {}

SizedAttention FusedAttention::begin(sdk::PrepareContext& ctx) const {
  const auto axes_of = [this](std::uint32_t index) { return axes_.substr(3 * index, 3); };
  const auto operand = [&](std::uint32_t index) {
    return head_rows(with_heads(ctx.input(index)), axes_of(index), 0);
  };
  const sdk::Tensor q = ctx.input(kQ), mask = ctx.input(kMask);
  SizedAttention sized;
  sized.type = q.type();
  sized.q = operand(kQ);
  sized.k = operand(kK);
  sized.v = operand(kV);
  sized.group = group_;
  sized.scale = static_cast<double>(scale_);
  sized.softcap = static_cast<double>(softcap_);
  if (is_nan_zero_) sized.empty = EmptyRow::kNumber;
  if (group_ > 1 && (sized.k.heads * group_ != sized.q.heads || sized.v.heads != sized.k.heads))
    sdk::invalid("attention of ", sized.q.heads, " heads by ", sized.k.heads, " and ",
                 sized.v.heads, ", each for ", group_);
  if (mask.present())
    sized.mask = q.rank() == 3 ? with_heads(mask) : Dims(mask.dims().begin(), mask.dims().end());
  sized.extent = attention_extent(sized.q, sized.k, sized.v, sized.mask, group_ > 1);
  if (mask.present())
    sized.mask_form = dense_mask(input(kMask), mask.type(), *sized.mask, sized.extent.masked);
  if (is_chosen_) {
    sized.mask_form.chosen = chosen_;
    sized.mask_form.otherwise = static_cast<double>(otherwise_);
  }
  sized.lying = sized.extent.result;
  if (axes_of(3) == "bsh") std::swap(sized.lying[1], sized.lying[2]);
  sized.y = head_rows(sized.lying, axes_of(3), 0).steps;
  Dims dims = sized.lying;
  if (q.rank() == 3) dims.erase(dims.begin() + 1);
  ctx.set_output(0, sized.type, dims);
  const std::int64_t sums =
      sdk::element_count(sized.extent.masked) * (sized.q.width + sized.v.width);
  ctx.set_cost(2 * static_cast<std::uint64_t>(sums),
               q.bytes() + ctx.input(kK).bytes() + ctx.input(kV).bytes());
  return sized;
}

std::string attention_refusal(const patterns::DecomposedAttention& found) {
  if (!found.why.empty()) return found.why;
  const DataType type = found.q.value.type();
  if (type != DataType::Float && type != DataType::Float16 && type != DataType::BFloat16)
    return sdk::message("it is of ", sdk::type_name(type));
  for (const sdk::ValueInfo& value : {found.k.value, found.v.value}) {
    if (value.type() != type) return "its operands are of other kinds";
  }
  const auto heads_of = [](const patterns::SeenHeads& operand) {
    return operand.value.dims()[operand.axes == "bhs" ? 1 : 2];
  };
  if (found.k.group > 1 && heads_of(found.q) != found.k.group * heads_of(found.k))
    return "its heads are not known to be those that are repeated";
  return found.mask && !found.chosen && found.mask.type() != type ? "its mask is of another kind"
                                                                  : "";
}

sdk::NodeDraft fused_attention(const patterns::DecomposedAttention& found, sdk::Rewrite& edit) {
  sdk::NodeDraft draft = edit.node(private_domain(), "FusedAttention");
  draft.name(std::string(found.softmax.name()));
  draft.input(found.q.value.name()).input(found.k.value.name()).input(found.v.value.name());
  if (found.mask) draft.input(found.mask.name());
  draft.output(found.y.value.name()).attribute("scale", found.scale);
  draft.attribute("axes", found.q.axes + found.k.axes + found.v.axes + found.y.axes);
  if (found.k.group > 1) draft.attribute("group", found.k.group);
  if (found.is_nan_zero) draft.attribute("is_nan_zero", std::int64_t{1});
  if (found.softcap != 0) draft.attribute("softcap", found.softcap);
  if (found.chosen) draft.attribute("chosen", std::int64_t{*found.chosen});
  if (found.chosen) draft.attribute("otherwise", found.otherwise);
  draft.replaces(found.scores);
  for (const sdk::Node& each : found.nodes) {
    if (each != found.scores) draft.replaces(each);
  }
  return draft;
}

}  // namespace backplane::device_ops
