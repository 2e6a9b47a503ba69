#include "plugins/cuda/engine/cublas_lt.hpp"

#include <cstring>
#include <cublasLt.h>
#include <utility>

#include "plugins/cuda/engine/pointer.hpp"

namespace backplane::cuda {
namespace {

/// As many as the library is asked for, in the order in which it thinks that they are fast.
constexpr int kProposals = 16;

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw sdk::Error(status == CUBLAS_STATUS_ALLOC_FAILED ? BP_OUT_OF_MEMORY : BP_INTERNAL,
                   sdk::message(call, ": ", cublasLtGetStatusName(status)));
}

#define LT_CALL(name, ...) check(name(__VA_ARGS__), #name)

cudaDataType_t data_type(sdk::DataType type) {
  switch (type) {
    case sdk::DataType::Float:
      return CUDA_R_32F;
    case sdk::DataType::Double:
      return CUDA_R_64F;
    case sdk::DataType::Float16:
      return CUDA_R_16F;
    case sdk::DataType::BFloat16:
      return CUDA_R_16BF;
    case sdk::DataType::Int8:
      return CUDA_R_8I;
    case sdk::DataType::Int32:
      return CUDA_R_32I;
    default:
      sdk::unsupported("cuBLASLt multiplies no elements of type ", sdk::type_name(type));
  }
}

cublasComputeType_t compute_type(const LibraryProduct& product) {
  if (product.a.type == sdk::DataType::Double) return CUBLAS_COMPUTE_64F;
  if (product.a.type == sdk::DataType::Int8) return CUBLAS_COMPUTE_32I;
  if (product.a.type != sdk::DataType::Float) return CUBLAS_COMPUTE_32F;
  switch (product.precision) {
    case Precision::kTf32:
      return CUBLAS_COMPUTE_32F_FAST_TF32;
    case Precision::kFp16:
      return CUBLAS_COMPUTE_32F_FAST_16F;
    case Precision::kBf16:
      return CUBLAS_COMPUTE_32F_FAST_16BF;
    case Precision::kFp32:
      break;
  }
  return CUBLAS_COMPUTE_32F;
}

cudaDataType_t scale_type(const LibraryProduct& product) {
  if (product.a.type == sdk::DataType::Double) return CUDA_R_64F;
  return product.a.type == sdk::DataType::Int8 ? CUDA_R_32I : CUDA_R_32F;
}

cublasLtEpilogue_t epilogue(const LibraryProduct& product) {
  switch (product.epilogue) {
    case Epilogue::kRelu:
      return product.has_bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case Epilogue::kGelu:
      return product.has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case Epilogue::kNone:
      break;
  }
  return product.has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/// The library's descriptions of a product. They are plain memory, so a run can copy and change one.
struct Descriptions {
  cublasLtMatmulDescOpaque_t product{};
  cublasLtMatrixLayoutOpaque_t a{}, b{}, c{}, d{};

  explicit Descriptions(const LibraryProduct& wanted) {
    LT_CALL(cublasLtMatmulDescInit, &product, compute_type(wanted), scale_type(wanted));
    const cublasOperation_t a_op = wanted.a.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t b_op = wanted.b.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(CUBLASLT_MATMUL_DESC_TRANSA, a_op);
    set(CUBLASLT_MATMUL_DESC_TRANSB, b_op);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(wanted));
    if (wanted.has_bias) {
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(wanted.d.type));
      // A run has its own. A choice of algorithms looks at whether there is one and how it is aligned.
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointer(wanted.alignment));
      if (wanted.batch > 1) set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, wanted.bias_batch_step);
    }
    init(&a, wanted.a, wanted.batch);
    init(&b, wanted.b, wanted.batch);
    init(&c, wanted.c, wanted.batch);
    init(&d, wanted.d, wanted.batch);
  }

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    LT_CALL(cublasLtMatmulDescSetAttribute, &product, attribute, &value, sizeof(value));
  }
  static void init(cublasLtMatrixLayoutOpaque_t* layout, const LibraryMatrix& matrix,
                   std::int64_t batch) {
    LT_CALL(cublasLtMatrixLayoutInit, layout, data_type(matrix.type),
            static_cast<std::uint64_t>(matrix.rows), static_cast<std::uint64_t>(matrix.columns),
            matrix.step);
    if (batch == 1) return;
    const auto count = static_cast<std::int32_t>(batch);
    LT_CALL(cublasLtMatrixLayoutSetAttribute, layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
            sizeof(count));
    LT_CALL(cublasLtMatrixLayoutSetAttribute, layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
            &matrix.batch_step, sizeof(matrix.batch_step));
  }
};

cublasLtMatmulAlgo_t to_algo(const ProductAlgorithm& algorithm) {
  cublasLtMatmulAlgo_t algo{};
  static_assert(sizeof(algo.data) == sizeof(algorithm.words));
  std::memcpy(algo.data, algorithm.words.data(), sizeof(algo.data));
  return algo;
}

/// A number in the type in which the library wants alpha and beta.
struct Scalar {
  union {
    float real;
    double wide;
    std::int32_t whole;
  };
  Scalar(double value, cudaDataType_t type) : wide(0) {
    if (type == CUDA_R_64F) {
      wide = value;
    } else if (type == CUDA_R_32I) {
      whole = static_cast<std::int32_t>(value);
    } else {
      real = static_cast<float>(value);
    }
  }
};

class Prepared final : public PreparedProduct {
 public:
  Prepared(Context& context, cublasLtHandle_t handle, const LibraryProduct& product,
           const ProductAlgorithm& algorithm, double factor, double addend_factor)
      : context_(context),
        handle_(handle),
        descriptions_(product),
        algorithm_(to_algo(algorithm)),
        workspace_bytes_(algorithm.workspace_bytes),
        has_bias_(product.has_bias),
        factor_(factor, scale_type(product)),
        addend_factor_(addend_factor, scale_type(product)) {}

  void enqueue(KernelQueue& queue, const ProductAddresses& at) const override {
    const EnteredContext entered(context_);
    // The bias's address is part of the description: each run has its own copy, on its stack.
    cublasLtMatmulDescOpaque_t description = descriptions_.product;
    if (has_bias_) {
      const auto* const bias = pointer(at.bias);
      LT_CALL(cublasLtMatmulDescSetAttribute, &description, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
              &bias, sizeof(bias));
    }
    LT_CALL(cublasLtMatmul, handle_, &description, &factor_, pointer(at.a), layout(descriptions_.a),
            pointer(at.b), layout(descriptions_.b), &addend_factor_, pointer(at.c),
            layout(descriptions_.c), pointer(at.d), layout(descriptions_.d), &algorithm_,
            pointer(at.workspace), workspace_bytes_, queue.for_library());
  }

 private:
  static cublasLtMatrixLayout_t layout(const cublasLtMatrixLayoutOpaque_t& opaque) {
    return const_cast<cublasLtMatrixLayout_t>(&opaque);  // which the library only reads
  }

  Context& context_;
  cublasLtHandle_t handle_;
  Descriptions descriptions_;
  cublasLtMatmulAlgo_t algorithm_;
  std::size_t workspace_bytes_;
  bool has_bias_;
  Scalar factor_, addend_factor_;
};

/// Ends the library's preferences.
struct DestroyPreference {
  void operator()(cublasLtMatmulPreference_t preference) const {
    cublasLtMatmulPreferenceDestroy(preference);
  }
};

class CublasLt final : public ProductLibrary {
 public:
  explicit CublasLt(Context& context) : context_(context) {
    const EnteredContext entered(context);
    LT_CALL(cublasLtCreate, &handle_);
    const std::size_t version = cublasLtGetVersion();
    version_ =
        sdk::message("cuBLASLt ", version / 10000, '.', version / 100 % 100, '.', version % 100);
  }
  ~CublasLt() override {
    const EnteredContext entered(context_, std::nothrow);
    if (entered) cublasLtDestroy(handle_);
  }

  std::string version() override { return version_; }

  std::vector<ProductAlgorithm> propose(const LibraryProduct& product,
                                        std::uint64_t workspace_limit) override {
    const EnteredContext entered(context_);
    Descriptions descriptions(product);
    cublasLtMatmulPreference_t made = nullptr;
    LT_CALL(cublasLtMatmulPreferenceCreate, &made);
    const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, DestroyPreference>
        preference(made);
    LT_CALL(cublasLtMatmulPreferenceSetAttribute, made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
            &workspace_limit, sizeof(workspace_limit));
    if (sdk::element_bytes(product.d.type) == 2) {
      // Of a depth that is divided among groups, sums meet in the type of the sums: by itself the library has them meet in
      // the result's too, where they are rounded, and of float16 may be infinite.
      constexpr std::uint32_t kSchemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
      LT_CALL(cublasLtMatmulPreferenceSetAttribute, made,
              CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &kSchemes, sizeof(kSchemes));
    }
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      LT_CALL(cublasLtMatmulPreferenceSetAttribute, made, attribute, &product.alignment,
              sizeof(product.alignment));
    cublasLtMatmulHeuristicResult_t results[kProposals]{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, &descriptions.product, &descriptions.a, &descriptions.b, &descriptions.c,
        &descriptions.d, made, kProposals, results, &count);
    // Of a form that it does not know it says either, by version; what there is besides this form may do.
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    std::vector<ProductAlgorithm> proposals;
    for (int i = 0; i < count; ++i) {
      if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
      ProductAlgorithm& proposal = proposals.emplace_back();
      std::memcpy(proposal.words.data(), results[i].algo.data, sizeof(results[i].algo.data));
      proposal.workspace_bytes = results[i].workspaceSize;
    }
    return proposals;
  }

  bool serves(const LibraryProduct& product, ProductAlgorithm& algorithm) override {
    const EnteredContext entered(context_);
    Descriptions descriptions(product);
    const cublasLtMatmulAlgo_t algo = to_algo(algorithm);
    cublasLtMatmulHeuristicResult_t result{};
    if (cublasLtMatmulAlgoCheck(handle_, &descriptions.product, &descriptions.a, &descriptions.b,
                                &descriptions.c, &descriptions.d, &algo,
                                &result) != CUBLAS_STATUS_SUCCESS)
      return false;
    algorithm.workspace_bytes = result.workspaceSize;
    return true;
  }

  std::unique_ptr<const PreparedProduct> prepare(const LibraryProduct& product,
                                                 const ProductAlgorithm& algorithm, double factor,
                                                 double addend_factor) override {
    return std::make_unique<Prepared>(context_, handle_, product, algorithm, factor, addend_factor);
  }

 private:
  Context& context_;
  cublasLtHandle_t handle_ = nullptr;
  std::string version_;
};

}  // namespace

std::unique_ptr<ProductLibrary> open_cublas_lt(Context& context) {
  return std::make_unique<CublasLt>(context);
}

}  // namespace backplane::cuda
