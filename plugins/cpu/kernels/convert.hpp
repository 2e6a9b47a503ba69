// Converting arrays between element types: all of ONNX's but strings and complex numbers.
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/common/float8.hpp"
#include "plugins/cpu/dense/isa.hpp"
#include "plugins/cpu/kernels/convert_native.hpp"

namespace backplane::cpu {

/// What conversions to 8-bit floating-point types do with what does not fit.
struct ConvertOptions {
  bool saturate = true;
  common::ScaleRounding rounding = common::ScaleRounding::kUp;  // to float8e8m0
};

/// The elements of a type of less than a byte or without a C++ type, as elements of a type with one:
/// float for floating-point types, int8 and uint8 for 4- and 2-bit integers.
struct Codec {
  sdk::DataType wide = sdk::DataType::None;
  /// `from` and `to` are starts of whole arrays; `begin` counts elements of the narrow one.
  void (*decode)(const void* from, std::int64_t begin, void* wide, std::int64_t n) = nullptr;
  void (*encode)(const void* wide, void* to, std::int64_t begin, std::int64_t n,
                 const ConvertOptions& options) = nullptr;
};

/// decode and encode are null for types that are their own wide type, and for float16 and bfloat16,
/// whose loops are those of half_conversion. Errors: BP_UNSUPPORTED for strings and complex numbers.
const Codec& codec_of(sdk::DataType type);

/// A conversion, planned. Immutable.
class Converter {
 public:
  Converter() = default;
  Converter(sdk::DataType from, sdk::DataType to, const ConvertOptions& options, Isa isa);

  /// to[to_begin + i] = from[from_begin + i] for i < n; `from` and `to` are starts of whole arrays. Two
  /// threads must not write to one byte, so parts of packed arrays begin at multiples of 4.
  void run(const void* from, std::int64_t from_begin, void* to, std::int64_t to_begin,
           std::int64_t n) const;
  /// The same part of both.
  void run(const void* from, void* to, std::int64_t begin, std::int64_t end) const {
    run(from, begin, to, begin, end - begin);
  }

  /// The estimated time of an element.
  double ns_each() const { return ns_each_; }

 private:
  struct Side {
    sdk::DataType type = sdk::DataType::None;
    const Codec* codec = nullptr;  // null: elements are native
    void (*half_to_float)(const void*, float*, std::int64_t) = nullptr;
    void (*float_to_half)(const float*, void*, std::int64_t) = nullptr;
    std::int64_t bytes = 0;       // of an element; 0: less than one
    std::int64_t wide_bytes = 0;  // of an element in its wide form
    bool native() const { return codec == nullptr && half_to_float == nullptr; }
  };

  Side make_side(sdk::DataType type, Isa isa, sdk::DataType& wide) const;
  void decode(const void* from, std::int64_t begin, void* wide, std::int64_t n) const;
  void encode(const void* wide, void* to, std::int64_t begin, std::int64_t n) const;

  Side from_;
  Side to_;
  NativeConversion native_ = nullptr;  // between the wide types
  ConvertOptions options_;
  double ns_each_ = 0;
};

}  // namespace backplane::cpu
