// A model's metadata alone, without reading the model.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

namespace backplane::core {

/// The metadata_props of a serialized model. Stops where the bytes are no model: reading that gives the error.
std::map<std::string, std::string> read_metadata(std::span<const std::byte> model);

}  // namespace backplane::core
