// Configuration files (TOML) and environment variables.
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sys/auxv.h>

#include <toml++/toml.h>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"
#include "core/config/option_values.hpp"
#include "core/config/options.hpp"

namespace backplane::core {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFileBytes = 1u << 20;
constexpr int kMaxParts = 32;  // of a key; options have three or so

std::string read_text(const fs::path& path) {
  const std::string name = core::quoted(path.string());
  std::error_code error;
  if (fs::is_directory(path, error)) invalid("configuration file ", name, " is a folder");
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    if (!fs::exists(path, error)) {
      throw Error(Code::NotFound, text("configuration file ", name, " does not exist"));
    }
    invalid("configuration file ", name, " cannot be read");
  }
  std::string content(kMaxFileBytes + 1, '\0');
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  content.resize(static_cast<std::size_t>(file.gcount()));
  if (content.size() > kMaxFileBytes) {
    invalid("configuration file ", name, " is larger than ", kMaxFileBytes,
            " bytes: not a configuration");
  }
  return content;
}

/// Behind the quoted text that begins at `i`; counts its lines.
std::size_t end_of_quoted(const std::string& content, std::size_t i, int& line) {
  const char c = content[i];
  const std::string triple(3, c),
      quote = content.compare(i, 3, triple) == 0 ? triple : triple.substr(2);
  for (i += quote.size(); i < content.size() && content.compare(i, quote.size(), quote) != 0; ++i) {
    if (content[i] == '\n') ++line;
    if (content[i] == '\n' && quote.size() == 1) break;  // the parser will say that it has no end
    if (content[i] == '\\' && c == '"') ++i;
  }
  return i + quote.size();
}

/// Refuses keys of many parts: the parser nests tables as deep as there are parts, and frees them call within call.
void check_keys(const std::string& content, const fs::path& path) {
  int line = 1, parts = 1;
  for (std::size_t i = 0; i < content.size();) {
    const char c = content[i];
    if (c == '#') {
      i = std::min(content.find('\n', i), content.size());
      continue;
    }
    if (c == '"' || c == '\'') {  // may be a part
      i = end_of_quoted(content, i, line);
      continue;
    }
    if (c == '.') ++parts;
    if (parts > kMaxParts)
      invalid(path.string(), ":", line, ": a key of more than ", kMaxParts, " parts is no option");
    const bool is_in_key =
        std::isalnum(static_cast<unsigned char>(c)) != 0 || std::strchr("._- \t", c) != nullptr;
    if (!is_in_key) parts = 1;
    if (c == '\n') ++line;
    ++i;
  }
}

/// Walks a file's tables and sets what it finds.
class FileReader {
 public:
  FileReader(Options& options, const fs::path& path)
      : options_(options), path_(path), folder_(fs::absolute(path).parent_path()) {}

  void read(const toml::table& table, const std::string& prefix = "", int depth = 1) {
    for (const auto& [key, node] : table) {
      const std::string name = prefix + std::string(key.str());
      if (const toml::table* inner = node.as_table()) {
        if (name == "place") {
          fail(node,
               "'place' must be a list, place = [\"PATTERN=PROVIDER\", ...]: the order of rules "
               "counts");
        }
        if (depth == kMaxParts)
          fail(node, text("more than ", kMaxParts, " tables within each other are no option"));
        read(*inner, name + ".", depth + 1);
        continue;
      }
      try {
        set_option(options_, name, value_of(name, node));
      } catch (const Error& error) {
        throw error.within(place(node));
      }
    }
  }

 private:
  OptionValue value_of(const std::string& name, const toml::node& node) const {
    OptionValue value{{}, node.is_array(), folder_};
    if (const toml::array* list = node.as_array()) {
      for (const toml::node& element : *list) value.values.push_back(scalar(name, element));
    } else {
      value.values.push_back(scalar(name, node));
    }
    return value;
  }

  static std::string scalar(const std::string& name, const toml::node& node) {
    if (const auto* word = node.as_string()) return word->get();
    if (const auto* integer = node.as_integer()) return std::to_string(integer->get());
    if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
    if (const auto* real = node.as_floating_point()) return shortest(real->get());
    invalid("option ", core::quoted(name), " takes a string, a number or a truth value");
  }

  /// The shortest text that gives the number back.
  static std::string shortest(double number) {
    std::array<char, 32> digits{};
    const std::to_chars_result end =
        std::to_chars(digits.data(), digits.data() + digits.size(), number);
    return {digits.data(), end.ptr};
  }

  std::string place(const toml::node& node) const {
    return text(path_.string(), ":", node.source().begin.line);
  }
  [[noreturn]] void fail(const toml::node& node, const std::string& message) const {
    invalid(place(node), ": ", message);
  }

  Options& options_;
  fs::path path_;
  fs::path folder_;
};

}  // namespace

void Options::read_file(const fs::path& path) {
  const std::string content = read_text(path);
  check_keys(content, path);
  toml::table table;
  try {
    table = toml::parse(content, path.string());
  } catch (const toml::parse_error& error) {
    invalid(path.string(), ":", error.source().begin.line, ": ", single_line(error.description()));
  }
  Options changed = *this;  // a file with an error in it changes nothing
  FileReader(changed, path).read(table);
  changed.session.files.push_back(fs::absolute(path));
  *this = std::move(changed);
}

void Options::read_environment() {
  if (getauxval(AT_SECURE) != 0) return;  // the caller is not whom this program acts for
  const auto variable = [](const char* name) -> const char* {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0' ? value : nullptr;
  };
  Options changed = *this;
  if (const char* path = variable("BACKPLANE_CONFIG")) {
    try {
      changed.read_file(path);
    } catch (const Error& error) {
      throw error.within("BACKPLANE_CONFIG");
    }
  }
  const auto take = [&](const char* name, const char* key) {
    const char* value = variable(name);
    if (value == nullptr) return;
    try {
      changed.set(key, value);
    } catch (const Error& error) {
      throw error.within(name);
    }
  };
  take("BACKPLANE_PROVIDERS", "providers");
  take("BACKPLANE_PLUGIN_PATH", "environment.plugin_path");
  *this = std::move(changed);
}

}  // namespace backplane::core
