// Tensor contents in files beside the model.
#pragma once

#include <map>
#include <memory>
#include <onnx/onnx_pb.h>
#include <span>
#include <string>
#include <utility>

#include "core/base/mapped_file.hpp"
#include "core/graph/constant.hpp"

namespace backplane::core {

/// The folder that a model's external data lies in, and the files of it that are mapped so far.
///
/// A location is a relative path. It cannot be absolute, or lead out of the folder, be it by ".." or by a symbolic link:
/// models come from strangers, and must not make a program read other files.
class ExternalData {
 public:
  /// `folder` "" with `allowed` false: the data are refused, since nobody said where they lie.
  /// `in_memory`: contents that the caller holds, by location; they come before the folder.
  ExternalData(std::string folder, bool allowed,
               std::map<std::string, std::span<const std::byte>> in_memory = {})
      : folder_(std::move(folder)), allowed_(allowed), in_memory_(std::move(in_memory)) {}

  /// Maps the contents of a tensor whose data_location is EXTERNAL. Throws InvalidArgument or NotFound; the message
  /// names the location, not yet the tensor.
  ConstantPtr read(const ::onnx::TensorProto& tensor, DataType type,
                   std::vector<std::int64_t> dims);

 private:
  /// The contents at a location; `owner` keeps them alive, or is null where the caller does.
  std::span<const std::byte> contents(const std::string& location,
                                      std::shared_ptr<const void>& owner);
  std::shared_ptr<const MappedFile> open(const std::string& location);

  std::string folder_;
  bool allowed_;
  std::map<std::string, std::span<const std::byte>> in_memory_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;
};

}  // namespace backplane::core
