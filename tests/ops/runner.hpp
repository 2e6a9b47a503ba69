// Runs cases on a provider and judges what comes back.
#pragma once

#include <string>
#include <vector>

#include "tests/ops/cases.hpp"

namespace backplane::ops_test {

/// Whether everything is to be run: BACKPLANE_TEST_FULL=1.
bool is_full();

/// Where cases run: a provider with options. `must_run_all`: a refusal is a failure. `sweep_share`: one of
/// so many cases of a sweep is run; `row_share`: one of so many rows, but with BACKPLANE_TEST_FULL=1 all.
struct Target {
  std::string name;
  std::string provider;
  Options options = {};
  bool must_run_all = false;
  int sweep_share = 1;
  int row_share = 1;
};

/// Every loaded provider; the CPU provider once for every instruction set that the machine has.
std::vector<Target> find_targets();
/// Those whose provider has the shared operators of devices, and their rewriting.
std::vector<Target> compiling_targets();
/// Of those, where kernels in every form are run: OpenCL's once more with the form for groups (kByGroups ends its name), or
/// the stand-in, where this process has it.
std::vector<Target> form_targets();
inline constexpr char kByGroups[] = ", tiles=local";

/// How a case becomes a model. Fixed: dims are written down and constants are initializers. Open:
/// the dims of inputs are symbols, and constants are fed, too.
enum class Form { Fixed, Open };

struct Outcome {
  enum class Kind { Passed, Refused, Failed };
  Kind kind = Kind::Passed;
  std::string text = {};  // why it was refused or failed
};

/// Runs twice on one session; both results must be right, which is as expected_of() has it. `optimization` is the option's
/// value.
Outcome run_case(const GraphCase& graph, const std::vector<reference::Array>& expected,
                 const Target& target, Form form, const std::string& optimization);

/// The case as a model's bytes.
std::string model_of(const GraphCase& graph, Form form);

/// Writes the case as a folder in the layout of ONNX's backend tests, which `backplane verify`
/// reads.
void save_case(const GraphCase& graph, Form form, const std::string& folder);

/// "Softmax-13 {axis=1} x0 float[2,3] {0, 1, ...}".
std::string describe(const GraphCase& graph);

/// What the case's nodes should give, by name of output.
std::vector<reference::Array> expected_of(const GraphCase& graph);

/// Empty when `got` is right; else what is wrong and where.
std::string difference(const Tensor& got, const reference::Array& want, const Tolerance& tolerance);
/// The same for a literal: integers are compared as they are.
std::string difference(const Tensor& got, const Tensor& want, const Tolerance& tolerance);

}  // namespace backplane::ops_test
