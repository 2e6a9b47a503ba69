// Sessions over the cpu and two fake devices, in one environment: what the tests of this folder share.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <onnx/onnx_pb.h>
#include <string>
#include <utility>
#include <vector>

#include "core/runtime/session.hpp"
#include "tests/fixtures/fakegpu/fakegpu.h"

namespace backplane::core::faults {

using Dims = std::vector<std::int64_t>;

/// A float tensor.
struct Tensor {
  Dims dims;
  std::vector<float> elements;
};
using Tensors = std::map<std::string, Tensor>;

/// Plugins of another folder than that of the build; before the first use of environment().
void use_plugins_of(const std::string& folder);
/// The environment of the process, with two threads; the fakegpu plugin is loaded.
const std::shared_ptr<Environment>& environment();
/// Whether the provider is there and has a device, as for a session that names it.
bool has_device(const std::string& provider);

/// The fakegpu provider's test interface.
const fakegpu_api& fakegpu();
fakegpu_counters counters(std::uint32_t device = FAKEGPU_ALL_DEVICES);
/// The findings since the last reset, one a line.
std::string findings();
/// What is alive on all fake devices, in words; "" when nothing is.
std::string alive();

/// Writes an ONNX model of float tensors.
class ModelMaker {
 public:
  ModelMaker();
  /// Negative dims are those of the feeds.
  ModelMaker& input(const std::string& name, const Dims& dims);
  ModelMaker& output(const std::string& name);
  ModelMaker& weight(const std::string& name, const Tensor& tensor);
  ModelMaker& ints(const std::string& name, const Dims& values);
  /// A node that is called `name`; `axis` is set as an attribute unless negative.
  ModelMaker& node(const std::string& name, const std::string& op,
                   const std::vector<std::string>& inputs, const std::string& output,
                   int axis = -1);
  std::string bytes() const { return model_.SerializeAsString(); }

 private:
  ::onnx::ModelProto model_;
};

using ProviderOptions = std::vector<std::pair<std::string, std::string>>;
using Placement = std::map<std::string, std::string>;  ///< node -> provider

/// A session over fakegpu:0, fakegpu:1 and cpu, in that order; no graph passes, so that nodes stay what they are.
class MixedSession {
 public:
  explicit MixedSession(std::string model, const Placement& placement = {},
                        const ProviderOptions& fakegpu_options = {},
                        const std::vector<std::string>& providers = {"fakegpu:0", "fakegpu:1",
                                                                     "cpu"},
                        const std::function<void(SessionOptions&)>& change = {});
  /// All outputs. Throws what the session throws.
  Tensors run(const Tensors& feeds, const RunOptions* options = nullptr);
  Session& core() { return *session_; }

 private:
  std::string model_;
  std::unique_ptr<Session> session_;
};

/// The same on the cpu alone.
Tensors run_on_cpu(const std::string& model, const Tensors& feeds);

/// A tensor of numbers in [-1, 1) that depend on `seed` alone.
Tensor random_tensor(const Dims& dims, std::uint64_t seed);

/// "" or what differs by more than rounding.
std::string difference(const Tensors& got, const Tensors& want);

}  // namespace backplane::core::faults
