// Tensor contents in files beside the model.
#pragma once

#include <map>
#include <memory>
#include <onnx/onnx_pb.h>
#include <string>

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
  ExternalData(std::string folder, bool allowed) : folder_(std::move(folder)), allowed_(allowed) {}

  /// Maps the contents of a tensor whose data_location is EXTERNAL. Throws InvalidArgument or NotFound; the message
  /// names the location, not yet the tensor.
  ConstantPtr read(const ::onnx::TensorProto& tensor, DataType type,
                   std::vector<std::int64_t> dims);

 private:
  std::shared_ptr<const MappedFile> open(const std::string& location);

  std::string folder_;
  bool allowed_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;
};

}  // namespace backplane::core
