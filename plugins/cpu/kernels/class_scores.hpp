// What classifiers of ai.onnx.ml make of their scores: probabilities and labels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// Attribute post_transform.
enum class PostTransform : std::uint8_t { kNone, kSoftmax, kLogistic, kSoftmaxZero, kProbit };

/// Errors: BP_INVALID_ARGUMENT for another word.
PostTransform post_transform_of(const sdk::Node& node);

/// Changes `count` scores that belong together.
void transform_scores(PostTransform transform, double* scores, std::int64_t count);

/// The same for `rows` rows of `columns` scores, in vectors where that pays.
void transform_rows(Isa isa, PostTransform transform, float* scores, std::int64_t columns,
                    std::int64_t rows);

/// The classes' names, of int64 or strings: attributes `ints` and `strings` of a node, one of which is given.
class ClassLabels {
 public:
  ClassLabels(const sdk::Node& node, const char* ints, const char* strings);

  std::int64_t count() const {
    return static_cast<std::int64_t>(texts_.empty() ? numbers_.size() : texts_.size());
  }
  sdk::DataType type() const {
    return texts_.empty() ? sdk::DataType::Int64 : sdk::DataType::String;
  }
  /// Names `rows` classes in output 0.
  void write(const sdk::ComputeContext& ctx, const std::int32_t* classes, std::int64_t rows) const;
  /// Gives the classes names 0, 1 ... where there is not a name for each.
  void complete(std::int64_t count);

 private:
  std::vector<std::int64_t> numbers_;
  std::vector<std::string> texts_;
};

}  // namespace backplane::cpu
