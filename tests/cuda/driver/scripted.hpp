// A libcuda.so.1 that keeps books: it holds the rules that cuda.h states of contexts and of captures, and fails where a
// test says. Of one thread.
#pragma once

#include <cuda.h>
#include <map>
#include <string>
#include <vector>

namespace backplane::cuda {

struct Script {
  std::vector<std::string> calls;
  std::map<std::string, std::vector<CUresult>> failures;  ///< by call: of the next ones

  int version = CUDA_VERSION;

  int major = 9, minor = 0;  ///< compute capability

  // Contexts.
  int references = 0;  ///< to the primary context
  int resets = 0;      ///< how often the last reference was released
  bool is_lost = false;
  CUcontext current = nullptr;
  bool needs_context = true;  ///< false: none is one, too

  // Captures: of this thread's mode, and of other threads.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool is_captured_elsewhere = false;  ///< in another thread, begun in the mode GLOBAL
  bool is_captured_here = false;       ///< in this one, begun in a mode that is not RELAXED
  std::vector<std::string> spoilers;   ///< the calls that spoiled captures

  /// Of the launches by cuLaunchKernelEx: whether they may begin early, and the sizes and stream that they named.
  std::vector<bool> early;
  CUlaunchConfig launched{};
  int local_bytes = 0;  ///< that a function was given room for; -1: it was given something else
  std::vector<cuuint64_t>
      boxes{};  ///< the arguments of cuTensorMapEncode..., in their order, without what is no number

  int pools = 0, streams = 0, modules = 0;
  std::vector<std::string> images;  ///< the first four bytes of what was loaded

  std::size_t count(const std::string& call) const;
};

/// The library's own, which the test sees too.
__attribute__((visibility("default"))) Script& script();

}  // namespace backplane::cuda
