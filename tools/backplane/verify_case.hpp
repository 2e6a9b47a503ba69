// One case of `backplane verify`: a folder as ONNX's backend tests lay it out.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "backplane/backplane.hpp"
#include "tools/backplane/json.hpp"

namespace backplane::cli {

struct VerifyCase {
  std::string key;
  std::filesystem::path folder;
};

/// The folders below `root` (itself included) that hold model.onnx and test_data_set_*, sorted; keys are paths
/// relative to it.
std::vector<VerifyCase> find_cases(const std::filesystem::path& root);

/// What a case came to.
struct CaseResult {
  std::string status;  ///< pass | wrong | refused | error | skipped
  std::string reason;
  double max_abs = 0;  ///< infinite: not a number for JSON
  double max_rel = 0;
  Json nodes_on = Json::object();
  std::uint64_t copies = 0;

  Json json() const;
};

/// Runs a case; every failure of it is in the result. Tolerances given here count more than the case's own.
CaseResult run_case(const Environment& environment, const Options& options, const VerifyCase& test,
                    std::optional<double> rtol, std::optional<double> atol);

}  // namespace backplane::cli
