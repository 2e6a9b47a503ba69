// The host interface (backplane.h) as these tests use it: models from memory, tensors in, tensors
// out.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/ops/tensor.hpp"

struct backplane_session;

namespace backplane::ops_test {

/// What a function of backplane.h answered; codes are BACKPLANE_*.
class HostError : public std::runtime_error {
 public:
  HostError(std::int32_t code, const std::string& message)
      : std::runtime_error(message), code_(code) {}
  std::int32_t code() const { return code_; }

 private:
  std::int32_t code_;
};

/// Keys and values of options, as backplane_options_set takes them.
using Options = std::vector<std::pair<std::string, std::string>>;
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// One environment serves the process. It has two threads, so that loops are really split, and
/// finds plugins in the default place and in the directories of BACKPLANE_TEST_PLUGIN_PATH. The
/// names of providers that are loaded and have a device. Throws HostError.
std::vector<std::string> loaded_providers();

/// Keeps its own copy of the model's bytes. Not to be copied.
class Session {
 public:
  /// Throws HostError.
  Session(std::string model, const Options& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// The outputs, in the order of `outputs`. Throws HostError.
  std::vector<Tensor> run(const NamedTensors& feeds, const std::vector<std::string>& outputs);
  /// What became of the nodes: the JSON of backplane_session_explain. Throws HostError.
  std::string explain() const;
  /// What lies where: the JSON of backplane_session_memory. Throws HostError.
  std::string memory() const;

 private:
  std::string model_;
  backplane_session* session_ = nullptr;
};

}  // namespace backplane::ops_test
