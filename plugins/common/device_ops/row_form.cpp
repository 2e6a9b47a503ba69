#include "plugins/common/device_ops/row_form.hpp"

#include <algorithm>

#include "plugins/common/device_ops/types.hpp"
#include "plugins/common/kernels/rows.hpp"

namespace backplane::device_ops {
namespace {

constexpr std::int64_t kGroupItems = 256;
/// Neighbours that CUDA runs together: enough for whole lines of memory.
constexpr std::int64_t kTogether = 32;
/// Items and groups that fill a device.
constexpr std::int64_t kManyItems = 1 << 16, kManyGroups = 256;
/// What a lane reads of a row where there are items enough, in times of `width`.
constexpr std::int64_t kStepsOfLane = 4;
/// Rows that have a multiprocessor each, and the items of a group where they are not many more.
constexpr std::int64_t kManyRows = 64, kFewItems = 128;
/// Elements that a lane keeps in registers.
constexpr std::int64_t kMostHeld = 32;
constexpr std::int64_t kWideBytes = 16;

/// Rows are divided among groups when those that they fill are few and each would go on for long.
void divide_rows(RowForm& form) {
  const std::int64_t groups = ceil_divide(form.rows, form.group_rows());
  const std::int64_t least = form.lanes * form.width * kStepsOfLane;
  if (groups >= kManyGroups / 2 || form.n < 2 * least) return;
  const std::int64_t parts = std::min(ceil_divide(kManyGroups, groups), form.n / least);
  const std::int64_t unit = form.lanes * form.width;
  form.part_n = ceil_divide(ceil_divide(form.n, parts), unit) * unit;
  form.parts = ceil_divide(form.n, form.part_n);
}

}  // namespace

RowForm choose_rows(const Device& device, const RowsWanted& wanted) {
  RowForm form;
  form.rows = wanted.rows;
  form.n = form.part_n = wanted.n;
  form.type = wanted.type;
  form.is_across = wanted.is_across;
  form.group_items = static_cast<std::int64_t>(
      std::bit_floor(std::min<std::size_t>(kGroupItems, device.limits().max_group_items)));
  if (wanted.is_dense && !wanted.is_across && is_float(wanted.type)) {
    const std::int64_t width = kWideBytes / sdk::element_bytes(wanted.type);
    if (wanted.n % width == 0) form.width = width;
  }
  const std::int64_t most_lanes =
      wanted.is_across ? std::max<std::int64_t>(
                             1, form.group_items / power_from(std::min(kTogether, wanted.rows)))
                       : form.group_items;
  const std::int64_t steps = ceil_divide(wanted.n, form.width);
  const std::int64_t few = power_from(ceil_divide(steps, kStepsOfLane));
  const std::int64_t many = power_from(ceil_divide(kManyItems, wanted.rows));
  form.lanes = std::min({std::max(few, many), power_from(steps), most_lanes});
  // Lanes that run together meet without a barrier, if they can hold what each other one would have held.
  if (wanted.holds && !wanted.is_across && !wanted.is_made && wanted.rows >= kManyRows &&
      form.lanes > kTogether && ceil_divide(wanted.n, kTogether) <= kMostHeld) {
    form.lanes = kTogether;
    form.group_items = std::min(form.group_items, kFewItems);
  }
  if (wanted.may_divide) divide_rows(form);
  const std::int64_t held = ceil_divide(form.part_n, form.lanes * form.width);
  if (wanted.holds && held * form.width <= kMostHeld) form.held = held;
  return form;
}

std::string RowForm::functions() const {
  const std::string code = type_code(type);
  std::string text = sdk::message("#define GROUP ", group_items, "\n#define LANES ", lanes,
                                  "\n#define V ", width, "\n#define HELD ", held,
                                  "\n#define SHUFFLED ", is_across ? 1 : std::min(lanes, kTogether),
                                  "\n#define SLOT_STEP ", is_across ? group_rows() : 1,
                                  "\n#define WIDE_TYPE ", code, '\n', common::kRowFunctions);
  return text + (width > 1 ? common::kWideRows : common::kNarrowRows);
}

std::string RowForm::beginning() const {
  const char* const place =
      is_across ? "  int lane = item / (GROUP / LANES), first_slot = item % (GROUP / LANES);\n"
                  "  i64 row = (i64)GROUP_ID(0) * (GROUP / LANES) + first_slot;\n"
                : "  int lane = item % LANES, first_slot = item / LANES * (LANES / SHUFFLED);\n"
                  "  i64 row = (i64)GROUP_ID(0) * (GROUP / LANES) + item / LANES;\n";
  return sdk::message(
      "  LOCAL u64 scratch[GROUP];\n  int item = (int)LOCAL_ID(0);\n", place,
      "  int is_row = row < rows;\n  if (!is_row) row = rows - 1;\n"
      "  INDEX part = (INDEX)GROUP_ID(1), first = part * (INDEX)part_n;\n"
      "  INDEX last = first + (INDEX)part_n < (INDEX)n ? first + (INDEX)part_n : (INDEX)n;\n"
      "  INDEX own_last = is_row ? last : first;\n");
}

}  // namespace backplane::device_ops
