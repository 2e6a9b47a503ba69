// ArrayFeatureExtractor, Binarizer, FeatureVectorizer, Imputer, Normalizer, OneHotEncoder, Scaler:
// https://onnx.ai/onnx/operators/onnx_aionnxml_OneHotEncoder.html and the others.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/common/checked.hpp"
#include "plugins/cpu/kernels/dims.hpp"
#include "plugins/cpu/kernels/element_mover.hpp"
#include "plugins/cpu/kernels/feature_rows.hpp"
#include "plugins/cpu/kernels/key_table.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

constexpr double kNsPerFeature = 1;

/// Calls body(TypeTag) for one of feature_types().
template <class Body>
auto with_feature(sdk::DataType type, const Body& body) {
  return common::with_type<float, double, std::int64_t, std::int32_t>(type, body);
}

/// What a float of attributes is computed with.
template <class T>
using FeatureWide = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Some columns, picked by number.
class ArrayFeatureExtractor {
 public:
  struct Prepared {
    std::int64_t rows, columns, picked;

    void compute(const sdk::ComputeContext& ctx) const {
      const auto* indices = ctx.input(1).data<std::int64_t>();
      for (std::int64_t i = 0; i < picked; ++i) {
        if (indices[i] < 0 || indices[i] >= columns)
          sdk::failed("ArrayFeatureExtractor: index ", indices[i], " is out of range for ", columns,
                      " columns");
      }
      const sdk::DataType type = ctx.input(0).type();
      if (type != sdk::DataType::String) {
        return with_feature(type, [&](auto tag) {
          using T = typename decltype(tag)::type;
          pick(ctx, ctx.input(0).data<T>(), indices, ctx.output(0).mutable_data<T>());
        });
      }
      const ElementMover mover(ctx.input_value(0), ctx.output_value(0));
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t i = 0; i < picked; ++i)
          mover.copy(row * picked + i, row * columns + indices[i], 1);
      }
    }

   private:
    template <class T>
    void pick(const sdk::ComputeContext& ctx, const T* x, const std::int64_t* indices, T* y) const {
      split_loop(ctx.threads(), rows, kNsPerFeature * static_cast<double>(picked), 16,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     for (std::int64_t i = 0; i < picked; ++i)
                       y[row * picked + i] = x[row * columns + indices[i]];
                   }
                 });
    }
  };

  ArrayFeatureExtractor(const sdk::CreateContext&, const sdk::Node&) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    if (x.rank() == 0) sdk::invalid("ArrayFeatureExtractor: the input is a scalar");
    const std::int64_t picked = ctx.input(1).size();
    sdk::Dims dims = to_dims(x.dims());
    const std::int64_t columns = dims.back();
    dims.back() = picked;
    if (x.rank() == 1) dims.insert(dims.begin(), 1);
    ctx.set_output(0, x.type(), dims);
    return {dims_product(dims, 0, dims.size() - 1), columns, picked};
  }
};

/// 1 for what is above a threshold, else 0.
class Binarizer {
 public:
  struct Prepared {
    float threshold;
    std::int64_t count;

    void compute(const sdk::ComputeContext& ctx) const {
      with_feature(ctx.input(0).type(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T* x = ctx.input(0).data<T>();
        T* y = ctx.output(0).mutable_data<T>();
        const auto least = static_cast<FeatureWide<T>>(threshold);
        split_elements(ctx.threads(), count, kNsPerFeature, [&](auto begin, auto end) {
          for (auto i = begin; i < end; ++i)
            y[i] = static_cast<FeatureWide<T>>(x[i]) > least ? T{1} : T{0};
        });
      });
    }
  };

  Binarizer(const sdk::CreateContext&, const sdk::Node& node)
      : threshold_(node.get_float("threshold", 0)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output(0, ctx.input(0).type(), ctx.input(0).dims());
    ctx.allow_in_place(0, 0);
    return {threshold_, ctx.input(0).size()};
  }

 private:
  float threshold_;
};

/// Inputs side by side, as floats; where one is narrower than attribute inputdimensions says, zeros follow.
class FeatureVectorizer {
 public:
  struct Prepared {
    std::vector<std::int64_t> widths;
    std::int64_t rows, total;

    void compute(const sdk::ComputeContext& ctx) const {
      auto* y = ctx.output(0).mutable_data<float>();
      std::fill_n(y, rows * total, 0.0f);
      for (std::size_t n = 0; n < widths.size(); ++n) {
        const sdk::Tensor x = ctx.input(static_cast<std::uint32_t>(n));
        const std::int64_t columns = rows > 0 ? x.size() / rows : 0;
        with_feature(x.type(), [&](auto tag) {
          const auto* from = x.data<typename decltype(tag)::type>();
          for (std::int64_t row = 0; row < rows; ++row) {
            for (std::int64_t i = 0; i < std::min(columns, widths[n]); ++i)
              y[row * total + i] = static_cast<float>(from[row * columns + i]);
          }
        });
        y += widths[n];
      }
    }
  };

  FeatureVectorizer(const sdk::CreateContext&, const sdk::Node& node)
      : widths_(node.get_ints("inputdimensions")) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    if (widths_.size() != ctx.input_count())
      sdk::invalid("attribute 'inputdimensions' has ", widths_.size(), " entries for ",
                   ctx.input_count(), " inputs");
    Prepared prepared{widths_, 0, 0};
    for (std::uint32_t n = 0; n < ctx.input_count(); ++n) {
      const sdk::Tensor x = ctx.input(n);
      if (x.rank() == 0) sdk::invalid("FeatureVectorizer: input ", n, " is a scalar");
      const std::int64_t rows = x.rank() == 1 ? 1 : x.dim(0);
      if (widths_[n] < 0 || (n > 0 && rows != prepared.rows)) {
        sdk::invalid("FeatureVectorizer: input ", n, " of dims ", sdk::to_string(x.dims()),
                     ", with inputdimensions ", widths_[n], ", does not fit the others");
      }
      prepared.rows = rows;
      prepared.total = (common::Checked(prepared.total) + widths_[n])
                           .value("FeatureVectorizer: the sum of attribute 'inputdimensions'");
    }
    ctx.set_output(0, sdk::DataType::Float, sdk::Dims{prepared.rows, prepared.total});
    return prepared;
  }

 private:
  std::vector<std::int64_t> widths_;
};

/// Features of one value replaced by another, or each column's own.
class Imputer {
 public:
  struct Prepared {
    const Imputer* kernel;
    FeatureRows shape;

    void compute(const sdk::ComputeContext& ctx) const {
      with_feature(ctx.input(0).type(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        if constexpr (std::is_floating_point_v<T>)
          replace<T>(ctx, static_cast<T>(kernel->replaced_float_), kernel->floats_);
        else
          replace<T>(ctx, static_cast<T>(kernel->replaced_int_), kernel->ints_);
      });
    }

   private:
    template <class T, class Values>
    void replace(const sdk::ComputeContext& ctx, T replaced, const Values& values) const {
      const T* x = ctx.input(0).data<T>();
      T* y = ctx.output(0).mutable_data<T>();
      const bool by_column = values.size() > 1;
      for (std::int64_t i = 0; i < shape.size(); ++i) {
        const bool missing = x[i] == replaced || (x[i] != x[i] && replaced != replaced);
        const std::int64_t column = by_column ? i % shape.columns : 0;
        y[i] = missing ? static_cast<T>(values[static_cast<std::size_t>(column)]) : x[i];
      }
    }
  };

  Imputer(const sdk::CreateContext&, const sdk::Node& node)
      : floats_(node.get_floats("imputed_value_floats")),
        ints_(node.get_ints("imputed_value_int64s")),
        replaced_float_(node.get_float("replaced_value_float", 0)),
        replaced_int_(node.get_int("replaced_value_int64", 0)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const FeatureRows shape = FeatureRows::of("Imputer", x);
    const bool real = x.type() == sdk::DataType::Float || x.type() == sdk::DataType::Double;
    const std::size_t count = real ? floats_.size() : ints_.size();
    if (count != 1 && static_cast<std::int64_t>(count) != shape.columns) {
      sdk::invalid("attribute '", real ? "imputed_value_floats" : "imputed_value_int64s", "' has ",
                   count, " entries, 1 or ", shape.columns, " are needed");
    }
    ctx.set_output(0, x.type(), x.dims());
    ctx.allow_in_place(0, 0);
    return {this, shape};
  }

 private:
  std::vector<float> floats_;
  std::vector<std::int64_t> ints_;
  float replaced_float_;
  std::int64_t replaced_int_;
};

/// Rows divided by their greatest element, or by the sum of their magnitudes, or by their length; by nothing where
/// that is 0.
class Normalizer {
 public:
  struct Prepared {
    char norm;  // M, 1 or 2
    FeatureRows shape;

    void compute(const sdk::ComputeContext& ctx) const {
      with_feature(ctx.input(0).type(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T* x = ctx.input(0).data<T>();
        auto* y = ctx.output(0).mutable_data<float>();
        split_loop(ctx.threads(), shape.rows, kNsPerFeature * static_cast<double>(shape.columns), 4,
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = begin; row < end; ++row)
                       divide(x + row * shape.columns, y + row * shape.columns);
                   });
      });
    }

   private:
    template <class T>
    void divide(const T* x, float* y) const {
      double sum = norm == 'M' ? -std::numeric_limits<double>::infinity() : 0;
      for (std::int64_t i = 0; i < shape.columns; ++i) {
        const auto value = static_cast<double>(x[i]);
        sum = norm == 'M' ? std::max(sum, value)
                          : sum + (norm == '1' ? std::abs(value) : value * value);
      }
      if (norm == '2') sum = std::sqrt(sum);
      const double factor = sum != 0 ? 1 / sum : 1;
      for (std::int64_t i = 0; i < shape.columns; ++i)
        y[i] = static_cast<float>(static_cast<double>(x[i]) * factor);
    }
  };

  Normalizer(const sdk::CreateContext&, const sdk::Node& node) {
    const std::string norm = node.get_string("norm", "MAX");
    if (norm != "MAX" && norm != "L1" && norm != "L2")
      sdk::invalid("attribute 'norm' is '", norm, "'; it may be MAX, L1 or L2");
    norm_ = norm == "MAX" ? 'M' : norm[1];
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const FeatureRows shape = FeatureRows::of("Normalizer", ctx.input(0));
    ctx.set_output(0, sdk::DataType::Float, ctx.input(0).dims());
    return {norm_, shape};
  }

 private:
  char norm_;
};

/// A column for each category.
class OneHotEncoder {
 public:
  struct Prepared {
    const OneHotEncoder* kernel;
    std::int64_t count;

    void compute(const sdk::ComputeContext& ctx) const {
      const auto width = static_cast<std::int64_t>(kernel->width_);
      auto* y = ctx.output(0).mutable_data<float>();
      std::fill_n(y, count * width, 0.0f);
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int32_t place = find(ctx, i);
        if (place != KeyTable::kNone)
          y[i * width + place] = 1;
        else if (!kernel->zeros_)
          sdk::failed("OneHotEncoder: element ", i, " is in no category");
      }
    }

   private:
    std::int32_t find(const sdk::ComputeContext& ctx, std::int64_t i) const {
      const KeyTable& table = kernel->table_;
      if (ctx.input(0).type() == sdk::DataType::String)
        return table.find(ctx.input_value(0).string_at(static_cast<std::uint64_t>(i)));
      return with_feature(ctx.input(0).type(), [&](auto tag) -> std::int32_t {
        using T = typename decltype(tag)::type;
        const T value = ctx.input(0).data<T>()[i];
        if constexpr (std::is_floating_point_v<T>) {  // else there is no such integer
          if (!(std::abs(value) < static_cast<T>(9e18))) return KeyTable::kNone;
        }
        return table.find(static_cast<std::int64_t>(value));
      });
    }
  };

  OneHotEncoder(const sdk::CreateContext&, const sdk::Node& node)
      : zeros_(node.get_int("zeros", 1) != 0) {
    const auto texts = node.get_strings("cats_strings");
    const auto numbers = node.get_ints("cats_int64s");
    const bool from_text = node.input(0).type() == sdk::DataType::String;
    if (from_text ? texts.empty() : numbers.empty())
      sdk::invalid("OneHotEncoder: attribute '", from_text ? "cats_strings" : "cats_int64s",
                   "' is needed for this input");
    table_.add_all(texts);
    table_.add_all(numbers);
    width_ = from_text ? texts.size() : numbers.size();
  }
  OneHotEncoder(const OneHotEncoder&) = delete;
  OneHotEncoder& operator=(const OneHotEncoder&) = delete;

  Prepared prepare(sdk::PrepareContext& ctx) const {
    sdk::Dims dims = to_dims(ctx.input(0).dims());
    dims.push_back(static_cast<std::int64_t>(width_));
    ctx.set_output(0, sdk::DataType::Float, dims);
    return {this, ctx.input(0).size()};
  }

 private:
  KeyTable table_;
  std::size_t width_ = 0;
  bool zeros_;
};

/// (x - offset) * scale
class Scaler {
 public:
  struct Prepared {
    const Scaler* kernel;
    FeatureRows shape;

    void compute(const sdk::ComputeContext& ctx) const {
      with_feature(ctx.input(0).type(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        using Wide = FeatureWide<T>;
        const T* x = ctx.input(0).data<T>();
        auto* y = ctx.output(0).mutable_data<float>();
        const float* offset = kernel->offset_.data();
        const float* scale = kernel->scale_.data();
        const std::int64_t columns = kernel->offset_.size() == 1 ? 1 : shape.columns;
        const std::int64_t rows = columns > 0 ? shape.size() / columns : 0;
        split_loop(ctx.threads(), rows, kNsPerFeature * static_cast<double>(columns), 16,
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = begin; row < end; ++row) {
                       for (std::int64_t i = 0; i < columns; ++i) {
                         const std::int64_t at = row * columns + i;
                         y[at] = static_cast<float>(
                             (static_cast<Wide>(x[at]) - static_cast<Wide>(offset[i])) *
                             static_cast<Wide>(scale[i]));
                       }
                     }
                   });
      });
    }
  };

  Scaler(const sdk::CreateContext&, const sdk::Node& node)
      : offset_(node.get_floats("offset")), scale_(node.get_floats("scale")) {
    if (offset_.empty()) offset_.assign(std::max<std::size_t>(1, scale_.size()), 0.0f);
    if (scale_.empty()) scale_.assign(offset_.size(), 1.0f);
    if (offset_.size() != scale_.size())
      sdk::invalid("attributes 'offset' and 'scale' have ", offset_.size(), " and ", scale_.size(),
                   " entries");
  }
  Scaler(const Scaler&) = delete;
  Scaler& operator=(const Scaler&) = delete;

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const FeatureRows shape = FeatureRows::of("Scaler", x);
    if (offset_.size() != 1 && static_cast<std::int64_t>(offset_.size()) != shape.columns)
      sdk::invalid("Scaler: the input has dims ", sdk::to_string(x.dims()),
                   ", attribute 'offset' has ", offset_.size(), " entries");
    ctx.set_output(0, sdk::DataType::Float, x.dims());
    return {this, shape};
  }

 private:
  std::vector<float> offset_, scale_;
};

}  // namespace

sdk::KernelList feature_encoding_kernels() {
  const auto op = [](const char* name) { return sdk::op(name, kMlDomain); };
  return {op("ArrayFeatureExtractor")
              .name("cpu:array_feature_extractor")
              .kernel<ArrayFeatureExtractor>(),
          op("Binarizer").name("cpu:binarizer").kernel<Binarizer>(),
          op("FeatureVectorizer").name("cpu:feature_vectorizer").kernel<FeatureVectorizer>(),
          op("Imputer").name("cpu:imputer").kernel<Imputer>(),
          op("Normalizer").name("cpu:normalizer").kernel<Normalizer>(),
          op("OneHotEncoder").name("cpu:one_hot_encoder").kernel<OneHotEncoder>(),
          op("Scaler").name("cpu:scaler").kernel<Scaler>()};
}

}  // namespace backplane::cpu
