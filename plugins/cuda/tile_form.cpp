#include "plugins/cuda/tile_form.hpp"

#include <algorithm>

#include "plugins/common/device_ops/row_form.hpp"
#include "plugins/common/kernels/matrix_units.hpp"
#include "plugins/common/kernels/neighbours.hpp"
#include "plugins/common/kernels/scalar_functions.hpp"
#include "plugins/cuda/device.hpp"
#include "plugins/cuda/kernels/tile_product.hpp"

namespace backplane::cuda {
namespace {

using device_ops::ceil_divide;

/// Elements of a line of a box, which a step of the depth has; bytes of it, and of an element.
constexpr std::int64_t kLine = 64, kLineBytes = 128, kBytes = 2;

/// Of each number in a form's word.
constexpr int kNumberBits = 12;

/// What a multiprocessor has.
constexpr std::int64_t kRegisters = 65536, kLocalBytes = std::int64_t{227} << 10;

/// Those that were the fastest for some layer of ResNet-50 or BERT on an H100.
constexpr TileForm kForms[] = {{192, 2, 1, 1}, {128, 2, 1, 1}, {256, 2, 1, 1},
                               {64, 2, 1, 1},  {64, 2, 1, 2},  {128, 2, 2, 1},
                               {64, 1, 1, 1},  {64, 1, 1, 3},  {128, 1, 1, 1}};

/// Registers of an item when a group begins, and of those that load and that multiply afterwards: all are multiples of 8.
struct Registers {
  std::int64_t few, many;
};
Registers registers_of(const TileForm& form) {
  constexpr std::int64_t kStep = 8, kMostAtFirst = 256, kMost = 232, kFew = 40, kFewest = 24;
  const std::int64_t of_group = kRegisters / (form.resident * form.items());
  const std::int64_t at_first = std::min(of_group / kStep * kStep, kMostAtFirst);
  const std::int64_t few = form.resident > 2 ? kFewest : kFew;
  return {few, std::min((at_first * (form.teams + 1) - few) / form.teams / kStep * kStep, kMost)};
}

/// The operands of an instruction that adds to the sums d.
std::string sums_of(std::int64_t columns) {
  std::string operands;
  for (std::int64_t i = 0; i < columns / 2; ++i)
    operands += sdk::message(i == 0 ? "" : ", ", "\"+f\"((d)[", i, "])");
  return operands;
}

/// wgmma of 64 rows and so many columns, by the places of the sums, the two matrices and whether there are sums already.
std::string product_words(const TileText& text, std::int64_t columns) {
  const std::int64_t count = columns / 2;
  std::string places;
  for (std::int64_t i = 0; i < count; ++i) places += sdk::message(i == 0 ? "" : ", ", '%', i);
  const char* const code = device_ops::type_code(text.type);
  return sdk::message("\"{ .reg .pred p; setp.ne.b32 p, %", count + 2,
                      ", 0; wgmma.mma_async.sync.aligned.m64n", columns, "k16.f32.", code, '.',
                      code, " {", places, "}, %", count, ", %", count + 1, ", p, 1, 1, 0, ",
                      text.is_apart ? 0 : 1, "; }\"");
}

/// About how many clocks a form takes: what its products take or what the cache gives in that time, and for each turn of tiles a beginning
/// and an end, which groups beside each other hide. By figures of an H100.
std::int64_t clocks(const TileSizes& sizes, const TileForm& form, std::int64_t multiprocessors) {
  constexpr std::int64_t kProductsOfClock = 2048, kCacheBytesOfClock = 64;
  constexpr std::int64_t kBegin = 3000, kEndOfColumn = 10, kMeeting = 1500;
  std::int64_t products = form.rows() * form.columns * kLine / kProductsOfClock;
  // Of few columns local memory gives operands at half the rate.
  if (form.columns <= kLine) products *= 2;
  const std::int64_t loads = (form.rows() + form.columns) * kLineBytes / kCacheBytesOfClock;
  const std::int64_t turn =
      form.resident * ceil_divide(ceil_divide(sizes.depth, kLine), form.parts) *
          std::max(products, loads) +
      kBegin + kEndOfColumn * form.columns * form.blocks + (form.parts > 1 ? kMeeting : 0);
  return ceil_divide(form.tiles(sizes), multiprocessors / form.parts * form.resident) * turn;
}

}  // namespace

bool has_tiles(const DeviceTraits& traits) {
  return traits.major == 9 && traits.minor == 0 && traits.has_boxes;
}

std::int64_t TileForm::row_tiles(const TileSizes& sizes) const {
  return ceil_divide(sizes.rows, rows());
}
std::int64_t TileForm::column_tiles(const TileSizes& sizes) const {
  return ceil_divide(sizes.columns, columns);
}
std::int64_t TileForm::tiles(const TileSizes& sizes) const {
  return row_tiles(sizes) * column_tiles(sizes) * sizes.matrices;
}
std::int64_t TileForm::groups(const TileSizes& sizes, std::int64_t multiprocessors) const {
  return parts > 1 ? tiles(sizes) : std::min(tiles(sizes), multiprocessors * resident);
}

std::int64_t TileForm::stages() const {
  // Less what aligns them, what the text declares, and what the system takes for each group.
  constexpr std::int64_t kRest = std::int64_t{3} << 10, kMostStages = 8;
  const std::int64_t left = kLocalBytes / resident - kRest - made_bytes();
  return std::min(kMostStages, left / ((rows() + columns) * kLineBytes));
}

std::int64_t TileForm::made_bytes() const {
  return direct > 0 ? 0 : rows() * columns * kBytes / parts;
}

KernelNeeds TileForm::needs() const {
  constexpr std::int64_t kAligning = 1024;
  return {static_cast<std::uint32_t>(stages() * (rows() + columns) * kLineBytes + made_bytes() +
                                     kAligning),
          true};
}

std::string TileForm::source(const TileText& what) const {
  const Registers registers = registers_of(*this);
  device_ops::KernelText text;
  text.define("T", device_ops::type_code(what.type));
  text.define("REAL", "float").define("LIT(x)", "x##f");
  text.define("TEAMS", teams).define("BLOCKS_OF_ROWS", blocks).define("ROWS", rows());
  text.define("COLUMNS", columns).define("STAGES", stages()).define("RESIDENT", resident);
  text.define("FEW_REGISTERS", registers.few).define("MANY_REGISTERS", registers.many);
  text.define("APART", what.is_apart ? 1 : 0).define("PIXELS", what.has_pixels ? 1 : 0);
  text.define("HAS_ADDEND", what.has_addend ? 1 : 0).define("PARTS", parts);
  text.define("DIRECT", direct);
  text.define("RELU", "\"\"").define("ACTIVATED(v)", "(v)");
  if (what.epilogue == Epilogue::kGelu) text.define("ACTIVATE(s)", activated("(s)", what.epilogue));
  text.define("PRODUCT", product_words(what, columns)).define("SUMS(d)", sums_of(columns));
  return text.add(common::kNeighbourWords)
      .add(common::kMatrixUnitWords)
      .add(common::kPairWords)
      .add(common::kScalarFunctions)
      .add(kTileWords)
      .add(kTileProduct)
      .add(kTileParts)
      .add(kTileRun)
      .str();
}

std::uint64_t TileForm::word() const {
  std::uint64_t made = 0;
  for (const std::int64_t number : {direct, parts, resident, blocks, teams, columns})
    made = made << kNumberBits | static_cast<std::uint64_t>(number);
  return made;
}

TileForm TileForm::of(std::uint64_t word) {
  const auto number = [word](int place) {
    return static_cast<std::int64_t>(word >> (kNumberBits * place) &
                                     ((std::uint64_t{1} << kNumberBits) - 1));
  };
  return {number(0), number(1), number(2), number(3), number(4), number(5)};
}

bool TileForm::takes(const TileSizes& sizes) const {
  constexpr std::int64_t kLeastSteps = 2;
  return parts == 1 || ceil_divide(sizes.depth, kLine) >= kLeastSteps * parts;
}

std::vector<TileForm> tile_forms(const TileSizes& sizes, std::int64_t multiprocessors,
                                 std::size_t most) {
  std::vector<TileForm> forms;
  for (const TileForm& each : kForms) {
    for (const std::int64_t parts : {1, 2, 4, 8}) {
      TileForm form = each;
      form.parts = parts;
      // A cluster's groups run at once.
      if (form.takes(sizes) && parts <= multiprocessors) forms.push_back(form);
    }
  }
  std::stable_sort(forms.begin(), forms.end(), [&](const TileForm& x, const TileForm& y) {
    return clocks(sizes, x, multiprocessors) < clocks(sizes, y, multiprocessors);
  });
  // The estimate does not know them apart.
  constexpr int kMostDirect = 2;
  int direct = 0;
  std::vector<TileForm> found;
  for (const TileForm& form : forms) {
    found.push_back(form);
    if (form.parts == 1 || direct == kMostDirect) continue;
    found.push_back(form);
    found.back().direct = 1;
    ++direct;
  }
  found.resize(std::min(most, found.size()));
  return found;
}

BoxedMatrices boxed_matrix(Address address, sdk::DataType type, std::int64_t columns,
                           std::int64_t rows, std::int64_t step, std::int64_t box_rows) {
  return {address, type, columns, rows, 1, step, step * rows, static_cast<std::uint32_t>(box_rows)};
}

TileKernel::TileKernel(Device& device, const TileForm& form, const TileText& text,
                       const TileSizes& sizes)
    : kernel_(device.modules().get(form.source(text), form.needs())),
      form_(form),
      sizes_(sizes),
      has_relu_(text.epilogue == Epilogue::kRelu),
      groups_(form.groups(sizes, device.traits().multiprocessors)) {}

void TileKernel::enqueue(KernelQueue& queue, const TileOperands& operands) const {
  LaunchArguments arguments;
  arguments.add(operands.a).add(operands.b).add(operands.c).add(operands.y);
  arguments.tensor(operands.bias);
  const auto add = [&arguments](std::initializer_list<std::int64_t> numbers) {
    for (const std::int64_t number : numbers) arguments.add(static_cast<std::int32_t>(number));
  };
  add({sizes_.columns, sizes_.depth, form_.row_tiles(sizes_), form_.column_tiles(sizes_),
       form_.tiles(sizes_), groups_, std::int64_t{sizes_.rows > sizes_.columns},
       std::int64_t{operands.a_moves}, std::int64_t{operands.b_moves}, operands.bias_step,
       std::int64_t{operands.has_bias}, std::int64_t{has_relu_}});
  arguments.add(static_cast<float>(operands.factor));
  arguments.add(static_cast<float>(operands.addend_factor));
  const TilePixels& p = operands.pixels;
  add({sizes_.rows, p.out_pixels, p.out_width, p.channels, p.taps_across, p.stride[0], p.stride[1],
       p.begin[0], p.begin[1], p.dilation[0], p.dilation[1], std::int64_t{operands.b_is_constant}});
  if (form_.direct > 0) {
    arguments.tensor(operands.added.address).tensor(operands.made.address);
    add({operands.made.step, operands.made.matrix_step});
  }
  queue.launch(*kernel_, {static_cast<unsigned>(groups_ * form_.parts), 1, 1},
               {static_cast<unsigned>(form_.items()), 1, 1}, arguments.finish());
}

std::string way_of(const TileForm& form) {
  std::string way = sdk::message("warpgroups, tiles of ", form.rows(), " x ", form.columns);
  if (form.parts > 1) way += sdk::message(", depth in ", form.parts);
  if (form.direct > 0) way += ", stored directly";
  return way;
}

}  // namespace backplane::cuda
