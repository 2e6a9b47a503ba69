#include "tests/faults/random_graph.hpp"

#include <utility>

namespace backplane::core::faults {

RandomGraph::RandomGraph(std::uint64_t seed, std::vector<std::string> providers,
                         std::uint64_t placing)
    : state_(seed * 0x9E3779B97F4A7C15u),
      providers_(std::move(providers)),
      placing_(state_ + placing) {
  for (int i = 0; i < 2; ++i) {
    const Dims dims{static_cast<std::int64_t>(1 + pick(5)),
                    static_cast<std::int64_t>(1 + pick(80))};
    const std::string name = text("x", i);
    maker_.input(name, dims);
    feeds_[name] = random_tensor(dims, seed * 2 + static_cast<std::uint64_t>(i));
    values_.push_back({name, dims, "cpu", {}, false});
  }
  const std::size_t count = 5 + pick(10);
  for (std::size_t i = 0; i < count; ++i) {
    switch (pick(6)) {
      case 0:
        add_unary();
        break;
      case 1:
        add_product();
        break;
      case 2:
        add_concat();
        break;
      case 3:
        add_reshape();
        break;
      default:
        add_binary();
    }
  }
  for (Made& value : values_) {
    if (value.name[0] == 'x' || (!value.readers.empty() && pick(5) != 0)) continue;
    value.is_output = true;
    maker_.output(value.name);
  }
}

std::string RandomGraph::describe() const {
  std::string all = lines_;
  for (const Made& value : values_) all += value.is_output ? text("output ", value.name, "\n") : "";
  return all;
}

std::string RandomGraph::weight(const Dims& dims) {
  std::string name = text("w", weights_++);
  maker_.weight(name, random_tensor(dims, state_));
  return name;
}

void RandomGraph::add(const std::string& op, const std::vector<std::size_t>& read,
                      const std::vector<std::string>& inputs, const Dims& dims, int axis) {
  const std::string& provider = pick_provider();
  const std::string node = text("n", nodes_), output = text("v", nodes_);
  ++nodes_;
  for (const std::size_t index : read) values_[index].readers.insert(provider);
  maker_.node(node, op, inputs, output, axis);
  placement_[node] = provider;
  lines_ += text(output, " ", to_string(dims), " = ", op, "(");
  for (const std::string& input : inputs) lines_ += input + " ";
  lines_ += text(") on ", provider, "\n");
  values_.push_back({output, dims, provider, {}, false});
}

void RandomGraph::add_unary() {
  static const char* const kOps[] = {"Relu", "Neg", "Abs", "Sigmoid", "Tanh"};
  const std::size_t a = pick(values_.size());
  add(kOps[pick(5)], {a}, {values_[a].name}, values_[a].dims);
}

void RandomGraph::add_binary() {
  static const char* const kOps[] = {"Add", "Sub", "Mul", "Add"};
  const std::size_t a = pick(values_.size());
  const Dims dims = values_[a].dims;
  std::vector<std::size_t> fitting;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const Dims& other = values_[i].dims;
    if ((other[0] == dims[0] || other[0] == 1) && (other[1] == dims[1] || other[1] == 1))
      fitting.push_back(i);
  }
  const std::string op = kOps[pick(4)];
  if (pick(4) == 0) return add(op, {a}, {values_[a].name, weight({1, dims[1]})}, dims);
  const std::size_t b = fitting[pick(fitting.size())];
  if (pick(2) == 0) return add(op, {a, b}, {values_[a].name, values_[b].name}, dims);
  add(op, {b, a}, {values_[b].name, values_[a].name}, dims);
}

void RandomGraph::add_product() {
  const std::size_t a = pick(values_.size());
  const Dims dims = values_[a].dims;
  std::vector<std::size_t> fitting;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (values_[i].dims[0] == dims[1]) fitting.push_back(i);
  }
  if (!fitting.empty() && pick(2) == 0) {
    const std::size_t b = fitting[pick(fitting.size())];
    return add("MatMul", {a, b}, {values_[a].name, values_[b].name}, {dims[0], values_[b].dims[1]});
  }
  const auto columns = static_cast<std::int64_t>(1 + pick(20));
  add("MatMul", {a}, {values_[a].name, weight({dims[1], columns})}, {dims[0], columns});
}

void RandomGraph::add_concat() {
  const int axis = static_cast<int>(pick(2));
  const auto fixed = static_cast<std::size_t>(1 - axis), grown = static_cast<std::size_t>(axis);
  const std::size_t a = pick(values_.size());
  Dims dims = values_[a].dims;
  std::vector<std::size_t> fitting;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (values_[i].dims[fixed] == dims[fixed]) fitting.push_back(i);
  }
  std::vector<std::size_t> read{a};
  for (std::size_t more = 1 + pick(2); more > 0; --more)
    read.push_back(fitting[pick(fitting.size())]);
  std::vector<std::string> inputs;
  dims[grown] = 0;
  for (const std::size_t index : read) {
    inputs.push_back(values_[index].name);
    dims[grown] += values_[index].dims[grown];
  }
  add("Concat", read, inputs, dims, axis);
}

void RandomGraph::add_reshape() {
  const std::size_t a = pick(values_.size());
  const Dims dims = values_[a].dims;
  const Dims target = pick(2) == 0 ? Dims{dims[1], dims[0]} : Dims{1, dims[0] * dims[1]};
  const std::string shape = text("s", weights_++);
  maker_.ints(shape, target);
  add("Reshape", {a}, {values_[a].name, shape}, target);
}

Copies RandomGraph::copies(bool peer) const {
  Copies copies;
  for (const Made& value : values_) {
    std::set<std::string> targets = value.readers;
    if (value.is_output) targets.insert("cpu");
    targets.erase(value.maker);
    const bool on_device = value.maker != "cpu";
    const bool to_other_device = on_device && targets.size() > targets.count("cpu");
    if (to_other_device && !peer) targets.insert("cpu");
    const auto bytes = static_cast<std::uint64_t>(element_count(value.dims)) * sizeof(float);
    copies.bytes += bytes * targets.size();
    if (on_device && targets.contains("cpu")) ++copies.to_host;
    const std::size_t devices = targets.size() - (targets.contains("cpu") ? 1 : 0);
    (on_device && peer ? copies.peer : copies.to_device) += devices;
  }
  return copies;
}

}  // namespace backplane::core::faults
