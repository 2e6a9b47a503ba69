// Backplane SDK: rewriting the nodes that a device was given.
//
//   void rewrite(const sdk::Graph& graph, sdk::Rewrite& edit) {
//     edit.node("backplane.mine", "AddRelu").input(a).input(b).output(y).replaces(add).replaces(relu).add();
//   }
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backplane/plugin/attribute.hpp"
#include "backplane/plugin/kernel.hpp"

namespace backplane::sdk {

class Rewrite;

/// A node being added; `add` hands it to the host.
class NodeDraft {
 public:
  NodeDraft(Rewrite& rewrite, std::string domain, std::string op_type)
      : rewrite_(rewrite), domain_(std::move(domain)), op_type_(std::move(op_type)) {}
  NodeDraft& name(std::string text) { return name_ = std::move(text), *this; }
  /// A value's name; "" leaves the input out.
  NodeDraft& input(std::string value) { return inputs_.push_back(std::move(value)), *this; }
  NodeDraft& output(std::string value) { return outputs_.push_back(std::move(value)), *this; }
  template <class T>
  NodeDraft& attribute(std::string attribute_name, T value) {
    attributes_.emplace_back(std::move(attribute_name), std::move(value));
    return *this;
  }
  NodeDraft& replaces(const Node& node) { return replaced_.push_back(node.raw()), *this; }
  inline void add();

 private:
  Rewrite& rewrite_;
  std::string domain_, op_type_, name_;
  std::vector<std::string> inputs_, outputs_;
  std::deque<Attribute> attributes_;
  std::vector<const bp_node*> replaced_;
};

/// The editor: see bp_rewrite_api.
class Rewrite {
 public:
  Rewrite(bp_rewrite* raw, const bp_rewrite_api* api) : raw_(raw), api_(api) {}

  NodeDraft node(std::string domain, std::string op_type) {
    return {*this, std::move(domain), std::move(op_type)};
  }

  /// A constant whose elements are given.
  void constant(const std::string& name, DataType type, DimsView dims, const void* data,
                std::uint64_t bytes) {
    bp_constant_desc desc = describe(name, type, dims);
    desc.data = data;
    desc.bytes = bytes;
    check(api_->add_constant(raw_, &desc));
  }

  /// A constant computed when it is first needed, from other constants. `key` holds everything else that
  /// shapes the result.
  void lazy_constant(const std::string& name, DataType type, DimsView dims,
                     const std::vector<std::string>& sources, const std::string& key,
                     std::function<void(const PackContext&)> compute) {
    using Function = std::function<void(const PackContext&)>;
    std::vector<const char*> names;
    for (const std::string& source : sources) names.push_back(source.c_str());
    bp_constant_desc desc = describe(name, type, dims);
    desc.sources = names.data();
    desc.source_count = names.size();
    desc.key = key.c_str();
    auto function = std::make_unique<Function>(std::move(compute));
    desc.self = function.get();
    desc.compute = [](void* self, const bp_pack_ctx* ctx) {
      return guarded([&] { (*static_cast<Function*>(self))(PackContext(ctx)); });
    };
    desc.drop = [](void* self) { delete static_cast<Function*>(self); };
    check(api_->add_constant(raw_, &desc));
    static_cast<void>(function.release());  // the host has it now and ends it by `drop`
  }

  void set_format(const std::string& value, std::uint32_t format) {
    check(api_->set_format(raw_, value.c_str(), format));
  }
  void note(const Node& node, const std::string& text) {
    check(api_->note(raw_, node.raw(), text.c_str()));
  }
  /// Hands a finished description to the host.
  void add(const bp_node_desc& desc) { check(api_->add_node(raw_, &desc)); }
  void add(const bp_constant_desc& desc) { check(api_->add_constant(raw_, &desc)); }

 private:
  static bp_constant_desc describe(const std::string& name, DataType type, DimsView dims) {
    bp_constant_desc desc = abi_struct<bp_constant_desc>();
    desc.name = name.c_str();
    desc.dims = dims.data();
    desc.rank = static_cast<std::int32_t>(dims.size());
    desc.dtype = static_cast<bp_dtype>(type);
    return desc;
  }

  bp_rewrite* raw_;
  const bp_rewrite_api* api_;
};

inline void NodeDraft::add() {
  std::vector<const char*> inputs, outputs;
  for (const std::string& value : inputs_) inputs.push_back(value.c_str());
  for (const std::string& value : outputs_) outputs.push_back(value.c_str());
  std::vector<const bp_attribute*> attributes;
  for (Attribute& attribute : attributes_) attributes.push_back(attribute.raw());
  bp_node_desc desc = abi_struct<bp_node_desc>();
  desc.domain = domain_.c_str();
  desc.op_type = op_type_.c_str();
  desc.name = name_.empty() ? nullptr : name_.c_str();
  desc.inputs = inputs.data();
  desc.input_count = inputs.size();
  desc.outputs = outputs.data();
  desc.output_count = outputs.size();
  desc.attributes = attributes.data();
  desc.attribute_count = attributes.size();
  desc.replaces = replaced_.data();
  desc.replace_count = replaced_.size();
  rewrite_.add(desc);
}

}  // namespace backplane::sdk
