#include "plugins/cuda/engine/nvrtc.hpp"

#include <nvrtc.h>

namespace backplane::cuda {
namespace {

void check(nvrtcResult code, const char* call) {
  if (code != NVRTC_SUCCESS)
    throw sdk::Error(BP_INTERNAL, sdk::message(call, ": ", nvrtcGetErrorString(code)));
}

#define NVRTC_CALL(name, ...) check(name(__VA_ARGS__), #name)

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
    const char* const options[] = {target.c_str(), "--std=c++17",
                                   "--device-as-default-execution-space", "--disable-warnings"};
    const nvrtcResult code = nvrtcCompileProgram(program, 4, options);
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
