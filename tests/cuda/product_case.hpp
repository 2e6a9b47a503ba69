// Products by the provider's own kernels, of operands that are made, beside sums of doubles.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "plugins/common/half.hpp"
#include "plugins/cuda/device.hpp"
#include "tests/cuda/stand_in.hpp"

namespace backplane::cuda {

using sdk::DataType;

inline float rounded(DataType type, float value) {
  if (type == DataType::Float16) return common::to_float(common::to_half(value));
  return type == DataType::BFloat16 ? common::to_float(common::to_bfloat16(value)) : value;
}

/// Kernels one after another, on a stream that nobody else puts anything on meanwhile.
class PlainQueue final : public KernelQueue {
 public:
  PlainQueue(Context& context, StreamHandle stream) : context_(context), stream_(stream) {}
  StreamHandle for_library() override { return stream_; }
  void launch(const Kernel& kernel, const Extent& groups, const Extent& group,
              void** arguments) override {
    context_.launch(kernel.function(), groups, group, kernel.local_bytes(), stream_, arguments);
  }

 private:
  Context& context_;
  StreamHandle stream_;
};

/// Elements of some type at an address that is `offset` bytes behind one of 16, with nothing readable behind them under a sanitizer.
class Elements {
 public:
  Elements(DataType type, std::int64_t count, std::uint64_t offset, unsigned seed)
      : type_(type), bytes_(static_cast<std::size_t>(sdk::element_bytes(type))), offset_(offset) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> between(-1, 1);
    memory_.resize(static_cast<std::size_t>(count) * bytes_ + offset_);
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = rounded(type, between(random));
      values_.push_back(static_cast<double>(value));
      write(i, value);
    }
  }
  Address address() const { return reinterpret_cast<Address>(memory_.data()) + offset_; }
  /// As it was made, and as it is now.
  double made(std::int64_t i) const { return values_.at(static_cast<std::size_t>(i)); }
  double now(std::int64_t i) const {
    const unsigned char* const at = memory_.data() + offset_ + static_cast<std::size_t>(i) * bytes_;
    if (type_ == DataType::Float) {
      float value = 0;
      std::memcpy(&value, at, sizeof(value));
      return static_cast<double>(value);
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, at, sizeof(bits));
    return static_cast<double>(type_ == DataType::Float16
                                   ? common::to_float(common::Half{bits})
                                   : common::to_float(common::BFloat16{bits}));
  }
  std::int64_t count() const { return static_cast<std::int64_t>(values_.size()); }

 private:
  void write(std::int64_t i, float value) {
    unsigned char* const at = memory_.data() + offset_ + static_cast<std::size_t>(i) * bytes_;
    if (type_ == DataType::Float) {
      std::memcpy(at, &value, sizeof(value));
    } else {
      const std::uint16_t bits = type_ == DataType::Float16 ? common::to_half(value).bits
                                                            : common::to_bfloat16(value).bits;
      std::memcpy(at, &bits, sizeof(bits));
    }
  }

  DataType type_;
  std::size_t bytes_;
  std::uint64_t offset_;
  std::vector<unsigned char> memory_;
  std::vector<double> values_;
};

struct ProductCase {
  DataType type = DataType::Float16;
  std::int64_t rows = 1, depth = 64, columns = 64, matrices = 1;
  bool is_apart = false;  ///< b as [columns][depth]
  bool a_is_transposed = false;
  bool has_bias = false, has_addend = false;
  bool adds_in_place = false;  ///< the addend is what is in y
  Epilogue epilogue = Epilogue::kNone;
  double factor = 1, addend_factor = 1;
  std::int64_t more = 0;       ///< elements between rows of a, b and y
  std::uint64_t offset = 0;    ///< of every address, in bytes
  std::int64_t bias_more = 3;  ///< elements between biases of matrices

  Product product() const {
    Product made;
    made.type = made.result = type;
    made.rows = rows;
    made.depth = depth;
    made.columns = columns;
    made.batch = matrices;
    made.a.is_transposed = a_is_transposed;
    made.a.step = (a_is_transposed ? rows : depth) + more;
    made.a.batch_step = made.a.step * (a_is_transposed ? depth : rows);
    made.b.is_transposed = is_apart;
    made.b.step = (is_apart ? depth : columns) + more;
    made.b.batch_step = made.b.step * (is_apart ? columns : depth);
    made.y_step = columns + more;
    made.y_batch_step = made.y_step * rows;
    made.has_bias = has_bias;
    made.has_addend = has_addend;
    made.bias_batch_step = has_bias ? columns + bias_more : 0;
    made.epilogue = epilogue;
    made.factor = factor;
    made.addend_factor = addend_factor;
    return made;
  }
  std::string text() const {
    return sdk::message(sdk::type_name(type), ' ', rows, 'x', depth, 'x', columns, " of ", matrices,
                        is_apart ? " apart" : "", a_is_transposed ? " a t" : "",
                        has_bias ? " bias" : "", has_addend ? " addend" : "", " epilogue ",
                        static_cast<int>(epilogue), " more ", more, " at ", offset);
  }
};

inline double activated(double sum, Epilogue epilogue) {
  if (epilogue == Epilogue::kRelu) return std::max(sum, 0.0);
  if (epilogue == Epilogue::kNone) return sum;
  return 0.5 * sum * (1 + std::tanh(0.7978845608028654 * (sum + 0.044715 * sum * sum * sum)));
}

/// Runs a way to do it, which failures name as `form`; `is_rounded`: what an activation is computed of is rounded before, too.
inline void expect_product(Device& device, const ProductCase& each,
                           const ProductAlgorithm& algorithm, const std::string& form,
                           bool is_rounded = false) {
  const Product product = each.product();
  const LibraryProduct wanted = to_library(product, 16);
  const std::int64_t matrices = each.matrices;
  const Elements a(each.type, matrices * product.a.batch_step, each.offset, 1);
  const Elements b(each.type, matrices * product.b.batch_step, each.offset, 2);
  const Elements c(each.type, matrices * product.y_batch_step, each.offset, 3);
  const Elements bias(each.type, matrices * product.bias_batch_step, each.offset, 4);
  const Elements y(each.type, matrices * product.y_batch_step, each.offset, 5);
  std::vector<unsigned char> workspace(algorithm.workspace_bytes);
  const ProductAddresses at{
      b.address(), a.address(),    each.adds_in_place ? y.address() : c.address(),
      y.address(), bias.address(), reinterpret_cast<Address>(workspace.data())};
  const StreamHandle stream = device.context().create_stream();
  PlainQueue queue(device.context(), stream);
  device.products()
      .library()
      .prepare(wanted, algorithm, each.factor, each.addend_factor)
      ->enqueue(queue, at);
  device.context().destroy_stream(stream);
  const double relative = each.type == DataType::Float     ? 1e-6
                          : each.type == DataType::Float16 ? 0x1p-11
                                                           : 0x1p-8;
  for (std::int64_t i = 0; i < y.count(); ++i) {
    const std::int64_t matrix = i / product.y_batch_step,
                       row = i % product.y_batch_step / product.y_step;
    const std::int64_t column = i % product.y_step;
    if (column >= each.columns) {
      ASSERT_EQ(y.now(i), y.made(i)) << "between rows: " << each.text() << ", " << form;
      continue;
    }
    double sum = 0, size = 0;
    for (std::int64_t k = 0; k < each.depth; ++k) {
      const double term =
          a.made(matrix * product.a.batch_step +
                 (each.a_is_transposed ? k * product.a.step + row : row * product.a.step + k)) *
          b.made(matrix * product.b.batch_step +
                 (each.is_apart ? column * product.b.step + k : k * product.b.step + column));
      sum += term;
      size += std::abs(term);
    }
    double want = each.factor * sum;
    if (each.has_addend) want += each.addend_factor * (each.adds_in_place ? y : c).made(i);
    if (each.has_bias) want += bias.made(matrix * product.bias_batch_step + column);
    const double before =
        is_rounded ? 1.2 * relative * std::abs(want) : 0;  // its slope is less than 1.13
    want = activated(want, each.epilogue);
    ASSERT_NEAR(y.now(i), want, before + relative * std::abs(want) + 1e-6 * (size + 1))
        << i << ": " << each.text() << ", " << form;
  }
}

}  // namespace backplane::cuda
