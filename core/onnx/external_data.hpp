// Tensor contents in files beside the model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <onnx/onnx_pb.h>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/mapped_file.hpp"
#include "core/graph/constant.hpp"

namespace backplane::core {

/// Where a model's external data lie, and the files of it that are mapped so far.
///
/// A location is a relative path, taken from the folder of the model; where the model's path is a symbolic link and
/// nothing is there, from the folder of what it links to. Models come from strangers, and archives with links do: they must
/// not make a program read other files. So a location cannot be absolute or lead out of the folder by "..", and the file
/// that is found, all links followed, lies below the folder in which the model's path is or below the one in which the
/// model's bytes are. The latter is what caches of downloads need, whose models and data are links to files that lie side
/// by side; it gives nothing away, since who can put a model there can put data there. Data that are a link to
/// elsewhere are refused though the same user made both: nothing tells such a link from one in a hostile archive.
class ExternalData {
 public:
  /// `place`: the model's file, or the folder that stands for its; then links lead nowhere else. "" with `allowed`
  /// false: the data are refused, since nobody said where they lie; else it is the working folder.
  /// `in_memory`: contents that the caller holds, by location; they come before the folder.
  ExternalData(std::string place, bool allowed,
               std::map<std::string, std::span<const std::byte>> in_memory = {})
      : place_(std::move(place)), allowed_(allowed), in_memory_(std::move(in_memory)) {}

  /// Maps the contents of a tensor whose data_location is EXTERNAL. Throws InvalidArgument or NotFound; the message
  /// names the location, not yet the tensor.
  ConstantPtr read(const ::onnx::TensorProto& tensor, DataType type,
                   std::vector<std::int64_t> dims);

 private:
  /// The contents at a location; `owner` keeps them alive, or is null where the caller does.
  std::span<const std::byte> contents(const std::string& location,
                                      std::shared_ptr<const void>& owner);
  std::shared_ptr<const MappedFile> open(const std::string& location);
  /// The file at a location, without links.
  std::filesystem::path file_at(const std::string& location);
  void find_folders();

  std::string place_;
  bool allowed_;
  /// Without links, and none before something is read: where locations start, and where files may be.
  std::vector<std::filesystem::path> folders_, may_lie_below_;
  std::map<std::string, std::span<const std::byte>> in_memory_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;
};

}  // namespace backplane::core
