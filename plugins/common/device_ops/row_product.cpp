#include "plugins/common/device_ops/row_product.hpp"

#include <algorithm>

#include "plugins/common/kernels/row_product.hpp"
#include "plugins/common/kernels/rows.hpp"
#include "plugins/common/kernels/scalar_functions.hpp"

namespace backplane::device_ops {
namespace {

constexpr std::int64_t kWordBytes = 16, kNeighbours = 32;
/// Words that an item asks for before it needs the first; more take too many registers.
constexpr std::int64_t kWordsAtOnce = 8;

/// Groups of less than a multiprocessor each leave some idle; a few of them do not matter to the memory.
bool are_enough(std::int64_t groups, const RowProductDevice& device) {
  constexpr std::int64_t kOfTen = 9;
  return groups * 10 >= device.multiprocessors * kOfTen;
}

std::int64_t rows_of_program(const RowProduct& product) { return power_from(product.rows); }

/// Columns that lie together: groups have strips of so many bytes.
class StripForms {
 public:
  StripForms(const RowProduct& product, const RowProductDevice& device)
      : product_(product), device_(device) {}

  /// Wide strips read memory in longer runs, narrow ones give more groups. Without parts there is one launch, with them every
  /// multiprocessor reads.
  std::vector<RowProductForm> forms() const {
    std::int64_t strip = kWidest;
    while (strip > kNarrowest && !are_enough(groups(strip), device_)) strip /= 2;
    std::vector<RowProductForm> found{undivided(strip)};
    if (strip > kNarrowest && groups(strip) < 4 * std::int64_t{device_.multiprocessors})
      found.push_back(undivided(strip / 2));
    if (strip < kWidest || !are_enough(groups(strip), device_)) {
      const RowProductForm parts = divided();
      if (parts.parts > 1)
        found.insert(divides_by_rule(strip) ? found.begin() : found.end(), parts);
    }
    return found;
  }

 private:
  /// In bytes: a line of a cache, and a sector.
  static constexpr std::int64_t kWidest = 128, kNarrowest = 32;

  std::int64_t groups(std::int64_t strip) const {
    return ceil_divide(product_.columns * product_.element_bytes(), strip) * product_.matrices;
  }

  RowProductForm of(std::int64_t strip, std::int64_t items, std::int64_t depth) const {
    RowProductForm form;
    form.per = product_.width();
    form.across = strip / kWordBytes;
    form.items = items;
    while (form.items > kNeighbours && form.items / form.across >= 2 * depth) form.items /= 2;
    form.lanes = form.items / form.across;
    // Each has an element of every row beside it.
    const std::int64_t most =
        kWordsAtOnce / std::max<std::int64_t>(1, rows_of_program(product_) / 2);
    form.unrolled = std::min(most, power_from(ceil_divide(depth, form.lanes)));
    return form;
  }

  RowProductForm undivided(std::int64_t strip) const {
    constexpr std::int64_t kItems = 256;
    const bool is_alone = !are_enough(groups(strip) / 2, device_);
    return of(strip, is_alone ? 2 * kItems : kItems, product_.depth);
  }

  RowProductForm divided() const {
    constexpr std::int64_t kItems = 256, kMostParts = 16, kGroupsEach = 2;
    const std::int64_t wanted = kGroupsEach * device_.multiprocessors / groups(kWidest);
    const std::int64_t lanes = kItems / (kWidest / kWordBytes);
    const std::int64_t fitting = product_.depth / (lanes * kWordsAtOnce);
    const std::int64_t parts = std::clamp<std::int64_t>(std::min(wanted, fitting), 1, kMostParts);
    RowProductForm form = of(kWidest, kItems, ceil_divide(product_.depth, parts));
    form.parts = parts;
    return form;
  }

  /// By what both should take. The numbers are guesses at a large device; what is chosen by time does not depend on them.
  bool divides_by_rule(std::int64_t strip) const {
    constexpr double kLaunchNs = 1500, kBytesPerNs = 2000, kBytesPerNsOfOne = 64, kOfSectors = 1.25;
    const auto bytes = static_cast<double>(product_.matrix_bytes());
    const double rate = device_.memory_bytes_per_ns > 0 ? device_.memory_bytes_per_ns : kBytesPerNs;
    const double readers =
        static_cast<double>(std::min<std::int64_t>(groups(strip), device_.multiprocessors));
    const double at_best = bytes / rate;
    const double undivided = std::max(at_best * (strip == kNarrowest ? kOfSectors : 1.0),
                                      bytes / (readers * kBytesPerNsOfOne));
    return undivided > at_best + kLaunchNs;
  }

  const RowProduct& product_;
  const RowProductDevice& device_;
};

/// Columns that lie apart: neighbours read one of them together, so that no memory is read in short runs however they are divided.
class ApartForms {
 public:
  ApartForms(const RowProduct& product, const RowProductDevice& device)
      : product_(product), device_(device) {}

  std::vector<RowProductForm> forms() const {
    std::int64_t per = kMostColumns, lanes = std::min(kNeighbours, power_from(words()));
    while (per > 1 && !is_busy(per, lanes)) per /= 2;
    while (lanes < kItems && !is_busy(per, lanes) && words() > lanes * kWordsAtOnce) lanes *= 2;
    std::vector<RowProductForm> found{of(per, lanes)};
    if (per > 1) {
      found.push_back(of(per / 2, lanes));
    } else if (lanes < kItems && words() > lanes) {
      found.push_back(of(per, lanes * 2));
    }
    return found;
  }

 private:
  static constexpr std::int64_t kMostColumns = 4, kItems = 256;

  std::int64_t words() const { return ceil_divide(product_.depth, product_.width()); }
  std::int64_t items(std::int64_t per, std::int64_t lanes) const {
    return ceil_divide(product_.columns, per) * product_.matrices * lanes;
  }
  bool is_busy(std::int64_t per, std::int64_t lanes) const {
    constexpr std::int64_t kItemsEach = 512;
    return are_enough(items(per, lanes) / kItemsEach, device_);
  }

  RowProductForm of(std::int64_t per, std::int64_t lanes) const {
    RowProductForm form;
    form.per = per;
    form.lanes = lanes;
    form.items = std::max(lanes, kItems);
    while (form.items > std::max(lanes, kNeighbours) &&
           !are_enough(items(per, lanes) / form.items, device_))
      form.items /= 2;
    const std::int64_t most = kWordsAtOnce / std::max(per, rows_of_program(product_) / 2);
    form.unrolled = std::min(most, power_from(ceil_divide(words(), lanes)));
    return form;
  }

  const RowProduct& product_;
  const RowProductDevice& device_;
};

/// What both kernels say of the result.
void add_result(Walk& walk, const RowProduct& product, const RowProductMemory& memory) {
  walk.real_type(DataType::Float).define("T", type_code(product.type));
  walk.define("HAS_ADDEND", product.has_addend ? 1 : 0);
  walk.define("HAS_BIAS", product.has_bias ? 1 : 0);
  walk.define("ACTIVATE(s)", sdk::message('(', product.activation, ')'));
  walk.number("rows", product.rows).number("columns", product.columns);
  walk.number("matrices", product.matrices);
  walk.number("y_row", product.y_row).number("y_matrix", product.y_matrix);
  walk.number("bias_matrix", product.bias_matrix);
  walk.real("factor", product.factor).real("addend_factor", product.addend_factor);
  if (product.has_addend) walk.in("c", memory.c, product.type);
  if (product.has_bias) walk.in("bias", memory.bias, product.type);
  walk.functions += common::kScalarFunctions;
  walk.functions += common::kRowProductWords;
}

/// Along the depth, whole words of every lane.
std::int64_t part_depth(const RowProduct& product, const RowProductForm& form) {
  if (form.parts == 1) return product.depth;
  const std::int64_t unit = form.lanes * (product.is_apart ? product.width() : 1);
  return ceil_divide(ceil_divide(product.depth, form.parts), unit) * unit;
}

}  // namespace

bool RowProduct::is_wide() const {
  if (b_step % width() != 0) return false;
  if (!is_apart) return columns % width() == 0;
  return a_k == 1 && depth % width() == 0 && (rows == 1 || a_row % width() == 0);
}

std::uint64_t RowProduct::matrix_bytes() const {
  return static_cast<std::uint64_t>(matrices * depth * columns * element_bytes());
}

std::uint64_t RowProductForm::workspace_bytes(const RowProduct& product) const {
  if (parts == 1) return 0;
  return static_cast<std::uint64_t>(parts * product.matrices * product.rows * product.columns) *
         sizeof(float);
}

std::vector<RowProductForm> row_product_forms(const RowProduct& product,
                                              const RowProductDevice& device) {
  return product.is_apart ? ApartForms(product, device).forms()
                          : StripForms(product, device).forms();
}

void add_row_product(Work& work, const RowProduct& product, const RowProductForm& form,
                     const RowProductMemory& memory) {
  const bool is_divided = form.parts > 1;
  RowProduct first = product;
  if (is_divided) {
    first.has_addend = first.has_bias = false;
    first.activation = RowProduct().activation;
  }
  Walk walk(Dims{1});
  add_result(walk, first, memory);
  walk.define("V", product.width()).define("WIDE_TYPE", type_code(product.type));
  walk.define("ROWS", rows_of_program(product)).define("APART", product.is_apart ? 1 : 0);
  walk.define("PER", form.per).define("ACROSS", form.across).define("LANES", form.lanes);
  walk.define("GROUP", form.items).define("UNROLLED", form.unrolled);
  walk.define("IS_PART", is_divided ? 1 : 0);
  walk.in("a", memory.a, product.type).in("b", memory.b, product.type);
  if (is_divided) {
    walk.out("y", memory.workspace, DataType::Float);
  } else {
    walk.out("y", memory.y, product.type);
  }
  walk.number("depth", product.depth).number("part_depth", part_depth(product, form));
  walk.number("a_k", product.a_k).number("a_row", product.a_row);
  walk.number("a_matrix", product.a_matrix);
  walk.number("b_step", product.b_step).number("b_matrix", product.b_matrix);
  walk.functions += common::kWideRows;
  walk.functions += common::kRowProductBounds;
  walk.body = common::kRowProductGroup;
  walk.name("product of few rows");
  const std::int64_t group_columns = form.items / form.lanes * form.per;
  walk.add_groups(
      work,
      {static_cast<std::size_t>(ceil_divide(product.columns, group_columns)),
       static_cast<std::size_t>(form.parts), static_cast<std::size_t>(product.matrices)},
      static_cast<std::size_t>(form.items));
  if (!is_divided) return;
  constexpr std::int64_t kItems = 64;  // few, so that more multiprocessors have a group
  Walk parts(Dims{1});
  add_result(parts, product, memory);
  parts.in("found", memory.workspace, DataType::Float).out("y", memory.y, product.type);
  parts.number("parts", form.parts);
  parts.body = common::kRowProductParts;
  parts.name("product of few rows: parts");
  parts.add_groups(work,
                   {static_cast<std::size_t>(
                        ceil_divide(product.matrices * product.rows * product.columns, kItems)),
                    1, 1},
                   static_cast<std::size_t>(kItems));
}

}  // namespace backplane::device_ops
