// Matrix products by a library: the seam to cuBLASLt (engine/cublas_lt.cpp) and to the stand-in of the tests.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugins/cuda/driver.hpp"

namespace backplane::cuda {

/// What the fast algorithms of libraries want addresses to be multiples of, in bytes.
inline constexpr std::uint32_t kLibraryAlignment = 16;

/// Elements of int8 that libraries load as one: addresses, depths and steps are multiples of it.
inline constexpr std::int64_t kInt8Word = 4;

/// What is done to a sum before it is stored. Gelu is the form with tanh: cuBLASLt has no other.
enum class Epilogue : std::uint8_t { kNone, kRelu, kGelu };

/// The arithmetic of float32 operands: exact, or on tensor cores with operands rounded. Sums are float32 always.
enum class Precision : std::uint8_t { kFp32, kTf32, kFp16, kBf16 };

const char* precision_name(Precision precision);
/// By a node's "activation". Errors: BP_UNSUPPORTED for one that is not there.
Epilogue epilogue_after(const sdk::Node& product);
/// A sum with what is done to it, in the words of kernels (plugins/common/kernels/scalar_functions.hpp).
std::string activated(const std::string& sum, Epilogue epilogue);

/// A matrix as the library sees it: column after column, `step` elements from one to the next.
struct LibraryMatrix {
  sdk::DataType type = sdk::DataType::Float;
  std::int64_t rows = 0, columns = 0, step = 0, batch_step = 0;
  bool is_transposed = false;  ///< what is multiplied is the transpose
};

/// d = epilogue(factor * op(a) op(b) + addend_factor * c + bias), the bias along d's columns.
struct LibraryProduct {
  LibraryMatrix a, b, c, d;
  std::int64_t batch = 1;
  bool has_addend = false, has_bias = false;
  std::int64_t bias_batch_step = 0;  ///< elements from a matrix's bias to the next one's
  Epilogue epilogue = Epilogue::kNone;
  Precision precision = Precision::kFp32;
  std::uint32_t alignment = kLibraryAlignment;  ///< every address is a multiple of it, in bytes

  /// Everything that an algorithm depends on, but for the device and the library.
  std::string key() const;
};

/// An operand as ONNX has it: rows that lie `step` elements apart; `is_transposed`: it lies as [columns][rows].
struct Operand {
  std::int64_t step = 0, batch_step = 0;
  bool is_transposed = false;
};

/// y[rows][columns] = epilogue(factor * a[rows][depth] b[depth][columns] + addend_factor * c + bias).
struct Product {
  sdk::DataType type = sdk::DataType::Float, result = sdk::DataType::Float;
  std::int64_t rows = 0, columns = 0, depth = 0, batch = 1;
  Operand a, b;
  std::int64_t y_batch_step = 0, y_step = 0;  ///< of y and c; rows lie together where y_step is 0
  bool has_addend = false, has_bias = false;
  std::int64_t bias_batch_step = 0;
  Epilogue epilogue = Epilogue::kNone;
  Precision precision = Precision::kFp32;
  double factor = 1, addend_factor = 1;
};

/// The same for the library: what lies row after row is, column after column, the transpose, and the transpose of
/// a product is the product of the transposes the other way round.
LibraryProduct to_library(const Product& product, std::uint32_t alignment);

/// An algorithm that the library chose, in its own words.
struct ProductAlgorithm {
  std::array<std::uint64_t, 8> words{};
  std::uint64_t workspace_bytes = 0;
};

struct ProductAddresses {
  Address a = 0, b = 0, c = 0, d = 0, bias = 0, workspace = 0;
  bool a_is_constant = false;  ///< no work on the stream makes it
};

/// A product ready to be enqueued. Immutable; threads: any.
class PreparedProduct {
 public:
  PreparedProduct() = default;
  PreparedProduct(const PreparedProduct&) = delete;
  PreparedProduct& operator=(const PreparedProduct&) = delete;
  virtual ~PreparedProduct() = default;
  /// Allocates nothing, takes no lock. Errors: as Context's.
  virtual void enqueue(KernelQueue& queue, const ProductAddresses& at) const = 0;
};

/// The library, opened for one device. Threads: any.
class ProductLibrary {
 public:
  ProductLibrary() = default;
  ProductLibrary(const ProductLibrary&) = delete;
  ProductLibrary& operator=(const ProductLibrary&) = delete;
  virtual ~ProductLibrary() = default;
  /// For keys: "cuBLASLt 13.1.0".
  virtual std::string version() = 0;
  /// The library's choice, best first, of algorithms that need at most `workspace_limit`; empty: it has none.
  virtual std::vector<ProductAlgorithm> propose(const LibraryProduct& product,
                                                std::uint64_t workspace_limit) = 0;
  /// Whether the device runs it: an algorithm that was kept may be of no use. Sets its workspace.
  virtual bool serves(const LibraryProduct& product, ProductAlgorithm& algorithm) = 0;
  virtual std::unique_ptr<const PreparedProduct> prepare(const LibraryProduct& product,
                                                         const ProductAlgorithm& algorithm,
                                                         double factor, double addend_factor) = 0;
  /// Before algorithms of this product are compared: what takes long and is none of their time.
  virtual void make_ready(const LibraryProduct&) {}
  /// For users: what multiplies, where that is not the library; else empty.
  virtual std::string own_way(const ProductAlgorithm&) { return ""; }
};

}  // namespace backplane::cuda
