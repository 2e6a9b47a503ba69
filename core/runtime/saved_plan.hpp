// Saved plans: what a session decided and packed, in a file that reopens it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/mapped_file.hpp"
#include "core/plan/plan_record.hpp"
#include "core/plan/saved_weights.hpp"

namespace backplane::core {

/// All that a plan depends on, as pairs of what it is ("the plugin 'x'") and its state (version and contents).
using PlanOrigin = std::vector<std::pair<std::string, std::string>>;

/// By the name of the session's path, "" for what is none: the programs that were made.
using PlanRecords = std::map<std::string, std::vector<PlanRecord>>;

struct SavedPlan {
  PlanOrigin origin;
  PlanRecords records;
  std::shared_ptr<const SavedWeights> weights;
  std::shared_ptr<const MappedFile> file;
};

/// Weights to be written, by their portable keys.
using WeightsToSave = std::map<std::string, std::vector<std::byte>>;

/// Writes a plan: to a file beside it first, which then takes its name. Errors: as
/// AtomicFile.
///
/// Layout: "BPPLAN1\n"; bytes of the text, bytes of the file, the text's XXH3 (high, low), each 8 bytes, little-endian;
/// the text (JSON); weights, each at an offset that is a multiple of 64.
void write_plan_file(const std::string& path, const PlanOrigin& origin, const PlanRecords& records,
                     const WeightsToSave& weights);

/// Reads one. Throws NotFound, or InvalidArgument for what is no plan, is cut off or damaged. Weights are checked when
/// they are used. The checksums find damage; they do not protect from somebody who means harm: such a file is to be
/// trusted as much as a plugin.
std::shared_ptr<const SavedPlan> read_plan_file(const std::string& path);

/// Throws Incompatible, saying what is not as it was.
void check_origin(const std::string& path, const PlanOrigin& saved, const PlanOrigin& now);

}  // namespace backplane::core
