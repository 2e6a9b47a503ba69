#include "plugins/cpu/dense/support_kernel.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/kernels/unary_f32.hpp"

namespace backplane::cpu {
namespace {

constexpr double kNsPerSquare = 0.06, kNsPerPower = 10, kNsPerTanh = 1;
constexpr std::int64_t kRowsOfItem = 16, kPanelsOfItem = 8;

float power(float x, float degree) {
  if (degree == 2) return x * x;
  if (degree == 3) return x * x * x;
  return std::pow(x, degree);
}

}  // namespace

SupportKernel::SupportKernel(const sdk::CreateContext& ctx, const sdk::Node& node,
                             const std::vector<float>& vectors, std::int64_t count, bool linear,
                             float offset)
    : count_(count), isa_(isa_of(ctx)) {
  if (count <= 0 || vectors.empty() || static_cast<std::int64_t>(vectors.size()) % count != 0)
    sdk::invalid(vectors.size(), " numbers in an attribute are no ", count, " vectors");
  features_ = static_cast<std::int64_t>(vectors.size()) / count;
  const std::string word = linear ? "LINEAR" : node.get_string("kernel_type", "LINEAR");
  if (word != "LINEAR" && word != "POLY" && word != "RBF" && word != "SIGMOID")
    sdk::invalid("attribute 'kernel_type' is '", word, "'; it may be LINEAR, POLY, RBF or SIGMOID");
  type_ = word == "POLY"      ? Type::kPolynomial
          : word == "RBF"     ? Type::kRadial
          : word == "SIGMOID" ? Type::kSigmoid
                              : Type::kLinear;
  const std::vector<float> params = node.get_floats("kernel_params");
  if (params.size() < 3 && type_ != Type::kLinear)
    sdk::invalid("attribute 'kernel_params' has ", params.size(), " entries, 3 are needed");
  if (params.size() >= 3) {
    gamma_ = params[0];
    offset_ = params[1];
    degree_ = params[2];
  }
  if (type_ == Type::kRadial) {
    radial_ = pack_radial(isa_, vectors.data(), count, features_);
    return;
  }
  if (type_ == Type::kLinear) offset_ = linear ? offset : 0;
  const float alpha = type_ == Type::kLinear ? 1.0f : gamma_;
  product_ = FixedProduct(vectors.data(), features_, count, features_, alpha,
                          std::vector<float>(static_cast<std::size_t>(count), offset_), isa_,
                          ctx.threads());
}

void SupportKernel::run(const Plan& plan, const float* x, float* y, void* workspace,
                        const sdk::Threads& threads) const {
  if (type_ == Type::kRadial) return run_radial(plan.rows, x, y, threads);
  product_.run(plan.product, x, features_, y, count_, workspace, threads);
  const std::int64_t size = plan.rows * count_;
  if (type_ == Type::kPolynomial) {
    split_elements(threads, size, kNsPerPower, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) y[i] = power(y[i], degree_);
    });
  } else if (type_ == Type::kSigmoid) {
    const UnaryF32 tanh = unary_f32(isa_, UnaryOp::kTanh);
    split_elements(threads, size, kNsPerTanh, [&](std::int64_t begin, std::int64_t end) {
      tanh(y + begin, y + begin, end - begin, {});
    });
  }
}

/// Cut by rows and by panels, so that one row is work for several threads, too.
void SupportKernel::run_radial(std::int64_t rows, const float* x, float* y,
                               const sdk::Threads& threads) const {
  const RadialBasis& loops = radial_basis(isa_);
  const std::int64_t panels = radial_.panel_count();
  const std::int64_t across = (panels + kPanelsOfItem - 1) / kPanelsOfItem;
  const std::int64_t down = (rows + kRowsOfItem - 1) / kRowsOfItem;
  const double ns_each = kNsPerSquare * static_cast<double>(std::min(rows, kRowsOfItem)) *
                         static_cast<double>(features_ * kPanelsOfItem * radial_.width);
  split_loop(threads, across * down, ns_each, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t row = item / across * kRowsOfItem;
      const std::int64_t panel = item % across * kPanelsOfItem;
      loops.rows(radial_, gamma_, x + row * features_, std::min(kRowsOfItem, rows - row), panel,
                 std::min(panels, panel + kPanelsOfItem), y + row * pitch(), pitch());
    }
  });
}

}  // namespace backplane::cpu
