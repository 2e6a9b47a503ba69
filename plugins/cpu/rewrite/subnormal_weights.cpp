// Products and convolutions read constants without the numbers that only cost time: those below the normal ones.
#include <cstring>

#include "plugins/cpu/dense/weight_attributes.hpp"
#include "plugins/cpu/kernels/subnormals.hpp"
#include "plugins/cpu/rewrite/passes.hpp"

namespace backplane::cpu {
namespace {

bool reads_weights(const WorkNode& node) {
  const bool is_ours = node.domain.empty() || node.domain == kPrivateDomain;
  return is_ours && (node.op == "Conv" || node.op == "ConvTranspose" || node.op == "MatMul" ||
                     node.op == "Gemm");
}

bool has_idle_subnormals(const sdk::ValueInfo& constant) {
  const auto [data, bytes] = constant.stored_constant();
  return data != nullptr &&
         cpu::has_idle_subnormals(data, static_cast<std::int64_t>(bytes / sizeof(float)));
}

std::string without_subnormals(WorkingGraph& graph, const std::string& value,
                               const sdk::ValueInfo& constant) {
  std::string name = graph.fresh(value + "_normal");
  graph.edit().lazy_constant(name, sdk::DataType::Float, constant.dims(), {value},
                             "without subnormal numbers", [](const sdk::PackContext& ctx) {
                               const sdk::Tensor source = ctx.source(0);
                               auto* target = ctx.target().mutable_data<float>();
                               std::memcpy(target, source.data<float>(), source.bytes());
                               flush_idle_subnormals(target, source.size());
                             });
  return name;
}

}  // namespace

void leave_out_subnormal_weights(WorkingGraph& graph) {
  std::map<std::string, std::string> names;  // of constants, "" where they stay
  for (std::size_t i = 0; i < graph.size(); ++i) {
    WorkNode* node = graph.at(i);
    if (node == nullptr || !reads_weights(*node) || node->attributes.count(kWeightType) != 0)
      continue;
    for (std::size_t k = 1; k < node->inputs.size(); ++k) {
      const std::string value = node->inputs[k];
      const sdk::ValueInfo constant = graph.constant_info(value);
      if (!constant || constant.type() != sdk::DataType::Float) continue;
      const auto [found, is_new] = names.try_emplace(value);
      if (is_new && has_idle_subnormals(constant))
        found->second = without_subnormals(graph, value, constant);
      if (found->second.empty()) continue;
      graph.change(node);
      graph.set_input(node, k, found->second);
    }
  }
}

}  // namespace backplane::cpu
