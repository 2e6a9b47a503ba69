#include "tests/faults/random_flow.hpp"

#include <onnx/defs/parser.h>

namespace backplane::core::faults {
namespace {

constexpr std::int64_t kStacked = 3;  ///< matrices in the feed that scans walk

void name_nodes(::onnx::GraphProto& graph, int& count) {
  for (::onnx::NodeProto& node : *graph.mutable_node()) {
    node.set_name(text("n", 1000 + count++));
    for (::onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) name_nodes(*attribute.mutable_g(), count);
    }
  }
}

}  // namespace

RandomFlow::RandomFlow(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u) {
  const auto rows = static_cast<std::int64_t>(1 + pick(4));
  const auto columns = static_cast<std::int64_t>(1 + pick(40));
  matrix_ = text("float[", rows, ",", columns, "]");
  feeds_["x0"] = random_tensor({rows, columns}, seed * 4);
  feeds_["x1"] = random_tensor({rows, columns}, seed * 4 + 1);
  feeds_["xs"] = random_tensor({kStacked, rows, columns}, seed * 4 + 2);
  feeds_["c"] = {{}, {pick(2) == 0 ? -1.0f : 1.0f}};
  feeds_["t"] = {{}, {static_cast<float>(pick(4))}};

  Names seen{"x0", "x1"};
  const std::string body = lines(seen, 5 + pick(5), 0);
  std::string outputs;
  for (std::size_t i = 2; i < seen.size(); ++i) {
    if (i + 1 == seen.size() || pick(3) == 0)
      outputs += text(outputs.empty() ? "" : ", ", "float[?,?] ", seen[i]);
  }
  for (const std::string& name : stacked_) outputs += text(", float[?,?,?] ", name);
  text_ = text("<ir_version: 8, opset_import: [\"\" : 17]>\nflow (", matrix_, " x0, ", matrix_,
               " x1, float[", kStacked, ",", rows, ",", columns, "] xs, float c, float t) => (",
               outputs, ")\n<float zero = {0.0}, int64 two = {2}, bool yes = {1}>\n{\n",
               "  cond = Greater(c, zero)\n  trips = Cast<to = 7>(t)\n", body, "}\n");
  ::onnx::ModelProto proto = parsed();
  int count = 0;
  name_nodes(*proto.mutable_graph(), count);
  model_ = proto.SerializeAsString();
}

RandomFlow::RandomFlow(std::string graph, Tensors feeds)
    : text_(std::move(graph)), feeds_(std::move(feeds)) {
  model_ = parsed().SerializeAsString();
}

::onnx::ModelProto RandomFlow::parsed() const {
  ::onnx::ModelProto proto;
  const auto status = ::onnx::OnnxParser::Parse(proto, text_.c_str());
  if (!status.IsOK()) invalid("the model cannot be read: ", status.ErrorMessage(), "\n", text_);
  return proto;
}

std::string RandomFlow::lines(Names& seen, std::size_t count, int depth) {
  std::string all;
  for (; count > 0; --count) {
    switch (depth < 2 ? pick(8) : 7) {
      case 0:
        all += if_node(seen, depth + 1);
        break;
      case 1:
        all += loop_node(seen, depth + 1);
        break;
      case 2:
        all += scan_node(seen, depth + 1);
        break;
      default:
        all += simple(seen);
    }
  }
  return all;
}

std::string RandomFlow::simple(Names& seen) {
  static const char* const kUnary[] = {"Relu", "Neg", "Abs", "Sigmoid", "Tanh"};
  static const char* const kBinary[] = {"Add", "Sub", "Mul"};
  const std::string a = any(seen), b = any(seen), made = fresh();
  seen.push_back(made);
  if (pick(2) == 0) return text("  ", made, " = ", kUnary[pick(5)], "(", a, ")\n");
  return text("  ", made, " = ", kBinary[pick(3)], "(", a, ", ", b, ")\n");
}

std::string RandomFlow::if_node(Names& seen, int depth) {
  const auto branch = [&](const char* attribute) {
    Names inner = seen;
    const std::string body = lines(inner, 1 + pick(3), depth);
    return text(attribute, " = ", fresh(), " () => (", matrix_, " ", inner.back(), ") {\n", body,
                "  }");
  };
  const std::string first = branch("then_branch"), second = branch("else_branch"), made = fresh();
  seen.push_back(made);
  return text("  ", made, " = If(cond) <", first, ", ", second, ">\n");
}

std::string RandomFlow::loop_node(Names& seen, int depth) {
  const std::string start = any(seen), state = fresh(), go_on = fresh(), turn = fresh(),
                    next = fresh();
  Names inner = seen;
  inner.push_back(state);
  const std::string body = lines(inner, 1 + pick(3), depth);
  // What only a loop of the main graph stacks can be an output of the graph.
  const std::string stacked = depth == 1 && pick(2) == 0 ? fresh() : "";
  const std::string slice = stacked.empty() ? "" : fresh();
  const std::string made = fresh(), trips = pick(2) == 0 ? "trips" : "two";
  std::string loop =
      text("  ", made, stacked.empty() ? "" : ", ", stacked, " = Loop(", trips, ", yes, ", start,
           ") <body = ", fresh(), " (int64 ", turn, ", bool ", go_on, ", ", matrix_, " ", state,
           ") => (bool ", next, ", ", matrix_, " ", inner.back());
  if (!stacked.empty()) loop += text(", ", matrix_, " ", slice);
  loop += text(") {\n", body, "  ", next, " = Identity(", go_on, ")\n");
  if (!stacked.empty()) {
    loop += text("  ", slice, " = Tanh(", any(inner), ")\n");
    stacked_.push_back(stacked);
  }
  seen.push_back(made);
  return loop + "  }>\n";
}

std::string RandomFlow::scan_node(Names& seen, int depth) {
  const std::string start = any(seen), state = fresh(), element = fresh();
  Names inner = seen;
  inner.push_back(state);
  inner.push_back(element);
  const std::string body = lines(inner, 1 + pick(3), depth);
  const std::string slice = fresh(), made = fresh(), stacked = fresh();
  std::string scan = text(
      "  ", made, ", ", stacked, " = Scan<num_scan_inputs = 1, body = ", fresh(), " (", matrix_,
      " ", state, ", ", matrix_, " ", element, ") => (", matrix_, " ", inner.back(), ", ", matrix_,
      " ", slice, ") {\n", body, "  ", slice, " = Neg(", any(inner), ")\n  }>(", start, ", xs)\n");
  if (depth == 1) stacked_.push_back(stacked);
  seen.push_back(made);
  return scan;
}

}  // namespace backplane::core::faults
