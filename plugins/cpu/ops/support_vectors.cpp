// SVMClassifier, SVMRegressor: https://onnx.ai/onnx/operators/onnx_aionnxml_SVMClassifier.html and the other.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/common/checked.hpp"
#include "plugins/cpu/dense/support_kernel.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/class_scores.hpp"
#include "plugins/cpu/kernels/feature_rows.hpp"
#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

// Rows whose kernel values are in memory together.
constexpr std::int64_t kBlockRows = 64;
constexpr double kNsPerPair = 5;

/// Calls body(part, first row, rows) for blocks of rows; the last block, where it is smaller, is part 1.
template <class Body>
void each_block(std::int64_t rows, const Body& body) {
  for (std::int64_t row = 0; row < rows; row += kBlockRows) {
    const std::int64_t count = std::min(kBlockRows, rows - row);
    body(count == kBlockRows ? 0 : 1, row, count);
  }
}

FeatureRows checked_rows(const char* op, const sdk::Tensor& x, const SupportKernel& kernel) {
  const FeatureRows shape = FeatureRows::of(op, x);
  if (shape.columns != kernel.features()) {
    sdk::invalid(op, ": the input has dims ", sdk::to_string(x.dims()), ", the vectors have ",
                 kernel.features(), " features");
  }
  return shape;
}

/// The sizes of whole blocks and of the last one.
std::pair<std::int64_t, std::int64_t> block_sizes(std::int64_t rows) {
  return {std::min(kBlockRows, rows), rows % kBlockRows};
}

class SvmRegressor {
 public:
  struct Prepared {
    const SvmRegressor* kernel;
    FeatureRows shape;
    SupportKernel::Plan kernels[2];
    MatMulF32 sums[2];
    std::uint64_t features, values;  // bytes of these parts of the workspace

    void compute(const sdk::ComputeContext& ctx) const {
      auto* memory = ctx.workspace().mutable_data<char>();
      const float* x = rows_as<float>(ctx.input(0), memory);
      auto* k = reinterpret_cast<float*>(memory + features);
      void* scratch = memory + features + values;
      float* y = ctx.output(0).mutable_data<float>();
      const SupportKernel& vectors = kernel->vectors_;
      each_block(shape.rows, [&](int part, std::int64_t row, std::int64_t) {
        const float* from = x + row * shape.columns;
        if (kernel->linear_)
          return vectors.run(kernels[part], from, y + row, scratch, ctx.threads());
        vectors.run(kernels[part], from, k, scratch, ctx.threads());
        kernel->sum_.run(sums[part], k, vectors.pitch(), y + row, 1, scratch, ctx.threads());
      });
      transform_rows(kernel->isa_, kernel->transform_, y, 1, shape.rows);
      if (kernel->one_class_)
        std::transform(y, y + shape.rows, y, [](float sum) { return sum > 0 ? 1.0f : -1.0f; });
    }
  };

  SvmRegressor(const sdk::CreateContext& ctx, const sdk::Node& node)
      : linear_(node.get_int("n_supports", 0) <= 0),
        one_class_(node.get_int("one_class", 0) != 0),
        transform_(post_transform_of(node)),
        isa_(isa_of(ctx)),
        rho_(first_of(node.get_floats("rho"))),
        vectors_(ctx, node, node.get_floats(linear_ ? "coefficients" : "support_vectors"),
                 linear_ ? 1 : node.get_int("n_supports", 0), linear_, rho_) {
    if (linear_) return;
    const std::vector<float> weights = node.get_floats("coefficients");
    if (static_cast<std::int64_t>(weights.size()) != vectors_.count())
      sdk::invalid("attribute 'coefficients' has ", weights.size(), " entries for ",
                   vectors_.count(), " vectors");
    sum_ = FixedProduct(weights.data(), vectors_.count(), 1, vectors_.count(), 1.0f, {rho_}, isa_,
                        ctx.threads());
  }
  SvmRegressor(const SvmRegressor&) = delete;
  SvmRegressor& operator=(const SvmRegressor&) = delete;

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const FeatureRows shape = checked_rows("SVMRegressor", ctx.input(0), vectors_);
    ctx.set_output(0, sdk::DataType::Float, sdk::Dims{shape.rows, 1});
    const auto [whole, rest] = block_sizes(shape.rows);
    const unsigned threads = ctx.threads().count();
    Prepared prepared{this,
                      shape,
                      {vectors_.plan(whole, threads), vectors_.plan(rest, threads)},
                      {sum_.plan(whole, threads), sum_.plan(rest, threads)},
                      align64(rows_bytes<float>(ctx.input(0).type(), shape)),
                      align64(4 * static_cast<std::uint64_t>(whole * vectors_.pitch()))};
    std::uint64_t scratch = 0;
    for (const auto& plan : prepared.kernels) scratch = std::max(scratch, plan.workspace_bytes());
    for (const auto& plan : prepared.sums) scratch = std::max(scratch, plan.workspace_bytes(true));
    ctx.set_workspace(prepared.features + prepared.values + scratch);
    return prepared;
  }

 private:
  static float first_of(const std::vector<float>& numbers) {
    return numbers.empty() ? 0.0f : numbers[0];
  }

  bool linear_;  // the coefficients are those of the features
  bool one_class_;
  PostTransform transform_;
  Isa isa_;
  float rho_;
  SupportKernel vectors_;
  FixedProduct sum_;
};

/// The probabilities p of classes from those r[i][j] that it is i, if it is i or j: the second method of Wu, Lin and
/// Weng, Probability Estimates for Multi-class Classification by Pairwise Coupling (2004), as far as libsvm goes.
/// `scratch` has classes * (classes + 1) places.
void couple_pairs(std::int64_t classes, const double* r, double* p, double* scratch) {
  double* q = scratch;
  double* qp = scratch + classes * classes;
  std::fill_n(p, classes, 1.0 / static_cast<double>(classes));
  for (std::int64_t i = 0; i < classes; ++i) {
    q[i * classes + i] = 0;
    for (std::int64_t j = 0; j < classes; ++j) {
      if (i == j) continue;
      q[i * classes + i] += r[j * classes + i] * r[j * classes + i];
      q[i * classes + j] = -r[j * classes + i] * r[i * classes + j];
    }
  }
  const double enough = 0.005 / static_cast<double>(classes);
  for (int turn = 0; turn < 100; ++turn) {
    for (std::int64_t i = 0; i < classes; ++i)
      qp[i] = std::inner_product(p, p + classes, q + i * classes, 0.0);
    double pqp = std::inner_product(p, p + classes, qp, 0.0);
    double error = 0;
    for (std::int64_t i = 0; i < classes; ++i) error = std::max(error, std::abs(qp[i] - pqp));
    if (error < enough) return;
    for (std::int64_t i = 0; i < classes; ++i) {
      const double* row = q + i * classes;
      const double step = (pqp - qp[i]) / row[i], scale = 1 + step;
      p[i] += step;
      pqp = (pqp + step * (step * row[i] + 2 * qp[i])) / (scale * scale);
      for (std::int64_t j = 0; j < classes; ++j) {
        qp[j] = (qp[j] + step * row[j]) / scale;
        p[j] /= scale;
      }
    }
  }
}

class SvmClassifier {
 public:
  struct Prepared {
    const SvmClassifier* kernel;
    FeatureRows shape;
    SupportKernel::Plan kernels[2];
    std::vector<MatMulF32> sums[2];                        // by class
    std::uint64_t features, values, parts, doubles, ints;  // bytes of these parts of the workspace

    void compute(const sdk::ComputeContext& ctx) const {
      auto* memory = ctx.workspace().mutable_data<char>();
      const float* x = rows_as<float>(ctx.input(0), memory);
      auto* k = reinterpret_cast<float*>(memory + features);
      auto* part_sums = reinterpret_cast<float*>(memory + features + values);
      auto* wide = reinterpret_cast<double*>(memory + features + values + parts);
      auto* classes = reinterpret_cast<std::int32_t*>(memory + features + values + parts + doubles);
      void* scratch = memory + features + values + parts + doubles + ints;
      float* y = ctx.output(1).mutable_data<float>();
      const std::int64_t width = kernel->width();
      each_block(shape.rows, [&](int part, std::int64_t row, std::int64_t count) {
        const float* from = x + row * shape.columns;
        float* to = y + row * width;
        if (kernel->linear_) {
          kernel->vectors_.run(kernels[part], from, to, scratch, ctx.threads());
          for (std::int64_t i = 0; i < count; ++i)
            classes[row + i] = kernel->class_of_linear(to + i * width);
        } else {
          kernel->vectors_.run(kernels[part], from, k, scratch, ctx.threads());
          kernel->sum_by_class(ctx, sums[part], k, part_sums, count, scratch);
          split_loop(ctx.threads(), count, kNsPerPair * static_cast<double>(kernel->pair_cost()), 1,
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i)
                         classes[row + i] = kernel->class_of_pairs(
                             part_sums, count, i, wide + i * kernel->doubles_of_row(),
                             to + i * width);
                     });
        }
        transform_rows(kernel->isa_, kernel->transform_, to, width, count);
      });
      kernel->labels_.write(ctx, classes, shape.rows);
    }
  };

  SvmClassifier(const sdk::CreateContext& ctx, const sdk::Node& node)
      : labels_(node, "classlabels_ints", "classlabels_strings"),
        counts_(node.get_ints("vectors_per_class")),
        linear_(total(counts_) == 0),
        rho_(node.get_floats("rho")),
        prob_a_(node.get_floats("prob_a")),
        prob_b_(node.get_floats("prob_b")),
        transform_(post_transform_of(node)),
        isa_(isa_of(ctx)),
        vectors_(ctx, node, node.get_floats(linear_ ? "coefficients" : "support_vectors"),
                 linear_ ? labels_.count() : total(counts_), linear_,
                 rho_.empty() ? 0.0f : rho_[0]) {
    const std::vector<float> weights = node.get_floats("coefficients");
    all_positive_ =
        std::all_of(weights.begin(), weights.end(), [](float weight) { return weight >= 0; });
    if (!linear_) read_sums(ctx, weights);
  }
  SvmClassifier(const SvmClassifier&) = delete;
  SvmClassifier& operator=(const SvmClassifier&) = delete;

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const FeatureRows shape = checked_rows("SVMClassifier", ctx.input(0), vectors_);
    ctx.set_output(0, labels_.type(), sdk::Dims{shape.rows});
    ctx.set_output(1, sdk::DataType::Float, sdk::Dims{shape.rows, width()});
    const auto [whole, rest] = block_sizes(shape.rows);
    const unsigned threads = ctx.threads().count();
    const auto rows = static_cast<std::uint64_t>(whole);
    Prepared prepared{this,
                      shape,
                      {vectors_.plan(whole, threads), vectors_.plan(rest, threads)},
                      {},
                      align64(rows_bytes<float>(ctx.input(0).type(), shape)),
                      align64(4 * rows * static_cast<std::uint64_t>(vectors_.pitch())),
                      align64(4 * rows * static_cast<std::uint64_t>(classes() * (classes() - 1))),
                      align64(8 * rows * static_cast<std::uint64_t>(doubles_of_row())),
                      align64(4 * static_cast<std::uint64_t>(shape.rows))};
    std::uint64_t scratch = 0;
    for (const auto& plan : prepared.kernels) scratch = std::max(scratch, plan.workspace_bytes());
    for (const FixedProduct& sum : sums_) {
      prepared.sums[0].push_back(sum.plan(whole, threads));
      prepared.sums[1].push_back(sum.plan(rest, threads));
      for (const auto& plans : prepared.sums)
        scratch = std::max(scratch, plans.back().workspace_bytes(true));
    }
    ctx.set_workspace(prepared.features + prepared.values + prepared.parts + prepared.doubles +
                      prepared.ints + scratch);
    return prepared;
  }

 private:
  static std::int64_t total(const std::vector<std::int64_t>& counts) {
    common::Checked sum(0);
    for (const std::int64_t count : counts) {
      if (count < 0) sdk::invalid("attribute 'vectors_per_class' has the entry ", count);
      sum = sum + count;
    }
    return sum.value("the sum of attribute 'vectors_per_class'");
  }

  std::int64_t classes() const { return labels_.count(); }
  std::int64_t pairs() const { return classes() * (classes() - 1) / 2; }
  bool has_probabilities() const { return !linear_ && !prob_a_.empty(); }
  /// Columns of the scores: classes, or decisions between two of them.
  std::int64_t width() const {
    return linear_ || has_probabilities() || classes() == 2 ? classes() : pairs();
  }
  /// Of decisions or probabilities of pairs, probabilities, and what coupling them needs.
  std::int64_t doubles_of_row() const { return 2 * classes() * (classes() + 1); }
  std::int64_t pair_cost() const { return has_probabilities() ? 40 * pairs() : pairs(); }

  /// Coefficients [classes - 1, vectors]: vectors of class i have in row j - 1 (i < j) or j (i > j) what they count in
  /// the decision between i and j. One product for the vectors of each class.
  void read_sums(const sdk::CreateContext& ctx, const std::vector<float>& weights) {
    if (classes() < 2 || static_cast<std::int64_t>(counts_.size()) != classes())
      sdk::invalid("attribute 'vectors_per_class' has ", counts_.size(), " entries for ", classes(),
                   " classes");
    const std::int64_t vectors = vectors_.count(), rows = classes() - 1;
    if (static_cast<std::int64_t>(weights.size()) != rows * vectors)
      sdk::invalid("attribute 'coefficients' has ", weights.size(), " entries, ", rows, " x ",
                   vectors, " are needed");
    const auto needed = static_cast<std::size_t>(pairs());
    if (rho_.size() < needed || prob_a_.size() != prob_b_.size() ||
        (!prob_a_.empty() && prob_a_.size() < needed)) {
      sdk::invalid("attributes 'rho', 'prob_a' and 'prob_b' have ", rho_.size(), ", ",
                   prob_a_.size(), " and ", prob_b_.size(), " entries, ", needed, " are needed");
    }
    std::int64_t first = 0;
    for (const std::int64_t count : counts_) {
      sums_.emplace_back(weights.data() + first, vectors, rows, count, 1.0f, std::vector<float>(),
                         isa_, ctx.threads());
      first += count;
    }
  }

  /// sums[class][row][classes - 1]
  void sum_by_class(const sdk::ComputeContext& ctx, const std::vector<MatMulF32>& plans,
                    const float* k, float* sums, std::int64_t rows, void* scratch) const {
    const std::int64_t size = rows * (classes() - 1);
    for (std::size_t i = 0; i < sums_.size(); ++i, sums += size) {
      if (counts_[i] == 0)
        std::fill_n(sums, size, 0.0f);
      else
        sums_[i].run(plans[i], k, vectors_.pitch(), sums, classes() - 1, scratch, ctx.threads());
      k += counts_[i];
    }
  }

  /// The class with the most decisions for it; scores in y.
  std::int32_t class_of_pairs(const float* sums, std::int64_t rows, std::int64_t row, double* wide,
                              float* y) const {
    const std::int64_t n = classes();
    const auto sum = [&](std::int64_t of, std::int64_t weights_row) {
      return static_cast<double>(sums[(of * rows + row) * (n - 1) + weights_row]);
    };
    double* pairs_of = wide;       // [n, n]
    double* votes = wide + n * n;  // [n], then probabilities
    double* scratch = wide + n * n + n;
    std::fill_n(votes, n, 0.0);
    std::size_t at = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = i + 1; j < n; ++j, ++at) {
        const double decision = sum(i, j - 1) + sum(j, i) + static_cast<double>(rho_[at]);
        votes[decision > 0 ? i : j] += 1;
        if (!has_probabilities()) {
          y[at] = static_cast<float>(decision);
          continue;
        }
        const double raw =
            decision * static_cast<double>(prob_a_[at]) + static_cast<double>(prob_b_[at]);
        const double share = std::clamp(1 / (1 + std::exp(raw)), 1e-7, 1 - 1e-7);
        pairs_of[i * n + j] = share;
        pairs_of[j * n + i] = 1 - share;
      }
    }
    const auto best = static_cast<std::int32_t>(std::max_element(votes, votes + n) - votes);
    if (has_probabilities()) {
      couple_pairs(n, pairs_of, votes, scratch);
      for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(votes[i]);
    } else if (n == 2) {
      y[1] = y[0];
      y[0] = -y[1];
    }
    return best;
  }

  /// Between two classes it is the second one where any score is positive (or half, where all weights are): models
  /// are written for runtimes that see it so.
  std::int32_t class_of_linear(const float* scores) const {
    const float* best = std::max_element(scores, scores + classes());
    if (classes() == 2 && (all_positive_ ? *best >= 0.5f : *best > 0)) return 1;
    return static_cast<std::int32_t>(best - scores);
  }

  ClassLabels labels_;
  std::vector<std::int64_t> counts_;  // of vectors, by class
  bool linear_;                       // no vectors: coefficients of the features, by class
  std::vector<float> rho_, prob_a_, prob_b_;
  PostTransform transform_;
  Isa isa_;
  SupportKernel vectors_;
  std::vector<FixedProduct> sums_;
  bool all_positive_ = false;
};

}  // namespace

sdk::KernelList support_vectors_kernels() {
  return {sdk::op("SVMRegressor", kMlDomain)
              .name("cpu:svm_regressor")
              .types("T", feature_types())
              .kernel<SvmRegressor>(),
          sdk::op("SVMClassifier", kMlDomain)
              .name("cpu:svm_classifier")
              .types("T1", feature_types())
              .kernel<SvmClassifier>()};
}

}  // namespace backplane::cpu
