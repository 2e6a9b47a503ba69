#include "tests/ops/symbolic.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "backplane/backplane.h"
#include "tests/ops/graph_writer.hpp"
#include "tests/ops/model_writer.hpp"

namespace backplane::ops_test {
namespace {

bool is_number(const std::string& axis) {
  return axis.find_first_not_of("0123456789") == std::string::npos;
}

Dims dims_of(const Axes& axes, const Sizes& sizes) {
  Dims dims;
  for (const std::string& axis : axes)
    dims.push_back(is_number(axis) ? std::stoll(axis) : sizes.at(axis));
  return dims;
}

/// n and s are any sizes; m, t and u are what they are named after, or 1.
Sizes any_sizes(Random& random, std::int64_t width) {
  Sizes sizes{{"n", random.pick<std::int64_t>({0, 1, 2, 3})},
              {"s", random.pick<std::int64_t>({1, 1, 2, 5})}};
  if (random.one_in(6)) sizes["s"] = 0;
  const auto may_be_one = [&](std::int64_t size) { return random.one_in(2) ? size : 1; };
  sizes["m"] = may_be_one(sizes["n"]);
  sizes["t"] = may_be_one(sizes["s"]);
  sizes["u"] = may_be_one(width);
  return sizes;
}

/// Writes nodes at random.
class RandomGraph {
 public:
  explicit RandomGraph(Random& random)
      : random_(random), g_(17, random), width_(random.pick<std::int64_t>({1, 4, 7, 24})) {
    add_feed({"n", "s", std::to_string(width_)});
    for (std::int64_t i = random.integer(2, 4); i > 0; --i) add_feed(any_axes());
  }

  SymbolicCase made() {
    for (std::int64_t i = random_.integer(4, 9); i > 0; --i) add_node();
    std::vector<std::string> outputs;
    for (const Value& value : values_) {
      const bool is_read = read_.count(value.name) > 0;
      if (!value.is_feed && (!is_read || random_.one_in(8))) outputs.push_back(value.name);
    }
    std::vector<Sizes> sizes;
    for (int run = 0; run < 4; ++run) sizes.push_back(any_sizes(random_, width_));
    return symbolic_case(g_.done(outputs, {1024, 8192}), inputs_, sizes, random_);
  }

 private:
  struct Value {
    std::string name;
    std::size_t rank;
    bool is_wide;  ///< its last axis surely has `width_` elements
    bool is_feed = false;
  };

  Axes any_axes() {
    Axes axes{random_.pick<std::string>({"n", "m", "1"}),
              random_.pick<std::string>({"s", "t", "1"}),
              random_.pick<std::string>({std::to_string(width_), "u", "1"})};
    axes.erase(axes.begin(), axes.begin() + random_.integer(0, 2));
    return axes;
  }
  void add_feed(const Axes& axes) {
    inputs_.push_back(axes);
    values_.push_back(
        {g_.feed(Dims(axes.size(), 1)), axes.size(), axes.back() == std::to_string(width_), true});
  }
  /// Of two, the one that was made last.
  const Value& any() {
    const auto last = static_cast<std::int64_t>(values_.size()) - 1;
    const std::int64_t at = std::max(random_.integer(0, last), random_.integer(0, last));
    read_.insert(values_[static_cast<std::size_t>(at)].name);
    return values_[static_cast<std::size_t>(at)];
  }
  std::string literal() {
    const double value = random_.pick<double>({0.25, 0.5, 1.5, 3});
    return g_.constant(random_.one_in(2) ? f32({}, {value}) : f32({1}, {value}));
  }

  void add_node() {
    const Value x = any();
    const std::int64_t kind = random_.integer(0, 9);
    if (kind <= 2) return add_unary(x);
    if (kind <= 5) return add_binary(x);
    if (kind == 6) return add_literal(x);
    if (kind == 7 && x.is_wide) return add_row_constant(x);
    if (kind == 8 && x.is_wide && x.rank > 1) return add_product(x);
    add_rows(x);
  }
  void add_unary(const Value& x) {
    const char* const op =
        random_.pick<const char*>({"Tanh", "Abs", "Relu", "Sigmoid", "Neg", "Erf"});
    values_.push_back({g_.node(op, {x.name}), x.rank, x.is_wide});
  }
  void add_binary(const Value& x) {
    const Value y = any();
    const char* const op = random_.pick<const char*>({"Add", "Sub", "Max", "Mul", "Sum"});
    std::string made = g_.node(op, {x.name, y.name});
    if (std::string(op) == "Mul") made = g_.node("Tanh", {made});
    values_.push_back({made, std::max(x.rank, y.rank), x.is_wide || y.is_wide});
  }
  void add_literal(const Value& x) {
    const char* const op = random_.pick<const char*>({"Add", "Mul", "Div"});
    values_.push_back({g_.node(op, {x.name, literal()}), x.rank, x.is_wide});
  }
  void add_row_constant(const Value& x) {
    const Dims dims = random_.pick<Dims>({{width_}, {1, width_}, {1, 1, width_}});
    values_.push_back(
        {g_.node("Add", {g_.constant(dims), x.name}), std::max(x.rank, dims.size()), true});
  }
  void add_product(const Value& x) {
    const double scale = std::sqrt(1.0 / static_cast<double>(width_));
    std::string made = g_.node("MatMul", {x.name, g_.constant({width_, width_}, -scale, scale)});
    std::size_t rank = x.rank;
    if (random_.one_in(2)) made = g_.node("Add", {made, g_.constant({width_})});
    if (!random_.one_in(3)) {
      const Value y = any();
      made = random_.one_in(2) ? g_.node("Add", {made, y.name}) : g_.node("Add", {y.name, made});
      rank = std::max(rank, y.rank);
    }
    if (random_.one_in(2)) made = g_.node("Relu", {made});
    values_.push_back({made, rank, true});
  }
  void add_rows(const Value& x) {
    switch (random_.integer(0, 3)) {
      case 0: {
        const std::int64_t axis =
            random_.one_in(3) ? -random_.integer(1, static_cast<std::int64_t>(x.rank)) : -1;
        values_.push_back({g_.node("Softmax", {x.name}, {{"axis", axis}}), x.rank, x.is_wide});
        break;
      }
      case 1:
        values_.push_back(
            {g_.node("ReduceMean", {x.name}, {{"axes", ints({-1})}}), x.rank, width_ == 1});
        break;
      case 2:
        if (x.rank < 2) return add_unary(x);
        values_.push_back(
            {g_.node("ReduceSum", {x.name, g_.constant(i64({-2, -1}))}), x.rank, width_ == 1});
        break;
      default:
        if (!x.is_wide) return add_unary(x);
        values_.push_back(
            {g_.node("LayerNormalization", {x.name, g_.constant({width_}), g_.constant({width_})},
                     {{"epsilon", 0.01f}}),
             x.rank, true});
    }
  }

  Random& random_;
  GraphWriter g_;
  std::int64_t width_;
  std::vector<Axes> inputs_;
  std::vector<Value> values_;
  std::set<std::string> read_;
};

}  // namespace

SymbolicCase symbolic_case(const GraphCase& graph, const std::vector<Axes>& inputs,
                           const std::vector<Sizes>& sizes, Random& random) {
  SymbolicCase made;
  for (const Sizes& each : sizes) {
    GraphCase run = graph;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      run.feeds[i].second = random.tensor(ElementType::Float, dims_of(inputs[i], each), -2, 2);
    made.runs.push_back(run);
  }
  Model model;
  model.opsets[""] = graph.opset;
  for (const Node& node : graph.nodes) model.nodes.push_back(node);
  for (const auto& [name, tensor] : graph.constants) model.initializers.emplace_back(name, tensor);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ValueInfo info{graph.feeds[i].first, ElementType::Float, {}, inputs[i]};
    for (const std::string& axis : inputs[i])
      info.dims.push_back(is_number(axis) ? std::stoll(axis) : -1);
    model.inputs.push_back(info);
  }
  const std::vector<reference::Array> expected = expected_of(made.runs.front());
  for (std::size_t i = 0; i < graph.outputs.size(); ++i)
    model.outputs.push_back(
        {graph.outputs[i], ElementType::Float, Dims(expected[i].dims.size(), -1)});
  made.model = write_model(model);
  return made;
}

std::size_t step_count(const std::string& explanation) {
  return nlohmann::json::parse(explanation).at("order").size();
}

Options options_for(const Target& target) {
  Options options = target.options;
  options.insert(options.end(), {{"providers", target.provider}, {"fallback", "forbid"}});
  return options;
}

std::map<std::string, std::size_t> steps_where_right(const GraphCase& graph) {
  std::map<std::string, std::size_t> steps;
  for (const Target& target : compiling_targets()) {
    Session session(model_of(graph, Form::Fixed), options_for(target));
    const std::vector<Tensor> got = session.run(graph.feeds, graph.outputs);
    const std::vector<reference::Array> want = expected_of(graph);
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(difference(got[i], want[i], graph.tolerance), "") << describe(graph);
    steps[target.name] = step_count(session.explain());
  }
  return steps;
}

SymbolicCase random_symbolic_case(Random& random) { return RandomGraph(random).made(); }

SymbolicCase feed_forward_case(Random& random) {
  constexpr std::int64_t kWidth = 12, kInner = 20;
  GraphWriter g(13, random);
  const std::string width = std::to_string(kWidth), x = g.feed({1, 1, kWidth}),
                    other = g.feed({1, 1, kWidth});
  const auto linear = [&](const std::string& value, std::int64_t from, std::int64_t to) {
    return g.node("Add",
                  {g.constant({to}), g.node("MatMul", {value, g.constant({from, to}, -0.5, 0.5)})});
  };
  const auto mean_of = [&](const std::string& value) {
    return g.node("ReduceMean", {value}, {{"axes", ints({-1})}});
  };
  const std::string centred = g.node("Sub", {x, mean_of(x)});
  const std::string variance = mean_of(g.node("Pow", {centred, g.constant(f32({}, {2}))}));
  const std::string deviation =
      g.node("Sqrt", {g.node("Add", {variance, g.constant(f32({}, {0.01}))})});
  std::string y = g.node("Mul", {g.node("Div", {centred, deviation}), g.constant({kWidth})});
  const std::string normal = g.node("Add", {y, g.constant({kWidth})});
  const std::string inner = linear(normal, kWidth, kInner);
  const std::string erf =
      g.node("Erf", {g.node("Div", {inner, g.constant(f32({}, {std::sqrt(2.0)}))})});
  y = g.node("Mul", {inner, g.node("Add", {erf, g.constant(f32({}, {1}))})});
  y = linear(g.node("Mul", {y, g.constant(f32({}, {0.5}))}), kInner, kWidth);
  y = g.node("Relu", {g.node("Add", {y, other})});
  const std::vector<Sizes> sizes{
      {{"n", 2}, {"s", 5}, {"m", 2}, {"t", 5}}, {{"n", 1}, {"s", 1}, {"m", 3}, {"t", 4}},
      {{"n", 3}, {"s", 7}, {"m", 1}, {"t", 7}}, {{"n", 1}, {"s", 6}, {"m", 2}, {"t", 1}},
      {{"n", 0}, {"s", 4}, {"m", 1}, {"t", 4}}, {{"n", 1}, {"s", 0}, {"m", 2}, {"t", 1}}};
  return symbolic_case(g.done({y}, {1024, 8192}), {{"n", "s", width}, {"m", "t", width}}, sizes,
                       random);
}

SymbolicCase rows_case(Random& random) {
  GraphWriter g(17, random);
  const std::string x = g.feed({1, 1, 1}), other = g.feed({1, 1, 1});
  const auto scaled = [&](double factor) {
    return g.node("Mul", {x, g.constant(f32({}, {factor}))});
  };
  const std::string sum = g.node("ReduceSum", {scaled(2), g.constant(i64({-2, -1}))});
  // What is done to a fold by numbers alone, and by another value.
  const std::string length =
      g.node("ReduceL2", {scaled(3)}, {{"axes", ints({-1})}, {"keepdims", 0}});
  const std::string root = g.node("Sqrt", {g.node("Add", {length, g.constant(f32({1}, {0.5}))})});
  const std::string mean = g.node("ReduceMean", {scaled(6)}, {{"axes", ints({-1})}});
  const std::string tail = g.node("Add", {other, g.node("Neg", {mean})});
  const std::string along = g.node("Softmax", {scaled(4)}, {{"axis", -1}});
  const std::string across = g.node("Softmax", {scaled(5)}, {{"axis", 0}});
  const std::vector<Sizes> sizes{
      {{"n", 2}, {"s", 3}, {"k", 4}}, {{"n", 1}, {"s", 1}, {"k", 60'000}},
      {{"n", 2}, {"s", 3}, {"k", 0}}, {{"n", 2}, {"s", 0}, {"k", 4}},
      {{"n", 0}, {"s", 3}, {"k", 4}}, {{"n", 1}, {"s", 1}, {"k", 1}}};
  return symbolic_case(g.done({sum, root, tail, along, across}), {{"n", "s", "k"}, {"n", "s", "1"}},
                       sizes, random);
}

Outcome run_symbolic(const SymbolicCase& symbolic, const Options& options,
                     std::string* explanation) {
  using Kind = Outcome::Kind;
  try {
    Session session(symbolic.model, options);
    for (int turn = 0; turn < 2; ++turn) {
      for (const GraphCase& run : symbolic.runs) {
        const std::vector<Tensor> got = session.run(run.feeds, run.outputs);
        const std::vector<reference::Array> want = expected_of(run);
        for (std::size_t i = 0; i < got.size(); ++i) {
          const std::string wrong = difference(got[i], want[i], run.tolerance);
          if (!wrong.empty())
            return {Kind::Failed, describe(run) + "\n  output " + run.outputs[i] + ": " + wrong};
        }
      }
    }
    if (explanation != nullptr) *explanation = session.explain();
  } catch (const HostError& error) {
    const bool is_refused = error.code() == BACKPLANE_UNSUPPORTED;
    return {is_refused ? Kind::Refused : Kind::Failed,
            describe(symbolic.runs.front()) + "\n  " + error.what()};
  }
  return {};
}

}  // namespace backplane::ops_test
