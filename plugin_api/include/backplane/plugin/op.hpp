// Backplane SDK: schemas of custom operators.
//
//   sdk::OpSchema("my.domain", "Scale", 1)
//       .doc("Multiplies by a factor.")
//       .type_param("T", {DataType::Float, DataType::Double})
//       .input("x", "T").output("y", "T")
//       .attribute("factor", BP_ATTRIBUTE_FLOAT, false)
//       .infer([](sdk::InferContext& ctx) { ctx.set_output_like(0, ctx.node().input(0)); });
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backplane/plugin/attribute.hpp"
#include "backplane/plugin/graph.hpp"

namespace backplane::sdk {

/// Shape inference: see bp_infer_ctx.
class InferContext {
 public:
  explicit InferContext(const bp_infer_ctx* raw) : raw_(raw) {}
  Node node() const { return Node(raw_->node); }
  /// Dims -1 where unknown.
  void set_output(std::uint32_t output, DataType type, DimsView dims) {
    check(raw_->api->set_output(raw_, output, static_cast<bp_dtype>(type),
                                static_cast<std::int32_t>(dims.size()), dims.data(), nullptr));
  }
  /// With the symbols of unknown dims, "" for one that has none: equal symbols are equal sizes.
  void set_output(std::uint32_t output, DataType type, DimsView dims,
                  const std::vector<std::string>& symbols) {
    if (symbols.size() != dims.size()) {
      invalid("output ", output, " is given ", symbols.size(), " symbols for ", dims.size(),
              " dims");
    }
    std::vector<const char*> texts;
    for (const std::string& symbol : symbols)
      texts.push_back(symbol.empty() ? nullptr : symbol.c_str());
    check(raw_->api->set_output(raw_, output, static_cast<bp_dtype>(type),
                                static_cast<std::int32_t>(dims.size()), dims.data(), texts.data()));
  }
  /// Type alone, rank unknown.
  void set_output_type(std::uint32_t output, DataType type) {
    check(raw_->api->set_output(raw_, output, static_cast<bp_dtype>(type), -1, nullptr, nullptr));
  }
  /// Type, dims and symbols of another value.
  void set_output_like(std::uint32_t output, const ValueInfo& value) {
    const int rank = value.rank();
    std::vector<const char*> symbols;
    for (int axis = 0; axis < rank; ++axis)
      symbols.push_back(host().graph->value_symbol(value.raw(), axis));
    check(raw_->api->set_output(raw_, output, static_cast<bp_dtype>(value.type()), rank,
                                rank < 0 ? nullptr : value.dims().data(),
                                rank < 0 ? nullptr : symbols.data()));
  }

 private:
  const bp_infer_ctx* raw_;
};

/// A schema with its storage; build it, then show raw() in the plugin. Must stay where it is once raw() was called.
class OpSchema {
 public:
  OpSchema(std::string domain, std::string name, int since_version)
      : store_(std::make_unique<Store>()) {
    store_->domain = std::move(domain);
    store_->name = std::move(name);
    store_->since_version = since_version;
  }
  OpSchema&& doc(std::string text) && { return store_->doc = std::move(text), std::move(*this); }
  OpSchema&& type_param(std::string name, const std::vector<DataType>& types) && {
    auto& param = store_->type_params.emplace_back();
    param.name = std::move(name);
    for (const DataType type : types) param.types.push_back(tensor_type(type));
    return std::move(*this);
  }
  /// `type` is a type parameter's name or an ONNX type string.
  OpSchema&& input(std::string name, std::string type, std::int32_t kind = BP_PARAM_REQUIRED) && {
    store_->inputs.emplace_back(std::move(name), std::move(type), kind);
    return std::move(*this);
  }
  OpSchema&& output(std::string name, std::string type, std::int32_t kind = BP_PARAM_REQUIRED) && {
    store_->outputs.emplace_back(std::move(name), std::move(type), kind);
    return std::move(*this);
  }
  /// The last input, any number from `least` on: all of one type, or each of its own (heterogeneous).
  OpSchema&& variadic_input(std::string name, std::string type, std::uint64_t least = 1,
                            bool heterogeneous = false) && {
    store_->inputs.emplace_back(std::move(name), std::move(type), BP_PARAM_VARIADIC, least,
                                heterogeneous);
    return std::move(*this);
  }
  /// Likewise of outputs.
  OpSchema&& variadic_output(std::string name, std::string type, std::uint64_t least = 1,
                             bool heterogeneous = false) && {
    store_->outputs.emplace_back(std::move(name), std::move(type), BP_PARAM_VARIADIC, least,
                                 heterogeneous);
    return std::move(*this);
  }
  OpSchema&& attribute(std::string name, std::int32_t type, bool required,
                       std::string doc = "") && {
    store_->attributes.push_back({std::move(name), std::move(doc), type, required, std::nullopt,
                                  abi_struct<bp_attribute_def>()});
    return std::move(*this);
  }
  /// An attribute that a node may leave out, with what it then is: told to users, filled in by the kernel.
  OpSchema&& attribute(Attribute default_value, std::string doc = "") && {
    const bp_attribute* raw = default_value.raw();
    store_->attributes.push_back({raw->name, std::move(doc), raw->type, false,
                                  std::move(default_value), abi_struct<bp_attribute_def>()});
    return std::move(*this);
  }
  OpSchema&& infer(std::function<void(InferContext&)> function) && {
    store_->infer = std::move(function);
    return std::move(*this);
  }

  const bp_op_schema* raw() {
    Store& s = *store_;
    s.collect();
    s.raw = abi_struct<bp_op_schema>();
    s.raw.domain = s.domain.c_str();
    s.raw.name = s.name.c_str();
    s.raw.doc = s.doc.c_str();
    s.raw.since_version = s.since_version;
    s.raw.inputs = s.input_pointers.data();
    s.raw.input_count = static_cast<std::uint32_t>(s.input_pointers.size());
    s.raw.outputs = s.output_pointers.data();
    s.raw.output_count = static_cast<std::uint32_t>(s.output_pointers.size());
    s.raw.attributes = s.attribute_pointers.data();
    s.raw.attribute_count = static_cast<std::uint32_t>(s.attribute_pointers.size());
    s.raw.type_params = s.type_param_pointers.data();
    s.raw.type_param_count = static_cast<std::uint32_t>(s.type_param_pointers.size());
    s.raw.self = &s;
    if (s.infer) {
      s.raw.infer = [](void* self, const bp_infer_ctx* ctx) {
        return guarded([&] {
          InferContext context(ctx);
          static_cast<Store*>(self)->infer(context);
        });
      };
    }
    return &s.raw;
  }

 private:
  struct Param {
    Param(std::string its_name, std::string its_type, std::int32_t its_kind,
          std::uint64_t its_least = 1, bool is_heterogeneous = false)
        : name(std::move(its_name)),
          type(std::move(its_type)),
          kind(its_kind),
          least(its_least),
          heterogeneous(is_heterogeneous) {}
    std::string name, type;
    std::int32_t kind;
    std::uint64_t least;
    bool heterogeneous;
    bp_param raw = abi_struct<bp_param>();
  };
  struct AttributeDef {
    std::string name, doc;
    std::int32_t type;
    bool required;
    std::optional<Attribute> default_value;
    bp_attribute_def raw;
  };
  struct TypeParam {
    std::string name;
    std::vector<std::string> types;
    std::vector<const char*> pointers;
    bp_type_param raw = abi_struct<bp_type_param>();
  };
  struct Store {
    std::string domain, name, doc;
    int since_version = 1;
    std::deque<Param> inputs, outputs;
    std::deque<AttributeDef> attributes;
    std::deque<TypeParam> type_params;
    std::function<void(InferContext&)> infer;
    std::vector<const bp_param*> input_pointers, output_pointers;
    std::vector<const bp_attribute_def*> attribute_pointers;
    std::vector<const bp_type_param*> type_param_pointers;
    bp_op_schema raw{};

    static void collect_params(std::deque<Param>& params, std::vector<const bp_param*>& pointers) {
      pointers.clear();
      for (Param& param : params) {
        param.raw.name = param.name.c_str();
        param.raw.type = param.type.c_str();
        param.raw.doc = "";
        param.raw.kind = param.kind;
        param.raw.min_count = param.kind == BP_PARAM_VARIADIC ? param.least : 0;
        param.raw.heterogeneous = param.heterogeneous ? 1 : 0;
        pointers.push_back(&param.raw);
      }
    }
    void collect() {
      collect_params(inputs, input_pointers);
      collect_params(outputs, output_pointers);
      attribute_pointers.clear();
      for (AttributeDef& attribute : attributes) {
        attribute.raw.name = attribute.name.c_str();
        attribute.raw.doc = attribute.doc.c_str();
        attribute.raw.type = attribute.type;
        attribute.raw.required = attribute.required ? 1 : 0;
        if (attribute.default_value) attribute.raw.default_value = attribute.default_value->raw();
        attribute_pointers.push_back(&attribute.raw);
      }
      type_param_pointers.clear();
      for (TypeParam& param : type_params) {
        param.pointers.clear();
        for (const std::string& type : param.types) param.pointers.push_back(type.c_str());
        param.raw.name = param.name.c_str();
        param.raw.doc = "";
        param.raw.types = param.pointers.data();
        param.raw.type_count = param.pointers.size();
        type_param_pointers.push_back(&param.raw);
      }
    }
  };
  std::unique_ptr<Store> store_;
};

}  // namespace backplane::sdk
