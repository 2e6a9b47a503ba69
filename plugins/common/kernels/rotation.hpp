// The halves of rows turned by angles: y = x * cos + concat(-x2, x1) * sin, as text.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "backplane/plugin.hpp"
#include "plugins/common/kernels/neighbours.hpp"

namespace backplane::common {

/// Statements of an item that reads `width` pairs, an element of each half, from where its first ones lie: at indices at0, at1
/// and at2 of x, c (cosines) and s (sines), at3 of y, and `behind` elements after these. Each element is read once, and before any is
/// written. `types`: the short names of theirs. With a width over 1, after kNeighbourWords; `behind` is a multiple of it.
inline std::string rotation_text(const std::array<std::string, 4>& types, std::int64_t width) {
  constexpr std::array<const char*, 4> kNames{"x", "c", "s", "y"};
  const bool is_wide = width > 1;
  std::string pointers, question, arrays, words, parts, singles;
  for (std::size_t k = 0; k < 4; ++k) {
    const std::string name = kNames[k], &type = types[k];
    const NeighbourText vector(type, width);
    question += sdk::message(k == 0 ? "" : " && ", "IS_AT(", name, "0, ", vector.total(), ")");
    for (const int part : {0, 1}) {
      const std::string from = sdk::message(name, part), array = sdk::message("near_", from);
      pointers += sdk::message("  GLOBAL ", k < 3 ? "const " : "", "STORAGE(", type, ") *", from,
                               " = ", name, " + at", k, part == 0 ? "" : " + behind", ";\n");
      arrays += sdk::message("  STORAGE(", type, ") ", array, '[', width, "];\n");
      if (k == 3) continue;
      words += vector.read(from, "word_" + from);
      parts += vector.unpack("word_" + from, array);
      singles += sdk::message("      ", array, "[e] = ", from, "[e];\n");
    }
  }
  const auto load = [&](std::size_t k, int part) {
    const std::string from = sdk::message(is_wide ? "near_" : "", kNames[k], part);
    return sdk::message("LOAD(", types[k], ", ", from, ", e)");
  };
  const std::string to = is_wide ? "near_y" : "y";
  const std::string each = sdk::message("UNROLL for (int e = 0; e < ", width, "; ++e)");
  const std::string turn =
      sdk::message("    float a = ", load(0, 0), ", b = ", load(0, 1), ", ca = ", load(1, 0),
                   ", cb = ", load(1, 1), ", sa = ", load(2, 0), ", sb = ", load(2, 1),
                   ";\n    STORE(", types[3], ", ", to, "0, e, a * ca - b * sa);\n    STORE(",
                   types[3], ", ", to, "1, e, b * cb + a * sb);\n");
  if (!is_wide) return sdk::message(pointers, "  const int e = 0;\n", turn);
  const NeighbourText out(types[3], width);
  return sdk::message(pointers, arrays, "  int is_whole = ", question, ";\n  if (is_whole) {\n",
                      words, parts, "  } else {\n    ", each, " {\n", singles, "    }\n  }\n  ",
                      each, " {\n", turn, "  }\n  if (is_whole) {\n    {\n",
                      out.write("y0", "near_y0"), "    }\n    {\n", out.write("y1", "near_y1"),
                      "    }\n  } else {\n    ", each,
                      " {\n      y0[e] = near_y0[e];\n      y1[e] = near_y1[e];\n    }\n  }\n");
}

}  // namespace backplane::common
