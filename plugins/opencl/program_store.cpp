#include "plugins/opencl/program_store.hpp"

#include <exception>

#include "plugins/opencl/kept_signals.hpp"

namespace backplane::opencl {
namespace {

/// Nothing that changes results: kernels say themselves where they contract or approximate.
constexpr char kBuildOptions[] = "-cl-std=CL1.2 -w";

std::string build_log(cl_program program, cl_device_id device) {
  std::size_t size = 0;
  clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
  std::string text(size, '\0');
  clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, text.data(), nullptr);
  return text.substr(0, text.find('\0'));
}

}  // namespace

Kernel BuiltProgram::take(const std::string& where) const {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      Kernel kernel = std::move(idle_.back());
      idle_.pop_back();
      return kernel;
    }
  }
  cl_int code = CL_SUCCESS;
  Kernel kernel(clCreateKernel(program_.get(), "run", &code));
  if (code != CL_SUCCESS) throw_cl(code, "clCreateKernel", where);
  return kernel;
}

void BuiltProgram::give_back(Kernel kernel) const noexcept {
  try {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(kernel));
  } catch (const std::exception&) {  // no memory to keep it with: it is released
  }
}

ProgramStore::ProgramStore(cl_context context, cl_device_id device, std::string device_key,
                           std::string folder)
    : context_(context),
      device_(device),
      device_key_(std::move(device_key)),
      cache_(std::move(folder)) {}

ProgramStore::Counts ProgramStore::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::string ProgramStore::key_of(const std::string& source) const {
  return device_key_ + '\n' + kBuildOptions + '\n' + source;
}

std::shared_ptr<const BuiltProgram> ProgramStore::get(const std::string& source) {
  // Held while a program is built: several nodes of a plan want the same one, and building it twice
  // would cost more than waiting.
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const BuiltProgram>& program = programs_[source];
  if (program != nullptr) return program;
  const KeptSignals kept;
  const std::string key = key_of(source);
  if (std::optional<Program> found = from_disk(key)) {
    ++counts_.read;
    return program = std::make_shared<const BuiltProgram>(std::move(*found));
  }
  Program built = build(source);
  ++counts_.built;
  to_disk(key, built);
  return program = std::make_shared<const BuiltProgram>(std::move(built));
}

std::optional<Program> ProgramStore::from_disk(const std::string& key) const {
  const std::optional<std::string> binary = cache_.read(key);
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
  if (!cache_.keeps()) return;  // PoCL compiles a second time for who asks for the binary
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
  cache_.write(key, binary);
}

}  // namespace backplane::opencl
