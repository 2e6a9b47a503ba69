// Graphs of values whose dims are symbols, and runs of one session with several sizes of these: what is decided before the
// sizes are known must be right for all of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/ops/runner.hpp"

namespace backplane::ops_test {

/// One model, and its runs: the same nodes and constants, with other feeds.
struct SymbolicCase {
  std::string model;
  std::vector<GraphCase> runs;
};

/// An axis of an input: a symbol, or a number as text.
using Axes = std::vector<std::string>;
/// Sizes of symbols.
using Sizes = std::map<std::string, std::int64_t>;

/// `graph` with `inputs` instead of its feeds' dims, by their order, in a run of each of `sizes`.
SymbolicCase symbolic_case(const GraphCase& graph, const std::vector<Axes>& inputs,
                           const std::vector<Sizes>& sizes, Random& random);

/// Element-wise nodes, products and rows of values that broadcast: to axes of one element, to fewer axes, and to symbols that
/// turn out to be 1 in some runs. Sizes are 0 and 1, too.
SymbolicCase random_symbolic_case(Random& random);

/// A feed-forward part of an encoder, [batch, length, width]: normalised by single nodes, a product with a row and Gelu, and
/// another with a row, to which a value of perhaps other dims is added before Relu.
SymbolicCase feed_forward_case(Random& random);

/// Rows after element-wise nodes: folds of which some runs have nothing to fold, and a softmax whose rows are no rows of memory.
SymbolicCase rows_case(Random& random);

/// What `feed_forward_case` comes to where every element-wise node is part of another: what is normalised, a product, Gelu, the
/// other product.
constexpr std::size_t kFeedForwardSteps = 4;

/// Steps of the plan that an explanation shows.
std::size_t step_count(const std::string& explanation);

/// The target's options, its provider alone.
Options options_for(const Target& target);

/// Runs the graph on every compiling target, where it must be right; how many steps each takes, by the target's name.
std::map<std::string, std::size_t> steps_where_right(const GraphCase& graph);

/// All runs, one after the other, and all of them again, in one session; `explanation` becomes what the session says then.
Outcome run_symbolic(const SymbolicCase& symbolic, const Options& options,
                     std::string* explanation = nullptr);

}  // namespace backplane::ops_test
