// Graphs that a program builds or changes: host/graph.h for C++17. Part of backplane.hpp.
//
//   backplane::Graph graph(environment);
//   graph.add_value("x", backplane::GraphType::tensor(backplane::ElementType::Float, {-1, 3}, {"batch"}));
//   graph.add_node("Relu", {"x"}, {"y"});
//   backplane::Session session(environment, graph);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backplane/backplane.hpp"

namespace backplane {

/// The type of a value of a graph.
class GraphType {
 public:
  /// From ONNX's type string, of unknown rank.
  explicit GraphType(const std::string& type) { make(type, -1, {}, {}); }
  /// Likewise with a shape for the tensors in it; -1 for an unknown dimension, "" for one without a symbol.
  GraphType(const std::string& type, const std::vector<std::int64_t>& dims,
            const std::vector<std::string>& symbols = {}) {
    make(type, static_cast<std::int32_t>(dims.size()), dims, symbols);
  }
  /// A tensor's.
  static GraphType tensor(ElementType element, const std::vector<std::int64_t>& dims,
                          const std::vector<std::string>& symbols = {}) {
    return {"tensor(" + name_of(element) + ")", dims, symbols};
  }

  backplane_type* get() const { return type_.get(); }

 private:
  static std::string name_of(ElementType element) {
    static const char* const kNames[] = {
        "undefined",      "float",    "uint8",        "int8",           "uint16",
        "int16",          "int32",    "int64",        "string",         "bool",
        "float16",        "double",   "uint32",       "uint64",         "complex64",
        "complex128",     "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2",
        "float8e5m2fnuz", "uint4",    "int4",         "float4e2m1",     "float8e8m0",
        "uint2",          "int2"};
    return kNames[static_cast<std::size_t>(element)];
  }
  void make(const std::string& type, std::int32_t rank, const std::vector<std::int64_t>& dims,
            const std::vector<std::string>& symbols) {
    std::vector<const char*> names;
    for (std::size_t i = 0; i < dims.size(); ++i)
      names.push_back(i < symbols.size() && !symbols[i].empty() ? symbols[i].c_str() : nullptr);
    backplane_type* made = nullptr;
    detail::check(backplane_type_create(type.c_str(), rank, dims.data(), names.data(), &made));
    type_.reset(made);
  }

  std::unique_ptr<backplane_type, detail::Deleter<backplane_type, backplane_type_destroy>> type_;
};

/// A graph as it is built and changed. One thread at a time.
class Graph {
 public:
  /// A node of a graph, by its number. Attributes are set one by one; setting one again replaces it.
  ///
  /// Lifetime: as long as its graph stays where it is.
  class Node {
   public:
    std::int64_t number() const { return number_; }

    Node& set(const std::string& name, std::int64_t value) {
      return checked(backplane_graph_set_int(graph_, number_, name.c_str(), value));
    }
    Node& set(const std::string& name, int value) {
      return set(name, static_cast<std::int64_t>(value));
    }
    Node& set(const std::string& name, float value) {
      return checked(backplane_graph_set_float(graph_, number_, name.c_str(), value));
    }
    Node& set(const std::string& name, const std::string& value) {
      return checked(
          backplane_graph_set_string(graph_, number_, name.c_str(), value.data(), value.size()));
    }
    Node& set(const std::string& name, const char* value) { return set(name, std::string(value)); }
    Node& set(const std::string& name, const ValueView& tensor) {
      return checked(backplane_graph_set_tensor(graph_, number_, name.c_str(), tensor.get()));
    }
    Node& set(const std::string& name, const GraphType& type) {
      return checked(backplane_graph_set_type(graph_, number_, name.c_str(), type.get()));
    }
    /// A body, which is copied.
    Node& set(const std::string& name, const Graph& body) {
      return checked(backplane_graph_set_body(graph_, number_, name.c_str(), body.get()));
    }
    Node& set(const std::string& name, const std::vector<std::int64_t>& values) {
      return checked(
          backplane_graph_set_ints(graph_, number_, name.c_str(), values.data(), values.size()));
    }
    Node& set(const std::string& name, const std::vector<float>& values) {
      return checked(
          backplane_graph_set_floats(graph_, number_, name.c_str(), values.data(), values.size()));
    }
    Node& set(const std::string& name, const std::vector<std::string>& values) {
      std::vector<const char*> data;
      std::vector<std::uint64_t> sizes;
      for (const std::string& value : values) {
        data.push_back(value.data());
        sizes.push_back(value.size());
      }
      return checked(backplane_graph_set_strings(graph_, number_, name.c_str(), data.data(),
                                                 sizes.data(), data.size()));
    }
    Node& set_tensors(const std::string& name, const std::vector<ValueView>& values) {
      std::vector<const backplane_value*> raw;
      for (const ValueView& value : values) raw.push_back(value.get());
      return checked(
          backplane_graph_set_tensors(graph_, number_, name.c_str(), raw.data(), raw.size()));
    }
    Node& set_types(const std::string& name, const std::vector<const GraphType*>& types) {
      std::vector<const backplane_type*> raw;
      for (const GraphType* type : types) raw.push_back(type->get());
      return checked(
          backplane_graph_set_types(graph_, number_, name.c_str(), raw.data(), raw.size()));
    }
    Node& set_bodies(const std::string& name, const std::vector<const Graph*>& bodies) {
      std::vector<const backplane_graph*> raw;
      for (const Graph* body : bodies) raw.push_back(body->get());
      return checked(
          backplane_graph_set_bodies(graph_, number_, name.c_str(), raw.data(), raw.size()));
    }
    Node& remove_attribute(const std::string& name) {
      return checked(backplane_graph_remove_attribute(graph_, number_, name.c_str()));
    }
    /// In the session order "priority": smaller numbers run first.
    Node& set_priority(std::int32_t priority) {
      return checked(backplane_graph_set_priority(graph_, number_, priority));
    }
    /// Runs after `earlier`, though it reads nothing of it.
    Node& run_after(const Node& earlier) {
      return checked(backplane_graph_add_control_edge(graph_, earlier.number_, number_));
    }

   private:
    friend class Graph;
    Node(backplane_graph* graph, std::int64_t number) : graph_(graph), number_(number) {}
    Node& checked(backplane_status* status) {
      detail::check(status);
      return *this;
    }
    backplane_graph* graph_;
    std::int64_t number_;
  };

  /// Empty; operators of the environment's plugins and of the options' libraries are known to it.
  explicit Graph(const Environment& environment, const Options& options = Options()) {
    create(environment.get(), options.get());
  }
  /// Empty, with ONNX's operators alone; for a body.
  Graph() { create(nullptr, nullptr); }
  /// From an ONNX file.
  static Graph load(const Environment& environment, const std::string& path,
                    const Options& options = Options()) {
    backplane_graph* loaded = nullptr;
    detail::check(backplane_graph_load(environment.get(), path.c_str(), options.get(), &loaded));
    return Graph(loaded);
  }

  Graph& set_ir_version(std::int64_t version) {
    return checked(backplane_graph_set_ir_version(get(), version));
  }
  Graph& set_model_version(std::int64_t version) {
    return checked(backplane_graph_set_model_version(get(), version));
  }
  /// "" is ONNX's own domain; version 0 takes the import away.
  Graph& set_opset(const std::string& domain, std::int64_t version) {
    return checked(backplane_graph_set_opset(get(), domain.c_str(), version));
  }
  /// `which` is one of BACKPLANE_TEXT_*.
  Graph& set_text(std::int32_t which, const std::string& text) {
    return checked(backplane_graph_set_text(get(), which, text.c_str()));
  }
  Graph& set_metadata(const std::string& key, const std::string& value) {
    return checked(backplane_graph_set_metadata(get(), key.c_str(), value.c_str()));
  }

  Graph& add_value(const std::string& name, const GraphType& type) {
    return checked(backplane_graph_add_value(get(), name.c_str(), type.get()));
  }
  Graph& add_initializer(const std::string& name, const ValueView& contents) {
    return checked(backplane_graph_add_initializer(get(), name.c_str(), contents.get()));
  }
  Graph& remove_initializer(const std::string& name) {
    return checked(backplane_graph_remove_initializer(get(), name.c_str()));
  }
  Graph& annotate(const std::string& value, const std::string& parameter,
                  const std::string& tensor) {
    return checked(
        backplane_graph_annotate(get(), value.c_str(), parameter.c_str(), tensor.c_str()));
  }

  /// "" leaves an input or output out.
  Node add_node(const std::string& op_type, const std::vector<std::string>& inputs,
                const std::vector<std::string>& outputs, const std::string& name = "",
                const std::string& domain = "") {
    const std::vector<const char*> in = pointers(inputs);
    const std::vector<const char*> out = pointers(outputs);
    std::int64_t number = -1;
    detail::check(backplane_graph_add_node(get(), op_type.c_str(), domain.c_str(), name.c_str(),
                                           in.data(), in.size(), out.data(), out.size(), &number));
    return {get(), number};
  }
  Node find_node(const std::string& name) {
    std::int64_t number = -1;
    detail::check(backplane_graph_find_node(get(), name.c_str(), &number));
    return {get(), number};
  }
  void remove_node(const Node& node) {
    detail::check(backplane_graph_remove_node(get(), node.number()));
  }

  /// By hand, in this order; a name that stands twice counts once.
  Graph& set_inputs(const std::vector<std::string>& names) {
    const std::vector<const char*> list = pointers(names);
    return checked(backplane_graph_set_inputs(get(), list.data(), names.size()));
  }
  Graph& set_outputs(const std::vector<std::string>& names) {
    const std::vector<const char*> list = pointers(names);
    return checked(backplane_graph_set_outputs(get(), list.data(), names.size()));
  }
  /// Found by resolve, as at first.
  Graph& find_inputs() { return checked(backplane_graph_set_inputs(get(), nullptr, 0)); }
  Graph& find_outputs() { return checked(backplane_graph_set_outputs(get(), nullptr, 0)); }

  Graph& resolve() { return checked(backplane_graph_resolve(get())); }
  /// What the last resolve found.
  std::vector<ValueInfo> inputs() const { return list(BACKPLANE_INPUTS); }
  std::vector<ValueInfo> all_inputs() const { return list(BACKPLANE_ALL_INPUTS); }
  std::vector<ValueInfo> outputs() const { return list(BACKPLANE_OUTPUTS); }
  std::vector<ValueInfo> overridable_initializers() const { return list(BACKPLANE_OVERRIDABLE); }
  std::vector<ValueInfo> inner_values() const { return list(BACKPLANE_INNER_VALUES); }
  /// All of it, as JSON.
  std::string describe() { return detail::text_of(get(), backplane_graph_describe); }

  /// `external` is one of BACKPLANE_EXTERNAL_*.
  void save(const std::string& path, std::int32_t external = BACKPLANE_EXTERNAL_AUTO) {
    detail::check(backplane_graph_save(get(), path.c_str(), external));
  }
  /// The bytes of an ONNX file.
  std::string serialize() { return detail::text_of(get(), backplane_graph_serialize); }

  backplane_graph* get() const { return graph_.get(); }

 private:
  explicit Graph(backplane_graph* graph) : graph_(graph) {}
  void create(backplane_environment* environment, const backplane_options* options) {
    backplane_graph* made = nullptr;
    detail::check(backplane_graph_create(environment, options, &made));
    graph_.reset(made);
  }
  Graph& checked(backplane_status* status) {
    detail::check(status);
    return *this;
  }
  /// Never null, so that no names are other than no list.
  static std::vector<const char*> pointers(const std::vector<std::string>& names) {
    std::vector<const char*> result;
    result.reserve(names.size() + 1);
    for (const std::string& name : names) result.push_back(name.c_str());
    return result;
  }
  std::vector<ValueInfo> list(std::int32_t which) const {
    std::vector<ValueInfo> infos(backplane_graph_count(get(), which));
    for (std::size_t i = 0; i < infos.size(); ++i) {
      ValueInfo& info = infos[i];
      info.name = backplane_graph_name(get(), which, i);
      info.type = backplane_graph_type(get(), which, i);
      info.rank = backplane_graph_rank(get(), which, i);
      const std::int64_t* dims = backplane_graph_dims(get(), which, i);
      for (std::int32_t axis = 0; axis < info.rank; ++axis) {
        const char* symbol = backplane_graph_symbol(get(), which, i, axis);
        info.dims.push_back(dims[axis]);
        info.symbols.emplace_back(symbol == nullptr ? "" : symbol);
      }
    }
    return infos;
  }

  std::unique_ptr<backplane_graph, detail::Deleter<backplane_graph, backplane_graph_destroy>>
      graph_;
};

inline Session::Session(const Environment& environment, Graph& graph, const Options& options)
    : environment_(environment.state_) {
  backplane_session* session = nullptr;
  detail::check(
      backplane_session_create_from_graph(environment.get(), graph.get(), options.get(), &session));
  session_.reset(session);
}

}  // namespace backplane
