#include "plugins/cuda/attentions.hpp"

#include <utility>

namespace backplane::cuda {
namespace {

std::string text_of(const AttentionSteps& steps) {
  return sdk::message(steps.batch, ' ', steps.head, ' ', steps.position);
}

}  // namespace

std::string Attention::key() const {
  std::string text = sdk::message("attention of ", sdk::type_name(type), ' ', batch, 'x', heads,
                                  " in ", groups, " of ", rows, " by ", columns, ", ", width,
                                  " to ", value_width, ", steps ", text_of(q), ", ", text_of(k),
                                  ", ", text_of(v), ", ", text_of(y), is_causal ? ", causal" : "");
  if (!has_mask) return text;
  text += ", mask";
  for (const std::int64_t dim : mask_dims) text += sdk::message(' ', dim);
  return text;
}

std::vector<std::uint64_t> operand_bytes(const Attention& form) {
  // From the first element to the last.
  const auto extent = [&form](const AttentionSteps& steps, std::int64_t heads,
                              std::int64_t positions, std::int64_t width) {
    return (form.batch - 1) * steps.batch + (heads - 1) * steps.head +
           (positions - 1) * steps.position + width;
  };
  const auto& mask = form.mask_dims;
  std::vector<std::uint64_t> bytes;
  for (const std::int64_t elements : {extent(form.q, form.heads, form.rows, form.width),
                                      extent(form.k, form.groups, form.columns, form.width),
                                      extent(form.v, form.groups, form.columns, form.value_width),
                                      form.has_mask ? mask[0] * mask[1] * mask[2] * mask[3] : 0,
                                      extent(form.y, form.heads, form.rows, form.value_width)})
    bytes.push_back(static_cast<std::uint64_t>(elements * sdk::element_bytes(form.type)));
  return bytes;
}

TrialRun trial_run(const Attention&, std::shared_ptr<const PreparedAttention> plan) {
  return [plan = std::move(plan)](KernelQueue& queue, const std::vector<Address>& operands,
                                  Address workspace) {
    AttentionAddresses at;
    at.q = operands[0];
    at.k = operands[1];
    at.v = operands[2];
    at.mask = operands[3];
    at.y = operands[4];
    at.workspace = workspace;
    plan->enqueue(queue, at, 1);
  };
}

std::string AttentionStore::refusal(const Attention& attention, Choosing choosing) {
  constexpr std::int64_t kMostWidth = 256, kWidths = 8;
  constexpr std::int64_t kRightGroups = 8;
  constexpr int kLeastMajor = 8, kFaultyMajor = 10;
  if (!has_library_) return "this build of the plugin has no cuDNN";
  if (major_ < kLeastMajor) return "cuDNN's attention wants compute capability 8.0";
  // Seen with 9.19 and 9.20, and open: https://github.com/pytorch/pytorch/issues/193893
  if (major_ == kFaultyMajor && attention.rows == 1 && attention.groups < attention.heads &&
      attention.groups < kRightGroups)
    return "cuDNN's attention of one row with few heads of keys is known for faults on compute "
           "capability 10";
  for (const std::int64_t width : {attention.width, attention.value_width}) {
    if (width % kWidths != 0 || width > kMostWidth)
      return sdk::message("heads of ", width, " elements; cuDNN takes multiples of ", kWidths,
                          " up to ", kMostWidth);
  }
  if (const Found found = find(attention, choosing); found.plan == nullptr)
    return sdk::message("cuDNN has no plan within ", kAttentionWorkspace >> 20,
                        " MiB of workspace for ", attention.key(), ": ", found.why);
  return "";
}

Attention attention_of(const AttentionOperand& q, const AttentionOperand& k,
                       const AttentionOperand& v) {
  if (k.batch != q.batch || v.batch != q.batch || k.width != q.width || v.heads != k.heads ||
      v.positions != k.positions || k.heads < 1 || q.heads % k.heads != 0)
    sdk::invalid("attention of ", q.batch, " x ", q.heads, " heads of ", q.width, " by ", k.batch,
                 " x ", k.heads, " of ", k.width, " and ", v.batch, " x ", v.heads);
  Attention attention;
  attention.batch = q.batch;
  attention.heads = q.heads;
  attention.groups = k.heads;
  attention.rows = q.positions;
  attention.columns = k.positions;
  attention.width = q.width;
  attention.value_width = v.width;
  attention.q = q.steps;
  attention.k = k.steps;
  attention.v = v.steps;
  return attention;
}

void set_mask(sdk::DimsView dims, Attention& attention) {
  const std::array<std::int64_t, 4> whole{attention.batch, attention.heads, attention.rows,
                                          attention.columns};
  if (dims.size() > whole.size()) sdk::invalid("a mask of dims ", sdk::to_string(dims));
  attention.has_mask = true;
  const std::size_t first = whole.size() - dims.size();
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    if (dims[axis] != 1 && dims[axis] != whole[first + axis])
      sdk::invalid("a mask of dims ", sdk::to_string(dims), " for ", attention.rows, " by ",
                   attention.columns, " positions");
    attention.mask_dims[first + axis] = dims[axis];
  }
}

}  // namespace backplane::cuda
