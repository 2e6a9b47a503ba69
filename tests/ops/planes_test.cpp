// Matrices that change places with their transposes, of every number of rows and columns around the tiles of
// vectors: by themselves, and where images change between channels first and channels last.
#include <array>
#include <string>
#include <vector>

#include "tests/ops/graph_writer.hpp"
#include "tests/ops/runner.hpp"

namespace backplane::ops_test {
namespace {

constexpr std::int64_t kMost = 40;

/// Those at which tiles and vectors have their seams; all up to kMost with BACKPLANE_TEST_FULL=1.
std::vector<std::int64_t> sizes(std::int64_t least) {
  std::vector<std::int64_t> some;
  for (std::int64_t size = least; size <= kMost; ++size) {
    const bool at_a_seam = size <= 5 || size % 8 <= 1 || size % 8 == 7 || size == 20;
    if (is_full() || at_a_seam) some.push_back(size);
  }
  return some;
}

/// Of elements of 1, 2, 4 and 8 bytes.
constexpr std::array kTypes = {ElementType::UInt8, ElementType::Int16, ElementType::Float,
                               ElementType::Int64};

std::string name_of(ElementType type) {
  switch (type) {
    case ElementType::UInt8:
      return "1Byte";
    case ElementType::Int16:
      return "2Bytes";
    case ElementType::Float:
      return "4Bytes";
    default:
      return "8Bytes";
  }
}

GraphCase named(GraphCase graph, std::string name) {
  graph.name = std::move(name);
  return graph;
}

std::string transposed(GraphWriter& g, Tensor x, const std::vector<std::int64_t>& perm) {
  return g.node("Transpose", {g.feed(std::move(x))}, {{"perm", ints(perm)}});
}

/// `rows` rows and up to 40 columns, some of them in batches, some apart from each other on both sides.
GraphCase transposes(ElementType type, std::int64_t rows) {
  Random random(static_cast<std::uint64_t>(rows + 1));
  GraphWriter g(17, random);
  std::vector<std::string> outputs;
  const auto values = [&](const Dims& dims) { return random.tensor(type, dims, 0, 255); };
  for (const std::int64_t columns : sizes(0)) {
    if (rows > kMost && (rows + columns) % 5 != 0) continue;
    const std::int64_t batch = (rows + columns) % 4 == 0 ? 2 : 1;
    outputs.push_back(transposed(g, values({batch, rows, columns}), {0, 2, 1}));
    if ((rows + columns) % 3 == 0)
      outputs.push_back(transposed(g, values({rows, 2, columns}), {2, 1, 0}));
  }
  return named(g.done(outputs),
               "TransposesOf" + name_of(type) + "And" + std::to_string(rows) + "Rows");
}

/// Lines of memory that are a power of two apart, on either side, and several tiles of them.
GraphCase far_apart(ElementType type, std::int64_t bytes) {
  Random random(7);
  GraphWriter g(17, random);
  std::vector<std::string> outputs;
  const std::int64_t far = 2048 / bytes;
  for (const std::int64_t few :
       std::vector<std::int64_t>{1, 4, 17, 64 / bytes, 64 / bytes + 3, 150}) {
    outputs.push_back(transposed(g, random.tensor(type, {few, far}, 0, 255), {1, 0}));
    outputs.push_back(transposed(g, random.tensor(type, {far, few}, 0, 255), {1, 0}));
  }
  return named(g.done(outputs), "FarApartOf" + name_of(type));
}

/// Gemm of a transposed operand of 1 to 40 columns.
GraphCase products(std::int64_t depth) {
  Random random(static_cast<std::uint64_t>(depth));
  GraphWriter g(17, random);
  std::vector<std::string> outputs;
  for (const std::int64_t rows : sizes(1)) {
    outputs.push_back(
        g.node("Gemm", {g.feed({depth, rows}), g.constant({depth, 2})}, {{"transA", 1}}));
  }
  return named(g.done(outputs), "ProductsOf" + std::to_string(depth));
}

/// Depthwise convolutions of images of some of 1 to 40 pixels.
GraphCase depthwise(std::int64_t channels) {
  Random random(static_cast<std::uint64_t>(channels));
  GraphWriter g(17, random);
  std::vector<std::string> outputs;
  for (std::int64_t pixels = 1 + channels % 3; pixels <= kMost; pixels += 3) {
    outputs.push_back(g.node(
        "Conv", {g.feed({1 + pixels % 2, channels, 1, pixels}), g.constant({channels, 1, 1, 3})},
        {{"group", channels}, {"pads", ints({0, 1, 0, 1})}}));
  }
  return named(g.done(outputs), "DepthwiseOf" + std::to_string(channels) + "Channels");
}

/// What reads images of a few channels, of 1 to 40 pixels in a line.
GraphCase images(std::int64_t channels) {
  Random random(static_cast<std::uint64_t>(channels));
  GraphWriter g(17, random);
  std::vector<std::string> outputs;
  for (const std::int64_t width : sizes(1)) {
    outputs.push_back(g.node(
        "Conv", {g.feed({1 + width % 2, channels, 3, width}), g.constant({8, channels, 3, 3})},
        {{"pads", ints({1, 1, 1, 1})}}));
  }
  return named(g.done(outputs), "ImagesOf" + std::to_string(channels) + "Channels");
}

std::vector<GraphCase> all_graphs() {
  std::vector<GraphCase> graphs;
  std::int64_t bytes = 1;
  for (const ElementType type : kTypes) {
    for (const std::int64_t rows : sizes(0)) graphs.push_back(transposes(type, rows));
    // Whole vectors of the narrow types, and tiles of them, with all that may remain of rows.
    for (const std::int64_t rows :
         std::vector<std::int64_t>{63, 64, 65, 79, 80, 81, 127, 128, 129, 300})
      graphs.push_back(transposes(type, rows));
    graphs.push_back(far_apart(type, bytes));
    bytes *= 2;
  }
  for (const std::int64_t i : sizes(1)) {
    graphs.push_back(products(i));
    graphs.push_back(depthwise(i));
  }
  for (std::int64_t channels = 1; channels <= 5; ++channels) graphs.push_back(images(channels));
  return graphs;
}
const std::vector<GraphCase> kGraphs = all_graphs();
const Rows kRows("Planes", kGraphs);

}  // namespace
}  // namespace backplane::ops_test
