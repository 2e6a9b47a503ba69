#include "core/graph/type.hpp"

#include <algorithm>
#include <limits>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"

namespace backplane::core {
namespace {

// Deeper types are no model's; the limit keeps hostile text from using up the stack.
constexpr int kDeepestType = 32;

class TypeParser {
 public:
  explicit TypeParser(const std::string& text) : text_(text), rest_(text) {}

  Type parse() {
    Type type = parse_type(0);
    if (!rest_.empty()) fail();
    return type;
  }

 private:
  Type parse_type(int depth) {
    if (depth > kDeepestType) fail();
    Type type;
    if (take("tensor(")) {
      type.kind = Type::Kind::Tensor;
      type.element = parse_element();
    } else if (take("sparse_tensor(")) {
      type.kind = Type::Kind::SparseTensor;
      type.element = parse_element();
    } else if (take("seq(")) {
      type.kind = Type::Kind::Sequence;
      type.inner = std::make_shared<const Type>(parse_type(depth + 1));
    } else if (take("optional(")) {
      type.kind = Type::Kind::Optional;
      type.inner = std::make_shared<const Type>(parse_type(depth + 1));
    } else if (take("map(")) {
      type.kind = Type::Kind::Map;
      type.element = parse_element();
      if (!take(",")) fail();
      type.inner = std::make_shared<const Type>(parse_type(depth + 1));
    } else {
      fail();
    }
    if (!take(")")) fail();
    return type;
  }

  DataType parse_element() {
    const std::string_view word = rest_.substr(0, rest_.find_first_of(",)"));
    const std::optional<DataType> element = data_type_named(word);
    if (!element) fail();
    rest_.remove_prefix(word.size());
    return *element;
  }

  bool take(std::string_view prefix) {
    if (!rest_.starts_with(prefix)) return false;
    rest_.remove_prefix(prefix.size());
    return true;
  }

  [[noreturn]] void fail() const {
    invalid(quoted(text_), " is no ONNX type; such are tensor(float), seq(tensor(int64)), ",
            "optional(tensor(string)), map(int64,tensor(float))");
  }

  const std::string& text_;
  std::string_view rest_;
};

}  // namespace

Type Type::tensor(DataType element, std::optional<Shape> shape) {
  Type type;
  type.kind = Kind::Tensor;
  type.element = element;
  type.shape = std::move(shape);
  return type;
}

Type Type::tensor(DataType element, const std::vector<std::int64_t>& dims) {
  Shape shape;
  shape.reserve(dims.size());
  for (const std::int64_t dim : dims) shape.push_back({dim < 0 ? -1 : dim, {}});
  return tensor(element, std::optional<Shape>(std::move(shape)));
}

bool Type::is_static() const {
  return is_tensor() && shape.has_value() &&
         std::all_of(shape->begin(), shape->end(), [](const Dim& dim) { return dim.known(); });
}

std::string Type::to_string() const {
  const auto inner_text = [this] { return inner ? inner->to_string() : std::string(); };
  // Made for each node and kernel, and so without a stream.
  const auto before_element = [this](const char* begin) {
    return std::string(begin).append(name(element));
  };
  switch (kind) {
    case Kind::Unknown:
      break;
    case Kind::Tensor:
      return before_element("tensor(") + ")";
    case Kind::SparseTensor:
      return before_element("sparse_tensor(") + ")";
    case Kind::Sequence:
      return "seq(" + inner_text() + ")";
    case Kind::Optional:
      return "optional(" + inner_text() + ")";
    case Kind::Map:
      return before_element("map(") + "," + inner_text() + ")";
  }
  return {};
}

Type Type::parse(const std::string& text) { return TypeParser(text).parse(); }

std::string to_string(const Shape& shape) {
  std::string result = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) result += ",";
    if (shape[i].known()) {
      result += std::to_string(shape[i].size);
    } else {
      result += shape[i].symbol.empty() ? "?" : single_line(shape[i].symbol, 120);
    }
  }
  return result + "]";
}

std::string to_string(const std::vector<std::int64_t>& dims) {
  std::string result = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) result += ",";
    result += std::to_string(dims[i]);
  }
  return result + "]";
}

std::int64_t element_count(const std::vector<std::int64_t>& dims) {
  bool empty = false;
  std::int64_t count = 1;
  bool overflow = false;
  for (const std::int64_t dim : dims) {
    if (dim < 0) invalid("shape ", to_string(dims), " has a negative dimension");
    if (dim == 0) {
      empty = true;
    } else if (count > std::numeric_limits<std::int64_t>::max() / dim) {
      overflow = true;
    } else {
      count *= dim;
    }
  }
  if (empty) return 0;
  if (overflow) invalid("shape ", to_string(dims), " has more elements than 63 bits can count");
  return count;
}

}  // namespace backplane::core
