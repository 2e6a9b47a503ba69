#include "plugins/cpu/kernels/class_scores.hpp"

#include <algorithm>
#include <cmath>

#include "plugins/cpu/kernels/softmax_f32.hpp"
#include "plugins/cpu/kernels/unary_f32.hpp"

namespace backplane::cpu {
namespace {

double logistic(double x) {
  const double y = 1 / (1 + std::exp(-std::abs(x)));
  return x < 0 ? 1 - y : y;
}

/// The inverse of the normal distribution's integral, by Winitzki's approximation of the inverse error function: the
/// one that models were made with, exact to 2e-3.
double probit(double x) {
  const double kA = 0.147, kPi = 3.14159;
  const double y = 2 * x - 1;
  const double log = std::log((1 - y) * (1 + y));
  const double half = 2 / (kPi * kA) + log / 2;
  const double root = std::sqrt(std::sqrt(half * half - log / kA) - half);
  return std::sqrt(2.0) * (y < 0 ? -root : root);
}

/// `zero`: scores of 0 stay 0 and do not count.
void softmax(double* scores, std::int64_t count, bool zero) {
  const double greatest = *std::max_element(scores, scores + count);
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (zero && std::abs(scores[i]) <= 1e-7) {
      scores[i] *= std::exp(-greatest);
    } else {
      scores[i] = std::exp(scores[i] - greatest);
      sum += scores[i];
    }
  }
  for (std::int64_t i = 0; sum > 0 && i < count; ++i) scores[i] /= sum;
}

}  // namespace

PostTransform post_transform_of(const sdk::Node& node) {
  const std::string word = node.get_string("post_transform", "NONE");
  if (word == "NONE") return PostTransform::kNone;
  if (word == "SOFTMAX") return PostTransform::kSoftmax;
  if (word == "LOGISTIC") return PostTransform::kLogistic;
  if (word == "SOFTMAX_ZERO") return PostTransform::kSoftmaxZero;
  if (word == "PROBIT") return PostTransform::kProbit;
  sdk::invalid("attribute 'post_transform' is '", word,
               "'; it may be NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO or PROBIT");
}

void transform_scores(PostTransform transform, double* scores, std::int64_t count) {
  switch (transform) {
    case PostTransform::kNone:
      return;
    case PostTransform::kLogistic:
      std::transform(scores, scores + count, scores, logistic);
      return;
    case PostTransform::kProbit:
      std::transform(scores, scores + count, scores, probit);
      return;
    case PostTransform::kSoftmax:
    case PostTransform::kSoftmaxZero:
      if (count > 0) softmax(scores, count, transform == PostTransform::kSoftmaxZero);
      return;
  }
}

void transform_rows(Isa isa, PostTransform transform, float* scores, std::int64_t columns,
                    std::int64_t rows) {
  if (columns == 0 || transform == PostTransform::kNone) return;
  if (transform == PostTransform::kSoftmax)
    return softmax_f32(isa).rows(scores, scores, columns, rows);
  if (transform == PostTransform::kLogistic)
    return unary_f32(isa, UnaryOp::kSigmoid)(scores, scores, columns * rows, {});
  std::vector<double> wide(static_cast<std::size_t>(columns));
  for (float* row = scores; row < scores + rows * columns; row += columns) {
    std::copy_n(row, columns, wide.begin());
    transform_scores(transform, wide.data(), columns);
    std::transform(wide.begin(), wide.end(), row,
                   [](double score) { return static_cast<float>(score); });
  }
}

ClassLabels::ClassLabels(const sdk::Node& node, const char* ints, const char* strings)
    : numbers_(node.get_ints(ints)), texts_(node.get_strings(strings)) {
  if (!numbers_.empty() && !texts_.empty())
    sdk::invalid("one of the attributes '", ints, "' and '", strings, "' may be given, not both");
}

void ClassLabels::complete(std::int64_t count) {
  for (std::int64_t i = this->count(); i < count; ++i) {
    if (texts_.empty())
      numbers_.push_back(i);
    else
      texts_.push_back(std::to_string(i));
  }
}

void ClassLabels::write(const sdk::ComputeContext& ctx, const std::int32_t* classes,
                        std::int64_t rows) const {
  if (texts_.empty()) {
    auto* y = ctx.output(0).mutable_data<std::int64_t>();
    for (std::int64_t i = 0; i < rows; ++i) y[i] = numbers_[static_cast<std::size_t>(classes[i])];
    return;
  }
  for (std::int64_t i = 0; i < rows; ++i)
    ctx.output_value(0).set_string(static_cast<std::uint64_t>(i),
                                   texts_[static_cast<std::size_t>(classes[i])]);
}

}  // namespace backplane::cpu
