// RandomNormal, RandomUniform, their Like forms, Bernoulli, Multinomial, Dropout in training.
// https://onnx.ai/onnx/operators/onnx__RandomNormal.html and the others
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <random>

#include "backplane/plugin.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/kernels/dims.hpp"
#include "plugins/cpu/kernels/element_mover.hpp"

namespace backplane::cpu {
namespace {

/// SplitMix64 (https://doi.org/10.1145/2714064.2660195): number n of a stream is a function of seed and n.
class Numbers {
 public:
  explicit Numbers(std::uint64_t state) : state_(state) {}
  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  /// In [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  /// By Box and Muller.
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * 3.14159265358979323846 * uniform());
  }

 private:
  std::uint64_t state_;
};

/// Gives each run numbers of its own: with a seed, the same ones in every process.
class Source {
 public:
  explicit Source(std::optional<std::uint64_t> seed)
      : runs_(std::make_shared<std::atomic<std::uint64_t>>(0)) {
    if (seed) {
      seed_ = Numbers(*seed).next();
    } else {
      std::random_device device;
      seed_ = (static_cast<std::uint64_t>(device()) << 32) ^ device();
    }
  }
  Numbers numbers() const { return Numbers(Numbers(seed_ + runs_->fetch_add(1)).next()); }

 private:
  std::shared_ptr<std::atomic<std::uint64_t>> runs_;
  std::uint64_t seed_;
};

/// The attribute `seed`, which is a number of 32 bits or, of Dropout, an integer.
std::optional<std::uint64_t> float_seed(const sdk::Node& node) {
  if (!node.has("seed")) return std::nullopt;
  const float seed = node.get_float("seed", 0);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &seed, sizeof(bits));
  return bits;
}

std::optional<std::uint64_t> integer_seed(const sdk::Node& node) {
  if (!node.has("seed")) return std::nullopt;
  return static_cast<std::uint64_t>(node.get_int("seed", 0));
}

/// The type that an attribute asks for, else that of the input, else float.
sdk::DataType output_type(const sdk::Node& node, sdk::DataType otherwise) {
  const std::int64_t type = node.get_int("dtype", 0);
  return type == 0 ? otherwise : static_cast<sdk::DataType>(type);
}

/// All four: the shape is an attribute or the input's.
class Random {
 public:
  struct Prepared {
    Source source;
    bool normal;
    double offset, scale;  // of a standard number

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Tensor output = ctx.output(0);
      Numbers numbers = source.numbers();
      common::with_float(output.type(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        T* target = output.mutable_data<T>();
        for (std::int64_t i = 0; i < output.size(); ++i) {
          target[i] =
              common::narrow<T>(offset + scale * (normal ? numbers.normal() : numbers.uniform()));
        }
      });
    }
  };

  Random(const sdk::CreateContext&, const sdk::Node& node)
      : source_(float_seed(node)),
        shape_(node.get_ints("shape")),
        like_(node.input_count() > 0),
        normal_(node.op_type().substr(0, 12) == "RandomNormal"),
        type_(node.get_int("dtype", 0)) {
    if (normal_) {
      offset_ = static_cast<double>(node.get_float("mean", 0));
      scale_ = static_cast<double>(node.get_float("scale", 1));
    } else {
      offset_ = static_cast<double>(node.get_float("low", 0));
      scale_ = static_cast<double>(node.get_float("high", 1)) - offset_;
    }
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    sdk::DataType type = sdk::DataType::Float;
    if (type_ != 0) {
      type = static_cast<sdk::DataType>(type_);
    } else if (like_) {
      type = ctx.input(0).type();
    }
    common::with_float(type, [](auto) {});
    ctx.set_output(0, type, like_ ? ctx.input(0).dims() : sdk::DimsView(shape_));
    return {source_, normal_, offset_, scale_};
  }

 private:
  Source source_;
  std::vector<std::int64_t> shape_;
  bool like_, normal_;
  std::int64_t type_;
  double offset_ = 0, scale_ = 1;
};

/// 1 with the probability that the input gives, else 0.
class Bernoulli {
 public:
  struct Prepared {
    Source source;

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Tensor input = ctx.input(0), output = ctx.output(0);
      Numbers numbers = source.numbers();
      common::with_float(input.type(), [&](auto tag) {
        const auto* chances = input.data<typename decltype(tag)::type>();
        const auto draw = [&](std::int64_t i) {
          return numbers.uniform() < static_cast<double>(common::widen(chances[i]));
        };
        if (output.type() == sdk::DataType::Bool) {
          for (std::int64_t i = 0; i < output.size(); ++i) output.mutable_data<bool>()[i] = draw(i);
          return;
        }
        common::with_number(output.type(), [&](auto target_tag) {
          using T = typename decltype(target_tag)::type;
          T* target = output.mutable_data<T>();
          for (std::int64_t i = 0; i < output.size(); ++i)
            target[i] = common::narrow<T>(common::Wide<T>(draw(i) ? 1 : 0));
        });
      });
    }
  };

  Bernoulli(const sdk::CreateContext&, const sdk::Node& node)
      : source_(float_seed(node)), type_(output_type(node, sdk::DataType::None)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output(0, type_ == sdk::DataType::None ? ctx.input(0).type() : type_,
                   ctx.input(0).dims());
    return {source_};
  }

 private:
  Source source_;
  sdk::DataType type_;
};

/// Draws classes; the input holds logarithms of their chances, not normalized.
class Multinomial {
 public:
  struct Prepared {
    Source source;
    std::int64_t rows, classes, samples;

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Tensor output = ctx.output(0);
      Numbers numbers = source.numbers();
      common::with_float(ctx.input(0).type(), [&](auto tag) {
        const auto* logits = ctx.input(0).data<typename decltype(tag)::type>();
        for (std::int64_t i = 0; i < rows * samples; ++i) {
          const std::int64_t chosen = draw(numbers, logits + i / samples * classes);
          if (output.type() == sdk::DataType::Int64) {
            output.mutable_data<std::int64_t>()[i] = chosen;
          } else {
            output.mutable_data<std::int32_t>()[i] = static_cast<std::int32_t>(chosen);
          }
        }
      });
    }

   private:
    // The greatest logit plus Gumbel noise is distributed as the softmax says.
    template <class T>
    std::int64_t draw(Numbers& numbers, const T* logits) const {
      std::int64_t best = 0;
      double greatest = -std::numeric_limits<double>::infinity();
      for (std::int64_t c = 0; c < classes; ++c) {
        const double value = static_cast<double>(common::widen(logits[c])) -
                             std::log(-std::log(numbers.uniform() + 0x1p-54));
        if (value > greatest) {
          greatest = value;
          best = c;
        }
      }
      return best;
    }
  };

  Multinomial(const sdk::CreateContext&, const sdk::Node& node)
      : source_(float_seed(node)),
        samples_(node.get_int("sample_size", 1)),
        type_(output_type(node, sdk::DataType::Int32)) {
    if (samples_ < 0) sdk::invalid("Multinomial: sample_size is ", samples_);
    if (type_ != sdk::DataType::Int32 && type_ != sdk::DataType::Int64)
      sdk::invalid("Multinomial: dtype must be int32 or int64");
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor input = ctx.input(0);
    if (input.rank() != 2 || input.dim(1) < 1)
      sdk::invalid("Multinomial: the input has dims ", sdk::to_string(input.dims()),
                   ", [batch, classes] is needed");
    const sdk::Dims dims{input.dim(0), samples_};
    ctx.set_output(0, type_, dims);
    return {source_, input.dim(0), input.dim(1), samples_};
  }

 private:
  Source source_;
  std::int64_t samples_;
  sdk::DataType type_;
};

/// Drops elements with the probability `ratio` and scales the others by 1 / (1 - ratio); the mask says which stay. The
/// kernel of identity.cpp comes before it, and refuses what trains.
class TrainingDropout {
 public:
  struct Prepared {
    Source source;
    double ratio;

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Tensor input = ctx.input(0), output = ctx.output(0);
      const sdk::Tensor mask = ctx.has_output(1) ? ctx.output(1) : sdk::Tensor(nullptr);
      const double scale = 1 / (1 - ratio);
      Numbers numbers = source.numbers();
      common::with_float(input.type(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        for (std::int64_t i = 0; i < input.size(); ++i) {
          const bool stays = numbers.uniform() >= ratio;
          const double value = static_cast<double>(common::widen(input.data<T>()[i])) * scale;
          output.mutable_data<T>()[i] = common::narrow<T>(stays ? value : 0.0);
          if (mask.raw() == nullptr) continue;
          if (mask.type() == sdk::DataType::Bool) {
            mask.mutable_data<bool>()[i] = stays;
          } else {
            mask.mutable_data<T>()[i] = common::narrow<T>(stays ? 1.0 : 0.0);
          }
        }
      });
    }
  };

  TrainingDropout(const sdk::CreateContext&, const sdk::Node& node)
      : source_(integer_seed(node)),
        version_(node.since_version()),
        ratio_(node.get_float("ratio", 0.5f)) {
    if (version_ < 7 && node.get_int("is_test", 0) != 0)
      sdk::unsupported("Dropout drops nothing in a test");
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    double ratio = static_cast<double>(ratio_);
    if (version_ >= 12) {
      const sdk::Tensor training = ctx.input(2);
      if (ctx.input(1).present()) ratio = number(ctx.input(1));
      if (!training.present() || !*training.data<bool>()) ratio = 0;
    }
    if (!(ratio >= 0 && ratio < 1))
      sdk::invalid("Dropout: the ratio is ", ratio, ", which is not in [0, 1)");
    ctx.set_output(0, x.type(), x.dims());
    ctx.allow_in_place(0, 0);
    if (ctx.output_wanted(1))
      ctx.set_output(1, version_ < 10 ? x.type() : sdk::DataType::Bool, x.dims());
    return {source_, ratio};
  }

 private:
  static double number(const sdk::Tensor& scalar) {
    if (scalar.size() != 1)
      sdk::invalid("Dropout: the ratio has dims ", sdk::to_string(scalar.dims()));
    double value = 0;
    common::with_float(scalar.type(), [&](auto tag) {
      value = static_cast<double>(common::widen(*scalar.data<typename decltype(tag)::type>()));
    });
    return value;
  }

  Source source_;
  int version_;
  float ratio_;
};

/// The versions that can train; those between them cannot.
sdk::KernelList dropout_kernels() {
  const auto dropout = [](int first, int last) {
    return sdk::op("Dropout")
        .name("cpu:dropout_training")
        .since(first, last)
        .priority(-1)
        .flags(BP_KERNEL_NOT_DETERMINISTIC)
        .types("T", common::float_types());
  };
  return {dropout(1, 6).kernel<TrainingDropout>(),
          dropout(12, std::numeric_limits<int>::max())
              .types("T1", common::float_types())
              .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE, BP_INPUT_HOST_VALUE})
              .kernel<TrainingDropout>()};
}

}  // namespace

sdk::KernelList random_kernels() {
  sdk::KernelList list = dropout_kernels();
  for (const char* name : {"RandomNormal", "RandomUniform"}) {
    list.push_back(
        sdk::op(name).name("cpu:random").flags(BP_KERNEL_NOT_DETERMINISTIC).kernel<Random>());
  }
  for (const char* name : {"RandomNormalLike", "RandomUniformLike"}) {
    list.push_back(sdk::op(name)
                       .name("cpu:random")
                       .flags(BP_KERNEL_NOT_DETERMINISTIC)
                       .roles({BP_INPUT_SHAPE_ONLY})
                       .kernel<Random>());
  }
  list.push_back(sdk::op("Bernoulli")
                     .name("cpu:bernoulli")
                     .flags(BP_KERNEL_NOT_DETERMINISTIC)
                     .kernel<Bernoulli>());
  list.push_back(sdk::op("Multinomial")
                     .name("cpu:multinomial")
                     .flags(BP_KERNEL_NOT_DETERMINISTIC)
                     .kernel<Multinomial>());
  return list;
}

}  // namespace backplane::cpu
