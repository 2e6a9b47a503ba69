// LabelEncoder, CategoryMapper: https://onnx.ai/onnx/operators/onnx_aionnxml_LabelEncoder.html and the other.
#include <string>
#include <variant>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/cpu/kernels/feature_rows.hpp"
#include "plugins/cpu/kernels/key_table.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

constexpr double kNsPerKey = 15;

/// A list of keys or values, as attributes hold them. One that is empty stands for a list that is not there.
using LabelList =
    std::variant<std::vector<std::int64_t>, std::vector<double>, std::vector<std::string>>;

std::size_t size_of(const LabelList& list) {
  return std::visit([](const auto& values) { return values.size(); }, list);
}

LabelList list_of(const sdk::Value& value) {
  const sdk::Tensor tensor = value.tensor();
  const auto count = static_cast<std::size_t>(tensor.size());
  if (tensor.type() == sdk::DataType::String) {
    std::vector<std::string> texts(count);
    for (std::size_t i = 0; i < count; ++i) texts[i] = value.string_at(i);
    return texts;
  }
  return common::with_type<float, double, std::int64_t, std::int32_t, std::int16_t>(
      tensor.type(), [&](auto tag) -> LabelList {
        using T = typename decltype(tag)::type;
        using Wide = std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;
        return std::vector<Wide>(tensor.data<T>(), tensor.data<T>() + count);
      });
}

/// Of attributes PREFIX_tensor, PREFIX_strings, PREFIX_int64s and PREFIX_floats the one that is given.
LabelList read_list(const sdk::Node& node, const std::string& prefix) {
  if (const sdk::Value value = node.get_tensor((prefix + "_tensor").c_str())) return list_of(value);
  auto texts = node.get_strings((prefix + "_strings").c_str());
  if (!texts.empty()) return texts;
  auto integers = node.get_ints((prefix + "_int64s").c_str());
  if (!integers.empty()) return integers;
  const auto floats = node.get_floats((prefix + "_floats").c_str());
  return std::vector<double>(floats.begin(), floats.end());
}

/// What stands for keys that are in no list, as one entry of the type of the values.
LabelList read_default(const sdk::Node& node, const LabelList& values) {
  if (const sdk::Value value = node.get_tensor("default_tensor")) {
    if (value.tensor().size() != 1)
      sdk::invalid("attribute 'default_tensor' has ", value.tensor().size(), " entries");
    return list_of(value);
  }
  if (std::holds_alternative<std::vector<std::string>>(values))
    return std::vector<std::string>{node.get_string("default_string", "_Unused")};
  if (std::holds_alternative<std::vector<std::int64_t>>(values))
    return std::vector<std::int64_t>{node.get_int("default_int64", -1)};
  return std::vector<double>{static_cast<double>(node.get_float("default_float", -0.0f))};
}

/// Values for keys, element by element.
class LabelEncoder {
 public:
  struct Prepared {
    const LabelEncoder* kernel;
    std::int64_t count;

    void compute(const sdk::ComputeContext& ctx) const {
      std::visit([&](const auto& values) { write(ctx, values); }, kernel->values_);
    }

   private:
    void write(const sdk::ComputeContext& ctx, const std::vector<std::string>& texts) const {
      for (std::int64_t i = 0; i < count; ++i)
        ctx.output_value(0).set_string(static_cast<std::uint64_t>(i), texts[place(ctx, i)]);
    }
    template <class Number>
    void write(const sdk::ComputeContext& ctx, const std::vector<Number>& numbers) const {
      common::with_type<float, double, std::int64_t, std::int32_t, std::int16_t>(
          ctx.output(0).type(), [&](auto tag) {
            using T = typename decltype(tag)::type;
            T* y = ctx.output(0).mutable_data<T>();
            split_elements(ctx.threads(), count, kNsPerKey,
                           [&](std::int64_t begin, std::int64_t end) {
                             for (std::int64_t i = begin; i < end; ++i)
                               y[i] = static_cast<T>(numbers[place(ctx, i)]);
                           });
          });
    }

    /// Where the value for element i is; the default is the last one.
    std::size_t place(const sdk::ComputeContext& ctx, std::int64_t i) const {
      const std::int32_t found = find(ctx, i);
      return found == KeyTable::kNone ? kernel->count_ : static_cast<std::size_t>(found);
    }
    std::int32_t find(const sdk::ComputeContext& ctx, std::int64_t i) const {
      const KeyTable& table = kernel->table_;
      switch (ctx.input(0).type()) {
        case sdk::DataType::String:
          return table.find(ctx.input_value(0).string_at(static_cast<std::uint64_t>(i)));
        case sdk::DataType::Float:
          return table.find(static_cast<double>(ctx.input(0).data<float>()[i]));
        case sdk::DataType::Double:
          return table.find(ctx.input(0).data<double>()[i]);
        case sdk::DataType::Int32:
          return table.find(std::int64_t{ctx.input(0).data<std::int32_t>()[i]});
        case sdk::DataType::Int16:
          return table.find(std::int64_t{ctx.input(0).data<std::int16_t>()[i]});
        default:
          return table.find(ctx.input(0).data<std::int64_t>()[i]);
      }
    }
  };

  LabelEncoder(const sdk::CreateContext&, const sdk::Node& node) {
    const bool from_text = node.input(0).type() == sdk::DataType::String;
    LabelList keys;
    if (node.op_type() == "CategoryMapper") {
      keys = node.get_ints("cats_int64s");
      values_ = node.get_strings("cats_strings");
      if (from_text) std::swap(keys, values_);
    } else if (node.since_version() == 1) {  // texts, whose places are the numbers
      values_ = node.get_strings("classes_strings");
      std::vector<std::int64_t> places(size_of(values_));
      for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<std::int64_t>(i);
      keys = std::move(places);
      if (from_text) std::swap(keys, values_);
    } else {
      keys = read_list(node, "keys");
      values_ = read_list(node, "values");
    }
    count_ = size_of(values_);
    if (size_of(keys) != count_)
      sdk::invalid(node.op_type(), ": there are ", size_of(keys), " keys and ", count_, " values");
    if (from_text != std::holds_alternative<std::vector<std::string>>(keys))
      sdk::invalid(node.op_type(), ": the input and the keys have different types");
    std::visit([&](const auto& list) { table_.add_all(list); }, keys);
    const LabelList otherwise = read_default(node, values_);
    if (otherwise.index() != values_.index())
      sdk::invalid(node.op_type(), ": the values and their default have different types");
    std::visit(
        [&](auto& list) {
          list.push_back(std::get<std::decay_t<decltype(list)>>(otherwise).front());
        },
        values_);
    type_ = node.output(0).type();
  }
  LabelEncoder(const LabelEncoder&) = delete;
  LabelEncoder& operator=(const LabelEncoder&) = delete;

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const bool text = std::holds_alternative<std::vector<std::string>>(values_);
    if (text != (type_ == sdk::DataType::String))
      sdk::invalid("the values are ", text ? "strings" : "numbers", ", the output holds ",
                   sdk::type_name(type_));
    ctx.set_output(0, type_, ctx.input(0).dims());
    return {this, ctx.input(0).size()};
  }

 private:
  KeyTable table_;
  LabelList values_;  // and their default behind them
  std::size_t count_ = 0;
  sdk::DataType type_;
};

}  // namespace

sdk::KernelList label_encoder_kernels() {
  return {sdk::op("LabelEncoder", kMlDomain).name("cpu:label_encoder").kernel<LabelEncoder>(),
          sdk::op("CategoryMapper", kMlDomain).name("cpu:category_mapper").kernel<LabelEncoder>()};
}

}  // namespace backplane::cpu
