// The forms in which operator tests are written: rows, sweeps and small graphs. See README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/ops/host.hpp"
#include "tests/ops/tensor.hpp"
#include "tests/reference/node.hpp"

namespace backplane::ops_test {

using reference::floats;
using reference::ints;
using reference::Node;
using reference::strings;

/// |got - want| <= (absolute + relative * |want|) * epsilon of float. For double it is the epsilon
/// of double; the 8- and 16-bit types are computed in float and rounded once, so they get one unit
/// of their own on top. Integers, bools and strings must be equal.
struct Tolerance {
  double relative = 4;
  double absolute = 4;
};

/// An input of a row. What is made by `constant` is an initializer in one of the two models that
/// are made of a row.
struct Input {
  Tensor tensor = {};
  bool is_constant = false;
  bool is_absent = false;

  Input(Tensor given) : tensor(std::move(given)) {}  // implicit: rows list tensors as they are
  Input() : is_absent(true) {}
};
Input constant(Tensor tensor);
Input absent();

/// One node with its inputs. Without `outputs`, tests/reference says what is expected.
struct OpCase {
  std::string name = {};
  Node node = {};
  std::vector<Input> inputs = {};
  std::vector<Tensor> outputs = {};
  std::size_t output_count = 1;
  Tolerance tolerance = {};
  bool may_be_refused = false;  // by every provider
  /// Not empty: the run is to fail, with these words, on all providers but the fake device, which trusts models. Of
  /// `outputs` only types and ranks count.
  std::string refusal = {};
  /// Of devices whose kernels can say that a number is wrong, but not which one; empty: the same.
  std::string device_refusal = {};
};

/// Several nodes; values are named by the nodes' inputs and outputs. tests/reference says what is
/// expected.
struct GraphCase {
  std::string name = {};
  std::int64_t opset = 17;
  std::vector<Node> nodes = {};
  NamedTensors constants = {};
  NamedTensors feeds = {};
  std::vector<std::string> outputs = {};
  Tolerance tolerance = {64, 64};
  bool may_be_refused = false;        // by every provider
  std::vector<Tensor> expected = {};  // by outputs; empty: from tests/reference
  std::string refusal = {};           // as above
  std::string device_refusal = {};    // as above
};

/// The same as a graph: inputs are x0, x1 ..., outputs y0, y1 ...
GraphCase to_graph(const OpCase& row);

/// Registrations: objects at file level, as GoogleTest's TEST makes them.
struct Rows {
  Rows(const char* suite, std::span<const OpCase> rows);
  Rows(const char* suite, std::span<const GraphCase> rows);
};

/// `count` cases made of random numbers with a fixed seed. BACKPLANE_TEST_FULL=1 makes ten times as
/// many.
struct Sweep {
  Sweep(const char* suite, const char* name, int count, OpCase (*make)(Random& random));
  Sweep(const char* suite, const char* name, int count, GraphCase (*make)(Random& random));
};

/// Everything registered, for main().
struct Registered {
  std::string suite;
  std::string name;
  int count = 1;
  std::vector<GraphCase> rows;  // of one row; empty for a sweep
  OpCase (*make_op)(Random&) = nullptr;
  GraphCase (*make_graph)(Random&) = nullptr;
};
const std::vector<Registered>& registered();

}  // namespace backplane::ops_test
