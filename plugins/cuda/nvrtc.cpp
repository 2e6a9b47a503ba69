#include "plugins/cuda/nvrtc.hpp"

#include <nvrtc.h>

#include "plugins/cuda/libraries.hpp"

#define NVRTC_FUNCTION(name) decltype(&::name) name##_ = load<decltype(&::name)>(#name)
#define NVRTC_TEXT_(number) #number
#define NVRTC_TEXT(number) NVRTC_TEXT_(number)

namespace backplane::cuda {
namespace {

constexpr char kName[] = "libnvrtc.so." NVRTC_TEXT(BACKPLANE_CUDA_MAJOR);
constexpr char kAdvice[] =
    ": it comes with the CUDA toolkit; tools/setup --cuda brings it, LD_LIBRARY_PATH may name its "
    "folder";

class Nvrtc final : public Compiler {
 public:
  Nvrtc() : library_(kName, kAdvice) {
    int major = 0, minor = 0;
    check(nvrtcVersion_(&major, &minor), "nvrtcVersion");
    version_ = sdk::message("NVRTC ", major, '.', minor);
    int count = 0;
    check(nvrtcGetNumSupportedArchs_(&count), "nvrtcGetNumSupportedArchs");
    architectures_.resize(static_cast<std::size_t>(count));
    check(nvrtcGetSupportedArchs_(architectures_.data()), "nvrtcGetSupportedArchs");
  }
  std::string version() override { return version_; }
  std::vector<int> architectures() override { return architectures_; }

  std::string compile(const std::string& source, const std::string& architecture) override {
    nvrtcProgram program = nullptr;
    check(nvrtcCreateProgram_(&program, source.c_str(), "kernel.cu", 0, nullptr, nullptr),
          "nvrtcCreateProgram");
    try {
      std::string image = compile(program, architecture);
      nvrtcDestroyProgram_(&program);
      return image;
    } catch (...) {
      nvrtcDestroyProgram_(&program);
      throw;
    }
  }

 private:
  template <class Pointer>
  Pointer load(const char* name) const {
    return reinterpret_cast<Pointer>(library_.find(name));
  }
  void check(nvrtcResult code, const char* call) const {
    if (code != NVRTC_SUCCESS)
      throw sdk::Error(BP_INTERNAL, sdk::message(call, ": ", nvrtcGetErrorString_(code)));
  }

  std::string compile(nvrtcProgram program, const std::string& architecture) const {
    const std::string target = "--gpu-architecture=" + architecture;
    const char* const options[] = {target.c_str(), "--std=c++17",
                                   "--device-as-default-execution-space", "--disable-warnings"};
    const nvrtcResult code = nvrtcCompileProgram_(program, 4, options);
    if (code != NVRTC_SUCCESS) {
      std::size_t size = 0;
      nvrtcGetProgramLogSize_(program, &size);
      std::string log(size, '\0');
      nvrtcGetProgramLog_(program, log.data());
      throw sdk::Error(BP_INTERNAL,
                       sdk::message("nvrtcCompileProgram: ", nvrtcGetErrorString_(code),
                                    ": a kernel of this provider does not compile for ",
                                    architecture, ": ", log.c_str()));
    }
    const bool is_code = architecture.rfind("sm_", 0) == 0;
    std::size_t size = 0;
    check(is_code ? nvrtcGetCUBINSize_(program, &size) : nvrtcGetPTXSize_(program, &size),
          "nvrtcGet...Size");
    std::string image(size, '\0');
    check(is_code ? nvrtcGetCUBIN_(program, image.data()) : nvrtcGetPTX_(program, image.data()),
          "nvrtcGet...");
    return image;
  }

  SharedLibrary library_;
  NVRTC_FUNCTION(nvrtcVersion);
  NVRTC_FUNCTION(nvrtcGetErrorString);
  NVRTC_FUNCTION(nvrtcGetNumSupportedArchs);
  NVRTC_FUNCTION(nvrtcGetSupportedArchs);
  NVRTC_FUNCTION(nvrtcCreateProgram);
  NVRTC_FUNCTION(nvrtcDestroyProgram);
  NVRTC_FUNCTION(nvrtcCompileProgram);
  NVRTC_FUNCTION(nvrtcGetProgramLogSize);
  NVRTC_FUNCTION(nvrtcGetProgramLog);
  NVRTC_FUNCTION(nvrtcGetCUBINSize);
  NVRTC_FUNCTION(nvrtcGetCUBIN);
  NVRTC_FUNCTION(nvrtcGetPTXSize);
  NVRTC_FUNCTION(nvrtcGetPTX);
  std::string version_;
  std::vector<int> architectures_;
};

}  // namespace

const char* nvrtc_name() { return kName; }

void require_nvrtc() { require_library(kName, kAdvice); }

std::unique_ptr<Compiler> load_nvrtc() { return std::make_unique<Nvrtc>(); }

}  // namespace backplane::cuda
