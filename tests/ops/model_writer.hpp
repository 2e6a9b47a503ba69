// Writes ONNX models by hand: the wire format of ModelProto needs no more than this, and the tests
// then share no protobuf with the library under test.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/ops/tensor.hpp"

namespace backplane::ops_test {

/// A graph input or output; -1 is a dimension that is not known. `symbols` has names for these; without, each has one of its own.
struct ValueInfo {
  std::string name;
  ElementType type = ElementType::Undefined;
  Dims dims = {};
  std::vector<std::string> symbols = {};
};

struct Model {
  std::vector<reference::Node> nodes;
  std::vector<ValueInfo> inputs;
  std::vector<ValueInfo> outputs;
  std::vector<std::pair<std::string, Tensor>> initializers;
  /// Domain to version.
  std::map<std::string, std::int64_t> opsets;
};

/// A serialized ModelProto of IR version 8, or a later one where the opset needs it.
std::string write_model(const Model& model);

/// A serialized TensorProto.
std::string write_tensor(const Tensor& tensor, const std::string& name = "");

}  // namespace backplane::ops_test
