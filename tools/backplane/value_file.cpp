#include "tools/backplane/value_file.hpp"

#include <algorithm>
#include <cctype>

#include "tools/backplane/elements.hpp"
#include "tools/backplane/failure.hpp"
#include "tools/backplane/input_file.hpp"
#include "tools/backplane/npy.hpp"

namespace backplane::cli {
namespace {

constexpr std::size_t kMaxStem =
    200;  // file systems take 255 bytes, the suffix and a number included

std::string lower_suffix(const std::filesystem::path& path) {
  std::string suffix = path.extension().string();
  for (char& c : suffix) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return suffix;
}

}  // namespace

std::string proto_kind(const std::string& type) {
  if (type.rfind("seq(", 0) == 0) return "sequence";
  if (is_optional(type)) return "optional";
  return "tensor";
}

bool is_optional(const std::string& type) { return type.rfind("optional(", 0) == 0; }

Value empty_optional() { return Value::parse("optional", "", 0); }

Value read_value(const std::filesystem::path& path, const std::string& type,
                 const HeaderCheck& check) {
  const std::string suffix = lower_suffix(path);
  if (suffix == ".npy") return read_npy(path, tensor_element(type), check);
  if (suffix != ".pb") {
    wrong_request(
        "'", path.string(),
        "' is neither a .npy nor a .pb file: give a numpy array or a serialized TensorProto");
  }
  InputFile file(path);
  const std::string content = file.read_all();
  try {
    return Value::parse(proto_kind(type), content.data(), content.size());
  } catch (const Error& error) {
    const std::string how = type.empty() ? "" : "; it was read as what the model wants, a " + type;
    throw Failure(exit_code_of_load(error.code()),
                  content.empty() ? text(file.name(), " is empty")
                                  : text(file.name(), ": ", error.what(), how));
  }
}

std::string file_suffix(const ValueView& value) {
  return npy_holds(value.element_type()) ? ".npy" : ".pb";
}

std::vector<std::string> file_suffixes(const std::string& type) {
  if (type.rfind("seq(", 0) == 0) return {".pb"};
  if (type.rfind("tensor(", 0) != 0) return {".npy", ".pb"};
  return {npy_holds(tensor_element(type)) ? ".npy" : ".pb"};
}

void write_value(const ValueView& value, const Append& append) {
  if (npy_holds(value.element_type())) {
    write_npy(value, append);
    return;
  }
  const std::string content = value.serialize();
  append(content.data(), content.size());
}

std::string FileNames::stem(const std::string& name) {
  std::string safe;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0) == 0x80) continue;  // a later byte of a UTF-8 character
    const bool is_safe =
        byte < 0x80 && (std::isalnum(byte) != 0 || c == '.' || c == '_' || c == '-');
    safe += is_safe ? c : '_';
  }
  safe.resize(std::min(safe.size(), kMaxStem));
  if (safe.empty()) safe = "_";
  std::string stem = safe;
  for (int number = 1; std::find(taken_.begin(), taken_.end(), stem) != taken_.end(); ++number) {
    stem = safe + "_" + std::to_string(number);
  }
  taken_.push_back(stem);
  return stem;
}

}  // namespace backplane::cli
