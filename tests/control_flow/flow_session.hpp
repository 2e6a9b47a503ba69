// Sessions over models in ONNX's text form, for tests of control flow.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/session.hpp"
#include "tests/fixtures/fakegpu/fakegpu.h"

namespace backplane::core::flow {

using Dims = std::vector<std::int64_t>;
using Values = std::map<std::string, RuntimeValuePtr>;

RuntimeValuePtr floats(const Dims& dims, const std::vector<float>& elements);
RuntimeValuePtr int64s(const Dims& dims, const std::vector<std::int64_t>& elements);
RuntimeValuePtr boolean(bool value);
RuntimeValuePtr strings(const Dims& dims, const std::vector<std::string>& elements);

std::vector<float> floats_of(const RuntimeValue& value);
std::vector<std::int64_t> int64s_of(const RuntimeValue& value);

/// The environment of the process; the fakegpu plugin is loaded.
const std::shared_ptr<Environment>& environment();
fakegpu_counters counters();
void reset_counters();
/// What the fake devices found wrong, one a line.
std::string findings();

struct FlowSetup {
  std::vector<std::string> providers = {"cpu"};
  std::map<std::string, std::string> placement;  ///< pattern -> provider
  OptimizationLevel optimization = OptimizationLevel::All;
  std::vector<std::pair<std::string, std::string>> fakegpu_options = {{"host_copy", "sync"}};
  bool profile = false;
};

/// A session over a model in ONNX's text form (onnx/defs/parser.h), nodes named n0, n1 ... by their order where the
/// text gives no names.
class FlowSession {
 public:
  explicit FlowSession(const std::string& text, const FlowSetup& setup = {});
  /// All outputs. Throws what the session throws.
  Values run(const Values& feeds);
  Session& core() { return *session_; }
  std::size_t plan_count();

 private:
  std::string model_;
  std::unique_ptr<Session> session_;
};

/// The message of the error that the session or the run ends with; "" when there is none.
std::string error_of(const std::string& text, const Values& feeds, const FlowSetup& setup = {});

}  // namespace backplane::core::flow
