// What a file is that is given for a model and is none.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace backplane::core {

/// What bytes that are no ONNX model are by their beginning, and what to do about it, for an error; "" where nobody knows.
/// To be asked only about what could not be read: a model may begin as it likes.
std::string describe_foreign(std::span<const std::byte> bytes);

}  // namespace backplane::core
