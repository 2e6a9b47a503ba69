// What options that are numbers take.
#pragma once

#include <cstdint>

#include <CLI/CLI.hpp>

namespace backplane::cli {

/// A decimal whole number; to be given to Option::transform, because zeros in front would else make it an octal one.
CLI::Validator whole_number(std::uint64_t least, std::uint64_t most);

/// A finite number.
CLI::Validator real_number(double least, double most);

}  // namespace backplane::cli
