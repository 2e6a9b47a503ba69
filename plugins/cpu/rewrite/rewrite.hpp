// Fusions and layouts of the CPU provider.
#pragma once

#include "plugins/cpu/device.hpp"

namespace backplane::cpu {

/// Replaces nodes of `graph`, all of which are placed on `device`, by nodes of the private domain
/// "backplane.cpu". Pure: the same graph and device get the same edits.
/// Errors: any; the host then keeps the original graph and shows the reason.
void rewrite_graph(const sdk::Graph& graph, sdk::Rewrite& edit, const CpuDevice& device);

}  // namespace backplane::cpu
