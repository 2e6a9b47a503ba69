// Matrix products: MatMul, Gemm, their integer forms, and Einsum.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/reference/reference.hpp"

namespace backplane::reference {
namespace {

/// An operand of an integer product: its zero point is a scalar, or one per row (left) or column
/// (right).
double without_zero(const Array& array, const Array* zero, std::int64_t offset, std::int64_t line) {
  if (zero == nullptr) return array.values[offset];
  return array.values[offset] - zero->values[zero->size() == 1 ? 0 : line];
}

/// numpy.matmul: vectors get an axis that is taken away again, leading axes broadcast.
Array matmul_of(const Array& left, const Array& right, const Array* left_zero,
                const Array* right_zero) {
  Array a = left;
  Array b = right;
  if (left.rank() == 1) a.dims.insert(a.dims.begin(), 1);
  if (right.rank() == 1) b.dims.push_back(1);
  const std::int64_t rows = a.dims[a.dims.size() - 2];
  const std::int64_t inner = a.dims.back();
  const std::int64_t columns = b.dims.back();
  const Dims a_batch(a.dims.begin(), a.dims.end() - 2);
  const Dims b_batch(b.dims.begin(), b.dims.end() - 2);
  const Dims batch = broadcast(a_batch, b_batch);
  Array y{left.type, batch, {}};
  for_each_index(batch, [&](const Dims& index) {
    const std::int64_t a_start = offset_broadcast(a_batch, index) * rows * inner;
    const std::int64_t b_start = offset_broadcast(b_batch, index) * inner * columns;
    for (std::int64_t m = 0; m < rows; ++m) {
      for (std::int64_t n = 0; n < columns; ++n) {
        double sum = 0;
        for (std::int64_t k = 0; k < inner; ++k) {
          sum += without_zero(a, left_zero, a_start + m * inner + k, m) *
                 without_zero(b, right_zero, b_start + k * columns + n, n);
        }
        y.values.push_back(sum);
      }
    }
  });
  if (left.rank() > 1) y.dims.push_back(rows);
  if (right.rank() > 1) y.dims.push_back(columns);
  return y;
}

Arrays matmul(const Call& call) {
  return {matmul_of(call.input(0), call.input(1), nullptr, nullptr)};
}

Arrays matmul_integer(const Call& call) {
  Array y = matmul_of(call.input(0), call.input(1), call.optional(2), call.optional(3));
  y.type = ElementType::Int32;
  return {y};
}

/// Inputs: a, scale, zero point, b, scale, zero point, y's scale and zero point; b's scale may be
/// per column.
Arrays qlinear_matmul(const Call& call) {
  Array y = matmul_of(call.input(0), call.input(3), &call.input(2), &call.input(5));
  y.type = call.input(7).type;
  const std::vector<double>& b_scale = call.input(4).values;
  const std::int64_t columns = call.input(3).rank() > 1 ? call.input(3).dims.back() : 1;
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const double scale = b_scale[b_scale.size() == 1 ? 0 : i % columns];
    const double real = y.values[i] * call.input(1).values[0] * scale / call.input(6).values[0];
    y.values[i] = saturate_to(y.type, std::nearbyint(real) + call.input(7).values[0]);
  }
  return {y};
}

Arrays gemm(const Call& call) {
  const Array& a = call.input(0);
  const Array& b = call.input(1);
  const bool a_turned = call.integer("transA", 0) != 0;
  const bool b_turned = call.integer("transB", 0) != 0;
  const double alpha = call.number("alpha", 1);
  const double beta = call.number("beta", 1);
  const std::int64_t rows = a.dims[a_turned ? 1 : 0];
  const std::int64_t inner = a.dims[a_turned ? 0 : 1];
  const std::int64_t columns = b.dims[b_turned ? 0 : 1];
  const Array* c = call.optional(2);
  Array y = filled(a.type, {rows, columns});
  for (std::int64_t m = 0; m < rows; ++m) {
    for (std::int64_t n = 0; n < columns; ++n) {
      double sum = 0;
      for (std::int64_t k = 0; k < inner; ++k) {
        sum += a.values[a_turned ? k * rows + m : m * inner + k] *
               b.values[b_turned ? n * inner + k : k * columns + n];
      }
      double& out = y.values[m * columns + n];
      out = alpha * sum;
      if (c != nullptr) out += beta * c->values[offset_broadcast(c->dims, {m, n})];
    }
  }
  return {y};
}

/// Terms of one letter each; without ellipses.
struct Equation {
  std::vector<std::string> terms;
  std::string result;
};

Equation parse_equation(const std::string& text) {
  Equation equation;
  equation.terms.emplace_back();
  const std::size_t arrow = text.find("->");
  std::map<char, int> uses;
  for (const char c : text.substr(0, arrow)) {
    if (c == ',') equation.terms.emplace_back();
    if (c == ',' || c == ' ') continue;
    equation.terms.back() += c;
    ++uses[c];
  }
  if (arrow == std::string::npos) {  // what occurs once, in the alphabet's order
    for (const auto& [letter, count] : uses) {
      if (count == 1) equation.result += letter;
    }
    return equation;
  }
  for (const char c : text.substr(arrow + 2)) {
    if (c != ' ') equation.result += c;
  }
  return equation;
}

/// An equation with an arrow, its ellipses written as letters, the last ones of the alphabet.
std::string without_ellipses(std::string text, const Call& call) {
  const std::string names = "UVWXYZ";
  std::size_t widest = 0;
  for (std::size_t at = text.find("..."); at != std::string::npos; at = text.find("...")) {
    std::size_t hidden = widest;  // of the result
    if (at < text.find("->")) {
      const std::size_t begin = text.rfind(',', at) + 1;  // npos + 1 is 0
      const std::size_t end = text.find_first_of(",-", at);
      const auto term = std::count(text.begin(), text.begin() + static_cast<std::int64_t>(at), ',');
      const std::string letters = text.substr(begin, end - begin);
      const auto spaces = std::count(letters.begin(), letters.end(), ' ');
      hidden = call.input(static_cast<std::size_t>(term)).dims.size() + 3 +
               static_cast<std::size_t>(spaces) - letters.size();
      widest = std::max(widest, hidden);
    }
    text.replace(at, 3, names.substr(names.size() - hidden));
  }
  return text;
}

Arrays einsum(const Call& call) {
  const Equation equation = parse_equation(without_ellipses(call.text("equation", ""), call));
  std::map<char, std::int64_t> size;
  std::string letters = equation.result;
  for (std::size_t i = 0; i < equation.terms.size(); ++i) {
    for (std::size_t k = 0; k < equation.terms[i].size(); ++k) {
      const char letter = equation.terms[i][k];
      size[letter] = std::max(size[letter], call.input(i).dims[k]);
      if (letters.find(letter) == std::string::npos) letters += letter;
    }
  }
  Dims all;
  for (const char letter : letters) all.push_back(size[letter]);
  const Dims result_dims(all.begin(),
                         all.begin() + static_cast<std::int64_t>(equation.result.size()));
  Array y = filled(call.input(0).type, result_dims);
  for_each_index(all, [&](const Dims& index) {
    double value = 1;
    for (std::size_t i = 0; i < equation.terms.size(); ++i) {
      Dims at;
      for (const char letter : equation.terms[i]) at.push_back(index[letters.find(letter)]);
      value *= call.input(i).values[offset_broadcast(call.input(i).dims, at)];
    }
    const Dims out(index.begin(), index.begin() + static_cast<std::int64_t>(result_dims.size()));
    y.values[offset_of(result_dims, out)] += value;
  });
  return {y};
}

const Registration kMatMul({"MatMul"}, matmul);
const Registration kMatMulInteger({"MatMulInteger"}, matmul_integer);
const Registration kQLinearMatMul({"QLinearMatMul"}, qlinear_matmul);
const Registration kGemm({"Gemm"}, gemm);
const Registration kEinsum({"Einsum"}, einsum);

}  // namespace
}  // namespace backplane::reference
