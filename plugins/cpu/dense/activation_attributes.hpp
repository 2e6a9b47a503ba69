// Activations as attributes of fused nodes.
#pragma once

#include <string>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/activation.hpp"

namespace backplane::cpu {

inline constexpr const char* kActivation = "activation";
inline constexpr const char* kActivationAlpha = "activation_alpha";
inline constexpr const char* kActivationBeta = "activation_beta";
inline constexpr const char* kActivationFactor = "activation_factor";
inline constexpr const char* kActivationShift = "activation_shift";

/// Reads what the rewrite wrote; nothing: no activation.
inline Activation read_activation(const sdk::Node& node) {
  Activation activation;
  if (!node.has(kActivation)) return activation;
  activation.kind = activation_kind(node.get_string(kActivation, ""));
  activation.alpha = node.get_float(kActivationAlpha, activation.alpha);
  activation.beta = node.get_float(kActivationBeta, activation.beta);
  activation.factor = node.get_float(kActivationFactor, activation.factor);
  activation.shift = node.get_float(kActivationShift, activation.shift);
  return activation;
}

}  // namespace backplane::cpu
