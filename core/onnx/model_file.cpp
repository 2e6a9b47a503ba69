// https://onnx.ai/onnx/repo-docs/ExternalData.html
#include "core/onnx/model_file.hpp"

#include <filesystem>
#include <optional>
#include <span>

#include "core/base/atomic_file.hpp"
#include "core/base/error.hpp"
#include "core/base/quote.hpp"
#include "core/onnx/exporter.hpp"

namespace backplane::core {
namespace {

constexpr std::uint64_t kLargestProto = (std::uint64_t{1} << 31) - 1;  // of a proto
constexpr std::uint64_t kLargestRest = std::uint64_t{256} << 20;  // of a proto, beside initializers
constexpr std::size_t kLeastExternal = 1024;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kLine = 64;

/// Of what may lie outside.
std::uint64_t contents_bytes(const Graph& graph) {
  std::uint64_t bytes = 0;
  for (const Value& value : graph.values()) {
    if (value.constant != nullptr) bytes += value.constant->stored_bytes().size();
  }
  return bytes;
}

void set_entry(::onnx::TensorProto& proto, const char* key, const std::string& value) {
  auto& entry = *proto.add_external_data();
  entry.set_key(key);
  entry.set_value(value);
}

std::string serialized(const ::onnx::ModelProto& proto) {
  std::string bytes;
  if (proto.ByteSizeLong() > kLargestProto || !proto.SerializeToString(&bytes)) {
    invalid("the model takes ", proto.ByteSizeLong(), " bytes, more than the 2 GiB that one ONNX ",
            "file can have; save it with external data");
  }
  return bytes;
}

}  // namespace

void save_model(const Model& model, const std::string& path, ExternalContents external,
                bool drop_unused) {
  ExportSettings settings;
  settings.drop_unused = drop_unused;
  const bool outside = external == ExternalContents::Always ||
                       (external == ExternalContents::Auto &&
                        contents_bytes(model.graph) > kLargestProto - kLargestRest);
  AtomicFile file(path);
  std::optional<AtomicFile> data;
  const std::string data_path = file.target() + ".data";
  const std::string location = std::filesystem::path(data_path).filename().string();
  if (outside) {
    data.emplace(data_path);
    settings.contents = [&](const ConstantPtr& contents, ::onnx::TensorProto& proto) {
      const std::span<const std::byte> bytes = contents->stored_bytes();
      if (bytes.size() < kLeastExternal) {
        write_inline(contents, proto);
        return;
      }
      data->pad(bytes.size() >= kPage ? kPage : kLine);
      proto.set_data_location(::onnx::TensorProto::EXTERNAL);
      set_entry(proto, "location", location);
      set_entry(proto, "offset", std::to_string(data->size()));
      set_entry(proto, "length", std::to_string(bytes.size()));
      data->write(bytes);
    };
  }
  try {
    const std::string bytes = serialized(export_model(model, settings));
    file.write(std::as_bytes(std::span(bytes.data(), bytes.size())));
  } catch (const Error& error) {
    throw error.within("saving " + quoted(path));
  }
  if (data) data->commit();
  file.commit();
}

std::string serialize_model(const Model& model) { return serialized(export_model(model, {})); }

}  // namespace backplane::core
