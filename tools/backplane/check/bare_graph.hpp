// Graphs as bp_graph_api shows them: made by the suite, read by the plugin.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tools/backplane/check/bare_host.hpp"
#include "tools/backplane/check/tensor.hpp"

namespace backplane::cli::check {

using AttributeValue = std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>,
                                    std::vector<float>, std::vector<std::string>>;
using Attributes = std::map<std::string, AttributeValue>;
std::string described(const Attributes& attributes);

/// The functions of bp_graph_api over the objects of this file.
bp_graph_api graph_api();

/// A bp_tensor over memory of the process; `data` null: none.
Grown<bp_tensor> describe(const Tensor& tensor, const void* data);

/// A graph. Values are added before the nodes that read them; pointers stay valid as long as the graph.
class BareGraph {
 public:
  BareGraph();
  ~BareGraph();
  BareGraph(const BareGraph&) = delete;
  BareGraph& operator=(const BareGraph&) = delete;

  /// A value from outside. No dims: the rank is unknown. `constant` must outlive the graph.
  void add_input(const std::string& name, bp_dtype dtype, const std::optional<Dims>& dims,
                 const Tensor* constant = nullptr);
  struct Output {
    std::string name;
    bp_dtype dtype = BP_NONE;
    std::optional<Dims> dims;
  };
  /// "" as the name of an input or output leaves it out.
  const bp_node* add_node(const std::string& op_type, const std::string& domain, int since_version,
                          const std::vector<std::string>& inputs,
                          const std::vector<Output>& outputs, const Attributes& attributes = {});
  void mark_output(const std::string& name);
  const bp_graph* raw() const { return graph_.get(); }
  std::size_t node_count() const;
  const bp_node* node(std::size_t index) const;

 private:
  std::unique_ptr<bp_graph> graph_;
};

}  // namespace backplane::cli::check
