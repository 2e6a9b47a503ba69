#include "tests/faults/network.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

namespace backplane::core::faults {
namespace {

using Json = nlohmann::json;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) invalid("the test cannot read ", path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The weights of the package's models are nodes that fill them with one number; here they are weights, so that ONNX
/// knows the shapes of all values.
std::string with_weights(const std::string& bytes) {
  ::onnx::ModelProto model;
  if (!model.ParseFromString(bytes)) invalid("the model cannot be read");
  ::onnx::GraphProto& graph = *model.mutable_graph();
  std::map<std::string, Dims> shapes;
  for (const ::onnx::TensorProto& tensor : graph.initializer()) {
    if (tensor.data_type() != ::onnx::TensorProto::INT64) continue;
    Dims shape(tensor.int64_data().begin(), tensor.int64_data().end());
    if (tensor.has_raw_data()) {
      shape.resize(tensor.raw_data().size() / sizeof(std::int64_t));
      std::memcpy(shape.data(), tensor.raw_data().data(), tensor.raw_data().size());
    }
    shapes[tensor.name()] = std::move(shape);
  }
  ::onnx::GraphProto kept;
  for (const ::onnx::NodeProto& node : graph.node()) {
    if (node.op_type() != "ConstantOfShape" || !shapes.contains(node.input(0))) {
      *kept.add_node() = node;
      continue;
    }
    const ::onnx::TensorProto& value = node.attribute(0).t();
    const float number = value.float_data_size() > 0
                             ? value.float_data(0)
                             : *reinterpret_cast<const float*>(value.raw_data().data());
    ::onnx::TensorProto& weight = *graph.add_initializer();
    weight.set_name(node.output(0));
    weight.set_data_type(::onnx::TensorProto::FLOAT);
    const Dims& dims = shapes[node.input(0)];
    for (const std::int64_t dim : dims) weight.add_dims(dim);
    const std::vector<float> elements(static_cast<std::size_t>(element_count(dims)), number);
    weight.set_raw_data(elements.data(), elements.size() * sizeof(float));
  }
  graph.mutable_node()->Swap(kept.mutable_node());
  return model.SerializeAsString();
}

std::size_t size_of(std::int64_t count) { return static_cast<std::size_t>(count); }

Dims dims_of(const Graph& graph, const std::string& name) {
  const Type& type = graph.value(graph.find_value(name)).type;
  if (!type.shape) invalid("the test does not know the shape of '", name, "'");
  Dims dims;
  for (const Dim& dim : *type.shape) dims.push_back(dim.known() ? dim.size : 2);
  return dims;
}

/// Of a convolution or a product with a weight.
std::int64_t products_of(const Graph& graph, const Json& row) {
  const Dims weight = dims_of(graph, row["inputs"][1].get<std::string>());
  const Dims made = dims_of(graph, row["outputs"][0].get<std::string>());
  const std::int64_t maps = row["op"] == "Conv" ? weight.at(0) : made.back();
  return element_count(made) * element_count(weight) / maps;
}

}  // namespace

std::string bare(const std::string& name) { return name.substr(name.rfind('/') + 1); }

std::vector<std::string> nodes_taken(const std::string& model) {
  MixedSession session(model, {}, {{"rewrite", "false"}}, {"fakegpu:0", "cpu"});
  const Json explanation = Json::parse(session.core().explain());
  std::vector<std::string> names;
  for (const Json& row : explanation["nodes"]) {
    if (row["provider"] == "fakegpu:0") names.push_back(row["name"]);
  }
  return names;
}

Placement random_placement(const std::vector<std::string>& nodes,
                           const std::vector<std::string>& providers, std::mt19937_64& random) {
  Placement placement;
  for (const std::string& node : nodes) placement[node] = providers[random() % providers.size()];
  return placement;
}

Network::Network(std::string model) : model_(std::move(model)), taken_(nodes_taken(model_)) {
  MixedSession session(model_, {}, {}, {"cpu"});
  const Graph& graph = session.core().model().graph;
  const Json explanation = Json::parse(session.core().explain());
  for (const Json& row : explanation["nodes"]) {
    if (row["provider"] == "cpu" && row.contains("inputs")) rows_.push_back(row);
  }
  for (const ValueId input : session.core().inputs()) {
    const std::string& name = graph.value(input).name;
    feeds_[name] = random_tensor(dims_of(graph, name), 3);
  }
  for (const ValueId output : session.core().outputs()) outputs_.insert(graph.value(output).name);
  want_ = session.run(feeds_);
  note_sizes(graph);
}

Network Network::from_file(const std::filesystem::path& file) {
  return Network(with_weights(read_file(file)));
}

void Network::note_sizes(const Graph& graph) {
  const auto note = [&](const std::string& name, const Dims& dims) {
    bytes_[name] = size_of(element_count(dims)) * sizeof(float);
  };
  for (const auto& [feed, tensor] : feeds_) note(feed, tensor.dims);
  for (const Json& row : rows_) {
    for (const Json& output : row["outputs"]) {
      const auto name = output.get<std::string>();
      if (!name.empty() && graph.value(graph.find_value(name)).type.shape)
        note(name, dims_of(graph, name));
    }
    const std::string op = row["op"];
    if (op == "Conv" || op == "Gemm" || op == "MatMul")
      products_[row["name"]] = products_of(graph, row);
  }
}

Placement Network::placement(std::mt19937_64& random, const DeviceShare& share) const {
  Placement placement = random_placement(taken_, {"cpu", "fakegpu:0", "fakegpu:1"}, random);
  std::vector<std::string> large;
  for (const auto& [node, products] : products_) large.push_back(node);
  std::shuffle(large.begin(), large.end(), random);
  std::int64_t left = share.fake_products;
  for (const std::string& node : large) {
    if (placement[node] == "cpu") continue;
    if (known(products_, node) > left) {
      placement[node] = "cpu";
    } else {
      left -= known(products_, node);
    }
  }
  for (std::size_t i = 0; i < share.opencl_nodes; ++i)
    placement[rows_[random() % rows_.size()]["name"]] = "opencl";
  return placement;
}

Placement Network::places(const Json& explanation) {
  Placement places;
  for (const Json& row : explanation["nodes"]) {
    if (!row["provider"].is_null()) places[row["name"]] = row["provider"];
  }
  return places;
}

Copies Network::copies(const Placement& places, const std::string& device) const {
  const auto place_of = [&](const Json& row) { return known(places, row["name"]); };
  std::map<std::string, std::string> maker;
  std::map<std::string, std::set<std::string>> readers;
  for (const auto& [name, tensor] : feeds_) maker[name] = "cpu";
  for (const Json& row : rows_) {
    for (const Json& name : row["outputs"]) maker[name] = place_of(row);
    maker.erase("");  // outputs that are left out
  }
  for (const Json& row : rows_) {
    for (const Json& name : row["inputs"]) readers[name].insert(place_of(row));
  }
  for (const std::string& name : outputs_) readers[name].insert("cpu");
  Copies copies;
  for (const auto& [name, made] : maker) {
    std::set<std::string> targets = readers[name];
    targets.erase(made);
    if (!targets.empty() && made != "cpu") targets.insert("cpu");
    for (const std::string& target : targets) {
      const bool to_host = target == "cpu";
      if ((to_host ? made : target).rfind(device, 0) != 0) continue;
      copies.bytes += known(bytes_, name);
      ++(to_host ? copies.to_host : copies.to_device);
    }
  }
  return copies;
}

}  // namespace backplane::core::faults
