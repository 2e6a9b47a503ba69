#include "plugins/common/device_ops/block_weights.hpp"

#include <algorithm>
#include <bit>

#include "plugins/common/device_ops/types.hpp"
#include "plugins/common/kernels/block_weights.hpp"
#include "plugins/common/kernels/matrix_units.hpp"
#include "plugins/common/kernels/matrix_weights.hpp"
#include "plugins/common/kernels/rows.hpp"

namespace backplane::device_ops {
namespace {

constexpr std::int64_t kByteBits = 8, kUnitBytes = 16;
constexpr char kJoinedMatMulNBits[] = "JoinedMatMulNBits";

/// Elements of a that are read at once.
std::int64_t row_width(const BlockProduct& product) {
  return kUnitBytes / sdk::element_bytes(product.type);
}

/// How the weights lie, for every kernel: `unit` numbers are read at once.
void define_weights(Walk& walk, const BlockProduct& product, std::int64_t unit) {
  const bool has_zeros = product.zero_type != DataType::None;
  const bool is_packed = product.zero_type == DataType::UInt8;
  walk.define("T", type_code(product.type)).define("TS", type_code(product.scale_type));
  walk.define("BITS", product.bits).define("BLOCK", product.block).define("UNIT", unit);
  walk.define("ZEROS", !has_zeros ? 0 : is_packed ? 1 : 2);
  if (has_zeros) walk.define("TZ", type_code(product.zero_type));
  walk.number("depth", product.depth).number("blocks", product.blocks());
  walk.number("zero_bytes", ceil_divide(product.blocks() * product.bits, kByteBits));
  walk.functions += common::kBlockWords;
}

/// The memory of one product's weights; names end with `suffix`.
void add_weights(Walk& walk, const BlockProduct& product, const std::string& suffix = "") {
  walk.in("weights" + suffix, product.weights, DataType::UInt8);
  walk.in("scales" + suffix, product.scales, product.scale_type);
  if (product.zero_type != DataType::None)
    walk.in("zeros" + suffix, product.zeros, product.zero_type);
  walk.number("columns" + suffix, product.columns);
}

void define_packed_result(Walk& walk, const BlockProduct& product) {
  walk.number("rows", product.rows).define("HAS_BIAS", product.has_bias ? 1 : 0);
  walk.name("product by packed weights");
}

void add_packed_result(Walk& walk, const BlockProduct& product, const std::string& suffix = "") {
  if (product.has_bias) walk.in("bias" + suffix, product.bias, product.type);
  walk.out("y" + suffix, product.y, product.type);
}

/// The beginning of a kernel of several products, one group's columns being of one: which it is, under the names of a lone one.
/// `group_columns`: that a group has.
std::string add_parts(Walk& walk, const std::vector<BlockProduct>& products,
                      std::int64_t group_columns) {
  const BlockProduct& first = products[0];
  std::vector<std::string> names{"weights", "scales", "y", "columns"};
  std::string text =
      "  GLOBAL const u8 *weights; GLOBAL const STORAGE(TS) *scales; i64 columns, part_group;\n";
  text += "  GLOBAL STORAGE(T) *y;\n";
  if (first.zero_type != DataType::None) {
    names.emplace_back("zeros");
    text += "  GLOBAL const STORAGE(TZ) *zeros;\n";
  }
  if (first.has_bias) {
    names.emplace_back("bias");
    text += "  GLOBAL const STORAGE(T) *bias;\n";
  }
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < products.size(); ++i) {
    const std::string suffix = sdk::message('_', i);
    add_weights(walk, products[i], suffix);
    add_packed_result(walk, products[i], suffix);
    walk.number("begin" + suffix, begin);
    begin += ceil_divide(products[i].columns, group_columns);
    text += sdk::message("  if ((i64)GROUP_ID(0) >= begin", suffix, ") {\n");
    for (const std::string& name : names)
      text += sdk::message("    ", name, " = ", name, suffix, ";\n");
    text += sdk::message("    part_group = (i64)GROUP_ID(0) - begin", suffix, ";\n  }\n");
  }
  walk.define("PART_GROUP", "part_group");
  return text;
}

/// The numbers of one block in 16 bytes, or of a whole block.
std::int64_t widest_unit(const BlockProduct& product) {
  return std::min(product.block, kUnitBytes * kByteBits / product.bits);
}

void define_wide_rows(Walk& walk, const BlockProduct& product) {
  walk.define("V", row_width(product)).define("WIDE_TYPE", type_code(product.type));
  walk.functions += common::kWideRows;
}

/// How items share the columns of a lone row: so many of them that all of a short matrix is asked for at once. Where there are enough
/// columns for that they are divided among few, which have less to meet.
struct LoneRow {
  std::int64_t lanes, items, columns;

  LoneRow(const BlockProduct& product, std::int64_t unit, std::int64_t most_items) {
    constexpr std::int64_t kMostColumns = 4, kLeastLanes = 32, kMostLanes = 256, kLeastItems = 64;
    constexpr std::int64_t kManyItems = 1 << 16, kManyGroups = 256, kIdleShare = 8;
    const std::int64_t units = ceil_divide(product.depth, unit);
    const std::int64_t wanted = power_from(kManyItems * kMostColumns / product.columns);
    lanes = std::min({most_items, power_from(units), std::clamp(wanted, kLeastLanes, kMostLanes)});
    while (lanes > kLeastLanes && ceil_divide(units, lanes) * lanes > units + units / kIdleShare)
      lanes /= 2;
    items = std::max(lanes, std::min(most_items, kLeastItems));
    const std::int64_t fitting = product.columns * lanes / items / kManyGroups;
    columns = std::clamp<std::int64_t>(fitting, 1, kMostColumns);
    while (!std::has_single_bit(static_cast<std::uint64_t>(columns))) --columns;
  }
};

/// Whether matrix units multiply: by weights that are float16, which is what becomes of those that are written out, too. A lone row
/// gains nothing by them.
bool is_for_matrices(const BlockProduct& product) {
  constexpr std::int64_t kBits = 4, kLeastBlock = 32;
  return product.may_use_matrices && product.rows > 1 && product.type == DataType::Float16 &&
         product.scale_type == DataType::Float16 && product.bits == kBits &&
         product.block >= kLeastBlock &&
         (product.zero_type == DataType::None || product.zero_type == DataType::UInt8);
}

/// Items of a group that has 16 columns on matrix units: more where there are few groups. Devices without them have a quarter of the
/// items for each 4 columns.
std::int64_t matrix_items(const BlockProduct& product, std::int64_t unit, std::int64_t most) {
  constexpr std::int64_t kTogether = 32, kUnitsOfStep = 4, kManyItems = 1 << 20;
  constexpr std::int64_t kLeastItems = 4 * kTogether, kMostItems = 16 * kTogether;
  const std::int64_t steps = ceil_divide(ceil_divide(product.depth, unit), kUnitsOfStep);
  const std::int64_t wanted =
      std::min(power_from(kManyItems / product.columns), power_from(steps) * kTogether);
  return std::min(most, std::clamp(wanted, kLeastItems, kMostItems));
}

void add_packed_groups(Work& work, const std::vector<BlockProduct>& products) {
  BlockProduct product = products[0];
  for (std::size_t i = 1; i < products.size(); ++i) product.columns += products[i].columns;
  // So many columns with an item each fill a device; beyond, items have several, which share what is read of a.
  constexpr std::int64_t kMostRows = 8, kMostColumns = 4, kManyColumns = 2048;
  constexpr std::int64_t kGroupItems = 128, kMostLanes = 32;
  const std::int64_t unit = widest_unit(product);
  const std::int64_t rows = std::min(kMostRows, power_from(product.rows));
  const auto most_items =
      static_cast<std::int64_t>(std::bit_floor(work.device().limits().max_group_items));
  std::int64_t lanes = std::min(kMostLanes, power_from(ceil_divide(product.depth, unit)));
  std::int64_t items = std::max(lanes, std::min(kGroupItems, most_items));
  const auto shared = static_cast<std::uint64_t>(product.columns * rows / kManyColumns);
  auto columns =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(std::bit_floor(shared)), 1, kMostColumns);
  if (rows == 1) {
    const LoneRow row(product, unit, most_items);
    lanes = row.lanes;
    items = row.items;
    columns = row.columns;
  }
  const bool by_matrices = is_for_matrices(product) && most_items >= kGroupItems;
  if (by_matrices) {
    items = matrix_items(product, unit, most_items);
    columns = kMostColumns;
    lanes = items / kMostColumns;
  }
  Walk walk(Dims{1});
  define_weights(walk, product, unit);
  walk.in("a", product.a, product.type);
  define_packed_result(walk, product);
  define_wide_rows(walk, product);
  walk.functions += common::kWideOf;
  walk.define("GROUP", items).define("LANES", lanes);
  walk.define("ROWS", rows).define("COLUMNS", columns);
  walk.body = common::kPackedGroup;
  if (by_matrices) {
    constexpr char kIf[] = "#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800\n";
    walk.functions += sdk::message(kIf, common::kMatrixUnitWords, common::kMatrixWords, "#endif\n");
    walk.body =
        sdk::message(kIf, common::kMatrixGroup, "#else\n", common::kPackedGroup, "#endif\n");
  }
  const std::int64_t group_columns = items / lanes * columns;
  std::int64_t groups = 0;
  for (const BlockProduct& each : products) groups += ceil_divide(each.columns, group_columns);
  if (products.size() > 1) {
    walk.body = add_parts(walk, products, group_columns) + walk.body;
  } else {
    add_weights(walk, product);
    add_packed_result(walk, product);
    walk.define("PART_GROUP", "(i64)GROUP_ID(0)");
  }
  walk.add_groups(work,
                  {static_cast<std::size_t>(groups),
                   static_cast<std::size_t>(ceil_divide(product.rows, rows)), 1},
                  static_cast<std::size_t>(items));
}

/// For items that have a core to themselves. Returns the bytes of workspace that it takes.
std::uint64_t add_packed_tiles(Work& work, const BlockProduct& product,
                               std::uint64_t workspace_at) {
  constexpr std::int64_t kMostRows = 8, kMostColumns = 8, kMostVector = 16, kManyItems = 64;
  const std::int64_t floats = work.device().limits().vector_floats;
  // Sums that registers hold: 32 of AVX-512, 16 elsewhere.
  const std::int64_t sums = floats >= kMostVector ? 16 : 8;
  const std::int64_t vector = std::min(
      {kMostVector, std::max<std::int64_t>(4, floats), product.block * product.bits / kByteBits});
  const std::int64_t rows = ceil_divide(product.rows, ceil_divide(product.rows, kMostRows));
  const std::int64_t columns = std::clamp<std::int64_t>(
      product.columns / kManyItems, 1, std::min(kMostColumns, sums / power_from(rows)));
  const std::int64_t padded = product.blocks() * product.block;
  const MemoryRef planes = workspace(workspace_at);
  const auto define_planes = [&](Walk& walk) {
    walk.define("VW", vector).number("padded", padded);
    walk.functions += common::kPlaneWords;
  };
  Walk rows_walk(Dims{product.rows, padded});
  rows_walk.define("T", type_code(product.type)).define("BITS", product.bits);
  define_planes(rows_walk);
  rows_walk.in("a", product.a, product.type).number("depth", product.depth);
  rows_walk.out("y", planes, DataType::Float);
  rows_walk.body = common::kRowPlanes;
  rows_walk.in_bands().name("rows laid out in planes").add_to(work);
  Walk walk(Dims{1});
  define_weights(walk, product, widest_unit(product));
  add_weights(walk, product);
  define_planes(walk);
  walk.in("planes", planes, DataType::Float);
  define_packed_result(walk, product);
  add_packed_result(walk, product);
  walk.define("ROWS", rows).define("COLUMNS", columns);
  walk.body = common::kPackedTile;
  walk.add_groups(work,
                  {static_cast<std::size_t>(ceil_divide(product.columns, columns)),
                   static_cast<std::size_t>(ceil_divide(product.rows, rows)), 1},
                  1);
  return static_cast<std::uint64_t>(product.rows * padded) * sizeof(float);
}

}  // namespace

bool BlockProduct::is_for_few_rows(const Device& device) const {
  constexpr std::int64_t kFewBits = 128, kFewOfProcessor = 16;
  if (!device.limits().is_processor) return rows <= kFewBits / bits;
  // Products of 16-bit elements are slow on processors.
  return type != DataType::Float || rows <= kFewOfProcessor;
}

std::int64_t BlockProduct::columns_at_once(const Device& device, std::int64_t unit) const {
  // What a cache of the device keeps until it is multiplied, and enough to do for all of it.
  constexpr std::int64_t kMiB = 1 << 20, kOfProcessor = 8 * kMiB, kOfOthers = 64 * kMiB;
  const std::int64_t most = device.limits().is_processor ? kOfProcessor : kOfOthers;
  const std::int64_t fitting = most / (depth * sdk::element_bytes(type));
  return std::min(columns, std::max(unit, fitting / unit * unit));
}

MatMulNBits::MatMulNBits(const sdk::Node& node)
    : depth_(node.get_int("K", 0)),
      bits_(node.get_int("bits", 4)),
      block_(node.get_int("block_size", 0)),
      is_joined_(node.op_type() == kJoinedMatMulNBits) {
  constexpr std::int64_t kLeastBlock = 16, kMost = std::int64_t{1} << 31;
  if (is_joined_) {
    columns_ = node.get_ints("N");
    return;  // made of nodes that were looked at
  }
  columns_ = {node.get_int("N", 0)};
  if (node.input(kGroups)) sdk::unsupported("g_idx is given, which names each step's block");
  if (node.get_int("weight_prepacked", 0) != 0)
    sdk::unsupported("attribute weight_prepacked is not 0");
  if (bits_ != 2 && bits_ != 4 && bits_ != kByteBits)
    sdk::unsupported("weights of ", bits_, " bits");
  const bool is_power = std::has_single_bit(static_cast<std::uint64_t>(block_));
  if (depth_ < 1 || depth_ > kMost || columns_[0] < 1 || columns_[0] > kMost ||
      block_ < kLeastBlock || block_ > kMost || !is_power)
    sdk::unsupported("K is ", depth_, ", N ", columns_[0], " and block_size ", block_,
                     ", which is to be a power of two and at least ", kLeastBlock);
}

std::vector<BlockProduct> MatMulNBits::begin(sdk::PrepareContext& ctx) const {
  std::vector<BlockProduct> products;
  std::uint64_t sums = 0, bytes = ctx.input(kA).bytes();
  for (std::uint32_t part = 0; part < columns_.size(); ++part) {
    const BlockProduct& product = products.emplace_back(product_of(ctx, part));
    sums += static_cast<std::uint64_t>(product.rows * depth_ * product.columns);
    bytes += ctx.input(product.weights.index).bytes() + ctx.input(product.scales.index).bytes();
  }
  ctx.set_cost(2 * sums, bytes);
  return products;
}

BlockProduct MatMulNBits::product_of(sdk::PrepareContext& ctx, std::uint32_t part) const {
  constexpr std::uint32_t kInputs = 4;  // of each of several
  const std::uint32_t b = kB + part * kInputs;
  const std::uint32_t bias_place = is_joined_ ? b + kInputs - 1 : kBias;
  const sdk::Tensor a = ctx.input(kA), zeros = ctx.input(b + 2), bias = ctx.input(bias_place);
  const std::int64_t columns = columns_[part];
  const DimsView dims = a.dims();
  if (dims.empty() || dims.back() != depth_)
    sdk::invalid("A has dims ", to_string(dims), " where K is ", depth_);
  BlockProduct product;
  product.type = a.type();
  product.scale_type = ctx.input(b + 1).type();
  product.depth = depth_;
  product.columns = columns;
  product.bits = bits_;
  product.block = block_;
  product.a = input(kA);
  product.weights = input(b);
  product.scales = input(b + 1);
  product.zeros = input(b + 2);
  product.bias = input(bias_place);
  product.y = output(part);
  product.rows = 1;
  for (std::size_t axis = 0; axis + 1 < dims.size(); ++axis) product.rows *= dims[axis];
  const std::int64_t blocks = product.blocks();
  const auto check = [](const char* name, const sdk::Tensor& tensor, std::int64_t size) {
    if (tensor.size() != size)
      sdk::invalid(name, " has ", tensor.size(), " elements, expected ", size);
  };
  check("B", ctx.input(b), columns * blocks * block_ * bits_ / kByteBits);
  check("scales", ctx.input(b + 1), columns * blocks);
  if (zeros.present()) {
    product.zero_type = zeros.type();
    const bool is_packed = zeros.type() == DataType::UInt8;
    check("zero_points", zeros,
          columns * (is_packed ? ceil_divide(blocks * bits_, kByteBits) : blocks));
  }
  product.has_bias = bias.present();
  if (bias.present()) check("bias", bias, columns);
  Dims out(dims.begin(), dims.end());
  out.back() = columns;
  ctx.set_output(part, product.type, out);
  return product;
}

std::uint64_t add_packed_products(Work& work, const std::vector<BlockProduct>& products,
                                  std::uint64_t workspace_at) {
  if (shares_rows(work.device())) {
    add_packed_groups(work, products);
    return 0;
  }
  std::uint64_t bytes = 0;
  for (const BlockProduct& each : products)
    bytes = std::max(bytes, add_packed_tiles(work, each, workspace_at));
  return bytes;
}

void add_written_columns(Work& work, const BlockProduct& product, const WrittenColumns& written) {
  constexpr std::int64_t kWordBits = 32;
  const bool is_along = written.depth_step == 1;
  // Neighbours write next to each other.
  const std::int64_t unit =
      is_along ? std::max(kWordBits / product.bits, row_width(product)) : widest_unit(product);
  const std::int64_t steps = ceil_divide(product.depth, unit);
  Walk walk(is_along ? Dims{written.count, steps} : Dims{steps, written.count});
  define_weights(walk, product, unit);
  add_weights(walk, product);
  define_wide_rows(walk, product);
  walk.number("first_column", written.first).number("column_step", written.column_step);
  walk.number("depth_step", written.depth_step).define("IS_ALONG", is_along ? 1 : 0);
  walk.out("y", written.memory, product.type);
  walk.body = common::kWriteWeights;
  walk.name("weights written out").add_to(work);
}

void add_written_panels(Work& work, const BlockProduct& product, const MemoryRef& memory,
                        std::int64_t first, std::int64_t count, std::int64_t panel) {
  Walk walk(Dims{1});
  define_weights(walk, product, widest_unit(product));
  add_weights(walk, product);
  walk.number("first_column", first).define("PANEL", panel);
  walk.out("y", memory, DataType::Float);
  walk.body = common::kWritePanels;
  walk.name("weights written out");
  walk.add_groups(work,
                  {static_cast<std::size_t>(product.blocks()),
                   static_cast<std::size_t>(ceil_divide(count, panel)), 1},
                  1);
}

sdk::KernelBuilder matmul_nbits_op() {
  return sdk::op("MatMulNBits", "com.microsoft")
      .name(kernel_name("matmul_nbits"))
      .types("T1", {DataType::Float, DataType::Float16, DataType::BFloat16})
      .types("T2", {DataType::UInt8})
      .types("T3", {DataType::UInt8, DataType::Float, DataType::Float16, DataType::BFloat16});
}

sdk::KernelBuilder joined_matmul_nbits_op() {
  return sdk::op(kJoinedMatMulNBits, private_domain())
      .name(kernel_name("joined_matmul_nbits"))
      .input_types(0, {DataType::Float, DataType::Float16, DataType::BFloat16});
}

}  // namespace backplane::device_ops
