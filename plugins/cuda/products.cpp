#include "plugins/cuda/products.hpp"

#include <algorithm>

namespace backplane::cuda {
namespace {

/// An operand [rows][columns] as the library's transpose of it.
LibraryMatrix matrix_of(sdk::DataType type, std::int64_t rows, std::int64_t columns,
                        const Operand& operand) {
  LibraryMatrix matrix{type, columns, rows, operand.step, operand.batch_step, false};
  if (operand.is_transposed) {
    std::swap(matrix.rows, matrix.columns);
    matrix.is_transposed = true;
  }
  // The library wants a step of at least a column, of matrices with one column too.
  matrix.step = std::max(matrix.step, matrix.rows);
  return matrix;
}

std::string text_of(const LibraryMatrix& matrix) {
  return sdk::message(sdk::type_name(matrix.type), ' ', matrix.rows, 'x', matrix.columns, " step ",
                      matrix.step, " batch ", matrix.batch_step, matrix.is_transposed ? " t" : "");
}

}  // namespace

const char* precision_name(Precision precision) {
  constexpr const char* kNames[] = {"fp32", "tf32", "fp16", "bf16"};
  return kNames[static_cast<std::size_t>(precision)];
}

Epilogue epilogue_after(const sdk::Node& product) {
  const std::string name(product.get_string("activation", ""));
  if (name.empty()) return Epilogue::kNone;
  if (name == "Relu") return Epilogue::kRelu;
  if (name == "Gelu") return Epilogue::kGelu;
  sdk::unsupported("activation '", name, "' after a product; Relu and Gelu can be done");
}

std::string activated(const std::string& sum, Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kRelu:
      return sdk::message("greater_of(", sum, ", 0)");
    case Epilogue::kGelu:
      return sdk::message("gelu_tanh_of(", sum, ")");
    case Epilogue::kNone:
      break;
  }
  return sum;
}

std::string LibraryProduct::key() const {
  return sdk::message(
      text_of(a), ", ", text_of(b), ", ", text_of(d), ", of ", batch,
      has_addend ? ", addend " + text_of(c) : std::string(), has_bias ? ", bias" : "",
      bias_batch_step > 0 ? sdk::message(" step ", bias_batch_step) : "", ", epilogue ",
      static_cast<int>(epilogue), ", ", precision_name(precision), ", aligned ", alignment);
}

LibraryProduct to_library(const Product& product, std::uint32_t alignment) {
  LibraryProduct made;
  made.a = matrix_of(product.type, product.depth, product.columns, product.b);
  made.b = matrix_of(product.type, product.rows, product.depth, product.a);
  made.d = matrix_of(product.result, product.rows, product.columns,
                     {product.y_step, product.y_batch_step, false});
  made.c = made.d;
  made.batch = product.batch;
  made.has_addend = product.has_addend;
  made.has_bias = product.has_bias;
  made.bias_batch_step = product.bias_batch_step;
  made.epilogue = product.epilogue;
  made.precision = product.precision;
  made.alignment = alignment;
  return made;
}

}  // namespace backplane::cuda
