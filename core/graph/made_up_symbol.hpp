// Symbols of dimensions that the model does not name.
#pragma once

#include <string_view>

namespace backplane::core {

/// What such symbols begin with: ONNX's inference makes them, to tell that dimensions are equal.
inline constexpr std::string_view kMadeUpSymbol = "unk__";

}  // namespace backplane::core
