// Changes of models that leave them readable: what ONNX's format allows and no exporter writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <onnx/onnx_pb.h>
#include <random>
#include <string>

namespace backplane::fuzz {

/// Changes one model a few times, by the numbers of its seed alone: the same seed makes the same changes.
class ModelMutator {
 public:
  ModelMutator(onnx::ModelProto& model, std::uint32_t seed) : model_(model), random_(seed) {}

  /// One change of a graph, of a body or function in it, or of the model around it.
  void change();

 private:
  std::size_t below(std::size_t count) { return random_() % count; }
  bool one_in(std::size_t count) { return below(count) == 0; }
  std::int64_t number();
  std::string name_in(const onnx::GraphProto& graph);
  onnx::GraphProto& any_graph();
  void change_model();
  void change_node(onnx::GraphProto& graph);
  void change_values(const onnx::GraphProto& graph, onnx::NodeProto& node);
  void change_attribute(onnx::NodeProto& node);
  void change_tensor(onnx::TensorProto& tensor);
  void change_type(onnx::TypeProto& type);

  onnx::ModelProto& model_;
  std::minstd_rand random_;
};

}  // namespace backplane::fuzz
