// Planes whose elements become neighbours, and neighbours that become planes, as text for kernels: images of a few channels
// on their way between channels first and channels last. An item has a few pixels with all of their channels, so that both
// sides are read and written several elements at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/common/kernels/pointwise.hpp"

namespace backplane::common {

/// What an item does of such a walk.
struct Planes {
  StridedLoops pixels;        ///< the walk without the channels' axis; the last axis is the pixels'
  std::int64_t channels = 1;  ///< at most kMostChannels
  std::int64_t plane = 0;     ///< from one channel to the next, where they lie apart
  std::int64_t width = 1;     ///< pixels of an item
  bool gathers = true;        ///< the channels lie together in the output; otherwise in the operand

  /// Neighbouring items write next to each other: the fewer bytes each writes, the more of a line they write at once.
  static constexpr std::int64_t kMostChannels = 16, kMostElements = 32, kWrittenBytes = 8;

  /// Nothing where a walk over one operand and the output is no such thing.
  static std::optional<Planes> of(const StridedLoops& loops,
                                  const std::vector<PointwiseOperand>& operands) {
    const std::size_t rank = loops.dims.size();
    if (operands.size() != 2 || rank < 2) return std::nullopt;
    for (const bool gathers : {true, false}) {
      // Where they lie together, the channels' axis is the last one of what is written, or of what is read.
      const std::size_t channel = gathers ? rank - 1 : rank - 2,
                        pixel = gathers ? rank - 2 : rank - 1;
      const sdk::Dims &together = loops.strides[gathers ? 1 : 0],
                      &apart = loops.strides[gathers ? 0 : 1];
      const std::int64_t channels = loops.dims[channel];
      if (channels > kMostChannels || together[channel] != 1 || together[pixel] != channels ||
          apart[pixel] != 1)
        continue;
      Planes planes{without(loops, channel), channels, apart[channel], kWidestBytes, gathers};
      while (!planes.fits(operands)) planes.width /= 2;
      return planes;
    }
    return std::nullopt;
  }

 private:
  static StridedLoops without(StridedLoops loops, std::size_t axis) {
    const auto drop = [axis](sdk::Dims& of) {
      of.erase(of.begin() + static_cast<std::ptrdiff_t>(axis));
    };
    drop(loops.dims);
    for (sdk::Dims& strides : loops.strides) drop(strides);
    return loops;
  }

  /// Whether all accesses of `width` elements begin at a multiple of their size, as far as that is known.
  bool fits(const std::vector<PointwiseOperand>& operands) const {
    if (width == 1) return true;
    if (width * channels > kMostElements || plane % width != 0 || pixels.dims.back() < width)
      return false;
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const std::int64_t bytes = width * code_bytes(operands[k].type);
      if (bytes > (k == 0 ? kWidestBytes : kWrittenBytes) ||
          operands[k].offset % static_cast<std::uint64_t>(bytes) != 0)
        return false;
      for (std::size_t axis = 0; axis + 1 < pixels.dims.size(); ++axis) {
        if (pixels.strides[k][axis] % width != 0) return false;
      }
    }
    return true;
  }
};

/// The statements of an item, whose first pixel x0 and y point to: see vector_statements.
inline std::string plane_statements(const Planes& planes,
                                    const std::vector<PointwiseOperand>& operands,
                                    const PointwiseBody& body) {
  const std::int64_t width = planes.width, channels = planes.channels;
  const NeighbourText in(operands[0].type, width), out(operands[1].type, width);
  const auto at = [&](std::string_view pointer, std::int64_t step, bool is_apart) {
    return is_apart ? sdk::message(pointer, " + ", step, " * plane")
                    : sdk::message(pointer, " + ", step * width);
  };
  // Element e of channel c, where channels lie apart and where they lie together.
  const char *const apart = "c * WIDTH + e", *const together = "e * CHANNELS + c";
  const char *const from = planes.gathers ? apart : together, *const to =
                                                                  planes.gathers ? together : apart;
  const std::string each =
      "UNROLL for (int c = 0; c < CHANNELS; ++c)\n    UNROLL for (int e = 0; e < WIDTH; ++e)";
  std::string wide_reads, parts, wide_writes;
  for (std::int64_t step = 0; step < channels; ++step) {
    const std::string word = sdk::message("word", step),
                      array = sdk::message("(near + ", step * width, ")");
    wide_reads += in.read(at("x0", step, planes.gathers), word);
    parts += in.unpack(word, array);
    wide_writes += sdk::message(
        "    {\n",
        out.write(at("y", step, !planes.gathers), sdk::message("(made + ", step * width, ")")),
        "    }\n");
  }
  const auto single = [&](std::string_view pointer, bool is_apart, std::string_view e) {
    return is_apart ? sdk::message(pointer, "[c * plane + ", e, "]")
                    : sdk::message(pointer, "[", e, " * CHANNELS + c]");
  };
  const std::string narrow_reads =
      sdk::message("    ", each, "\n      near[", from,
                   "] = ", single("x0", planes.gathers, "(e < many ? e : 0)"), ";\n");
  const std::string narrow_writes =
      sdk::message("    ", each, "\n      if (e < many) ", single("y", !planes.gathers, "e"),
                   " = made[", to, "];\n");
  const auto either = [&](const std::string& wide, const std::string& narrow) {
    return width == 1 ? narrow
                      : sdk::message("  if (is_whole) {\n", wide, "  } else {\n", narrow, "  }\n");
  };
  return sdk::message("  int many = n0 - i0 < WIDTH ? (int)(n0 - i0) : WIDTH;\n",
                      width == 1 ? std::string()
                                 : sdk::message("  int is_whole = many == WIDTH && IS_AT(x0, ",
                                                in.total(), ") && IS_AT(y, ", out.total(), ");\n"),
                      "  STORAGE(", operands[0].type, ") near[WIDTH * CHANNELS];\n  STORAGE(",
                      operands[1].type, ") made[WIDTH * CHANNELS];\n",
                      either(wide_reads + parts, narrow_reads), "  ", each, " {\n    VALUE(",
                      operands[0].type, ") v0 = LOAD(", operands[0].type, ", near, ", from, ");\n",
                      body.statements, "    STORE(", operands[1].type, ", made, ", to, ", ",
                      body.expression, ");\n  }\n", either(wide_writes, narrow_writes));
}

/// The last of `operands` is the output.
inline PointwiseText planes_text(const Planes& planes,
                                 const std::vector<PointwiseOperand>& operands,
                                 const PointwiseBody& body) {
  PointwiseText result;
  std::string declarations;
  const StridedLoops& pixels = planes.pixels;
  const std::string indices =
      indices_text(pixels.dims, declarations, result.arguments, planes.width);
  const std::string from = index_text(pixels.strides[0], "s", declarations, result.arguments);
  const std::string to = index_text(pixels.strides[1], "t", declarations, result.arguments);
  declarations += ", i64 plane";
  result.arguments.push_back(planes.plane);
  for (std::size_t k = 0; k < body.parameters; ++k)
    declarations += sdk::message(", ", body.parameter_type, " p", k);
  result.text = sdk::message(kNeighbourWords, "#define WIDTH ", planes.width, "\n#define CHANNELS ",
                             planes.channels, "\nKERNEL run(IN(", operands[0].type, ", x0), OUT(",
                             operands[1].type, ", y)", declarations, ") {\n  AT(x0);\n  AT(y);\n",
                             indices, "  x0 += ", from, ";\n  y += ", to, ";\n",
                             plane_statements(planes, operands, body), "}\n");
  return result;
}

}  // namespace backplane::common
