// Operators that fold axes. https://onnx.ai/onnx/operators/
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tools/backplane/check/reference_book.hpp"

namespace backplane::cli::check {
namespace {

/// What is made of the elements along the axes that go.
using Fold = std::function<double(const std::vector<double>&)>;

Reference reduction(const Fold& fold, bool of_floats = false) {
  return one_output([=](const NodeCase& node) -> std::optional<Tensor> {
    const Tensor& x = input_of(node, 0);
    if (of_floats && !is_floating(x.dtype)) return std::nullopt;
    const auto rank = static_cast<std::int64_t>(x.dims.size());
    const bool keeps = attribute_or(node, "keepdims", std::int64_t{1}) != 0;
    const auto axes = integers_of(node, "axes", 1);
    std::vector<bool> goes(x.dims.size(), !axes || axes->empty());
    for (const std::int64_t axis : axes.value_or(Dims()))
      goes[static_cast<std::size_t>(from_start(axis, rank))] = true;
    Dims kept = x.dims, dims;
    for (std::size_t axis = 0; axis < x.dims.size(); ++axis) {
      if (goes[axis]) kept[axis] = 1;
      if (!goes[axis] || keeps) dims.push_back(kept[axis]);
    }
    Tensor result = make_tensor(x.dtype, kept);
    std::vector<std::vector<double>> elements(static_cast<std::size_t>(result.size()));
    for (std::int64_t i = 0; i < x.size(); ++i)
      elements[static_cast<std::size_t>(broadcast_source(i, x.dims, kept))].push_back(x.at(i));
    for (std::int64_t i = 0; i < result.size(); ++i)
      result.set(i, fold(elements[static_cast<std::size_t>(i)]));
    result.dims = dims;
    return result;
  });
}

double sum_of(const std::vector<double>& all) {
  return std::accumulate(all.begin(), all.end(), 0.0);
}

Fold sum_through(double (*function)(double)) {
  return [function](const std::vector<double>& all) {
    double sum = 0;
    for (const double one : all) sum += function(one);
    return sum;
  };
}

/// An axis taken out of a shape, with the runs of elements along it.
struct Lines {
  Lines(const Tensor& x, std::int64_t given)
      : axis(static_cast<std::size_t>(from_start(given, static_cast<std::int64_t>(x.dims.size())))),
        length(x.dims[axis]),
        inner(product({x.dims.begin() + static_cast<std::ptrdiff_t>(axis) + 1, x.dims.end()})),
        count(length == 0 ? 0 : x.size() / length) {}
  std::int64_t at(std::int64_t line, std::int64_t i) const {
    return line / inner * inner * length + i * inner + line % inner;
  }
  std::size_t axis;
  std::int64_t length, inner, count;
};

Reference extreme_place(bool largest) {
  return one_output([largest](const NodeCase& node) -> std::optional<Tensor> {
    const Tensor& x = input_of(node, 0);
    const Lines lines(x, attribute_or(node, "axis", std::int64_t{0}));
    if (attribute_or(node, "select_last_index", std::int64_t{0}) != 0) return std::nullopt;
    Dims dims = x.dims;
    dims[lines.axis] = 1;
    Tensor result = make_tensor(BP_INT64, dims);
    for (std::int64_t line = 0; line < lines.count; ++line) {
      std::int64_t best = 0;
      for (std::int64_t i = 1; i < lines.length; ++i) {
        const double here = x.at(lines.at(line, i)), there = x.at(lines.at(line, best));
        if (largest ? here > there : here < there) best = i;
      }
      result.set(line, static_cast<double>(best));
    }
    if (attribute_or(node, "keepdims", std::int64_t{1}) == 0)
      result.dims.erase(result.dims.begin() + static_cast<std::ptrdiff_t>(lines.axis));
    return result;
  });
}

Reference running(double start, double (*step)(double, double)) {
  return one_output([=](const NodeCase& node) -> std::optional<Tensor> {
    if (!node.attributes.empty()) return std::nullopt;
    const Tensor& x = input_of(node, 0);
    const Lines lines(x, integers_of(node, 1).at(0));
    Tensor result = make_tensor(x.dtype, x.dims);
    for (std::int64_t line = 0; line < lines.count; ++line) {
      double so_far = start;
      for (std::int64_t i = 0; i < lines.length; ++i) {
        so_far = step(so_far, x.at(lines.at(line, i)));
        result.set(lines.at(line, i), so_far);
      }
    }
    return result;
  });
}

std::optional<std::vector<Tensor>> greatest(const NodeCase& node) {
  const Tensor& x = input_of(node, 0);
  const Lines lines(x, attribute_or(node, "axis", std::int64_t{-1}));
  const std::int64_t k = integers_of(node, 1).at(0);
  const bool largest = attribute_or(node, "largest", std::int64_t{1}) != 0;
  Dims dims = x.dims;
  dims[lines.axis] = k;
  Tensor values = make_tensor(x.dtype, dims), places = make_tensor(BP_INT64, dims);
  for (std::int64_t line = 0; line < lines.count; ++line) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(lines.length));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      const double first = x.at(lines.at(line, a)), second = x.at(lines.at(line, b));
      return largest ? first > second : first < second;
    });
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int64_t to =
          line / lines.inner * lines.inner * k + i * lines.inner + line % lines.inner;
      values.set(to, x.at(lines.at(line, order[static_cast<std::size_t>(i)])));
      places.set(to, static_cast<double>(order[static_cast<std::size_t>(i)]));
    }
  }
  return std::vector<Tensor>{values, places};
}

/// "ij,jk->ik" taken apart: a letter for each axis, those of "..." from the last digit down.
struct Equation {
  std::vector<std::string> inputs;
  std::string output;
};

std::optional<Equation> equation_of(const NodeCase& node) {
  std::string left = attribute_or(node, "equation", std::string());
  left.erase(std::remove(left.begin(), left.end(), ' '), left.end());
  const std::size_t arrow = left.find("->");
  if (arrow == std::string::npos) return std::nullopt;
  std::string right = left.substr(arrow + 2);
  left.resize(arrow);
  left += ',';
  std::size_t most = 0;
  const auto spell = [&](std::string term, std::size_t axes) {
    const std::size_t dots = term.find("...");
    if (dots == std::string::npos) return term;
    const std::string named = "0123456789";
    return term.replace(dots, 3, named.substr(named.size() - axes));
  };
  Equation equation;
  for (std::size_t from = 0, comma = 0; from < left.size(); from = comma + 1) {
    comma = left.find(',', from);
    const std::string term = left.substr(from, comma - from);
    const std::size_t letters = term.size() - (term.find("...") == std::string::npos ? 0 : 3);
    const std::size_t axes = input_of(node, equation.inputs.size()).dims.size() - letters;
    most = std::max(most, axes);
    equation.inputs.push_back(spell(term, axes));
  }
  equation.output = spell(right, most);
  return equation;
}

std::optional<Tensor> sum_over_letters(const NodeCase& node) {
  const auto equation = equation_of(node);
  if (!equation || equation->inputs.size() != node.inputs.size()) return std::nullopt;
  // The output's letters first; every other one is summed over.
  std::string letters = equation->output;
  Dims sizes(letters.size(), 0);
  for (std::size_t k = 0; k < node.inputs.size(); ++k) {
    for (std::size_t axis = 0; axis < equation->inputs[k].size(); ++axis) {
      const char letter = equation->inputs[k][axis];
      if (letters.find(letter) == std::string::npos) letters += letter;
      sizes.resize(letters.size(), 0);
      std::int64_t& size = sizes[letters.find(letter)];
      const std::int64_t dim = input_of(node, k).dims[axis];
      if (size != 0 && size != dim) return std::nullopt;  // one of them is broadcast
      size = dim;
    }
  }
  const auto kept = static_cast<std::ptrdiff_t>(equation->output.size());
  Tensor result = make_tensor(node.outputs[0], {sizes.begin(), sizes.begin() + kept});
  const std::int64_t terms = product({sizes.begin() + kept, sizes.end()});
  for (std::int64_t i = 0; i < result.size(); ++i) {
    double sum = 0;
    for (std::int64_t term = 0; term < terms; ++term) {
      const Dims place = place_of(i * terms + term, sizes);
      double all = 1;
      for (std::size_t k = 0; k < node.inputs.size(); ++k) {
        Dims at;
        for (const char letter : equation->inputs[k]) at.push_back(place[letters.find(letter)]);
        all *= input_of(node, k).at(index_of(at, input_of(node, k).dims));
      }
      sum += all;
    }
    result.set(i, sum);
  }
  return result;
}

}  // namespace

void add_reduction_references(ReferenceBook& book) {
  book["ReduceSum"] = reduction(sum_of);
  book["ReduceMax"] = reduction(
      [](const std::vector<double>& all) { return *std::max_element(all.begin(), all.end()); });
  book["ReduceMin"] = reduction(
      [](const std::vector<double>& all) { return *std::min_element(all.begin(), all.end()); });
  book["ReduceProd"] = reduction([](const std::vector<double>& all) {
    return std::accumulate(all.begin(), all.end(), 1.0, std::multiplies<>());
  });
  book["ReduceL1"] = reduction(sum_through([](double x) { return std::abs(x); }));
  book["ReduceSumSquare"] = reduction(sum_through([](double x) { return x * x; }));
  book["ReduceMean"] = reduction(
      [](const std::vector<double>& all) { return sum_of(all) / static_cast<double>(all.size()); },
      true);
  book["ReduceL2"] = reduction(
      [](const std::vector<double>& all) {
        return std::sqrt(sum_through([](double x) { return x * x; })(all));
      },
      true);
  book["ReduceLogSum"] =
      reduction([](const std::vector<double>& all) { return std::log(sum_of(all)); }, true);
  book["ReduceLogSumExp"] = reduction(
      [](const std::vector<double>& all) {
        return std::log(sum_through([](double x) { return std::exp(x); })(all));
      },
      true);
  book["ArgMax"] = extreme_place(true);
  book["ArgMin"] = extreme_place(false);
  book["CumSum"] = running(0, [](double a, double b) { return a + b; });
  book["CumProd"] = running(1, [](double a, double b) { return a * b; });
  book["Einsum"] = one_output(sum_over_letters);
  book["TopK"] = greatest;
}

}  // namespace backplane::cli::check
