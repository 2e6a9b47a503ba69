// Finds what is added to a product's result.
#pragma once

#include <cstdint>
#include <string>

#include "plugins/cpu/rewrite/working_graph.hpp"

namespace backplane::cpu {

/// `node`, which makes output 0, a matrix of `columns` columns, takes over the addition of a constant row
/// ([columns], [1, columns] and so on) that follows it as input `bias`, and of a tensor of its own dims as input
/// `residual`, where it has none yet.
void take_addends(WorkingGraph& graph, WorkNode* node, std::int64_t columns, std::size_t bias,
                  std::size_t residual);

}  // namespace backplane::cpu
