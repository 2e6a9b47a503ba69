// One case of `backplane verify`: a folder as ONNX's backend tests lay it out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "backplane/backplane.hpp"
#include "tools/backplane/json.hpp"

namespace backplane::cli {

/// A path as a name in JSON, where all bytes that are no UTF-8 would become the same character: they are written \xNN.
std::string key_of(const std::filesystem::path& path);

struct VerifyCase {
  std::string key;
  std::filesystem::path folder;
  std::vector<std::filesystem::path> data_sets;  ///< by number
  std::string problem;  ///< what of it cannot be read: then it is an error; "" for nothing
};

/// The folders below `root` (itself included) that hold model.onnx and test_data_set_*, sorted, and those that cannot be
/// read; keys are paths relative to it, in UTF-8. Links to folders are looked into, and not below.
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
