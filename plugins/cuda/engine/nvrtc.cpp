#include "plugins/cuda/engine/nvrtc.hpp"

#include <dlfcn.h>
#include <filesystem>
#include <iterator>
#include <nvrtc.h>

namespace backplane::cuda {
namespace {

void check(nvrtcResult code, const char* call) {
  if (code != NVRTC_SUCCESS)
    throw sdk::Error(BP_INTERNAL, sdk::message(call, ": ", nvrtcGetErrorString(code)));
}

#define NVRTC_CALL(name, ...) check(name(__VA_ARGS__), #name)

/// What every kernel is compiled with, besides the architecture.
constexpr const char* kOptions[] = {"--std=c++17", "--device-as-default-execution-space",
                                    "--disable-warnings"};

/// NVRTC opens libnvrtc-builtins by its bare name and has no run path, so the loader looks for it in LD_LIBRARY_PATH and the
/// system's folders only, and not beside NVRTC, where it lies. What is open already it finds by name.
void open_builtins(int major, int minor) {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&nvrtcVersion), &self) == 0) return;
  const std::filesystem::path file = std::filesystem::path(self.dli_fname).parent_path() /
                                     sdk::message("libnvrtc-builtins.so.", major, '.', minor);
  // Where it is not there NVRTC looks for it by itself, and says so in its log.
  ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
}

/// A program of the library's, ended with this.
class Program {
 public:
  explicit Program(const std::string& source) {
    NVRTC_CALL(nvrtcCreateProgram, &program_, source.c_str(), "kernel.cu", 0, nullptr, nullptr);
  }
  ~Program() { nvrtcDestroyProgram(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  nvrtcProgram get() const { return program_; }

 private:
  nvrtcProgram program_ = nullptr;
};

class Nvrtc final : public Compiler {
 public:
  Nvrtc() {
    int major = 0, minor = 0;
    NVRTC_CALL(nvrtcVersion, &major, &minor);
    version_ = sdk::message("NVRTC ", major, '.', minor);
    for (const char* const option : kOptions) version_ += sdk::message(' ', option);
    open_builtins(major, minor);
    int count = 0;
    NVRTC_CALL(nvrtcGetNumSupportedArchs, &count);
    architectures_.resize(static_cast<std::size_t>(count));
    NVRTC_CALL(nvrtcGetSupportedArchs, architectures_.data());
  }
  std::string version() override { return version_; }
  std::vector<int> architectures() override { return architectures_; }

  std::string compile(const std::string& source, const std::string& architecture) override {
    const Program made(source);
    const nvrtcProgram program = made.get();
    const std::string target = "--gpu-architecture=" + architecture;
    std::vector<const char*> options(std::begin(kOptions), std::end(kOptions));
    options.push_back(target.c_str());
    const nvrtcResult code =
        nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data());
    if (code != NVRTC_SUCCESS) {
      std::size_t size = 0;
      nvrtcGetProgramLogSize(program, &size);
      std::string log(size, '\0');
      nvrtcGetProgramLog(program, log.data());
      throw sdk::Error(BP_INTERNAL,
                       sdk::message("nvrtcCompileProgram: ", nvrtcGetErrorString(code),
                                    ": a kernel of this provider does not compile for ",
                                    architecture, ": ", log.c_str()));
    }
    const bool is_code = architecture.rfind("sm_", 0) == 0;
    std::size_t size = 0;
    check(is_code ? nvrtcGetCUBINSize(program, &size) : nvrtcGetPTXSize(program, &size),
          "nvrtcGet...Size");
    std::string image(size, '\0');
    check(is_code ? nvrtcGetCUBIN(program, image.data()) : nvrtcGetPTX(program, image.data()),
          "nvrtcGet...");
    return image;
  }

 private:
  std::string version_;
  std::vector<int> architectures_;
};

}  // namespace

std::unique_ptr<Compiler> open_nvrtc() { return std::make_unique<Nvrtc>(); }

#undef NVRTC_CALL

}  // namespace backplane::cuda
