// CUDA's libraries for computing, behind one door: NVRTC, cuBLASLt and cuDNN.
//
// The engine is a shared object of its own (cuda_engine.so, in engine/) that links them, so that a library which is
// missing is named by the loader; the plugin opens it with the first device, and not before (engine_file.hpp).
#pragma once

#include <memory>

#include "plugins/cuda/attentions.hpp"
#include "plugins/cuda/convolutions.hpp"

namespace backplane::cuda {

class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;
  virtual Compiler& compiler() = 0;
  /// The matrix products of a device, whose context lives longer. Errors: BP_INTERNAL, BP_OUT_OF_MEMORY.
  virtual std::unique_ptr<ProductLibrary> open_products(Context& context) = 0;
  /// The same of convolutions; null where this build has no cuDNN.
  virtual std::unique_ptr<ConvolutionLibrary> open_convolutions(Context& context) = 0;
  virtual std::unique_ptr<AttentionLibrary> open_attentions(Context& context) = 0;
};

/// Says in text what both sides were built from: they share C++ classes, so they must be of one build.
inline constexpr char kEngineBuild[] = "backplane cuda engine 7";

/// What the engine's file exports.
struct EngineEntry {
  const char* build;
  /// The process's one, made at the first call; throws sdk::Error.
  std::unique_ptr<Engine> (*open)();
};

}  // namespace backplane::cuda
