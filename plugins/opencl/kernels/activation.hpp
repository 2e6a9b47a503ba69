// What a fused product or convolution does to a sum before it stores it.
#pragma once

#include <string>
#include <vector>

#include "backplane/plugin.hpp"

namespace backplane::opencl {

/// An activation as expressions in C; empty: none.
struct Activation {
  std::string of_scalar;  ///< of "s", with the functions of scalar_functions.hpp
  std::string of_vector;  ///< of the vector "v"; empty where only scalars can be done

  /// From the attributes "activation" (an operator's name) and "activation_parameters" of a fused node.
  static Activation from(const sdk::Node& node);
  static Activation make(const std::string& op_type, const std::vector<float>& parameters);
};

/// The operator's parameters, when it is one that fuses: out is false otherwise.
bool read_activation(const sdk::Node& node, std::string& name, std::vector<float>& parameters);

}  // namespace backplane::opencl
