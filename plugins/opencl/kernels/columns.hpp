// Constant matrices that products read by panels of columns.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "plugins/opencl/kernels/product.hpp"

namespace backplane::opencl {

/// The elements of a constant, as floats; of type float, float16 or bfloat16.
std::vector<float> widened_elements(const sdk::Tensor& tensor);

/// Packs b's columns, as floats; `is_transposed`: it is [columns][depth].
struct ColumnPacker {
  std::int64_t depth, columns, panel;
  bool is_transposed;
  DataType type = DataType::Float;  ///< of b

  std::string key() const;
  std::uint64_t bytes() const {
    return static_cast<std::uint64_t>((columns + panel - 1) / panel * panel * depth) * 4;
  }
  void pack(const sdk::PackContext& ctx) const;
};

/// Packers by what they do; they live as long as the kernel, as the host needs them to.
template <class Packer>
class KeptPackers {
 public:
  const Packer* find(const Packer& wanted) const {
    const std::lock_guard lock(mutex_);
    auto& packer = packers_[wanted.key()];
    if (packer == nullptr) packer = std::make_unique<Packer>(wanted);
    return packer.get();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::unique_ptr<Packer>> packers_;
};
using ColumnPackers = KeptPackers<ColumnPacker>;

}  // namespace backplane::opencl
