#include "plugins/opencl/kernels/winograd.hpp"

#include <algorithm>

#include "plugins/common/kernels/lines.hpp"
#include "plugins/common/kernels/scalar_functions.hpp"
#include "plugins/common/kernels/winograd.hpp"
#include "plugins/opencl/kernels/vectors.hpp"

namespace backplane::opencl {
namespace {

constexpr std::int64_t kPoints = 36, kTileSide = 4;
constexpr std::int64_t kLoadSlack = 64;  // elements that loads of the widest tile pass the end by

std::int64_t tiles_along(std::int64_t size) { return (size + kTileSide - 1) / kTileSide; }

KernelText words(std::int64_t width) {
  KernelText text;
  text.define("T", "f32").define("ACC", "float").define("REAL", "float");
  text.define("LIT(x)", "JOIN(x, f)").define("VW", width);
  text.define("LANES", lane_numbers(width));
  text.add(common::kScalarFunctions).add(common::kVectorWords).add(common::kWinogradArguments);
  return text;
}

/// The words of what follows the sums, and put_tiles.
void add_results(KernelText& text, const Winograd& conv) {
  text.define("HAS_BIAS", conv.has_bias ? 1 : 0).define("BIAS_ALONG", 0);
  text.define("HAS_RESIDUAL", conv.has_residual ? 1 : 0);
  text.define("ACTIVATE(s)", conv.activation.of_scalar);
  if (!conv.activation.of_vector.empty())
    text.define("ACTIVATE_VECTOR(v)", conv.activation.of_vector);
  text.add(common::kStoreLine).add(common::kWinogradPut);
}

struct Chunk {
  std::int64_t first = 0, rows = 0;
};

void add_sizes(LaunchPlan& launch, const WinogradPlan& plan, const Chunk& chunk,
               std::int64_t channels, std::int64_t height, std::int64_t width) {
  for (const std::int64_t number :
       {channels, height, width, plan.tiles_y, plan.tiles_x, chunk.first, chunk.rows,
        plan.point_step(channels), plan.channel_step})
    launch.scalar(number);
  launch.items = {static_cast<std::size_t>(channels), 1, 1};
}

LaunchPlan input_launch(const Winograd& conv, const WinogradPlan& plan, const std::string& source,
                        const Chunk& chunk) {
  LaunchPlan launch;
  launch.name = "winograd in";
  launch.source = source;
  launch.arg(conv.x, DataType::Float).arg(workspace(), DataType::Float);
  add_sizes(launch, plan, chunk, conv.in_channels, conv.window.in[1], conv.window.in[2]);
  launch.scalar(conv.window.pad_begin[1]).scalar(conv.window.pad_begin[2]);
  launch.scalar(conv.images * conv.in_channels * conv.window.in_points());
  return launch;
}

LaunchPlan output_launch(const Winograd& conv, const WinogradPlan& plan, const std::string& source,
                         const Chunk& chunk) {
  LaunchPlan launch;
  launch.name = "winograd out";
  launch.source = source;
  launch.arg(workspace(plan.products_offset), DataType::Float);
  if (conv.has_bias) launch.arg(conv.bias, DataType::Float);
  if (conv.has_residual) launch.arg(conv.residual, DataType::Float);
  launch.arg(conv.y, DataType::Float);
  add_sizes(launch, plan, chunk, conv.out_channels, conv.window.out[1], conv.window.out[2]);
  return launch;
}

/// The points' products for `columns` tiles.
Product products(const Winograd& conv, const WinogradPlan& plan, const MemoryRef& weights,
                 std::int64_t columns) {
  WinogradPacker packer{conv.in_channels, conv.out_channels, plan.tile.rows};
  Product product;
  product.rows = conv.out_channels;
  product.columns = columns;
  product.channels = conv.in_channels;
  product.a = weights;
  product.a_is_panel = true;
  product.a_batch.inner = packer.point_floats();
  product.b = workspace();
  product.b_has_slack = true;
  product.b_channel = plan.channel_step;
  product.b_batch.inner = plan.point_step(conv.in_channels);
  product.y = workspace(plan.products_offset);
  product.y_row = plan.channel_step;
  product.y_batch.inner = plan.point_step(conv.out_channels);
  product.batch = product.inner = kPoints;
  return product;
}

}  // namespace

bool winograd_applies(const Device& device, const Winograd& conv) {
  const Window& window = conv.window;
  constexpr std::int64_t kLeastChannels = 8;
  return device.vector_tiles() && window.kernel == std::array<std::int64_t, 3>{1, 3, 3} &&
         window.stride == std::array<std::int64_t, 3>{1, 1, 1} &&
         window.dilation == std::array<std::int64_t, 3>{1, 1, 1} && window.in[0] == 1 &&
         window.out[0] == 1 && conv.in_channels >= kLeastChannels &&
         conv.out_channels >= kLeastChannels;
}

bool winograd_pays(const Device& device, const Winograd& conv) {
  if (!winograd_applies(device, conv)) return false;
  const Window& window = conv.window;
  // In multiply-adds: transforms, and the weights that are four times as large, are what this costs beside its products.
  constexpr double kTransform = 250;  // of a channel's tile
  constexpr double kWeight = 22;      // of a weight that is read from afar
  const auto tiles =
      static_cast<double>(conv.images * tiles_along(window.out[1]) * tiles_along(window.out[2]));
  const auto pixels = static_cast<double>(conv.images * window.out_points());
  const auto channels = static_cast<double>(conv.in_channels * conv.out_channels);
  const double sums =
      kPoints * channels * std::max(tiles, 16.0) * 1.2 +
      kTransform * static_cast<double>(conv.in_channels + conv.out_channels) * tiles;
  return std::max(sums, kWeight * kPoints * channels) < 9 * channels * pixels;
}

std::uint64_t WinogradPacker::bytes() const {
  return static_cast<std::uint64_t>(kPoints * point_floats()) * sizeof(float);
}

std::string WinogradPacker::key() const {
  return sdk::message("winograd ", panel, " of ", out_channels, "x", in_channels);
}

void WinogradPacker::pack(const sdk::PackContext& ctx) const {
  constexpr float kG[6][3] = {{1.0f / 4, 0, 0},
                              {-1.0f / 6, -1.0f / 6, -1.0f / 6},
                              {-1.0f / 6, 1.0f / 6, -1.0f / 6},
                              {1.0f / 24, 1.0f / 12, 1.0f / 6},
                              {1.0f / 24, -1.0f / 12, 1.0f / 6},
                              {0, 0, 1}};
  const auto* const weights = ctx.source(0).data<float>();
  const std::int64_t filters = out_channels * in_channels;
  std::vector<float> points(static_cast<std::size_t>(kPoints * filters));
  for (std::int64_t filter = 0; filter < filters; ++filter) {
    const float* const w = weights + filter * 9;
    float half[6][3];
    for (int i = 0; i < 6; ++i) {
      for (int x = 0; x < 3; ++x)
        half[i][x] = kG[i][0] * w[x] + kG[i][1] * w[3 + x] + kG[i][2] * w[6 + x];
    }
    for (int point = 0; point < kPoints; ++point) {
      const float *const a = half[point / 6], *const b = kG[point % 6];
      points[static_cast<std::size_t>(point * filters + filter)] =
          a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
    }
  }
  std::vector<float> all;
  all.reserve(static_cast<std::size_t>(kPoints * point_floats()));
  for (std::int64_t point = 0; point < kPoints; ++point) {
    const std::vector<float> part =
        pack_rows(points.data() + point * filters, out_channels, in_channels, panel);
    all.insert(all.end(), part.begin(), part.end());
  }
  upload_packed(ctx, all);
}

WinogradPlan::WinogradPlan(const Device& device, const Winograd& conv)
    : tiles_y(tiles_along(conv.window.out[1])), tiles_x(tiles_along(conv.window.out[2])) {
  if (!set_whole(device, conv)) set_steps(device, conv);
}

bool WinogradPlan::set_whole(const Device& device, const Winograd& conv) {
  // Of a core's second cache; weights, products and lines take the rest.
  constexpr std::int64_t kOwnBytes = std::int64_t{640} << 10, kItemsPerCore = 4;
  const std::int64_t width = device.limits().vector_floats, most = 2 * width;
  if (kPoints * conv.in_channels * most * 4 > kOwnBytes) return false;
  const std::int64_t across = (tiles_x + most - 1) / most;
  columns = (tiles_x + across - 1) / across;
  // Vectors may pass the end of a row of tiles, but not the end of all.
  const std::int64_t lanes = vector_width(device, columns);
  const std::int64_t passed = (columns + lanes - 1) / lanes * lanes;
  rows = std::clamp<std::int64_t>((most - passed) / columns + 1, 1, tiles_y);
  const std::int64_t down = (tiles_y + rows - 1) / rows;
  rows = (tiles_y + down - 1) / down;
  blocks = conv.images * across * down;
  const auto units = static_cast<std::int64_t>(device.traits().compute_units);
  if (blocks < units || rows * columns <= width) {
    columns = 0;
    return false;
  }
  items = std::min(blocks, kItemsPerCore * units);
  tile = choose_tile(device, DataType::Float, conv.out_channels, most, true);
  constexpr std::int64_t kGap = 16;  // see kWinogradWhole
  own_floats =
      conv.in_channels * (kPoints * most + kGap) + kPoints * (tile.rows * most + kGap) + kLoadSlack;
  workspace_bytes = static_cast<std::uint64_t>(items * own_floats) * sizeof(float);
  return true;
}

void WinogradPlan::set_steps(const Device& device, const Winograd& conv) {
  // What lies between the steps stays in the cores' caches, but weights are read once for so many tiles at least.
  constexpr std::int64_t kCacheBytes = std::int64_t{2} << 20, kLeastTiles = 48;
  const std::int64_t tile_bytes = kPoints * 4 * (conv.in_channels + conv.out_channels);
  const std::int64_t tiles = std::max(kLeastTiles, kCacheBytes / tile_bytes);
  const std::int64_t all_rows = conv.images * tiles_y;
  rows = std::clamp<std::int64_t>(tiles / tiles_x, 1, all_rows);
  const std::int64_t chunks = (all_rows + rows - 1) / rows;
  rows = (all_rows + chunks - 1) / chunks;
  constexpr std::int64_t kLanes = 16;
  channel_step = ((rows * tiles_x + 2 * kLanes - 1) / kLanes | 1) * kLanes;
  const auto floats = [](std::int64_t count) {
    return static_cast<std::uint64_t>(count) * sizeof(float);
  };
  const std::uint64_t alignment = device.limits().alignment;
  products_offset = (floats(kPoints * point_step(conv.in_channels) + kLoadSlack) + alignment - 1) /
                    alignment * alignment;
  workspace_bytes = products_offset + floats(kPoints * point_step(conv.out_channels) + kLoadSlack);
  tile = choose_tile(device, DataType::Float, conv.out_channels, rows * tiles_x, true);
}

namespace {

void add_whole(Work& work, const Winograd& conv, const WinogradPlan& plan,
               const MemoryRef& weights) {
  const Window& window = conv.window;
  KernelText text = words(vector_width(device_of(work), plan.columns));
  text.define("MR", plan.tile.rows).define("NV", plan.tile.vectors).define("PW", plan.tile.width);
  text.add(common::kWinogradTake);
  add_results(text, conv);
  LaunchPlan launch;
  launch.name = "winograd, whole";
  launch.source = text.add(common::kWinogradWhole).str();
  launch.arg(conv.x, DataType::Float).arg(weights, DataType::Float);
  if (conv.has_bias) launch.arg(conv.bias, DataType::Float);
  if (conv.has_residual) launch.arg(conv.residual, DataType::Float);
  launch.arg(conv.y, DataType::Float).arg(workspace(), DataType::Float);
  for (const std::int64_t number :
       {conv.in_channels, conv.out_channels, window.in[1], window.in[2], window.out[1],
        window.out[2], plan.tiles_y, plan.tiles_x, plan.rows, plan.columns, plan.blocks,
        plan.own_floats, window.pad_begin[1], window.pad_begin[2],
        conv.images * conv.in_channels * window.in_points()})
    launch.scalar(number);
  launch.items = {static_cast<std::size_t>(plan.items), 1, 1};
  work.add(launch);
}

}  // namespace

void add_winograd(Work& work, const Winograd& conv, const WinogradPlan& plan,
                  const MemoryRef& weights) {
  if (plan.columns > 0) return add_whole(work, conv, plan, weights);
  const std::int64_t width = vector_width(device_of(work), plan.tiles_x);
  const std::string input_source =
      words(width).add(common::kWinogradTake).add(common::kWinogradInput).str();
  KernelText output = words(width);
  add_results(output, conv);
  const std::string output_source = output.add(common::kWinogradOutput).str();
  const std::int64_t all_rows = conv.images * plan.tiles_y;
  for (Chunk chunk; chunk.first < all_rows; chunk.first += plan.rows) {
    chunk.rows = std::min(plan.rows, all_rows - chunk.first);
    work.add(input_launch(conv, plan, input_source, chunk));
    add_product(work, products(conv, plan, weights, chunk.rows * plan.tiles_x), plan.tile);
    work.add(output_launch(conv, plan, output_source, chunk));
  }
}

}  // namespace backplane::opencl
