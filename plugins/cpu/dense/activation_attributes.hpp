// Activations as attributes of fused nodes.
#pragma once

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/activation.hpp"

namespace backplane::cpu {

/// Reads the attributes "activation", "activation_alpha" and "activation_beta"; none: no activation.
inline Activation read_activation(const sdk::Node& node) {
  Activation activation;
  if (!node.has("activation")) return activation;
  activation.kind = activation_kind(node.get_string("activation", ""));
  activation.alpha = node.get_float("activation_alpha", activation.alpha);
  activation.beta = node.get_float("activation_beta", activation.beta);
  return activation;
}

/// Writes what read_activation reads.
inline void write_activation(sdk::NodeDraft& draft, const Activation& activation) {
  draft.attribute("activation", std::string(activation_name(activation.kind)));
  draft.attribute("activation_alpha", activation.alpha);
  draft.attribute("activation_beta", activation.beta);
}

}  // namespace backplane::cpu
