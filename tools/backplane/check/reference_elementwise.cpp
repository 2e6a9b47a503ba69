// Operators that work element by element on integers, on several inputs, or only change types.
#include <algorithm>
#include <cmath>

#include "tools/backplane/check/reference_book.hpp"

namespace backplane::cli::check {
namespace {

using Whole = std::function<std::int64_t(std::int64_t, std::int64_t)>;

/// Two inputs of integers, which are exact in double up to 2^53.
Reference of_integers(Whole function) {
  return one_output([function = std::move(function)](const NodeCase& node) {
    const Tensor &a = input_of(node, 0), &b = input_of(node, 1);
    Tensor result = make_tensor(node.outputs[0], broadcast_dims(a.dims, b.dims));
    for (std::int64_t i = 0; i < result.size(); ++i) {
      const double x = a.at(broadcast_source(i, result.dims, a.dims)),
                   y = b.at(broadcast_source(i, result.dims, b.dims));
      result.set(i, static_cast<double>(
                        function(static_cast<std::int64_t>(x), static_cast<std::int64_t>(y))));
    }
    return result;
  });
}

/// All inputs together: `fold(so far, next)`.
Reference of_all(std::function<double(double, double)> fold, bool divides = false) {
  return one_output([fold = std::move(fold), divides](const NodeCase& node) {
    Dims dims;
    for (const NodeCase::Input& input : node.inputs) dims = broadcast_dims(dims, input.tensor.dims);
    Tensor result = make_tensor(node.outputs[0], dims);
    for (std::int64_t i = 0; i < result.size(); ++i) {
      const auto at = [&](const NodeCase::Input& input) {
        return input.tensor.at(broadcast_source(i, dims, input.tensor.dims));
      };
      double value = at(node.inputs.front());
      for (std::size_t k = 1; k < node.inputs.size(); ++k) value = fold(value, at(node.inputs[k]));
      result.set(i, divides ? value / static_cast<double>(node.inputs.size()) : value);
    }
    return result;
  });
}

bool is_unsigned(bp_dtype dtype) {
  return dtype == BP_UINT8 || dtype == BP_UINT16 || dtype == BP_UINT32 || dtype == BP_UINT64;
}

std::optional<Tensor> inverted(const NodeCase& node) {
  const Tensor& x = input_of(node, 0);
  if (x.dtype == BP_UINT64) return std::nullopt;  // no double is that exact
  const double all =
      is_unsigned(x.dtype) ? std::ldexp(1, static_cast<int>(8 * element_bytes(x.dtype))) - 1 : -1;
  Tensor result = make_tensor(x.dtype, x.dims);
  for (std::int64_t i = 0; i < x.size(); ++i) result.set(i, all - x.at(i));
  return result;
}

std::optional<Tensor> clipped(const NodeCase& node) {
  const Tensor& x = input_of(node, 0);
  const auto limit = [&](const char* name, std::size_t input, double otherwise) {
    if (has_input(node, input)) return input_of(node, input).at(0);
    const auto found = node.attributes.find(name);
    return found == node.attributes.end() ? otherwise : std::get<float>(found->second);
  };
  const double low = limit("min", 1, -INFINITY), high = limit("max", 2, INFINITY);
  Tensor result = make_tensor(x.dtype, x.dims);
  for (std::int64_t i = 0; i < x.size(); ++i) result.set(i, std::min(std::max(x.at(i), low), high));
  return result;
}

std::optional<Tensor> chosen(const NodeCase& node) {
  const Tensor &which = input_of(node, 0), &yes = input_of(node, 1), &no = input_of(node, 2);
  Tensor result =
      make_tensor(yes.dtype, broadcast_dims(which.dims, broadcast_dims(yes.dims, no.dims)));
  for (std::int64_t i = 0; i < result.size(); ++i) {
    const Tensor& from = which.at(broadcast_source(i, result.dims, which.dims)) != 0 ? yes : no;
    result.set(i, from.at(broadcast_source(i, result.dims, from.dims)));
  }
  return result;
}

std::optional<Tensor> cast_to(const NodeCase& node) {
  const Tensor& x = input_of(node, 0);
  Tensor result = make_tensor(node.outputs[0], x.dims);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    // Towards zero where the target has whole numbers alone.
    const bool cuts = !is_floating(result.dtype) && result.dtype != BP_BOOL;
    result.set(i, cuts ? std::trunc(x.at(i)) : x.at(i));
  }
  return result;
}

std::optional<Tensor> other_type(const NodeCase& node) {
  Tensor result = input_of(node, 0);
  if (element_bytes(result.dtype) != element_bytes(node.outputs[0])) return std::nullopt;
  result.dtype = node.outputs[0];
  return result;
}

Reference of_one(std::function<double(const NodeCase&, double)> function) {
  return one_output([function = std::move(function)](const NodeCase& node) {
    const Tensor& x = input_of(node, 0);
    Tensor result = make_tensor(node.outputs[0], x.dims);
    for (std::int64_t i = 0; i < x.size(); ++i) result.set(i, function(node, x.at(i)));
    return result;
  });
}

/// Remainders with the dividend's sign, or the divisor's.
std::optional<Tensor> remainders(const NodeCase& node) {
  const Tensor &a = input_of(node, 0), &b = input_of(node, 1);
  const bool as_in_c = attribute_or(node, "fmod", std::int64_t{0}) != 0;
  Tensor result = make_tensor(a.dtype, broadcast_dims(a.dims, b.dims));
  for (std::int64_t i = 0; i < result.size(); ++i) {
    const double x = a.at(broadcast_source(i, result.dims, a.dims)),
                 y = b.at(broadcast_source(i, result.dims, b.dims));
    // Half a unit in the last place at a multiple is a whole divisor in the result.
    if (is_floating(a.dtype) && a.dtype != BP_DOUBLE) {
      result.set(i, std::fmod(static_cast<float>(x), static_cast<float>(y)));
    } else {
      result.set(i, std::fmod(x, y));
    }
    if (!as_in_c && (x < 0) != (y < 0)) return std::nullopt;
  }
  return result;
}

}  // namespace

void add_elementwise_references(ReferenceBook& book) {
  book["BitwiseAnd"] = of_integers([](std::int64_t a, std::int64_t b) { return a & b; });
  book["BitwiseOr"] = of_integers([](std::int64_t a, std::int64_t b) { return a | b; });
  book["BitwiseXor"] = of_integers([](std::int64_t a, std::int64_t b) { return a ^ b; });
  book["BitwiseNot"] = one_output(inverted);
  const Reference left = of_integers([](std::int64_t a, std::int64_t b) { return a << b; }),
                  right = of_integers([](std::int64_t a, std::int64_t b) { return a >> b; });
  book["BitShift"] = [=](const NodeCase& node) {
    return attribute_or(node, "direction", std::string()) == "LEFT" ? left(node) : right(node);
  };
  book["Max"] = of_all([](double a, double b) { return std::max(a, b); });
  book["Min"] = of_all([](double a, double b) { return std::min(a, b); });
  book["Sum"] = of_all([](double a, double b) { return a + b; });
  book["Mean"] = of_all([](double a, double b) { return a + b; }, true);
  book["Clip"] = one_output(clipped);
  book["Where"] = one_output(chosen);
  for (const char* name : {"Cast", "CastLike"}) book[name] = one_output(cast_to);
  book["BitCast"] = one_output(other_type);
  book["Mod"] = one_output(remainders);
  book["PRelu"] = of_all([](double x, double slope) { return x < 0 ? slope * x : x; });
  book["Selu"] = of_one([](const NodeCase& node, double x) {
    const double alpha = attribute_or(node, "alpha", 1.67326319217681884765625f),
                 gamma = attribute_or(node, "gamma", 1.05070102214813232421875f);
    return gamma * (x > 0 ? x : alpha * std::expm1(x));
  });
  book["Shrink"] = of_one([](const NodeCase& node, double x) {
    const double limit = attribute_or(node, "lambd", 0.5f), bias = attribute_or(node, "bias", 0.0f);
    return x < -limit ? x + bias : x > limit ? x - bias : 0.0;
  });
  book["Swish"] = of_one([](const NodeCase& node, double x) {
    return x / (1 + std::exp(-static_cast<double>(attribute_or(node, "alpha", 1.0f)) * x));
  });
}

}  // namespace backplane::cli::check
