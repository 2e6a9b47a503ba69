// How fast devices copy: measured once per device and pair, and kept in a file.
#pragma once

#include <filesystem>

#include "core/base/log.hpp"
#include "core/plan/cost_model.hpp"

namespace backplane::core {

/// Where rates are kept unless the option `copy_rates` says otherwise: in the user's cache folder; empty where there
/// is none.
std::filesystem::path default_copy_rate_file();

/// The copies of all devices of the set that have memory of their own, with the host and with their peers. What `file`
/// knows is not measured again; what is measured is added to it. An empty path: nothing is read or kept. Lines of the
/// file that are broken or of other devices are passed over; a file that cannot be written, or that is no file of rates
/// and so stays as it is, is a warning. Throws what a device says when a copy fails.
CostModel measured_costs(const DeviceSet& devices, const std::filesystem::path& file,
                         const Logger& logger);

/// Measures one direction. `from` and `to` are devices, -1 the host; not both -1.
CopyRate measure_copy(const DeviceSet& devices, int from, int to);

}  // namespace backplane::core
