// Finding all shapes: kernels are prepared in order until something is not known before a run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/plan/program.hpp"

namespace backplane::core {

/// What is known of a value while planning.
struct ValueState {
  enum class Kind {
    Unset,
    Tensor,   ///< type and dims are known
    Pending,  ///< made by a kernel that will tell its size when it runs
    Object,   ///< a sequence, optional or map
  };
  Kind kind = Kind::Unset;
  DataType type = DataType::None;
  std::vector<std::int64_t> dims;
  std::uint32_t format = 0;
  std::uint64_t bytes = 0;
  std::uint64_t alignment = 64;
  std::string object_type;
  RuntimeValuePtr known;        ///< the elements, on the host, where they do not depend on a run
  RuntimeValuePtr description;  ///< what kernels see while they prepare; made when first needed
};

/// A node with what its kernel said.
struct PreparedNode {
  NodeId id = kNone;
  PrepareResult result;
};

/// What a walk found. `values` is indexed by ValueId and carries over to the next segment.
struct ShapeWalk {
  std::vector<ValueState> values;
  std::vector<PreparedNode> nodes;
  std::vector<NodeId> evaluated;     ///< on the host
  std::size_t end = 0;               ///< position in the program's order where the walk stopped
  std::vector<ValueId> wants_shape;  ///< pending values that the next node needs the shape of
  std::vector<ValueId> wants_value;  ///< values whose elements the next node needs on the host
};

/// The tensor state of given dims, plain.
ValueState tensor_state(DataType type, const std::vector<std::int64_t>& dims);
/// The state of a value whose elements are known; it shares them.
ValueState known_state(RuntimeValuePtr value);

/// Walks the program's order from `begin`, given what is known of feeds and of earlier segments' values. Throws
/// KernelRefused when the last candidate kernel of a node refuses its shapes, and Error naming the node for everything
/// else that goes wrong.
ShapeWalk walk_shapes(Program& program, std::size_t begin, std::vector<ValueState> values);

}  // namespace backplane::core
