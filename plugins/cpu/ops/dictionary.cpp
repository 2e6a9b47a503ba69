// ZipMap, DictVectorizer, CastMap: https://onnx.ai/onnx/operators/onnx_aionnxml_ZipMap.html and the others.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ios>
#include <numeric>
#include <string>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/cpu/kernels/c_number.hpp"
#include "plugins/cpu/kernels/element_mover.hpp"
#include "plugins/cpu/kernels/feature_rows.hpp"
#include "plugins/cpu/kernels/key_table.hpp"
#include "plugins/cpu/kernels/value_type.hpp"

namespace backplane::cpu {
namespace {

/// Rows of scores as a sequence of maps from the classes' names.
class ZipMap {
 public:
  struct Prepared {
    const ZipMap* kernel;
    FeatureRows shape;

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::OwnedValue keys = kernel->make_keys();  // one for all maps
      const float* x = ctx.input(0).data<float>();
      for (std::int64_t row = 0; row < shape.rows; ++row) {
        const sdk::OwnedValue values =
            sdk::OwnedValue::tensor(sdk::DataType::Float, sdk::DimsView(&shape.columns, 1));
        std::copy_n(x + row * shape.columns, shape.columns,
                    values.get().tensor().mutable_data<float>());
        const sdk::OwnedValue map = sdk::OwnedValue::of_type(kernel->type());
        map.get().set_map(keys.get(), values.get());
        ctx.output_value(0).append(map.get());
      }
    }
  };

  ZipMap(const sdk::CreateContext&, const sdk::Node& node)
      : numbers_(node.get_ints("classlabels_int64s")),
        texts_(node.get_strings("classlabels_strings")) {
    if (numbers_.empty() == texts_.empty()) {
      sdk::invalid(
          "ZipMap: one of the attributes 'classlabels_int64s' and 'classlabels_strings' is needed, "
          "not both");
    }
  }
  ZipMap(const ZipMap&) = delete;
  ZipMap& operator=(const ZipMap&) = delete;

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const FeatureRows shape = FeatureRows::of("ZipMap", ctx.input(0));
    const auto labels = static_cast<std::int64_t>(std::max(numbers_.size(), texts_.size()));
    if (shape.columns != labels)
      sdk::invalid("ZipMap: the input has dims ", sdk::to_string(ctx.input(0).dims()), " for ",
                   labels, " labels");
    ctx.set_output_type(0, ("seq(" + std::string(type()) + ")").c_str());
    return {this, shape};
  }

 private:
  const char* type() const {
    return texts_.empty() ? "map(int64,tensor(float))" : "map(string,tensor(float))";
  }

  sdk::OwnedValue make_keys() const {
    const auto count = static_cast<std::int64_t>(std::max(numbers_.size(), texts_.size()));
    sdk::OwnedValue keys = sdk::OwnedValue::tensor(
        texts_.empty() ? sdk::DataType::Int64 : sdk::DataType::String, sdk::DimsView(&count, 1));
    for (std::size_t i = 0; i < texts_.size(); ++i) keys.get().set_string(i, texts_[i]);
    if (texts_.empty())
      std::copy(numbers_.begin(), numbers_.end(), keys.get().tensor().mutable_data<std::int64_t>());
    return keys;
  }

  std::vector<std::int64_t> numbers_;
  std::vector<std::string> texts_;
};

/// The values of a map as a tensor, one behind the other.
sdk::Value values_of(const sdk::Value& map) {
  const sdk::Value values = map.map_values();
  if (values.kind() != BP_VALUE_TENSOR) sdk::unsupported("maps of values that are no scalars");
  return values;
}

/// The value of each word of a vocabulary: 0, or "", for one that the map does not have.
class DictVectorizer {
 public:
  struct Prepared {
    const DictVectorizer* kernel;

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Value map = ctx.input_value(0);
      const sdk::Value keys = map.map_keys(), values = values_of(map);
      const sdk::Tensor y = ctx.output(0);
      if (kernel->type_ == sdk::DataType::String) {
        for (std::int64_t i = 0; i < y.size(); ++i)
          ctx.output_value(0).set_string(static_cast<std::uint64_t>(i), "");
      } else if (y.size() > 0) {
        std::fill_n(y.mutable_data<char>(), y.bytes(), '\0');
      }
      const ElementMover mover(values, ctx.output_value(0));
      for (std::int64_t i = 0; i < keys.tensor().size(); ++i) {
        const std::int32_t place =
            keys.tensor().type() == sdk::DataType::String
                ? kernel->table_.find(keys.string_at(static_cast<std::uint64_t>(i)))
                : kernel->table_.find(keys.tensor().data<std::int64_t>()[i]);
        if (place != KeyTable::kNone) mover.copy(place, i, 1);
      }
    }
  };

  DictVectorizer(const sdk::CreateContext&, const sdk::Node& node)
      : type_(element_type_of(node.input(0).type_string())) {
    const auto texts = node.get_strings("string_vocabulary");
    const auto numbers = node.get_ints("int64_vocabulary");
    if (texts.empty() == numbers.empty()) {
      sdk::invalid(
          "DictVectorizer: one of the attributes 'string_vocabulary' and 'int64_vocabulary' is "
          "needed, not both");
    }
    table_.add_all(texts);
    table_.add_all(numbers);
    words_ = static_cast<std::int64_t>(std::max(texts.size(), numbers.size()));
  }
  DictVectorizer(const DictVectorizer&) = delete;
  DictVectorizer& operator=(const DictVectorizer&) = delete;

  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output(0, type_, sdk::Dims{1, words_});
    return {this};
  }

 private:
  sdk::DataType type_;
  KeyTable table_;
  std::int64_t words_ = 0;
};

/// The values of a map by rising key, in another type. Sparse: key k's value is at k, and 0 where there is none.
class CastMap {
 public:
  struct Prepared {
    const CastMap* kernel;

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Value map = ctx.input_value(0);
      const sdk::Value values = values_of(map);
      const sdk::Tensor keys = map.map_keys().tensor();
      const auto* numbers = keys.data<std::int64_t>();
      std::vector<std::int64_t> order(static_cast<std::size_t>(keys.size()));
      std::iota(order.begin(), order.end(), std::int64_t{0});
      std::sort(order.begin(), order.end(),
                [&](std::int64_t a, std::int64_t b) { return numbers[a] < numbers[b]; });
      const bool sparse = kernel->sparse_;
      const std::int64_t dims[2] = {1, sparse ? kernel->size_ : keys.size()};
      ctx.alloc_output(0, sdk::DimsView(dims, 2));
      std::size_t next = 0;
      for (std::int64_t i = 0; i < dims[1]; ++i) {
        const bool given = next < order.size() && (!sparse || numbers[order[next]] == i);
        kernel->write(ctx, values, given ? order[next++] : -1, i);
      }
      if (next < order.size())
        sdk::failed("CastMap: key ", numbers[order[next]], " is out of range for ", dims[1],
                    " places");
    }
  };

  CastMap(const sdk::CreateContext&, const sdk::Node& node)
      : cast_to_(node.get_string("cast_to", "TO_FLOAT")),
        sparse_(node.get_string("map_form", "DENSE") == "SPARSE"),
        size_(node.get_int("max_map", 1)) {
    if (cast_to_ != "TO_FLOAT" && cast_to_ != "TO_STRING" && cast_to_ != "TO_INT64")
      sdk::invalid("attribute 'cast_to' is '", cast_to_,
                   "'; it may be TO_FLOAT, TO_STRING or TO_INT64");
    if (sparse_ && size_ < 1) sdk::invalid("attribute 'max_map' is ", size_);
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output_unknown(0,
                           cast_to_ == "TO_FLOAT"    ? sdk::DataType::Float
                           : cast_to_ == "TO_STRING" ? sdk::DataType::String
                                                     : sdk::DataType::Int64,
                           2);
    return {this};
  }

 private:
  /// Value `from` of the map, -1 for none, at place `to`.
  void write(const sdk::ComputeContext& ctx, const sdk::Value& values, std::int64_t from,
             std::int64_t to) const {
    const bool text = values.tensor().type() == sdk::DataType::String;
    if (cast_to_ == "TO_STRING") {
      const auto at = static_cast<std::uint64_t>(to);
      if (from < 0) return ctx.output_value(0).set_string(at, "0.f");
      if (text)
        return ctx.output_value(0).set_string(at,
                                              values.string_at(static_cast<std::uint64_t>(from)));
      return ctx.output_value(0).set_string(
          at, sdk::message(std::fixed, values.tensor().data<float>()[from]));
    }
    double number = 0;
    if (from >= 0) {
      number = text ? parsed(values.string_at(static_cast<std::uint64_t>(from)))
                    : static_cast<double>(values.tensor().data<float>()[from]);
    }
    if (cast_to_ == "TO_FLOAT")
      ctx.output(0).mutable_data<float>()[to] = static_cast<float>(number);
    else
      ctx.output(0).mutable_data<std::int64_t>()[to] = static_cast<std::int64_t>(number);
  }

  static double parsed(std::string_view text) {
    const std::string copy(text);
    char* end = nullptr;
    const double number = c_number(copy.c_str(), &end);
    if (end == copy.c_str()) sdk::failed("CastMap: '", copy, "' is no number");
    return number;
  }

  std::string cast_to_;
  bool sparse_;
  std::int64_t size_;
};

}  // namespace

sdk::KernelList dictionary_kernels() {
  return {sdk::op("ZipMap", kMlDomain).name("cpu:zip_map").kernel<ZipMap>(),
          sdk::op("DictVectorizer", kMlDomain).name("cpu:dict_vectorizer").kernel<DictVectorizer>(),
          sdk::op("CastMap", kMlDomain)
              .name("cpu:cast_map")
              .flags(BP_KERNEL_DATA_DEPENDENT)
              .kernel<CastMap>()};
}

}  // namespace backplane::cpu
