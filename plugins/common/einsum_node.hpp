// What an Einsum node asks for: https://onnx.ai/onnx/operators/onnx__Einsum.html
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/common/axes.hpp"

namespace backplane::common {

/// The subscripts of one term: letters, and where among them an ellipsis stands (-1: nowhere).
struct EinsumTerm {
  std::string letters;
  int ellipsis = -1;
};

/// One loop: a subscript, its size, and each operand's step along it; 0 where it has none, or repeats itself.
struct EinsumSubscript {
  std::int64_t dim = 1;
  std::vector<std::int64_t> strides;
};

/// output[outer subscripts] = the sum over the summed subscripts of the product of the operands, which are dense tensors.
struct EinsumLoops {
  sdk::Dims dims;  ///< of the output
  std::vector<EinsumSubscript> outer, summed;
};

class EinsumEquation {
 public:
  /// Errors: BP_INVALID_ARGUMENT for what is no equation, or one of another number of inputs.
  EinsumEquation(const std::string& equation, std::size_t inputs) {
    const std::size_t arrow = equation.find("->");
    const std::string left = equation.substr(0, arrow);
    for (std::size_t begin = 0; begin <= left.size();) {
      const std::size_t end = std::min(left.find(',', begin), left.size());
      terms_.push_back(parse_term(left.substr(begin, end - begin)));
      begin = end + 1;
    }
    if (arrow != std::string::npos) {
      output_ = parse_term(equation.substr(arrow + 2));
    } else {
      output_ = implicit_output();
    }
    if (terms_.size() != inputs)
      sdk::invalid("Einsum: the equation '", equation, "' has ", terms_.size(), " terms for ",
                   inputs, " inputs");
  }
  explicit EinsumEquation(const sdk::Node& node)
      : EinsumEquation(node.get_string("equation", ""), node.input_count()) {}

  std::size_t term_count() const { return terms_.size(); }
  const EinsumTerm& term(std::size_t input) const { return terms_[input]; }
  const EinsumTerm& output() const { return output_; }

  /// Whether it is a matrix product in every respect: each subscript that is summed is one of both operands.
  bool is_product_of_two() const {
    if (terms_.size() != 2 || (output_.ellipsis < 0 && has_ellipsis())) return false;
    bool has_sums = false;
    for (std::size_t k = 0; k < 2; ++k) {
      for (const char letter : terms_[k].letters) {
        if (has(output_, letter)) continue;
        if (!has(terms_[1 - k], letter)) return false;
        has_sums = true;
      }
    }
    return has_sums;
  }

  /// Of inputs of these dims. Errors: BP_INVALID_ARGUMENT where they do not fit.
  EinsumLoops loops(const std::vector<sdk::DimsView>& inputs) const {
    // Subscripts by name: letters, and numbers for what an ellipsis stands for, counted from its end.
    std::map<int, EinsumSubscript> all;
    int widest = 0;
    for (std::size_t k = 0; k < terms_.size(); ++k)
      widest = std::max(widest, add_operand(inputs[k], k, all));
    EinsumLoops loops;
    const auto take = [&](int name) {
      const auto found = all.find(name);
      if (found == all.end())
        sdk::invalid("Einsum: the output's subscript '", static_cast<char>(name),
                     "' is in no input, or twice in the output");
      loops.dims.push_back(found->second.dim);
      loops.outer.push_back(found->second);
      all.erase(found);
    };
    for (int i = 0; i <= static_cast<int>(output_.letters.size()); ++i) {
      if (i == output_.ellipsis) {
        for (int e = widest; e-- > 0;) take(e);
      }
      if (i < static_cast<int>(output_.letters.size()))
        take(output_.letters[static_cast<std::size_t>(i)]);
    }
    for (auto& [name, subscript] : all) loops.summed.push_back(std::move(subscript));
    return loops;
  }

 private:
  static bool has(const EinsumTerm& term, char letter) {
    return term.letters.find(letter) != std::string::npos;
  }

  bool has_ellipsis() const {
    return std::any_of(terms_.begin(), terms_.end(),
                       [](const EinsumTerm& term) { return term.ellipsis >= 0; });
  }

  static EinsumTerm parse_term(const std::string& text) {
    EinsumTerm term;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c == ' ') continue;
      if (text.compare(i, 3, "...") == 0 && term.ellipsis < 0) {
        term.ellipsis = static_cast<int>(term.letters.size());
        i += 2;
      } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        term.letters += c;
      } else {
        sdk::invalid("Einsum: '", text, "' is not a list of letters with at most one ellipsis");
      }
    }
    return term;
  }

  /// The letters that occur once, sorted, after the ellipsis.
  EinsumTerm implicit_output() const {
    EinsumTerm output;
    std::map<char, int> uses;
    for (const EinsumTerm& term : terms_) {
      for (const char c : term.letters) ++uses[c];
    }
    if (has_ellipsis()) output.ellipsis = 0;
    for (const auto& [letter, count] : uses) {
      if (count == 1) output.letters += letter;
    }
    return output;
  }

  /// Adds an operand's steps; gives the number of axes that its ellipsis stands for.
  int add_operand(sdk::DimsView dims, std::size_t operand,
                  std::map<int, EinsumSubscript>& all) const {
    const EinsumTerm& term = terms_[operand];
    const int rank = static_cast<int>(dims.size()), letters = static_cast<int>(term.letters.size());
    const int hidden = rank - letters;
    if (hidden < 0 || (hidden > 0 && term.ellipsis < 0)) {
      sdk::invalid("Einsum: input ", operand, " has rank ", rank, ", its subscripts are '",
                   term.letters, "'");
    }
    const sdk::Dims strides = dense_strides(dims);
    for (int axis = 0; axis < rank; ++axis) {
      const int after = axis - term.ellipsis;  // the place within the ellipsis
      const bool in_ellipsis = term.ellipsis >= 0 && after >= 0 && after < hidden;
      const int letter = term.ellipsis >= 0 && after >= hidden ? axis - hidden : axis;
      const int name =
          in_ellipsis ? hidden - 1 - after : term.letters[static_cast<std::size_t>(letter)];
      EinsumSubscript& subscript = all[name];
      subscript.strides.resize(terms_.size(), 0);
      const std::int64_t dim = dims[static_cast<std::size_t>(axis)];
      if (dim != 1 && subscript.dim != 1 && dim != subscript.dim) {
        sdk::invalid("Einsum: axis ", axis, " of input ", operand, " has ", dim,
                     " elements, its subscript ", subscript.dim);
      }
      if (dim == 1) continue;
      subscript.strides[operand] += strides[static_cast<std::size_t>(axis)];
      subscript.dim = dim;
    }
    return hidden;
  }

  std::vector<EinsumTerm> terms_;
  EinsumTerm output_;
};

}  // namespace backplane::common
