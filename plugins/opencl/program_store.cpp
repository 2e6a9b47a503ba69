#include "plugins/opencl/program_store.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace backplane::opencl {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[] = "backplane opencl program 1\n";
/// Nothing that changes results: kernels say themselves where they contract or approximate.
constexpr char kBuildOptions[] = "-cl-std=CL1.2 -w";

/// FNV-1a.
std::uint64_t hash(std::string_view bytes, std::uint64_t seed) {
  std::uint64_t value = 0xCBF29CE484222325u ^ seed;
  for (const char byte : bytes) value = (value ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
  return value;
}

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
std::optional<std::string_view> read_entry(std::string_view rest, std::string_view key) {
  std::string_view magic, found_key, binary;
  std::uint64_t key_size = 0, binary_size = 0, sum = 0;
  if (!take(rest, std::strlen(kMagic), magic) || magic != kMagic) return std::nullopt;
  if (!take_number(rest, key_size) || !take(rest, key_size, found_key) || found_key != key)
    return std::nullopt;
  if (!take_number(rest, binary_size) || !take_number(rest, sum) ||
      !take(rest, binary_size, binary) || !rest.empty())
    return std::nullopt;
  if (hash(binary, 0) != sum) return std::nullopt;
  return binary;
}

std::string build_log(cl_program program, cl_device_id device) {
  std::size_t size = 0;
  clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
  std::string text(size, '\0');
  clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, text.data(), nullptr);
  return text.substr(0, text.find('\0'));
}

}  // namespace

std::string default_cache_dir() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return std::string(cache) + "/backplane/opencl";
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return std::string(home) + "/.cache/backplane/opencl";
  return "";
}

ProgramStore::ProgramStore(cl_context context, cl_device_id device, std::string device_key,
                           std::string folder)
    : context_(context),
      device_(device),
      device_key_(std::move(device_key)),
      folder_(std::move(folder)) {}

ProgramStore::Counts ProgramStore::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::string ProgramStore::key_of(const std::string& source) const {
  return device_key_ + '\n' + kBuildOptions + '\n' + source;
}

std::string ProgramStore::path_of(const std::string& key) const {
  std::ostringstream name;
  name << std::hex << hash(key, 0) << '-' << hash(key, 0x9E3779B97F4A7C15u) << ".program";
  return folder_ + '/' + name.str();
}

std::shared_ptr<const Program> ProgramStore::get(const std::string& source) {
  // Held while a program is built: several nodes of a plan want the same one, and building it twice
  // would cost more than waiting.
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Program>& program = programs_[source];
  if (program != nullptr) return program;
  const std::string key = key_of(source);
  if (!folder_.empty()) {
    if (std::optional<Program> found = from_disk(key)) {
      ++counts_.read;
      return program = std::make_shared<const Program>(std::move(*found));
    }
  }
  auto built = std::make_shared<const Program>(build(source));
  ++counts_.built;
  if (!folder_.empty()) to_disk(key, *built);
  return program = std::move(built);
}

std::optional<Program> ProgramStore::from_disk(const std::string& key) const {
  std::ifstream file(path_of(key), std::ios::binary);
  if (!file) return std::nullopt;
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::optional<std::string_view> binary = read_entry(bytes, key);
  if (!binary) return std::nullopt;
  const std::size_t size = binary->size();
  const auto* data = reinterpret_cast<const unsigned char*>(binary->data());
  cl_int loaded = CL_SUCCESS, code = CL_SUCCESS;
  Program program(clCreateProgramWithBinary(context_, 1, &device_, &size, &data, &loaded, &code));
  if (code != CL_SUCCESS || loaded != CL_SUCCESS) return std::nullopt;
  if (clBuildProgram(program.get(), 1, &device_, kBuildOptions, nullptr, nullptr) != CL_SUCCESS)
    return std::nullopt;
  return program;
}

Program ProgramStore::build(const std::string& source) const {
  const char* text = source.c_str();
  cl_int code = CL_SUCCESS;
  Program program(clCreateProgramWithSource(context_, 1, &text, nullptr, &code));
  check_cl(code, "clCreateProgramWithSource");
  code = clBuildProgram(program.get(), 1, &device_, kBuildOptions, nullptr, nullptr);
  if (code != CL_SUCCESS) {
    throw_cl(code, "clBuildProgram",
             "a kernel of this provider does not compile on " +
                 device_text(device_, CL_DEVICE_NAME) + ": " + build_log(program.get(), device_));
  }
  return program;
}

void ProgramStore::to_disk(const std::string& key, const Program& program) {
  std::size_t size = 0;
  if (clGetProgramInfo(program.get(), CL_PROGRAM_BINARY_SIZES, sizeof(size), &size, nullptr) !=
          CL_SUCCESS ||
      size == 0)
    return;
  std::string binary(size, '\0');
  auto* data = reinterpret_cast<unsigned char*>(binary.data());
  if (clGetProgramInfo(program.get(), CL_PROGRAM_BINARIES, sizeof(data), &data, nullptr) !=
      CL_SUCCESS)
    return;
  std::string entry = kMagic;
  append_number(entry, key.size());
  entry += key;
  append_number(entry, binary.size());
  append_number(entry, hash(binary, 0));
  entry += binary;

  static std::atomic<unsigned> counter{0};
  const std::string path = path_of(key);
  const std::string temporary = sdk::message(path, '.', getpid(), '.', counter++);
  std::error_code error;
  fs::create_directories(folder_, error);
  bool is_written = false;
  {
    std::ofstream file(temporary, std::ios::binary);
    file << entry;
    file.close();
    is_written = !file.fail();
  }
  if (is_written) fs::rename(temporary, path, error);
  if (is_written && !error) return;
  fs::remove(temporary, error);
  if (warned_) return;
  warned_ = true;
  const std::string text =
      sdk::message("programs cannot be kept in ", folder_,
                   ", so each process builds them again; check the folder's rights and the disk's "
                   "space, or set option cache_dir");
  sdk::host().log(BP_LOG_WARNING, text.data(), text.size());
}

}  // namespace backplane::opencl
