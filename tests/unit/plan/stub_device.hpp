// Devices made inside a test, and graphs to plan on them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backplane/plugin.hpp"
#include "core/plan/program.hpp"
#include "core/plugin_host/host_api.hpp"

namespace backplane::core {

class StubPlugin : public Plugin {
 public:
  StubPlugin() {
    raw_.name = "stub plugin";
    raw_.version = "1.0";
  }
  const std::filesystem::path& file() const override { return file_; }
  const bp_plugin& raw() const override { return raw_; }
  const std::vector<CustomSchema>& schemas() const override { return schemas_; }

 private:
  std::filesystem::path file_ = "/nowhere/stub.so";
  bp_plugin raw_{};
  std::vector<CustomSchema> schemas_;
};

/// A kernel whose single output is like its first input; computes nothing.
class StubKernel {
 public:
  struct Prepared {
    void compute(const sdk::ComputeContext&) const {}
  };
  StubKernel(const sdk::CreateContext&, const sdk::Node&) {}
  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output(0, ctx.input(0).type(), ctx.input(0).dims());
    return {};
  }
};

/// A provider with one device on host memory. Set what it shows before `open`.
class StubProvider {
 public:
  using RewriteFunction = std::function<void(const sdk::Graph&, sdk::Rewrite&)>;

  explicit StubProvider(std::string name) : name_(std::move(name)) {
    sdk::host_table = &host_api();
    info_.name = "stub device";
    info_.vendor = info_.driver = "";
    info_.flags = BP_DEVICE_HOST_MEMORY;
    info_.type = BP_DEVICE_TYPE_CPU;
    raw_.name = name_.c_str();
    raw_.version = "1";
    raw_.self = this;
    raw_.open = [](void* self, const bp_device_info*, const bp_open_ctx*, bp_device** out,
                   const bp_device_api** api) -> bp_status* {
      *out = static_cast<bp_device*>(self);
      *api = &static_cast<StubProvider*>(self)->api_;
      return nullptr;
    };
    api_.kernels = [](bp_device* device, void* ctx, bp_kernel_sink sink) {
      return sdk::show_kernels(of(device)->kernels, ctx, sink);
    };
    api_.close = [](bp_device*) {};
  }
  StubProvider(const StubProvider&) = delete;
  StubProvider& operator=(const StubProvider&) = delete;

  sdk::KernelList kernels;
  std::vector<std::string>
      compiled;  ///< names of the nodes of each subgraph that was compiled, joined by spaces

  // What a broken provider does.
  std::function<void(bp_kernel_def&)> damage_compiled;  ///< the definition that `compile` gives
  int* kernel_made = nullptr;                           ///< the last one that `compile` gave
  std::function<void(bp_claim&)> damage_claim;

  void set_rewrite(RewriteFunction function) {
    rewrite_ = std::move(function);
    api_.rewrite = [](bp_device* device, const bp_graph* graph, bp_rewrite* editor,
                      const bp_rewrite_api* api) {
      return sdk::guarded([&] {
        sdk::Rewrite edit(editor, api);
        of(device)->rewrite_(sdk::Graph(graph), edit);
      });
    };
  }
  /// Claims of nodes by name.
  void set_claims(std::vector<std::vector<std::string>> claims) {
    claims_ = std::move(claims);
    api_.claims = [](bp_device* device, const bp_graph* graph, void* ctx, bp_claim_sink sink) {
      return of(device)->show_claims(graph, ctx, sink);
    };
    api_.compile = [](bp_device* device, const bp_create_ctx*, const bp_graph* graph, std::uint32_t,
                      const bp_kernel_def** def, bp_kernel** kernel) {
      return sdk::guarded([&] { of(device)->compile(sdk::Graph(graph), def, kernel); });
    };
  }

  DevicePtr open(bp_threads* threads) {
    return Device::open(std::make_shared<StubPlugin>(), &raw_, &info_, name_, {}, threads);
  }

 private:
  static StubProvider* of(bp_device* device) { return reinterpret_cast<StubProvider*>(device); }

  bp_status* show_claims(const bp_graph* raw, void* ctx, bp_claim_sink sink) {
    const sdk::Graph graph(raw);
    std::uint32_t number = 0;
    for (const std::vector<std::string>& names : claims_) {
      std::vector<const bp_node*> nodes;
      for (const std::string& name : names) {
        for (std::size_t i = 0; i < graph.node_count(); ++i) {
          if (graph.node(i).name() == name) nodes.push_back(graph.node(i).raw());
        }
      }
      const std::string name = sdk::message("claim", number);
      bp_claim claim = sdk::abi_struct<bp_claim>();
      claim.nodes = nodes.data();
      claim.node_count = nodes.size();
      claim.name = name.c_str();
      claim.claim_id = number++;
      if (damage_claim) damage_claim(claim);
      if (bp_status* status = sink(ctx, &claim)) return status;
    }
    return nullptr;
  }

  void compile(const sdk::Graph& graph, const bp_kernel_def** def, bp_kernel** kernel) {
    std::string names;
    for (std::size_t i = 0; i < graph.node_count(); ++i)
      names += (names.empty() ? "" : " ") + std::string(graph.node(i).name());
    compiled.push_back(names);
    static const sdk::KernelEntry entry =
        sdk::op("Compiled", "backplane.stub").name("stub:compiled").kernel<StubKernel>();
    kernel_made = new int(0);
    *kernel = reinterpret_cast<bp_kernel*>(kernel_made);
    static bp_kernel_def owned;
    owned = entry->def;
    owned.destroy = [](bp_kernel* made) { delete reinterpret_cast<int*>(made); };
    if (damage_compiled) damage_compiled(owned);
    *def = &owned;
  }

  std::string name_;
  RewriteFunction rewrite_;
  std::vector<std::vector<std::string>> claims_;
  bp_device_info info_ = sdk::abi_struct<bp_device_info>();
  bp_provider raw_ = sdk::abi_struct<bp_provider>();
  bp_device_api api_ = sdk::abi_struct<bp_device_api>();
};

/// A model of float vectors and the devices to place it on.
class PlanTest : public ::testing::Test {
 protected:
  void input(const std::string& name, const std::vector<std::int64_t>& dims = {4}) {
    graph().add_input(typed(name, dims));
  }
  void output(const std::string& name) { graph().add_output(graph().value_named(name)); }
  void constant(const std::string& name, std::vector<float> elements) {
    const std::vector<std::int64_t> dims{static_cast<std::int64_t>(elements.size())};
    graph().add_initializer(
        typed(name, dims),
        Constant::copy_of(DataType::Float, dims, std::as_bytes(std::span<const float>(elements))));
  }
  NodeId add(const std::string& op, const std::vector<std::string>& inputs,
             const std::string& result, const std::string& name, int version = 14) {
    Node node;
    node.name = name;
    node.op_type = op;
    node.since_version = version;
    node.origins = {static_cast<std::int32_t>(graph().node_limit())};
    for (const std::string& read : inputs)
      node.inputs.push_back(read.empty() ? kNone : graph().value_named(read));
    node.outputs.push_back(typed(result, {4}));
    return graph().add_node(std::move(node));
  }
  ValueId typed(const std::string& name, const std::vector<std::int64_t>& dims) {
    const ValueId id = graph().value_named(name);
    graph().value(id).type = Type::tensor(DataType::Float, dims);
    return id;
  }
  Graph& graph() { return model_.graph; }
  const Value& value(const std::string& name) { return graph().value(graph().find_value(name)); }

  /// Opens a provider's device as the session's next one.
  void use(StubProvider& provider) {
    SessionDevice device;
    device.device = provider.open(&threads_);
    for (const sdk::KernelEntry& entry : provider.kernels) {
      RegisteredKernel kernel;
      kernel.def = &entry->def;
      kernel.plugin = device.device->plugin();
      device.registry.add(kernel, schemas_, false);
    }
    EXPECT_TRUE(device.registry.refused().empty()) << device.registry.refused().front();
    devices_.devices.push_back(std::move(device));
  }

  /// Places the whole graph.
  PlacedGraph placed(const std::vector<RuleText>& rules = {},
                     const std::vector<LateRefusal>& refused = {}) {
    PlacedGraph result;
    result.graph = std::make_shared<Graph>(graph());
    const std::vector<NodeId> order = topological_order(*result.graph);
    PlacementRequest request;
    request.devices = &devices_;
    request.schemas = &cache_;
    request.rules = resolve_rules(rules, devices_);
    request.refused = refused;
    const GraphView view(*result.graph, order);
    result.placement = place(*result.graph, order, view, request);
    return result;
  }

  static std::vector<std::string> ops(const Graph& of) {
    std::vector<std::string> all;
    for (const NodeId id : topological_order(of)) all.push_back(of.node(id).op_type);
    return all;
  }
  static sdk::KernelEntry kernel(const std::string& op, const std::string& domain = "") {
    return sdk::op(op, domain).name("stub:" + op).kernel<StubKernel>();
  }

  Model model_;
  SchemaRegistry schemas_;
  SchemaCache cache_{schemas_};
  ThreadPool pool_{1};
  bp_threads threads_{&pool_, 1};
  DeviceSet devices_;
};

}  // namespace backplane::core
