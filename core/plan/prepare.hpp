// Preparing a kernel for shapes: the host's side of bp_prepare_ctx.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/graph/graph.hpp"
#include "core/plan/kernel_handle.hpp"
#include "core/plugin_host/runtime_value.hpp"

namespace backplane::core {

/// What a kernel said of an input.
struct InputPlan {
  bool may_be_strided = false;
  bool is_ignored = false;
  bool operator==(const InputPlan&) const = default;
};

/// What a kernel said of an output.
struct OutputPlan {
  enum class Kind { Unset, Tensor, UnknownSize, Object };
  Kind kind = Kind::Unset;
  DataType type = DataType::None;
  std::vector<std::int64_t> dims;  ///< of a tensor
  int rank = -1;                   ///< of one of unknown size
  std::string object_type;         ///< ONNX type string of an object
  std::uint32_t format = 0;
  std::uint64_t bytes = 0;
  std::uint64_t alignment = 64;
  int in_place_of = -1;  ///< an input that it may be written over
  int view_of = -1;      ///< an input that it is a view of
  std::uint64_t view_offset = 0;
  std::optional<std::vector<std::int64_t>> view_strides;
  bool may_be_strided = false;
};

/// A wish that an input be produced inside an output.
struct InsideWish {
  std::uint32_t input;
  std::uint32_t output;
  std::uint64_t offset;
  std::optional<std::vector<std::int64_t>> strides;
};

/// A packed constant that a kernel asked for.
struct PackWish {
  std::string key;
  std::vector<std::uint32_t> inputs;
  std::uint64_t bytes;
  std::uint64_t alignment;
  void* self;
  bp_status* (*pack)(void* self, const bp_pack_ctx* ctx);
  std::string library = {};  ///< whose key it is; "": the provider's
};

/// Everything that a kernel said in `prepare`.
struct PrepareResult {
  PreparedHandle prepared;
  std::vector<InputPlan> inputs;
  std::vector<OutputPlan> outputs;
  std::vector<InsideWish> insides;
  std::vector<PackWish> packs;
  std::uint64_t workspace_bytes = 0;
  std::uint64_t workspace_alignment = 64;
  std::string variant;
  std::uint64_t flops = 0, bytes_moved = 0;  ///< of a run, for traces; 0: unknown
};

/// What goes into it.
struct PrepareRequest {
  const KernelHandle* kernel = nullptr;
  std::vector<const bp_value*>
      inputs;  ///< types and dims; memory only where the host knows the elements
  std::vector<bool> constant_inputs;
  std::vector<bool> wanted_outputs;
  bp_threads* threads = nullptr;
  std::uint64_t flags = 0;
  bool packs = true;  ///< false: nobody would pack, so that who asks for it does not take the node
};

/// Which outputs a node does not leave out.
std::vector<bool> wanted_outputs(const Node& node);

/// Calls `prepare` and checks what it said: every wanted output told of, indices real, alignments powers of two.
/// Throws what the kernel returned (Unsupported means: try another one), or Internal for a kernel that breaks the
/// contract; the message lacks the node, which the caller adds.
PrepareResult prepare_kernel(const PrepareRequest& request);

}  // namespace backplane::core
