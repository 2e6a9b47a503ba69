#include "core/onnx/attribute_check.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"
#include "core/onnx/opsets.hpp"

namespace backplane::core {
namespace {

bool is_einsum(const ::onnx::NodeProto& node) {
  return node.op_type() == "Einsum" && node.domain().empty();
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Letters, with at most one ellipsis among them.
bool is_term(std::string_view term) {
  const std::size_t ellipsis = term.find("...");
  if (ellipsis != std::string_view::npos) {
    return is_term(term.substr(0, ellipsis)) &&
           std::all_of(term.begin() + static_cast<std::ptrdiff_t>(ellipsis) + 3, term.end(),
                       is_letter);
  }
  return std::all_of(term.begin(), term.end(), is_letter);
}

bool is_equation(std::string_view equation) {
  const std::size_t arrow = equation.find("->");
  if (arrow != std::string_view::npos && !is_term(equation.substr(arrow + 2))) return false;
  std::string_view terms = equation.substr(0, arrow);
  for (;;) {
    const std::size_t comma = terms.find(',');
    if (!is_term(terms.substr(0, comma))) return false;
    if (comma == std::string_view::npos) return true;
    terms.remove_prefix(comma + 1);
  }
}

}  // namespace

void check_attributes(const ::onnx::NodeProto& node) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  for (const auto& attribute : node.attribute()) {
    const auto check_axis = [&](std::int64_t axis) {
      if (axis < -kMost || axis > kMost) {
        invalid(described(node), ": attribute ", quoted(attribute.name()), " is ", axis,
                ", but no tensor has so many dimensions");
      }
    };
    if (attribute.name() == "axis") check_axis(attribute.i());
    if (attribute.name() == "axes") {
      std::for_each(attribute.ints().begin(), attribute.ints().end(), check_axis);
    }
    if (is_einsum(node) && attribute.name() == "equation" && !is_equation(attribute.s())) {
      invalid(described(node), ": its equation ", quoted(attribute.s()),
              " is not of the form 'ij,jk->ik', with letters and at most one '...' a term");
    }
  }
}

void remove_equation_spaces(::onnx::NodeProto& node) {
  if (!is_einsum(node)) return;
  for (auto& attribute : *node.mutable_attribute()) {
    if (attribute.name() == "equation") std::erase(*attribute.mutable_s(), ' ');
  }
}

}  // namespace backplane::core
