#include <chrono>
#include <cmath>
#include <cublasLt.h>
#include <functional>
#include <stdexcept>

#include "tools/gpu/cuda_functions.hpp"
#include "tools/gpu/probe.hpp"

namespace backplane::gpu {
namespace {

using Clock = std::chrono::steady_clock;

struct ProductKind {
  const char* name;
  cudaDataType_t type;
  cublasComputeType_t compute;
  std::size_t element_bytes;
};

const ProductKind kProducts[] = {
    {"fp32", CUDA_R_32F, CUBLAS_COMPUTE_32F, 4},
    {"tf32", CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 4},
    {"fp16", CUDA_R_16F, CUBLAS_COMPUTE_32F, 2},
    {"bf16", CUDA_R_16BF, CUBLAS_COMPUTE_32F, 2},
};

/// cuBLASLt, opened by the name of the version that this was compiled for.
class BlasLt {
 public:
  void check(cublasStatus_t status, const char* call) const {
    if (status != CUBLAS_STATUS_SUCCESS)
      throw std::runtime_error(std::string(call) + ": " + cublasLtGetStatusName_(status));
  }

 private:
  template <class Pointer>
  Pointer load(const char* name, const char*) const {
    return reinterpret_cast<Pointer>(library_.get(name));
  }
  Library library_{("libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR)).c_str()};

 public:
  GPU_FUNCTION(cublasLtGetStatusName);
  GPU_FUNCTION(cublasLtCreate);
  GPU_FUNCTION(cublasLtDestroy);
  GPU_FUNCTION(cublasLtMatmulDescCreate);
  GPU_FUNCTION(cublasLtMatmulDescDestroy);
  GPU_FUNCTION(cublasLtMatrixLayoutCreate);
  GPU_FUNCTION(cublasLtMatrixLayoutDestroy);
  GPU_FUNCTION(cublasLtMatmulPreferenceCreate);
  GPU_FUNCTION(cublasLtMatmulPreferenceSetAttribute);
  GPU_FUNCTION(cublasLtMatmulPreferenceDestroy);
  GPU_FUNCTION(cublasLtMatmulAlgoGetHeuristic);
  GPU_FUNCTION(cublasLtMatmul);
};

/// Random numbers between 0.5 and 2 or their negatives, as elements of the kind: a device that multiplies zeros needs
/// less power, and is faster than it will ever be again.
std::vector<std::uint32_t> random_words(const ProductKind& kind, std::size_t bytes) {
  std::vector<std::uint32_t> words(bytes / sizeof(std::uint32_t));
  std::uint32_t state = 2463534242u;
  for (std::uint32_t& word : words) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    word = kind.type == CUDA_R_32F   ? (state & 0x80FFFFFFu) | 0x3F000000u
           : kind.type == CUDA_R_16F ? (state & 0x87FF87FFu) | 0x38003800u
                                     : (state & 0x80FF80FFu) | 0x3F003F00u;
  }
  return words;
}

/// TFLOP/s of one product of square matrices.
double product_rate(const Cuda& cuda, const BlasLt& blas, const ProductKind& kind, int size,
                    double warm_up_s) {
  constexpr std::size_t kWorkspace = std::size_t{64} << 20;
  const auto side = static_cast<std::uint64_t>(size);
  const std::size_t bytes = side * side * kind.element_bytes;
  CUstream stream = cuda.make_stream();
  CUdeviceptr memory[4] = {cuda.allocate(bytes), cuda.allocate(bytes), cuda.allocate(bytes),
                           cuda.allocate(kWorkspace)};
  const std::vector<std::uint32_t> words = random_words(kind, bytes);
  for (int i = 0; i < 2; ++i) GPU_CALL(cuda, cuMemcpyHtoD, memory[i], words.data(), bytes);

  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  GPU_CALL(blas, cublasLtCreate, &handle);
  GPU_CALL(blas, cublasLtMatmulDescCreate, &product, kind.compute, CUDA_R_32F);
  GPU_CALL(blas, cublasLtMatrixLayoutCreate, &layout, kind.type, side, side, size);
  GPU_CALL(blas, cublasLtMatmulPreferenceCreate, &preference);
  GPU_CALL(blas, cublasLtMatmulPreferenceSetAttribute, preference,
           CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace, sizeof(kWorkspace));
  GPU_CALL(blas, cublasLtMatmulAlgoGetHeuristic, handle, product, layout, layout, layout, layout,
           preference, 1, &found, &count);
  if (count == 0) throw std::runtime_error("cuBLASLt proposes no algorithm");
  const float one = 1, zero = 0;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver has addresses as numbers
  const auto pointer = [&](int i) { return reinterpret_cast<void*>(memory[i]); };
  const double milliseconds = cuda.least_ms(stream, 10, warm_up_s, [&] {
    GPU_CALL(blas, cublasLtMatmul, handle, product, &one, pointer(0), layout, pointer(1), layout,
             &zero, pointer(2), layout, pointer(2), layout, &found.algo, pointer(3), kWorkspace,
             stream);
  });
  blas.cublasLtMatmulPreferenceDestroy_(preference);
  blas.cublasLtMatrixLayoutDestroy_(layout);
  blas.cublasLtMatmulDescDestroy_(product);
  blas.cublasLtDestroy_(handle);
  for (const CUdeviceptr each : memory) cuda.free(each);
  return 2 * std::pow(size, 3) / (milliseconds * 1e9);
}

/// GB/s; a copy on the device reads and writes its bytes.
Json copy_rates(const Cuda& cuda, std::size_t bytes, double warm_up_s) {
  CUstream stream = cuda.make_stream();
  const CUdeviceptr from = cuda.allocate(bytes), to = cuda.allocate(bytes);
  void* pinned = nullptr;
  GPU_CALL(cuda, cuMemAllocHost, &pinned, bytes);
  const auto host = reinterpret_cast<CUdeviceptr>(pinned);
  const auto rate = [&](CUdeviceptr target, CUdeviceptr source, int passes) {
    const double milliseconds = cuda.least_ms(stream, 8, warm_up_s, [&] {
      GPU_CALL(cuda, cuMemcpyAsync, target, source, bytes, stream);
    });
    return passes * static_cast<double>(bytes) / (milliseconds * 1e6);
  };
  Json rates{{"device", rate(to, from, 2)},
             {"to_device", rate(to, host, 1)},
             {"from_device", rate(host, from, 1)}};
  GPU_CALL(cuda, cuMemFreeHost, pinned);
  cuda.free(from);
  cuda.free(to);
  return rates;
}

/// A kernel that does nothing, for whatever device there is.
const char* const kEmptyKernel =
    ".version 6.3\n.target sm_75\n.address_size 64\n.visible .entry empty() { ret; }\n";

/// One that lets the next begin and waits for those before it; only from compute capability 9.0 on.
const char* const kWaitingKernel =
    ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry empty() {\n"
    "  griddepcontrol.launch_dependents;\n  griddepcontrol.wait;\n  ret;\n}\n";

/// What a bare graph consists of.
enum class GraphNode { Kernel, EarlyKernel, Write };
constexpr const char* kGraphNodes[] = {"empty kernels", "empty kernels that begin early",
                                       "small writes"};

void launch_early(const Cuda& cuda, CUfunction kernel, CUstream stream) {
  CUlaunchAttribute early{};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 32;
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  GPU_CALL(cuda, cuLaunchKernelEx, &config, kernel, nullptr, nullptr);
}

/// Of a graph of `nodes` empty kernels or small writes, one after the other: what its launch takes on the host, and until
/// it is done.
Json graph_launch(const Cuda& cuda, GraphNode kind, int nodes, const Request& request) {
  const int runs = request.is_quick ? 20 : 300;
  CUstream stream = cuda.make_stream();
  const CUdeviceptr memory = cuda.allocate(256);
  CUmodule module = nullptr;
  CUfunction empty = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  const auto enqueue = [&] {
    if (kind == GraphNode::EarlyKernel)
      launch_early(cuda, empty, stream);
    else if (kind == GraphNode::Kernel)
      GPU_CALL(cuda, cuLaunchKernel, empty, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr);
    else
      GPU_CALL(cuda, cuMemsetD32Async, memory, 1, 1, stream);
  };
  if (kind != GraphNode::Write) {
    GPU_CALL(cuda, cuModuleLoadData, &module,
             kind == GraphNode::Kernel ? kEmptyKernel : kWaitingKernel);
    GPU_CALL(cuda, cuModuleGetFunction, &empty, module, "empty");
  }
  // A function may be loaded no sooner than it is launched, which a capture forbids.
  enqueue();
  GPU_CALL(cuda, cuStreamSynchronize, stream);
  GPU_CALL(cuda, cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  for (int i = 0; i < nodes; ++i) enqueue();
  GPU_CALL(cuda, cuStreamEndCapture, stream, &graph);
  GPU_CALL(cuda, cuGraphInstantiateWithFlags, &exec, graph, 0);
  std::vector<double> launch_us, whole_us;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  };
  const Clock::time_point begin = Clock::now();
  while (launch_us.size() < static_cast<std::size_t>(runs)) {
    const Clock::time_point start = Clock::now();
    GPU_CALL(cuda, cuGraphLaunch, exec, stream);
    const double launched = since(start);
    GPU_CALL(cuda, cuStreamSynchronize, stream);
    if (since(begin) < 1e6 * request.warm_up_s) continue;
    launch_us.push_back(launched);
    whole_us.push_back(since(start));
  }
  cuda.cuGraphExecDestroy_(exec);
  cuda.cuGraphDestroy_(graph);
  cuda.free(memory);
  if (module != nullptr) GPU_CALL(cuda, cuModuleUnload, module);
  return {{"of", kGraphNodes[static_cast<std::size_t>(kind)]},
          {"nodes", nodes},
          {"launch_us", median(launch_us)},
          {"whole_us", median(whole_us)}};
}

/// A part that fails costs the others nothing.
Json part(const std::function<Json()>& measure) {
  try {
    return measure();
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

Json device_limits(const Request& request) {
  const Cuda cuda;
  Json result{{"memory_gb", static_cast<double>(cuda.memory_bytes()) / 1e9}};
  const std::size_t bytes = std::size_t{request.is_quick ? 16u : 512u} << 20;
  result["gb_per_s"] = part([&] { return copy_rates(cuda, bytes, request.warm_up_s); });
  result["graphs"] = Json::array();
  for (const GraphNode kind : {GraphNode::Kernel, GraphNode::EarlyKernel, GraphNode::Write})
    for (const int nodes : {1, 64, 1024})
      result["graphs"].push_back(part([&] { return graph_launch(cuda, kind, nodes, request); }));
  const int size = request.is_quick ? 1024 : 8192;
  result["product_size"] = size;
  result["tflops"] = part([&] {
    const BlasLt blas;
    Json rates;
    for (const ProductKind& kind : kProducts)
      rates[kind.name] =
          part([&] { return Json(product_rate(cuda, blas, kind, size, request.warm_up_s)); });
    return rates;
  });
  return result;
}

}  // namespace backplane::gpu
