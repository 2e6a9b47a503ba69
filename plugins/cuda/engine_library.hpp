// The engine, through its file.
#pragma once

#include <memory>

#include "plugins/cuda/engine.hpp"

namespace backplane::cuda {

/// Errors: BP_UNSUPPORTED with the loader's message, which names the library that is missing.
std::unique_ptr<Engine> load_engine();

}  // namespace backplane::cuda
