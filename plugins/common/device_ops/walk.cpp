#include "plugins/common/device_ops/walk.hpp"

#include <algorithm>

#include "plugins/common/device_ops/pointwise.hpp"
#include "plugins/common/kernels/pointwise.hpp"

namespace backplane::device_ops {

void set_sizes(LaunchPlan& plan, const Device& device, const Dims& dims, std::int64_t width) {
  std::vector<std::int64_t> sizes = common::launch_sizes(dims);
  sizes[0] = (sizes[0] + width - 1) / width;
  for (std::size_t d = 0; d < 3; ++d) plan.items[d] = static_cast<std::size_t>(sizes[d]);
  plan.group = group_for(device, sizes[0], sizes[1]);
}

void set_bands(LaunchPlan& plan, const Dims& dims, const common::Band& band) {
  std::vector<std::int64_t> sizes = common::launch_sizes(dims);
  band.divide(sizes);
  for (std::size_t d = 0; d < 3; ++d) plan.items[d] = static_cast<std::size_t>(sizes[d]);
  plan.group = {1, 1, 1};
}

Walk& Walk::in(const std::string& name, const MemoryRef& memory, DataType type) {
  memory_ += sdk::message("IN(", type_code(type), ", ", name, "), ");
  starts_ += sdk::message("  AT(", name, ");\n");
  plan_.arg(memory, type);
  return *this;
}

Walk& Walk::out(const std::string& name, const MemoryRef& memory, DataType type) {
  memory_ += sdk::message("OUT(", type_code(type), ", ", name, "), ");
  starts_ += sdk::message("  AT(", name, ");\n");
  plan_.arg(memory, type);
  return *this;
}

Walk& Walk::number(const std::string& name, std::int64_t value) {
  declarations_ += sdk::message(", i64 ", name);
  numbers_.emplace_back(value);
  return *this;
}

Walk& Walk::real(const std::string& name, double value) {
  declarations_ += sdk::message(", float ", name);
  numbers_.emplace_back(static_cast<float>(value));
  return *this;
}

std::string Walk::index(const std::string& name, const Dims& strides) {
  std::vector<std::int64_t> values;
  std::string text = common::index_text(strides, name, declarations_, values);
  numbers_.insert(numbers_.end(), values.begin(), values.end());
  return text;
}

Walk& Walk::real_type(DataType type) {
  const bool is_double = type == DataType::Double;
  define("REAL", is_double ? "double" : "float");
  return define("LIT(x)", is_double ? "x" : "JOIN(x, f)");
}

std::int64_t Walk::band_of(std::int64_t cost) {
  return std::max<std::int64_t>(1, common::Band::kElements / std::max<std::int64_t>(1, cost));
}

void Walk::add_to(Work& work) const {
  if (sdk::element_count(dims_) == 0) return;
  LaunchPlan plan = plan_;
  std::string sizes, close;
  std::vector<std::int64_t> arguments;
  const bool has_bands = band_points_ > 0 && work.device().limits().is_processor;
  const common::Band band(dims_, std::max<std::int64_t>(1, band_points_));
  const std::string indices = has_bands ? common::loops_text(dims_, band, sizes, arguments, close)
                                        : common::indices_text(dims_, sizes, arguments);
  for (const std::int64_t argument : arguments) plan.scalar(argument);
  for (const Scalar& number : numbers_) plan.scalar(number);
  plan.fault = fault_;
  // sizes begins with the comma that memory_ ends with.
  const std::string text = sdk::message(
      definitions_, functions, "KERNEL run(", memory_, sizes.substr(2), declarations_,
      fault_.empty() ? "" : ", FAULT_WORD", ") {\n", starts_, indices, body, '\n', close, "}\n");
  plan.source = KernelText().add(text).str();
  if (has_bands) {
    set_bands(plan, dims_, band);
  } else {
    set_sizes(plan, work.device(), dims_);
  }
  work.add(std::move(plan));
}

void Walk::add_to(Work& work, const RowForm& form, std::int64_t elements) const {
  LaunchPlan plan = plan_;
  for (const std::int64_t number : {form.rows, form.n, form.part_n, form.parts})
    plan.scalar(number);
  for (const Scalar& number : numbers_) plan.scalar(number);
  // Elements past the end are counted, too, though not read.
  constexpr std::int64_t kMostByInt = std::int64_t{1} << 30;
  const char* const index = elements < kMostByInt ? "int" : "i64";
  const std::string text =
      sdk::message("#define INDEX ", index, '\n', definitions_, form.functions(), functions,
                   "KERNEL run(", memory_, "i64 rows, i64 n, i64 part_n, i64 parts", declarations_,
                   ") {\n", form.beginning(), starts_, body, "\n}\n");
  plan.source = KernelText().add(text).str();
  const auto items = static_cast<std::size_t>(form.group_items);
  const auto groups =
      static_cast<std::size_t>((form.rows + form.group_rows() - 1) / form.group_rows());
  plan.items = {groups * items, static_cast<std::size_t>(form.parts), 1};
  plan.group = {items, 1, 1};
  work.add(std::move(plan));
}

void Walk::add_phases(Work& work, const RowForm& form, const MemoryRef& found) const {
  const std::int64_t elements = form.rows * form.n;
  const DataType part_type = form.type == DataType::Double ? DataType::Double : DataType::Float;
  if (form.parts == 1) return Walk(*this).define("PHASE", 0).add_to(work, form, elements);
  for (const int phase : {1, 2}) {
    Walk each = *this;
    each.out("found", found, part_type);
    each.define("TP", type_code(part_type)).define("PHASE", phase);
    each.add_to(work, form, elements);
  }
}

void Walk::add_groups(Work& work, const std::array<std::size_t, 3>& groups,
                      std::size_t items) const {
  work.add(plan_groups(groups, items));
}

LaunchPlan Walk::plan_groups(const std::array<std::size_t, 3>& groups, std::size_t items) const {
  LaunchPlan plan = plan_;
  for (const Scalar& number : numbers_) plan.scalar(number);
  // memory_ ends with the comma that declarations_ begins with.
  plan.source = KernelText()
                    .add(sdk::message(definitions_, functions, "KERNEL run(", memory_,
                                      declarations_.substr(2), ") {\n", starts_, body, "\n}\n"))
                    .str();
  plan.items = {groups[0] * items, groups[1], groups[2]};
  plan.group = {items, 1, 1};
  return plan;
}

}  // namespace backplane::device_ops
