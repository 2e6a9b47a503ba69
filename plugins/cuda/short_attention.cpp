#include "plugins/cuda/short_attention.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "plugins/common/device_ops/row_form.hpp"
#include "plugins/common/device_ops/types.hpp"
#include "plugins/common/kernels/matrix_units.hpp"
#include "plugins/common/kernels/neighbours.hpp"
#include "plugins/cuda/kernels/short_attention.hpp"
#include "plugins/cuda/own_plan.hpp"

namespace backplane::cuda {
namespace {

using device_ops::ceil_divide;

constexpr std::int64_t kWarpRows = 16, kMostWarps = 4;

/// Rows are read 16 bytes at a time.
bool is_even(const AttentionSteps& steps) {
  constexpr std::int64_t kTogether = 8;
  return steps.batch % kTogether == 0 && steps.head % kTogether == 0 &&
         steps.position % kTogether == 0;
}

bool is_for_kernel(const Attention& form, const DeviceTraits& traits) {
  constexpr int kLeastMajor = 8;
  constexpr std::int64_t kDepth = 16, kMostWidth = 128;
  constexpr std::int64_t kMostPositions = std::int64_t{1} << 24;  // places are ints
  return traits.major >= kLeastMajor && device_ops::is_half(form.type) &&
         form.width == form.value_width && form.width % kDepth == 0 && form.width > 0 &&
         form.width <= kMostWidth && form.rows <= kMostPositions &&
         form.columns <= kMostPositions && form.columns > 0 && is_even(form.q) && is_even(form.k) &&
         is_even(form.v) && is_even(form.y);
}

}  // namespace

std::optional<ShortAttention> ShortAttention::of(const Attention& form,
                                                 const DeviceTraits& traits) {
  constexpr std::int64_t kWide = 64, kKeys = 64, kKeysOfWide = 32;
  if (!is_for_kernel(form, traits)) return std::nullopt;
  ShortAttention made{form, kMostWarps, form.width <= kWide ? kKeys : kKeysOfWide};
  // Rows of one group share keys and values, unless that leaves multiprocessors idle.
  while (made.warps > 1 &&
         (made.groups() < traits.multiprocessors || (made.warps / 2) * kWarpRows >= form.rows))
    made.warps /= 2;
  if (made.groups() > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
  return made;
}

std::vector<ShortAttention> ShortAttention::forms(const Attention& form,
                                                  const DeviceTraits& traits) {
  constexpr std::int64_t kSchedulers = 4;  // of a multiprocessor, from 7.0 on
  constexpr std::int64_t kLeastSlice = 16, kMostOfEach = 2;
  const std::optional<ShortAttention> whole = of(form, traits);
  if (!whole) return {};
  std::vector<ShortAttention> divided;
  for (const std::int64_t parts : {4, 2}) {
    ShortAttention made{form, 1, whole->keys, parts};
    const std::int64_t slice = made.keys / parts, warps = made.groups() * parts;
    // Every warp is to have keys, and a warp's others are to find schedulers that have little to do.
    if (slice >= kLeastSlice && form.columns > slice * (parts - 1) &&
        warps <= kMostOfEach * kSchedulers * traits.multiprocessors)
      divided.push_back(made);
  }
  // A lone warp on a multiprocessor leaves all schedulers but one idle, and copies, multiplies and takes powers by itself, in turn. With
  // two warps or more it is not clear what is worth more. By what the hardware has, and not measured.
  divided.insert(whole->groups() < traits.multiprocessors ? divided.end() : divided.begin(),
                 *whole);
  return divided;
}

bool ShortAttention::is_worthwhile() const {
  constexpr std::int64_t kMostPositions = 512;
  return form.rows <= kMostPositions && form.columns <= kMostPositions;
}

std::int64_t ShortAttention::groups() const {
  return ceil_divide(form.rows, warps * kWarpRows) * form.batch * form.heads;
}

std::string ShortAttention::words() const {
  return parts == 1 ? "" : sdk::message(", keys in ", parts);
}

std::string ShortAttention::source() const {
  device_ops::KernelText text;
  text.define("T", device_ops::type_code(form.type));
  text.define("WIDTH", form.width)
      .define("WARPS", warps)
      .define("KEYS", keys)
      .define("PARTS", parts);
  text.define("HAS_MASK", form.has_mask ? 1 : 0).define("IS_CAUSAL", form.is_causal ? 1 : 0);
  text.define("RELU", "\"\"").define("ACTIVATED(v)", "(v)");
  return text.add(common::kNeighbourWords)
      .add(common::kMatrixUnitWords)
      .add(common::kPairWords)
      .add(kShortAttentionWords)
      .add(kShortAttention)
      .str();
}

namespace {

class ShortAttentionPlan final : public PreparedAttention {
 public:
  using How = ShortAttention;
  using Prepared = PreparedAttention;
  static constexpr char kKept[] = "few positions on matrix units";
  static constexpr int kTextNumber = 2;

  ShortAttentionPlan(Device& device, const ShortAttention& how)
      : kernel_(device.modules().get(how.source())),
        how_(how),
        name_("tensor cores, few positions" + how.words()) {
    const std::array<std::int64_t, 4>& dims = how.form.mask_dims;
    std::int64_t step = 1;
    for (std::size_t axis = dims.size(); axis-- > 0; step *= dims[axis])
      mask_steps_[axis] = dims[axis] == 1 ? 0 : step;
  }
  std::uint64_t workspace_bytes() const override { return 0; }
  std::string kept() const override { return kKept + how_.words(); }
  const char* own_name() const override { return name_.c_str(); }

 private:
  void put_on(KernelQueue& queue, const AttentionAddresses& at, float scale) const override {
    const Attention& form = how_.form;
    LaunchArguments arguments;
    for (const Address address : {at.q, at.k, at.v, form.has_mask ? at.mask : at.q, at.y})
      arguments.tensor(address);
    for (const std::int64_t number :
         {form.rows, form.columns, form.heads, form.heads / form.groups})
      arguments.add(static_cast<std::int32_t>(number));
    for (const AttentionSteps& steps : {form.q, form.k, form.v, form.y})
      arguments.add(steps.batch).add(steps.head).add(steps.position);
    for (const std::int64_t number : mask_steps_) arguments.add(number);
    arguments.add(scale);
    queue.launch(*kernel_, {static_cast<unsigned>(how_.groups()), 1, 1},
                 {static_cast<unsigned>(32 * how_.warps * how_.parts), 1, 1}, arguments.finish());
  }

  std::shared_ptr<const Kernel> kernel_;
  ShortAttention how_;
  std::string name_;
  std::array<std::int64_t, 4> mask_steps_{};
};

}  // namespace

std::unique_ptr<AttentionLibrary> with_short_attention(Device& device,
                                                       std::unique_ptr<AttentionLibrary> library) {
  if (library == nullptr) return nullptr;
  return std::make_unique<WithOwnPlan<AttentionLibrary, ShortAttentionPlan>>(device,
                                                                             std::move(library));
}

}  // namespace backplane::cuda
