// Cast, CastLike: https://onnx.ai/onnx/operators/onnx__Cast.html, onnx__CastLike.html
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "backplane/plugin.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/c_number.hpp"
#include "plugins/cpu/kernels/convert.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

bool equal_ignoring_case(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) != lower[i]) return false;
  }
  return true;
}

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

/// The number that all of `text` spells, in T: "3.14", "1e-5", "INF", "-inf", "NaN", "12".
template <class T>
bool parse_number(std::string_view text, T& value) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  const std::from_chars_result result = std::from_chars(begin, end, value);
  return result.ec == std::errc() && result.ptr == end && !text.empty();
}

double parse_double(std::string_view original) {
  std::string_view text = trimmed(original);
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  if (equal_ignoring_case(text, "true")) return 1;
  if (equal_ignoring_case(text, "false")) return 0;
  double value = 0;
  if (parse_number(text, value)) return value;  // knows "inf" and "nan" in any case
  // Too large or too small for a double is not an error: the nearest one is infinity or zero.
  const std::from_chars_result result =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec == std::errc::result_out_of_range && result.ptr == text.data() + text.size()) {
    return c_number(std::string(text).c_str(), nullptr);
  }
  sdk::failed("Cast: the string '", original, "' is no number");
}

/// The shortest text that gives the number back; "NaN", "INF", "-INF".
template <class T>
std::string print_number(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-INF" : "INF";
  }
  char buffer[64];
  const std::to_chars_result result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return {buffer, result.ptr};
}

/// Strings are converted one by one, by way of a double or, for integers, of a 64-bit integer.
struct StringCast {
  DataType type = DataType::None;  // the other side
  Converter converter;             // between `type` and `middle`
  DataType middle = DataType::Double;

  /// The type that a number goes through, one that holds it exactly. A text is read as a double, so that
  /// it is rounded once; it is made of a float where that is enough, so that it is short.
  static DataType middle_of(DataType type, bool to_text) {
    switch (type) {
      case DataType::UInt64:
        return DataType::UInt64;
      case DataType::Int64:
      case DataType::Int32:
      case DataType::Int16:
      case DataType::Int8:
      case DataType::UInt32:
      case DataType::UInt16:
      case DataType::UInt8:
      case DataType::Int4:
      case DataType::UInt4:
      case DataType::Int2:
      case DataType::UInt2:
      case DataType::Bool:
        return DataType::Int64;
      default:
        return to_text && type != DataType::Double ? DataType::Float : DataType::Double;
    }
  }

  void to_strings(const void* from, const sdk::Value& to, std::int64_t count) const {
    constexpr std::int64_t kBlock = 64;
    alignas(64) char block[kBlock * 8];
    for (std::int64_t begin = 0; begin < count; begin += kBlock) {
      const std::int64_t n = std::min(kBlock, count - begin);
      convert_from(from, begin, block, n);
      for (std::int64_t i = 0; i < n; ++i) {
        to.set_string(static_cast<std::uint64_t>(begin + i), text_of(block, i));
      }
    }
  }

  void from_strings(const sdk::Value& from, void* to, std::int64_t count) const {
    const int bits = sdk::element_bits(type);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::string_view text = from.string_at(static_cast<std::uint64_t>(i));
      alignas(8) char value[8];
      parse(text, value);
      alignas(8) char element[8] = {};
      converter.run(value, element, 0, 1);
      if (bits >= 8) {
        std::memcpy(static_cast<char*>(to) + i * bits / 8, element,
                    static_cast<std::size_t>(bits / 8));
      } else {
        const auto per_byte = 8 / bits;
        auto& byte = static_cast<std::uint8_t*>(to)[i / per_byte];
        if (i % per_byte == 0) byte = 0;
        byte = static_cast<std::uint8_t>(
            byte | (static_cast<std::uint8_t>(element[0]) << (i % per_byte * bits)));
      }
    }
  }

 private:
  void convert_from(const void* from, std::int64_t begin, char* block, std::int64_t n) const {
    const int bits = sdk::element_bits(type);  // `begin` is a multiple of 64
    converter.run(static_cast<const char*>(from) + begin * bits / 8, block, 0, n);
  }

  std::string text_of(const char* block, std::int64_t i) const {
    if (type == DataType::Bool) return block[8 * i] != 0 ? "True" : "False";
    switch (middle) {
      case DataType::Int64:
        return print_number(reinterpret_cast<const std::int64_t*>(block)[i]);
      case DataType::UInt64:
        return print_number(reinterpret_cast<const std::uint64_t*>(block)[i]);
      case DataType::Double:
        return print_number(reinterpret_cast<const double*>(block)[i]);
      default:
        return print_number(reinterpret_cast<const float*>(block)[i]);
    }
  }

  void parse(std::string_view text, char* value) const {
    std::string_view digits = trimmed(text);
    if (!digits.empty() && digits.front() == '+') digits.remove_prefix(1);
    const auto store = [value](auto number) { std::memcpy(value, &number, sizeof(number)); };
    if (middle == DataType::Int64) {
      std::int64_t number = 0;
      if (!parse_number(digits, number)) {
        const double real = parse_double(text);
        Converter(DataType::Double, DataType::Int64, {}, Isa::kBaseline).run(&real, &number, 0, 1);
      }
      store(number);
    } else if (middle == DataType::UInt64) {
      std::uint64_t number = 0;
      if (!parse_number(digits, number)) {
        const double real = parse_double(text);
        Converter(DataType::Double, DataType::UInt64, {}, Isa::kBaseline).run(&real, &number, 0, 1);
      }
      store(number);
    } else {
      store(parse_double(text));
    }
  }
};

class Cast {
 public:
  struct Prepared {
    Converter converter;
    StringCast strings;
    std::int64_t count = 0;
    bool from_strings = false;
    bool to_strings = false;

    void compute(const sdk::ComputeContext& ctx) const {
      if (from_strings && to_strings) {
        for (std::int64_t i = 0; i < count; ++i) {
          const auto index = static_cast<std::uint64_t>(i);
          ctx.output_value(0).set_string(index, ctx.input_value(0).string_at(index));
        }
      } else if (from_strings) {
        strings.from_strings(ctx.input_value(0), ctx.output(0).mutable_data<char>(), count);
      } else if (to_strings) {
        strings.to_strings(ctx.input(0).bytes_data(), ctx.output_value(0), count);
      } else {
        const void* x = ctx.input(0).bytes_data();
        void* y = ctx.output(0).mutable_data<char>();
        split_elements(
            ctx.threads(), count, converter.ns_each(),
            [&](std::int64_t begin, std::int64_t end) { converter.run(x, y, begin, end); });
      }
    }
  };

  Cast(const sdk::CreateContext& ctx, const sdk::Node& node)
      : isa_(isa_of(ctx)), to_(target_of(node)) {
    options_.saturate = node.get_int("saturate", 1) != 0;
    const std::string rounding = node.get_string("round_mode", "up");
    if (rounding == "nearest") {
      options_.rounding = common::ScaleRounding::kNearest;
    } else if (rounding == "down") {
      options_.rounding = common::ScaleRounding::kDown;
    } else if (rounding != "up") {
      sdk::invalid("attribute 'round_mode' is '", rounding, "'; use up, down or nearest");
    }
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const DataType to = to_ == DataType::None ? ctx.input(1).type() : to_;
    ctx.set_output(0, to, x.dims());
    Prepared prepared;
    prepared.count = x.size();
    prepared.from_strings = x.type() == DataType::String;
    prepared.to_strings = to == DataType::String;
    if (prepared.from_strings && prepared.to_strings) return prepared;
    if (prepared.from_strings || prepared.to_strings) {
      const DataType other = prepared.to_strings ? x.type() : to;
      const DataType middle = StringCast::middle_of(other, prepared.to_strings);
      const Converter converter = prepared.to_strings ? Converter(other, middle, options_, isa_)
                                                      : Converter(middle, other, options_, isa_);
      prepared.strings = {other, converter, middle};
      return prepared;
    }
    if (x.type() == to) ctx.set_view(0, 0);
    prepared.converter = Converter(x.type(), to, options_, isa_);
    return prepared;
  }

 private:
  /// None for CastLike, whose second input says it. Before opset 6 the type was a name.
  static DataType target_of(const sdk::Node& node) {
    if (node.is("CastLike")) return DataType::None;
    const bool by_name = node.since_version() < 6;
    const std::string name = by_name ? node.get_string("to", "") : "";
    const auto number = by_name ? 0 : node.get_int("to", 0);
    for (int i = 1; i <= static_cast<int>(DataType::Int2); ++i) {
      const auto type = static_cast<DataType>(i);
      if (by_name ? equal_ignoring_case(name, sdk::type_name(type)) : number == i) return type;
    }
    sdk::unsupported("attribute 'to' is ", by_name ? name : std::to_string(number),
                     ", a type that is not known");
  }

  Isa isa_;
  DataType to_;
  ConvertOptions options_;
};

}  // namespace

sdk::KernelList cast_kernels() {
  const common::TypeList types = common::join(
      common::number_types(),
      {DataType::Bool, DataType::String, DataType::Float8E4M3FN, DataType::Float8E4M3FNUZ,
       DataType::Float8E5M2, DataType::Float8E5M2FNUZ, DataType::Float8E8M0, DataType::Float4E2M1,
       DataType::Int4, DataType::UInt4, DataType::Int2, DataType::UInt2});
  return {sdk::op("Cast").name("cpu:Cast").types("T1", types).types("T2", types).kernel<Cast>(),
          sdk::op("CastLike")
              .name("cpu:CastLike")
              .types("T1", types)
              .types("T2", types)
              .roles({BP_INPUT_DATA, BP_INPUT_SHAPE_ONLY})
              .kernel<Cast>()};
}

}  // namespace backplane::cpu
