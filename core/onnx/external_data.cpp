// https://onnx.ai/onnx/repo-docs/ExternalData.html
#include "core/onnx/external_data.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"
#include "core/graph/type.hpp"

namespace backplane::core {
namespace {

namespace fs = std::filesystem;

std::uint64_t to_number(const std::string& key, const std::string& value) {
  std::uint64_t number = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || stop != end)
    invalid("its external data have the ", key, " ", quoted(value),
            ", which is no number of bytes");
  return number;
}

/// `path` without links, which exists; throws what the system says.
fs::path resolved(const fs::path& path, const std::string& shown) {
  std::error_code error;
  fs::path result = fs::canonical(path, error);
  if (error) {
    throw Error(Code::NotFound, text("its external data ", quoted(shown), " cannot be opened: ",
                                     error.message(), "; put the file beside the model"));
  }
  return result;
}

}  // namespace

std::shared_ptr<const MappedFile> ExternalData::open(const std::string& location) {
  if (const auto known = files_.find(location); known != files_.end()) return known->second;
  const fs::path relative(location);
  const auto refuse = [&](const char* reason) {
    invalid("its external data are at ", quoted(location), ", ", reason,
            "; they must lie in the model's folder");
  };
  if (location.empty()) invalid("its external data have no location");
  if (location.find('\0') != std::string::npos) refuse("a path with a zero byte");
  if (relative.is_absolute()) refuse("an absolute path");
  const fs::path normal = relative.lexically_normal();
  if (!normal.empty() && *normal.begin() == "..") refuse("which leads out of the folder");
  const fs::path folder = resolved(folder_.empty() ? fs::path(".") : fs::path(folder_), folder_);
  const fs::path target = resolved(folder / relative, location);
  const auto [in_folder, in_target] =
      std::mismatch(folder.begin(), folder.end(), target.begin(), target.end());
  if (in_folder != folder.end()) refuse("a link that leads out of the folder");
  return files_.emplace(location, MappedFile::open(target.string())).first->second;
}

std::span<const std::byte> ExternalData::contents(const std::string& location,
                                                  std::shared_ptr<const void>& owner) {
  if (const auto given = in_memory_.find(location); given != in_memory_.end()) return given->second;
  if (!allowed_) {
    invalid("its contents are external data at ", quoted(location),
            ", but the folder they lie in was not given; load the model by its path, set "
            "external_data to the folder, or give the contents from memory");
  }
  const std::shared_ptr<const MappedFile> file = open(location);
  owner = file;
  return file->bytes();
}

ConstantPtr ExternalData::read(const ::onnx::TensorProto& tensor, DataType type,
                               std::vector<std::int64_t> dims) {
  std::string location;
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> length;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") offset = to_number("offset", entry.value());
    if (entry.key() == "length") length = to_number("length", entry.value());
  }
  if (type == DataType::String) invalid("external data cannot hold strings");
  std::shared_ptr<const void> owner;
  const std::span<const std::byte> all = contents(location, owner);
  const std::uint64_t size = all.size();
  const auto needed = storage_bytes(type, static_cast<std::uint64_t>(element_count(dims)));
  if (!needed) invalid("its shape ", to_string(dims), " has more bytes than 63 bits can count");
  const std::uint64_t taken = length.value_or(*needed);
  if (offset > size || taken > size - offset) {
    invalid("its external data are bytes ", offset, " to ", offset, "+", taken, " of ",
            quoted(location), ", which has only ", size);
  }
  if (taken != *needed) {
    invalid("its external data have ", taken, " bytes, but ", name(type), to_string(dims),
            " takes ", *needed);
  }
  const auto bytes = all.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(taken));
  return std::make_shared<const Constant>(type, std::move(dims), bytes, std::move(owner));
}

}  // namespace backplane::core
