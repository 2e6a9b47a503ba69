// A guest on a device of the provider `cuda`: it gets the context, the stream and the addresses as native handles, and
// calls the driver by itself. Driver and NVRTC are opened when a kernel is created, so that the library loads everywhere.
#include "cuda_kernel.hpp"

#include <algorithm>
#include <cstdint>
#include <cuda.h>
#include <dlfcn.h>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <nvrtc.h>
#include <string>
#include <utility>
#include <vector>

#include "backplane/plugin_api/optional/plan_capture.h"

namespace gated_silu {
namespace {

namespace sdk = backplane::sdk;
using sdk::DataType;

/// A shared library, open as long as the process runs.
class Library {
 public:
  Library(const char* name, const char* advice) : handle_(::dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ != nullptr) return;
    const char* const why = ::dlerror();
    sdk::unsupported("GatedSilu on cuda: ", why == nullptr ? name : why, ": ", advice);
  }
  template <class Function>
  Function find(const char* symbol) const {
    void* const address = ::dlsym(handle_, symbol);
    if (address == nullptr) sdk::unsupported("GatedSilu on cuda: there is no ", symbol);
    return reinterpret_cast<Function>(address);
  }

 private:
  void* handle_;
};

#define GATED_SILU_TEXT_(name) #name
#define GATED_SILU_TEXT(name) GATED_SILU_TEXT_(name)
// cuda.h gives a function the name of its current version.
#define GATED_SILU_FUNCTION(name) \
  decltype(&::name) name##_ = library_.find<decltype(&::name)>(GATED_SILU_TEXT(name))

class Driver {
 public:
  static const Driver& get() {
    static const Driver driver;
    return driver;
  }
  void check(CUresult code, const char* call) const {
    if (code == CUDA_SUCCESS) return;
    const char* name = nullptr;
    cuGetErrorName_(code, &name);
    const bool is_lost = code == CUDA_ERROR_ILLEGAL_ADDRESS || code == CUDA_ERROR_LAUNCH_FAILED;
    throw sdk::Error(code == CUDA_ERROR_OUT_OF_MEMORY ? BP_OUT_OF_MEMORY
                     : is_lost                        ? BP_DEVICE_LOST
                                                      : BP_INTERNAL,
                     sdk::message("GatedSilu: ", call, ": ", name == nullptr ? "an error" : name));
  }

 private:
  Library library_{"libcuda.so.1", "there is no NVIDIA driver on this machine"};

 public:
  GATED_SILU_FUNCTION(cuGetErrorName);
  GATED_SILU_FUNCTION(cuCtxGetCurrent);
  GATED_SILU_FUNCTION(cuCtxSetCurrent);
  GATED_SILU_FUNCTION(cuCtxGetDevice);
  GATED_SILU_FUNCTION(cuDeviceGetAttribute);
  GATED_SILU_FUNCTION(cuModuleLoadData);
  GATED_SILU_FUNCTION(cuModuleGetFunction);
  GATED_SILU_FUNCTION(cuModuleUnload);
  GATED_SILU_FUNCTION(cuLaunchKernel);
};

class Compiler {
 public:
  static const Compiler& get() {
    static const Compiler compiler;
    return compiler;
  }
  Compiler() { open_builtins(); }
  /// What to compile for: the device's own code ("sm_90"), or for a device newer than the compiler PTX of the newest that
  /// it knows ("compute_100"). Not PTX for every device: a driver that is older than the compiler does not read its PTX.
  std::string target(int major, int minor) const {
    int count = 0;
    check(nvrtcGetNumSupportedArchs_(&count));
    std::vector<int> known(static_cast<std::size_t>(count));
    check(nvrtcGetSupportedArchs_(known.data()));  // ascending, as 10 * major + minor
    // Code of systems on a chip runs on no other device.
    constexpr int kOnChip[] = {53, 62, 72, 87, 101, 110};
    const int wanted = 10 * major + minor;
    int newest = 0;
    for (const int each : known) {
      const bool is_on_chip = std::count(std::begin(kOnChip), std::end(kOnChip), each) != 0;
      if (each == wanted || (each < wanted && !is_on_chip)) newest = each;
    }
    if (newest == 0)
      sdk::unsupported(
          "GatedSilu on cuda: this NVRTC compiles for no device as old as one of compute "
          "capability ",
          major, '.', minor);
    return sdk::message(newest / 10 == major ? "sm_" : "compute_", newest);
  }
  /// What cuModuleLoadData takes.
  std::string image(const std::string& target) const {
    nvrtcProgram program = nullptr;
    check(nvrtcCreateProgram_(&program, kCudaText, "gated_silu.cu", 0, nullptr, nullptr));
    const auto destroy = [this](nvrtcProgram* made) { nvrtcDestroyProgram_(made); };
    const std::unique_ptr<nvrtcProgram, decltype(destroy)> held(&program, destroy);
    const std::string option = "--gpu-architecture=" + target;
    const char* const options[] = {option.c_str()};
    check(nvrtcCompileProgram_(program, 1, options));
    const bool is_code = target.rfind("sm_", 0) == 0;
    std::size_t size = 0;
    check(is_code ? nvrtcGetCUBINSize_(program, &size) : nvrtcGetPTXSize_(program, &size));
    std::string image(size, '\0');
    check(is_code ? nvrtcGetCUBIN_(program, image.data()) : nvrtcGetPTX_(program, image.data()));
    return image;
  }

 private:
  /// NVRTC looks for its other library everywhere but beside itself; what is open already it finds.
  void open_builtins() const {
    Dl_info self{};
    int major = 0, minor = 0;
    if (nvrtcVersion_(&major, &minor) != NVRTC_SUCCESS ||
        ::dladdr(reinterpret_cast<const void*>(nvrtcVersion_), &self) == 0)
      return;
    const std::string file = self.dli_fname;
    ::dlopen(sdk::message(file.substr(0, file.rfind('/') + 1), "libnvrtc-builtins.so.", major, '.',
                          minor)
                 .c_str(),
             RTLD_NOW | RTLD_LOCAL);
  }
  void check(nvrtcResult code) const {
    if (code != NVRTC_SUCCESS)
      throw sdk::Error(BP_INTERNAL, sdk::message("GatedSilu: NVRTC: ", nvrtcGetErrorString_(code)));
  }
  Library library_{GATED_SILU_NVRTC, "the CUDA toolkit brings it"};
  GATED_SILU_FUNCTION(nvrtcGetErrorString);
  GATED_SILU_FUNCTION(nvrtcVersion);
  GATED_SILU_FUNCTION(nvrtcCreateProgram);
  GATED_SILU_FUNCTION(nvrtcDestroyProgram);
  GATED_SILU_FUNCTION(nvrtcCompileProgram);
  GATED_SILU_FUNCTION(nvrtcGetPTXSize);
  GATED_SILU_FUNCTION(nvrtcGetPTX);
  GATED_SILU_FUNCTION(nvrtcGetCUBINSize);
  GATED_SILU_FUNCTION(nvrtcGetCUBIN);
  GATED_SILU_FUNCTION(nvrtcGetNumSupportedArchs);
  GATED_SILU_FUNCTION(nvrtcGetSupportedArchs);
};

/// A context, current on this thread as long as this lives.
class Entered {
 public:
  explicit Entered(CUcontext wanted) {
    Driver::get().check(Driver::get().cuCtxGetCurrent_(&former_), "cuCtxGetCurrent");
    Driver::get().check(Driver::get().cuCtxSetCurrent_(wanted), "cuCtxSetCurrent");
  }
  ~Entered() { Driver::get().cuCtxSetCurrent_(former_); }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  CUcontext former_ = nullptr;
};

/// The compiled kernel in a device's context.
class Module {
 public:
  /// `context` is current.
  Module(CUcontext context, const std::string& target) : context_(context) {
    const Driver& driver = Driver::get();
    const std::string image = Compiler::get().image(target);
    driver.check(driver.cuModuleLoadData_(&module_, image.c_str()), "cuModuleLoadData");
    const CUresult code = driver.cuModuleGetFunction_(&function_, module_, "gated_silu");
    if (code != CUDA_SUCCESS) driver.cuModuleUnload_(module_);
    driver.check(code, "cuModuleGetFunction");
  }
  ~Module() {
    CUcontext former = nullptr;
    Driver::get().cuCtxGetCurrent_(&former);
    Driver::get().cuCtxSetCurrent_(context_);
    Driver::get().cuModuleUnload_(module_);
    Driver::get().cuCtxSetCurrent_(former);
  }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  CUfunction function() const { return function_; }

  /// That of a context, which is current: one for all nodes, as long as one of them lives.
  static std::shared_ptr<const Module> of(CUcontext context) {
    static std::mutex mutex;
    static std::map<std::pair<CUcontext, std::string>, std::weak_ptr<const Module>> known;
    const std::string target = target_of_current();
    const std::lock_guard<std::mutex> lock(mutex);
    std::weak_ptr<const Module>& found = known[{context, target}];
    std::shared_ptr<const Module> module = found.lock();
    if (module == nullptr) found = module = std::make_shared<const Module>(context, target);
    return module;
  }

 private:
  static std::string target_of_current() {
    const Driver& driver = Driver::get();
    CUdevice device = 0;
    int major = 0, minor = 0;
    driver.check(driver.cuCtxGetDevice_(&device), "cuCtxGetDevice");
    driver.check(
        driver.cuDeviceGetAttribute_(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
        "cuDeviceGetAttribute");
    driver.check(
        driver.cuDeviceGetAttribute_(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device),
        "cuDeviceGetAttribute");
    return Compiler::get().target(major, minor);
  }

  CUcontext context_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

/// A node's module; found by the first `compute`, which is the first to see the device's context.
struct NodeModule {
  std::once_flag found;
  std::shared_ptr<const Module> module;
};

class GatedSilu {
 public:
  struct Prepared {
    std::shared_ptr<NodeModule> node;
    std::int64_t count;
    void compute(const sdk::ComputeContext& ctx) const;
  };

  GatedSilu(const sdk::CreateContext&, const sdk::Node&) : module_(std::make_shared<NodeModule>()) {
    Driver::get();  // throws with the reason where there is none
    Compiler::get();
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::DimsView x = ctx.input(0).dims(), gate = ctx.input(1).dims();
    if (sdk::Dims(x.begin(), x.end()) != sdk::Dims(gate.begin(), gate.end()))
      sdk::invalid("GatedSilu: x and gate have different shapes");
    ctx.set_output(0, DataType::Float, x);
    std::int64_t count = 1;
    for (const std::int64_t dim : x) count *= dim;
    return {module_, count};
  }

 private:
  std::shared_ptr<NodeModule> module_;
};

CUdeviceptr address_of(const sdk::ComputeContext& ctx, const sdk::Tensor& tensor) {
  return ctx.native(BP_NATIVE_BUFFER, tensor.raw()) + tensor.raw()->offset;
}

void GatedSilu::Prepared::compute(const sdk::ComputeContext& ctx) const {
  if (count == 0) return;
  // NOLINTBEGIN(performance-no-int-to-ptr): native handles come as numbers
  auto* const context = reinterpret_cast<CUcontext>(ctx.native(BP_NATIVE_DEVICE));
  auto* const stream = reinterpret_cast<CUstream>(ctx.native(BP_NATIVE_STREAM));
  // NOLINTEND(performance-no-int-to-ptr)
  const Entered entered(context);
  std::call_once(node->found, [&] { node->module = Module::of(context); });
  CUfunction run = node->module->function();
  CUdeviceptr x = address_of(ctx, ctx.input(0)), gate = address_of(ctx, ctx.input(1));
  CUdeviceptr y = address_of(ctx, ctx.output(0));
  long long elements = count;
  void* arguments[] = {&x, &gate, &y, &elements};
  constexpr unsigned kGroup = 256, kMostGroups = 65535;
  const std::int64_t groups = (count + kGroup - 1) / kGroup;
  const unsigned launched = groups < kMostGroups ? static_cast<unsigned>(groups) : kMostGroups;
  Driver::get().check(Driver::get().cuLaunchKernel_(run, launched, 1, 1, kGroup, 1, 1, 0, stream,
                                                    arguments, nullptr),
                      "cuLaunchKernel");
}

}  // namespace

sdk::KernelList cuda_kernels() {
  return {sdk::op("GatedSilu", "backplane.examples")
              .name("gated_silu:cuda")
              .types("T", {DataType::Float})
              .flags(BP_KERNEL_CAPTURE)
              .kernel<GatedSilu>()};
}

}  // namespace gated_silu
