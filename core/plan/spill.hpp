// What leaves a device whose limit of memory is too small for what was placed there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan/program.hpp"

namespace backplane::core {

/// The nodes to move from a full device: the latest ones of those that another device of the session takes, with about as
/// many bytes of weights and values as are missing there, and at least a quarter as many nodes as were moved before, so
/// that few attempts are needed. Empty when no node can go.
std::vector<std::string> nodes_to_move(const Program& program, const Cut& cut,
                                       const Refusals& refusals, const DeviceFull& full);

/// Adds them to the refusals, with the reason.
void refuse_for_memory(const std::vector<std::string>& nodes, const DeviceFull& full,
                       Refusals& refusals);

}  // namespace backplane::core
