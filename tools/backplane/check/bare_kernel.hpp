// One kernel of the plugin on its way through create, prepare and compute.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/backplane/check/bare_device.hpp"

namespace backplane::cli::check {

/// A node with what it reads.
struct NodeCase {
  std::string op_type, domain;
  int since_version = 1;
  Attributes attributes;
  struct Input {
    Tensor tensor;             ///< of dtype BP_NONE: left out
    bool is_constant = false;  ///< an initializer
    bool is_kept = false;      ///< the same in every case of the node: a shape input, an axis
  };
  std::vector<Input> inputs;
  std::vector<bp_dtype> outputs;  ///< their types
  /// "Relu (since 14) tensor(float) [2,3]"
  std::string text() const;
};

/// What a kernel is found to do wrong, by the case that it fails.
class Findings {
 public:
  void add(const std::string& name, const std::string& text) {
    texts_.emplace(name, text);  // the first of each is enough
  }
  bool has(const std::string& name) const { return texts_.count(name) != 0; }
  bool empty() const { return texts_.empty(); }
  const std::map<std::string, std::string>& all() const { return texts_; }

 private:
  std::map<std::string, std::string> texts_;
};

/// What `prepare` said of an output.
struct OutputPlan {
  bool is_said = false;
  bool is_unknown = false;  ///< `compute` allocates it
  bool is_other = false;    ///< a sequence, optional or map, or in a private format
  bp_dtype dtype = BP_NONE;
  Dims dims;
  int rank = -1;  ///< of an unknown one
  int in_place_of = -1;
};

/// What one `compute` came to.
struct Computed {
  Outcome outcome;
  std::vector<Tensor> outputs;  ///< poison where nothing was written
  std::vector<OutputPlan> plans;
  std::string damage;  ///< bytes outside of outputs, workspace and packed constants, or of inputs
  std::string disagreement;  ///< with what `prepare` said
};

/// What `prepare` said, as the host keeps it.
struct PrepareRecord {
  std::string name;  ///< of the node, for reports
  std::vector<NodeCase::Input> inputs;
  std::vector<OutputPlan> outputs;
  struct Pack {
    std::vector<std::uint32_t> inputs;
    std::uint64_t bytes = 0;
    void* self = nullptr;
    bp_status* (*pack)(void*, const bp_pack_ctx*) = nullptr;
    std::unique_ptr<Memory> memory;
  };
  std::vector<Pack> packs;
  std::vector<bool> ignored;  ///< by input
  std::uint64_t workspace_bytes = 0;
};

/// A prepared object with its packed constants. Ends before its kernel.
class PreparedKernel {
 public:
  PreparedKernel(const OpenDevice& device, const bp_kernel_def* def, bp_prepared* prepared,
                 PrepareRecord record);
  ~PreparedKernel();
  PreparedKernel(const PreparedKernel&) = delete;
  PreparedKernel& operator=(const PreparedKernel&) = delete;

  const std::vector<OutputPlan>& outputs() const { return record_.outputs; }
  /// Computes into new memory that holds `poison`. `in_place`: output 0 lies where prepare allowed it.
  Computed compute(std::uint8_t poison, bool in_place = false);

 private:
  void pack();

  const OpenDevice& device_;
  const bp_kernel_def* def_;
  bp_prepared* prepared_;
  PrepareRecord record_;
};

/// A created kernel.
class Kernel {
 public:
  /// Asks `match` and `create`; what is refused is in `outcome`, and then there is no kernel.
  Kernel(const OpenDevice& device, const bp_kernel_def* def, const NodeCase& node, bool known_dims);
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  const Outcome& outcome() const { return outcome_; }
  bool is_created() const { return kernel_ != nullptr; }
  /// What the last `prepare` asked of the host that no node justifies; "" for nothing.
  const std::string& mistake() const { return mistake_; }
  /// Null where it is refused. `failing_set_output`: the host refuses what the kernel says of its outputs.
  std::unique_ptr<PreparedKernel> prepare(const std::vector<NodeCase::Input>& inputs,
                                          Outcome& outcome, bool failing_set_output = false);

 private:
  const OpenDevice& device_;
  const bp_kernel_def* def_;
  NodeCase node_;  ///< whose constants the graph borrows
  BareGraph graph_;
  const bp_node* raw_node_ = nullptr;
  bp_kernel* kernel_ = nullptr;
  Outcome outcome_;
  std::string mistake_;
};

/// The role of an input or output: the last entry serves for those past the end.
int input_role(const bp_kernel_def* def, std::size_t index);
int output_role(const bp_kernel_def* def, std::size_t index);

}  // namespace backplane::cli::check
