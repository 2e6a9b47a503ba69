#include "plugins/opencl/kernels/product.hpp"

#include <algorithm>
#include <utility>

#include "plugins/common/device_ops/saturation.hpp"
#include "plugins/common/kernels/lines.hpp"
#include "plugins/common/kernels/product.hpp"
#include "plugins/common/kernels/scalar_functions.hpp"

namespace backplane::opencl {
namespace {

/// Products of two integers of nine bits whose sum a float holds exactly: 256 * 255 * 255 < 2^24.
constexpr std::size_t kExactTerms = 256;

/// Columns below which a work item per element is as good as any tile.
constexpr std::int64_t kFewColumns = 4;

std::string accumulator(DataType type) {
  switch (type) {
    case DataType::Double:
      return "double";
    case DataType::Int32:
    case DataType::Int64:
      return "i64";
    case DataType::UInt32:
    case DataType::UInt64:
      return "u64";
    default:
      return "float";
  }
}

/// Where a is the larger operand (weights of deep layers), items go along its panels of rows, so that it is read once.
bool columns_go_first(const Product& product) { return product.rows > product.columns; }

/// The words of sums that are integers; of others, that they are none.
void define_integer(KernelText& text, const Product& product) {
  text.define("INTEGER", product.integer ? 1 : 0);
  text.define("TY", type_code(product.integer ? product.integer->type : product.type));
  text.define("BT", type_code(product.integer ? DataType::Int32 : product.type));
  const bool has_scales = product.integer && product.integer->has_scales;
  text.define("HAS_SCALES", has_scales ? 1 : 0);
  if (!product.integer) return;
  text.define("EXACT_CHANNELS", std::max<std::size_t>(1, kExactTerms / product.tap_offsets.size()));
  if (!has_scales) return;
  const IntegerResult& result = *product.integer;
  text.define("ST", type_code(result.scale_type));
  text.define("SCALES_BY", static_cast<int>(result.b_scales));
  const device_ops::IntegerRange range(result.type);
  text.define("LOWEST", range.low).define("HIGHEST", range.high);
  text.define("OCL_TY", result.type == DataType::Int8    ? "char"
                        : result.type == DataType::UInt8 ? "uchar"
                        : result.type == DataType::Int16 ? "short"
                                                         : "ushort");
  text.add(device_ops::saturation_text(result.type));
}

std::string source_of(const Product& product, const Tile& tile) {
  KernelText text;
  const bool is_double = product.type == DataType::Double;
  text.define("T", type_code(product.type))
      .define("ACC", product.integer ? "i32" : accumulator(product.type));
  define_integer(text, product);
  text.define("REAL", is_double ? "double" : "float");
  text.define("LIT(x)", is_double ? "x" : "JOIN(x, f)");
  text.define("TAPS", product.tap_offsets.size()).define("HAS_BIAS", product.has_bias ? 1 : 0);
  text.define("BIAS_ALONG", product.bias_is_along ? 1 : 0);
  text.define("HAS_RESIDUAL", product.has_residual ? 1 : 0);
  text.define("HAS_FACTOR", product.factor != 1 ? 1 : 0);
  text.define("ROWED", product.is_rowed ? 1 : 0).define("DEEP", product.is_deep ? 1 : 0);
  text.define("ACTIVATE(s)", product.activation.of_scalar);
  text.add(common::kScalarFunctions).add(common::kProductArguments);
  if (tile.tiling == Tiling::kDot) return text.add(common::kDotProduct).str();
  if (tile.tiling == Tiling::kLocal) return text.add(common::kLocalProduct).str();
  text.define("MR", tile.rows).define("NV", tile.vectors).define("VW", tile.width);
  text.define("A_PANEL", product.a_is_panel ? 1 : 0).define("B_PANEL", product.b_is_panel ? 1 : 0);
  text.define("ROW_AXIS", columns_go_first(product) ? 1 : 0);
  text.define("B_SLACK", product.b_has_slack ? 1 : 0);
  if (!product.activation.of_vector.empty())
    text.define("ACTIVATE_VECTOR(v)", product.activation.of_vector);
  text.add(common::kVectorWords);
  if (!product.integer) text.add(common::kStoreLine);
  return text.add(common::kVectorProduct).str();
}

/// 32 of 16 floats with AVX-512, 16 of 8 or 4 without.
bool has_many_registers(const Device& device) { return device.traits().vector_width >= 16; }

/// Floats of the vectors of a tile.
std::int64_t tile_width(const Device& device, std::int64_t columns, bool may_pass_end) {
  std::int64_t width = device.traits().vector_width >= 16  ? 16
                       : device.traits().vector_width >= 8 ? 8
                                                           : 4;
  while (width > 4 && columns <= width / 2) width /= 2;
  while (!may_pass_end && width > columns) width /= 2;
  return width;
}

/// Tiles whose sums and operands fit into registers.
std::vector<Tile> vector_tiles_to_try(const Device& device, std::int64_t rows, std::int64_t columns,
                                      bool may_pass_end) {
  // No more columns than images have slack for.
  struct Shape {
    std::int64_t rows, vectors;
  };
  static const std::vector<Shape> kWide{{8, 2}, {12, 2}, {6, 4}, {4, 2}, {12, 1}};
  static const std::vector<Shape> kNarrow{{6, 2}, {4, 2}, {4, 3}, {12, 1}, {8, 1}};
  const std::int64_t width = tile_width(device, columns, may_pass_end);
  std::vector<Tile> tiles;
  for (const Shape& shape : has_many_registers(device) ? kWide : kNarrow) {
    const Tile tile{Tiling::kVector, std::min(shape.rows, rows), shape.vectors, width};
    const bool has_empty_vectors = columns <= (tile.vectors - 1) * width;
    if (!has_empty_vectors && (may_pass_end || columns >= tile.columns())) tiles.push_back(tile);
  }
  return tiles;
}

std::size_t parts(std::int64_t size, std::int64_t part) {
  return static_cast<std::size_t>((size + part - 1) / part);
}

}  // namespace

std::string Tile::name() const {
  if (tiling == Tiling::kDot) return "dot";
  if (tiling == Tiling::kLocal) return "local 64x64";
  return sdk::message("vector ", rows, "x", columns());
}

Tile choose_tile(const Device& device, DataType type, std::int64_t rows, std::int64_t columns,
                 bool may_pass_end) {
  Tile tile;
  const bool is_small = columns < kFewColumns || (!device.vector_tiles() && rows * columns < 256);
  if (is_small) return tile.tiling = Tiling::kDot, tile;
  if (!device.vector_tiles() || type != DataType::Float) return tile;
  tile.tiling = Tiling::kVector;
  tile.width = tile_width(device, columns, may_pass_end);
  tile.vectors = 2;
  tile.rows = has_many_registers(device) ? 8 : 6;
  if (columns <= tile.width || (!may_pass_end && columns < tile.columns())) tile.vectors = 1;
  if (rows == 1) tile.vectors = columns >= 4 * tile.width ? 4 : tile.vectors;
  tile.rows = std::min(tile.rows, rows);
  return tile;
}

std::vector<Tile> tiles_to_try(const Device& device, DataType type, std::int64_t rows,
                               std::int64_t columns, bool may_pass_end) {
  std::vector<Tile> tiles{choose_tile(device, type, rows, columns, may_pass_end)};
  if (!device.settings().tuning) return tiles;
  const std::string& allowed = device.settings().tiles;
  std::vector<Tile> others;
  if (allowed != "local" && type == DataType::Float && columns >= kFewColumns)
    others = vector_tiles_to_try(device, rows, columns, may_pass_end);
  if (allowed != "vector") others.push_back(Tile{Tiling::kLocal});
  // A work item for each sum reads everything again and again.
  constexpr std::int64_t kMostDotColumns = 16;
  if (columns <= kMostDotColumns) others.push_back(Tile{Tiling::kDot});
  for (const Tile& other : others) {
    const auto is_same = [&](const Tile& tile) { return tile.name() == other.name(); };
    if (std::none_of(tiles.begin(), tiles.end(), is_same)) tiles.push_back(other);
  }
  return tiles;
}

bool is_exact_by_vectors(std::size_t taps) { return taps <= kExactTerms; }

void add_product(Work& work, const Product& product, const Tile& tile) {
  LaunchPlan plan;
  plan.name = "product " + tile.name();
  plan.source = source_of(product, tile);
  plan.arg(product.a, product.type).arg(product.b, product.type);
  if (product.tap_offsets.size() > 1) {
    plan.arg(work.add_table(product.tap_offsets.data(),
                            product.tap_offsets.size() * sizeof(std::int32_t)),
             DataType::Int32);
  }
  if (product.has_bias) plan.arg(product.bias, product.integer ? DataType::Int32 : product.type);
  if (product.has_residual) plan.arg(product.residual, product.type);
  if (product.integer && product.integer->has_scales) {
    const IntegerResult& result = *product.integer;
    for (const MemoryRef& scale : {result.a_scale, result.b_scale, result.y_scale})
      plan.arg(scale, result.scale_type);
    plan.arg(result.y_zero, result.type);
  }
  plan.arg(product.y, product.integer ? product.integer->type : product.type);
  const Product& p = product;
  for (const std::int64_t number :
       {p.rows,          p.columns,       p.channels,      p.a_row,         p.a_step,
        p.b_channel,     p.b_step,        p.y_row,         p.inner,         p.a_batch.outer,
        p.a_batch.inner, p.b_batch.outer, p.b_batch.inner, p.y_batch.outer, p.y_batch.inner,
        p.bias_row,      p.bias_inner,    p.pitch,         p.line,          p.lines,
        p.line_rows})
    plan.scalar(number);
  plan.scalar(product.factor);
  const auto batch = static_cast<std::size_t>(product.batch);
  switch (tile.tiling) {
    case Tiling::kVector:
      plan.items = {parts(p.rows, tile.rows), parts(p.columns, tile.columns()), batch};
      if (columns_go_first(p)) std::swap(plan.items[0], plan.items[1]);
      break;
    case Tiling::kLocal:
      plan.items = {parts(p.columns, 64) * 16, parts(p.rows, 64) * 16, batch};
      plan.group = {16, 16, 1};
      break;
    case Tiling::kDot:
      plan.items = {static_cast<std::size_t>(p.rows), static_cast<std::size_t>(p.columns), batch};
      plan.group = {
          static_cast<std::size_t>(p.rows >= 64 && !device_of(work).vector_tiles() ? 64 : 1), 1, 1};
      break;
  }
  work.add(plan);
}

std::int64_t launch_count(const common::StridedLoops& loops) {
  std::int64_t launches = 1;
  for (std::size_t axis = 0; axis + 2 < loops.dims.size(); ++axis) launches *= loops.dims[axis];
  return launches;
}

void add_products(Work& work, const Product& product, const common::StridedLoops& loops,
                  const Tile& tile) {
  const std::size_t rank = loops.dims.size();
  Product all = product;
  all.inner = loops.dims[rank - 1];
  all.batch = all.inner * (rank > 1 ? loops.dims[rank - 2] : 1);
  const auto steps = [&](std::size_t operand) {
    return BatchSteps{rank > 1 ? loops.strides[operand][rank - 2] : 0,
                      loops.strides[operand][rank - 1]};
  };
  all.a_batch = steps(0);
  all.b_batch = steps(1);
  all.y_batch = steps(2);
  const auto bytes = static_cast<std::uint64_t>(sdk::element_bytes(product.type));
  const std::int64_t launches = launch_count(loops);
  for (std::int64_t launch = 0; launch < launches; ++launch) {
    Product one = all;
    std::int64_t rest = launch;
    for (std::size_t axis = rank < 2 ? 0 : rank - 2; axis-- > 0;) {
      const std::int64_t at = rest % loops.dims[axis];
      rest /= loops.dims[axis];
      one.a.offset += static_cast<std::uint64_t>(at * loops.strides[0][axis]) * bytes;
      one.b.offset += static_cast<std::uint64_t>(at * loops.strides[1][axis]) * bytes;
      one.y.offset += static_cast<std::uint64_t>(at * loops.strides[2][axis]) * bytes;
      one.residual.offset = one.y.offset;
    }
    add_product(work, one, tile);
  }
}

std::vector<float> pack_rows(const float* a, std::int64_t rows, std::int64_t depth,
                             std::int64_t panel) {
  const std::int64_t panels = (rows + panel - 1) / panel;
  std::vector<float> packed(static_cast<std::size_t>(panels * panel * depth), 0.0f);
  for (std::int64_t row = 0; row < rows; ++row) {
    float* const to = packed.data() + row / panel * panel * depth + row % panel;
    for (std::int64_t k = 0; k < depth; ++k) to[k * panel] = a[row * depth + k];
  }
  return packed;
}

std::vector<float> pack_columns(const float* b, std::int64_t depth, std::int64_t columns,
                                std::int64_t row_step, std::int64_t column_step,
                                std::int64_t panel) {
  const std::int64_t panels = (columns + panel - 1) / panel;
  std::vector<float> packed(static_cast<std::size_t>(panels * panel * depth), 0.0f);
  for (std::int64_t each = 0; each < panels; ++each) {
    const std::int64_t first = each * panel, count = std::min(panel, columns - first);
    float* const to = packed.data() + each * panel * depth;
    for (std::int64_t k = 0; k < depth; ++k) {
      for (std::int64_t p = 0; p < count; ++p)
        to[k * panel + p] = b[k * row_step + (first + p) * column_step];
    }
  }
  return packed;
}

void upload_packed(const sdk::PackContext& ctx, const std::vector<float>& data) {
  const bp_tensor& target = *ctx.target().raw();
  const auto* const buffer = reinterpret_cast<const Buffer*>(target.buffer);
  auto& stream = *reinterpret_cast<Stream*>(ctx.stream());
  stream.barrier();
  // Waits: `data` ends with the call.
  check_cl(clEnqueueWriteBuffer(stream.queue(), buffer->memory.get(), CL_TRUE, target.offset,
                                data.size() * sizeof(float), data.data(), 0, nullptr, nullptr),
           "clEnqueueWriteBuffer");
}

}  // namespace backplane::opencl
