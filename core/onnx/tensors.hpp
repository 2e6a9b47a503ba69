// TensorProtos and constants.
#pragma once

#include <cstddef>
#include <memory>
#include <onnx/onnx_pb.h>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/graph/constant.hpp"
#include "core/onnx/external_data.hpp"

namespace backplane::core {

/// Makes constants of tensors whose contents lie in the proto, in the model's bytes (as `segment`, see wire_reader.hpp)
/// or in files beside it.
class TensorReader {
 public:
  /// `owner` keeps `model` alive; null: the caller does.
  TensorReader(std::span<const std::byte> model, std::shared_ptr<const void> owner,
               ExternalData external)
      : model_(model), owner_(std::move(owner)), external_(std::move(external)) {}
  /// For protos of a graph that was built: a tensor's segment begins at the index of its contents in `contents`.
  explicit TensorReader(std::vector<ConstantPtr> contents)
      : external_(std::string(), false), contents_(std::move(contents)) {}

  /// Throws InvalidArgument, saying `what` ("initializer 'w'") and why, for contents that do not fit type and shape.
  ConstantPtr read(const ::onnx::TensorProto& tensor, const std::string& what);
  /// A sparse tensor, made dense. Refused above 256 MiB: a few bytes of file must not become any amount of memory.
  ConstantPtr read(const ::onnx::SparseTensorProto& tensor, const std::string& what);
  /// Likewise an initializer. It is read once: the proto must stay where it is as long as the reader.
  ConstantPtr initializer(const ::onnx::TensorProto& tensor);

 private:
  ConstantPtr read_contents(const ::onnx::TensorProto& tensor);
  ConstantPtr read_sparse(const ::onnx::SparseTensorProto& tensor);

  std::span<const std::byte> model_;
  std::shared_ptr<const void> owner_;
  ExternalData external_;
  std::vector<ConstantPtr> contents_;
  std::unordered_map<const ::onnx::TensorProto*, ConstantPtr> initializers_;
};

/// Whether the contents are in the proto itself, so that ONNX's own code can read them.
bool has_inline_contents(const ::onnx::TensorProto& tensor);

/// ONNX's number as an element type. Throws Unsupported naming the number.
DataType to_data_type(int onnx_type);

/// The constant as a TensorProto, contents as raw_data (strings as string_data).
::onnx::TensorProto to_proto(const Constant& constant, const std::string& name);

}  // namespace backplane::core
