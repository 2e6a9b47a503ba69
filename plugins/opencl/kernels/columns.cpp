#include "plugins/opencl/kernels/columns.hpp"

#include "plugins/common/half.hpp"

namespace backplane::opencl {
namespace {

template <class T>
std::vector<float> widened(const sdk::Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.size()));
  const T* const from = tensor.data<T>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = common::to_float(from[i]);
  return values;
}

}  // namespace

std::vector<float> widened_elements(const sdk::Tensor& tensor) {
  if (tensor.type() == DataType::Float16) return widened<sdk::Half>(tensor);
  if (tensor.type() == DataType::BFloat16) return widened<sdk::BFloat16>(tensor);
  const auto* const from = tensor.data<float>();
  return {from, from + tensor.size()};
}

std::string ColumnPacker::key() const {
  return sdk::message("product columns ", panel, " of ", depth, "x", columns,
                      is_transposed ? "t" : "",
                      type == DataType::Float ? "" : sdk::type_name(type));
}

void ColumnPacker::pack(const sdk::PackContext& ctx) const {
  const sdk::Tensor source = ctx.source(0);
  const auto packed = [&](const float* from) {
    upload_packed(ctx, pack_columns(from, depth, columns, is_transposed ? 1 : columns,
                                    is_transposed ? depth : 1, panel));
  };
  if (type == DataType::Float) return packed(source.data<float>());
  packed(widened_elements(source).data());
}

}  // namespace backplane::opencl
