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

constexpr int kMostLinks = 40;  // that lead to a model; as many as Linux follows

bool is_below(const fs::path& folder, const fs::path& file) {
  return std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first ==
         folder.end();
}

/// `folder` without links; throws what the system says.
fs::path resolved(const fs::path& folder) {
  std::error_code error;
  fs::path result = fs::canonical(folder.empty() ? fs::path(".") : folder, error);
  if (error) {
    throw Error(Code::NotFound, text("the folder of its external data, ", quoted(folder.string()),
                                     ", cannot be opened: ", error.message()));
  }
  return result;
}

/// Of a location that leads to no file.
[[noreturn]] void cannot_open(const std::string& location, const fs::path& file,
                              const std::error_code& reason) {
  std::error_code ignored;
  const fs::path end = fs::read_symlink(file, ignored);
  const std::string link = ignored ? "" : text(", a link to ", quoted(end.string()), ",");
  throw Error(Code::NotFound,
              text("its external data ", quoted(location), link,
                   " cannot be opened: ", reason.message(), "; put the file beside the model"));
}

}  // namespace

void ExternalData::find_folders() {
  if (!folders_.empty()) return;
  fs::path model = place_;
  std::error_code ignored;
  if (!fs::is_regular_file(model, ignored)) {
    folders_ = {resolved(model)};
    may_lie_below_ = folders_;
    return;
  }
  for (int i = 0; i < kMostLinks; ++i) {
    fs::path folder = resolved(model.parent_path());
    if (std::find(folders_.begin(), folders_.end(), folder) == folders_.end())
      folders_.push_back(std::move(folder));
    const fs::path next = fs::read_symlink(model, ignored);
    if (ignored) break;
    model = next.is_absolute() ? next : model.parent_path() / next;
  }
  may_lie_below_ = {folders_.front()};
  // A link to what has no place, such as /proc/self/fd/3 to memory, vouches for no folder.
  const fs::path file = fs::canonical(place_, ignored);
  if (!ignored) may_lie_below_.push_back(file.parent_path());
}

fs::path ExternalData::file_at(const std::string& location) {
  const fs::path relative(location);
  const auto refuse = [&](const auto&... reason) {
    invalid("its external data are at ", quoted(location), ", ", reason...);
  };
  constexpr const char* kInFolder = "; they must lie in the model's folder";
  if (location.empty()) invalid("its external data have no location");
  if (location.find('\0') != std::string::npos) refuse("a path with a zero byte", kInFolder);
  if (relative.is_absolute()) refuse("an absolute path", kInFolder);
  const fs::path normal = relative.lexically_normal();
  if (!normal.empty() && *normal.begin() == "..")
    refuse("which leads out of the folder", kInFolder);
  find_folders();
  std::error_code absent;
  for (const fs::path& folder : folders_) {
    std::error_code error;
    if (!fs::exists(fs::symlink_status(folder / relative, error))) {
      if (!absent) absent = error;
      continue;
    }
    fs::path file = fs::canonical(folder / relative, error);
    if (error) cannot_open(location, folder / relative, error);
    if (std::any_of(may_lie_below_.begin(), may_lie_below_.end(),
                    [&](const fs::path& allowed) { return is_below(allowed, file); }))
      return file;
    refuse(
        "a link that leads out of the folder, to ", quoted(file.string()),
        "; links may lead to where the model itself lies, and nowhere else: put the file there in "
        "place of the link, as `cp -L` does");
  }
  cannot_open(location, folders_.front() / relative, absent);
}

std::shared_ptr<const MappedFile> ExternalData::open(const std::string& location) {
  if (const auto known = files_.find(location); known != files_.end()) return known->second;
  return files_.emplace(location, MappedFile::open(file_at(location).string())).first->second;
}

std::span<const std::byte> ExternalData::contents(const std::string& location,
                                                  std::shared_ptr<const void>& owner) {
  if (const auto given = in_memory_.find(location); given != in_memory_.end()) return given->second;
  if (!allowed_) {
    invalid("its contents are external data at ", quoted(location),
            ", but the folder they lie in was not given; load the model by its path, set "
            "external_data to the folder or to the model's file, or give the contents from memory");
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
