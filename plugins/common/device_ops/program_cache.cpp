#include "plugins/common/device_ops/program_cache.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <system_error>
#include <unistd.h>

#include "plugins/common/device_ops/provider.hpp"

namespace backplane::device_ops {
namespace {

namespace fs = std::filesystem;

void append_number(std::string& to, std::uint64_t number) {
  char bytes[sizeof(number)];
  std::memcpy(bytes, &number, sizeof(number));
  to.append(bytes, sizeof(number));
}

/// Takes a piece of known size off the front; false when the bytes end too early.
bool take(std::string_view& rest, std::size_t size, std::string_view& piece) {
  if (rest.size() < size) return false;
  piece = rest.substr(0, size);
  rest.remove_prefix(size);
  return true;
}

bool take_number(std::string_view& rest, std::uint64_t& number) {
  std::string_view piece;
  if (!take(rest, sizeof(number), piece)) return false;
  std::memcpy(&number, piece.data(), sizeof(number));
  return true;
}

/// The binary in an entry's bytes; nothing when the entry is not whole, or is another key's.
std::optional<std::string_view> read_entry(std::string_view rest, const std::string& magic,
                                           std::string_view key) {
  std::string_view found_magic, found_key, binary;
  std::uint64_t key_size = 0, binary_size = 0, sum = 0;
  if (!take(rest, magic.size(), found_magic) || found_magic != magic) return std::nullopt;
  if (!take_number(rest, key_size) || !take(rest, key_size, found_key) || found_key != key)
    return std::nullopt;
  if (!take_number(rest, binary_size) || !take_number(rest, sum) ||
      !take(rest, binary_size, binary) || !rest.empty())
    return std::nullopt;
  if (hash_of(binary) != sum) return std::nullopt;
  return binary;
}

}  // namespace

std::uint64_t hash_of(std::string_view bytes, std::uint64_t seed) {
  std::uint64_t value = 0xCBF29CE484222325u ^ seed;
  for (const char byte : bytes) value = (value ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
  return value;
}

std::string file_name_of(std::string_view key) {
  return sdk::message(std::hex, hash_of(key), '-', hash_of(key, 0x9E3779B97F4A7C15u));
}

std::string cache_folder(const std::string& option) {
  if (option == "off") return "";
  if (option != "auto") return option;
  const std::string folder = sdk::message("/backplane/", provider_name());
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return cache + folder;
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return std::string(home) + "/.cache" + folder;
  static std::atomic<bool> is_told{false};
  if (!is_told.exchange(true)) {
    const std::string text = sdk::message(
        "provider '", provider_name(),
        "' keeps no kernels, so each process compiles and tunes them again: neither "
        "XDG_CACHE_HOME nor HOME is a folder; set one, or option cache_dir ('off' for none)");
    sdk::host().log(BP_LOG_WARNING, text.data(), text.size());
  }
  return "";
}

std::string ProgramCache::path_of(const std::string& key) const {
  return folder_ + '/' + file_name_of(key) + '.' + kind_;
}

std::optional<std::string> ProgramCache::read(const std::string& key) const {
  if (folder_.empty()) return std::nullopt;
  const std::string path = path_of(key);
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);  // of a regular file alone
  std::ifstream file;
  if (!error) file.open(path, std::ios::binary);
  if (!file.is_open()) return std::nullopt;
  std::string bytes(size, '\0');
  if (!file.read(bytes.data(), static_cast<std::streamsize>(size))) return std::nullopt;
  const std::optional<std::string_view> binary = read_entry(bytes, magic(), key);
  return binary ? std::optional<std::string>(*binary) : std::nullopt;
}

void ProgramCache::write(const std::string& key, std::string_view binary) {
  if (folder_.empty()) return;
  std::string entry = magic();
  append_number(entry, key.size());
  entry += key;
  append_number(entry, binary.size());
  append_number(entry, hash_of(binary));
  entry += binary;

  static std::atomic<unsigned> counter{0};
  const std::string path = path_of(key);
  const std::string temporary = sdk::message(path, '.', getpid(), '.', counter++);
  std::error_code error;
  fs::create_directories(folder_, error);
  bool is_written = false;
  {
    std::ofstream file(temporary, std::ios::binary);
    file.write(entry.data(), static_cast<std::streamsize>(entry.size()));
    file.close();
    is_written = !file.fail();
  }
  if (is_written) fs::rename(temporary, path, error);
  if (is_written && !error) return;
  const std::string reason =
      is_written ? sdk::message(" (", path, ": ", error.message(), ")") : std::string();
  fs::remove(temporary, error);
  if (warned_) return;
  warned_ = true;
  const std::string text =
      sdk::message(kind_, "s cannot be kept in ", folder_, reason,
                   ", so each process makes them again; check the folder's rights and the disk's "
                   "space, or set option cache_dir");
  sdk::host().log(BP_LOG_WARNING, text.data(), text.size());
}

}  // namespace backplane::device_ops
