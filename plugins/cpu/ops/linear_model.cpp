// LinearClassifier, LinearRegressor: https://onnx.ai/onnx/operators/onnx_aionnxml_LinearClassifier.html and the other.
#include <algorithm>
#include <utility>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/fixed_product.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/class_scores.hpp"
#include "plugins/cpu/kernels/feature_rows.hpp"
#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

constexpr double kNsPerScore = 3;

/// x W^T + intercepts, of the attributes that both operators have.
class LinearScores {
 public:
  struct Plan {
    FeatureRows shape;
    MatMulF32 product;
    std::uint64_t feature_bytes;

    std::uint64_t bytes() const { return feature_bytes + align64(product.workspace_bytes(true)); }
  };

  LinearScores(const sdk::CreateContext& ctx, const sdk::Node& node, std::int64_t targets) {
    const std::vector<float> weights = node.get_floats("coefficients");
    const std::vector<float> intercepts = node.get_floats("intercepts");
    const auto count = static_cast<std::int64_t>(weights.size());
    if (targets <= 0 || count == 0 || count % targets != 0) {
      sdk::invalid("attribute 'coefficients' has ", count, " entries, which are no rows for ",
                   targets, " targets");
    }
    if (!intercepts.empty() && static_cast<std::int64_t>(intercepts.size()) != targets) {
      sdk::invalid("attribute 'intercepts' has ", intercepts.size(), " entries, ", targets,
                   " are needed");
    }
    features_ = count / targets;
    product_ = FixedProduct(weights.data(), features_, targets, features_, 1.0f, intercepts,
                            isa_of(ctx), ctx.threads());
  }

  std::int64_t targets() const { return product_.columns(); }

  Plan prepare(const char* op, const sdk::PrepareContext& ctx) const {
    const FeatureRows shape = FeatureRows::of(op, ctx.input(0));
    if (shape.columns != features_) {
      sdk::invalid(op, ": the input has dims ", sdk::to_string(ctx.input(0).dims()),
                   ", the coefficients are for ", features_, " features");
    }
    return {shape, product_.plan(shape.rows, ctx.threads().count()),
            align64(rows_bytes<float>(ctx.input(0).type(), shape))};
  }

  /// Rows of scores, `pitch` apart.
  void run(const sdk::ComputeContext& ctx, const Plan& plan, float* y, std::int64_t pitch) const {
    if (plan.shape.rows == 0) return;
    auto* memory = ctx.workspace().mutable_data<char>();
    const float* x = rows_as<float>(ctx.input(0), memory);
    product_.run(plan.product, x, plan.shape.columns, y, pitch, memory + plan.feature_bytes,
                 ctx.threads());
  }

 private:
  std::int64_t features_ = 0;
  FixedProduct product_;
};

class LinearRegressor {
 public:
  struct Prepared {
    const LinearRegressor* kernel;
    LinearScores::Plan plan;

    void compute(const sdk::ComputeContext& ctx) const {
      float* y = ctx.output(0).mutable_data<float>();
      const std::int64_t targets = kernel->scores_.targets();
      kernel->scores_.run(ctx, plan, y, targets);
      transform_rows(kernel->isa_, kernel->transform_, y, targets, plan.shape.rows);
    }
  };

  LinearRegressor(const sdk::CreateContext& ctx, const sdk::Node& node)
      : scores_(ctx, node, node.get_int("targets", 1)),
        transform_(post_transform_of(node)),
        isa_(isa_of(ctx)) {}
  LinearRegressor(const LinearRegressor&) = delete;
  LinearRegressor& operator=(const LinearRegressor&) = delete;

  Prepared prepare(sdk::PrepareContext& ctx) const {
    LinearScores::Plan plan = scores_.prepare("LinearRegressor", ctx);
    ctx.set_output(0, sdk::DataType::Float, sdk::Dims{plan.shape.rows, scores_.targets()});
    ctx.set_workspace(plan.bytes());
    return {this, std::move(plan)};
  }

 private:
  LinearScores scores_;
  PostTransform transform_;
  Isa isa_;
};

/// The number of rows of coefficients: one for each intercept, or else for each label.
std::int64_t score_count(const sdk::Node& node, const ClassLabels& labels) {
  const std::size_t intercepts = node.get_floats("intercepts").size();
  return intercepts > 0 ? static_cast<std::int64_t>(intercepts) : labels.count();
}

class LinearClassifier {
 public:
  struct Prepared {
    const LinearClassifier* kernel;
    LinearScores::Plan plan;

    void compute(const sdk::ComputeContext& ctx) const {
      float* y = ctx.output(1).mutable_data<float>();
      const std::int64_t columns = kernel->columns();
      kernel->scores_.run(ctx, plan, y, columns);
      auto* memory = ctx.workspace().mutable_data<char>();
      auto* classes = reinterpret_cast<std::int32_t*>(memory + plan.bytes());
      split_loop(ctx.threads(), plan.shape.rows, kNsPerScore * static_cast<double>(columns), 16,
                 [&](std::int64_t begin, std::int64_t end) {
                   kernel->finish(y + begin * columns, classes + begin, end - begin);
                 });
      kernel->labels_.write(ctx, classes, plan.shape.rows);
    }
  };

  LinearClassifier(const sdk::CreateContext& ctx, const sdk::Node& node)
      : labels_(node, "classlabels_ints", "classlabels_strings"),
        scores_(ctx, node, score_count(node, labels_)),
        transform_(post_transform_of(node)),
        isa_(isa_of(ctx)),
        second_(scores_.targets() == 1 && labels_.count() == 2) {
    labels_.complete(std::max<std::int64_t>(2, scores_.targets()));
  }
  LinearClassifier(const LinearClassifier&) = delete;
  LinearClassifier& operator=(const LinearClassifier&) = delete;

  Prepared prepare(sdk::PrepareContext& ctx) const {
    LinearScores::Plan plan = scores_.prepare("LinearClassifier", ctx);
    ctx.set_output(0, labels_.type(), sdk::Dims{plan.shape.rows});
    ctx.set_output(1, sdk::DataType::Float, sdk::Dims{plan.shape.rows, columns()});
    ctx.set_workspace(plan.bytes() + 4 * static_cast<std::uint64_t>(plan.shape.rows));
    return {this, std::move(plan)};
  }

 private:
  std::int64_t columns() const { return second_ ? 2 : scores_.targets(); }

  /// Names a class for each of the rows, and transforms the scores.
  void finish(float* y, std::int32_t* classes, std::int64_t rows) const {
    const std::int64_t width = columns();
    for (std::int64_t row = 0; row < rows; ++row) {
      float* own = y + row * width;
      if (scores_.targets() > 1) {
        classes[row] = static_cast<std::int32_t>(std::max_element(own, own + width) - own);
        continue;
      }
      classes[row] = own[0] > 0 ? 1 : 0;
      if (!second_) continue;
      own[1] = own[0];
      own[0] = transform_ == PostTransform::kNone ? 1 - own[1] : -own[1];
    }
    transform_rows(isa_, transform_, y, width, rows);
  }

  ClassLabels labels_;
  LinearScores scores_;
  PostTransform transform_;
  Isa isa_;
  bool second_;  // one score, of the second of two classes
};

}  // namespace

sdk::KernelList linear_model_kernels() {
  return {sdk::op("LinearRegressor", kMlDomain)
              .name("cpu:linear_regressor")
              .types("T", feature_types())
              .kernel<LinearRegressor>(),
          sdk::op("LinearClassifier", kMlDomain)
              .name("cpu:linear_classifier")
              .types("T1", feature_types())
              .kernel<LinearClassifier>()};
}

}  // namespace backplane::cpu
