// The passes of the rewrite, in the order in which they run.
#pragma once

#include "plugins/cpu/dense/isa.hpp"
#include "plugins/cpu/rewrite/working_graph.hpp"

namespace backplane::cpu {

/// Nodes between DequantizeLinear and QuantizeLinear compute with the bytes: Conv, MatMul and Gemm with constant
/// weights, Add, and what only moves elements.
void fuse_quantized(WorkingGraph& graph);

/// MatMul and Gemm whose weights are constants of 4 or 8 bits, and Gather from such a table, read the bits; nothing is
/// folded to floats.
void keep_narrow_weights(WorkingGraph& graph);

/// MatMul and Gemm whose weights are constants of 16 bits, cast to float for them alone, read these.
void keep_half_weights(WorkingGraph& graph);

/// Attention and GroupQueryAttention whose past and present are of 16 bits, cast for them alone, keep them so.
void keep_half_caches(WorkingGraph& graph);

/// Decomposed Gelu, HardSigmoid, HardSwish, LayerNormalization and RMSNormalization, positions that are turned into queries
/// and keys, and pairs of QuantizeLinear and DequantizeLinear become one node each.
void fuse_decomposed(WorkingGraph& graph);

/// MatMulInteger and ConvInteger of constant weights take over what makes floats of their sums: Cast, the scales, the
/// bias, the residual addition and the activation. What is left is as exact. A ConvInteger of one group computes with
/// the bytes where nothing makes floats of its sums, too.
void fuse_dynamic_quantization(WorkingGraph& graph);

/// Conv takes over the per-channel arithmetic, the residual addition and the activation that follow it;
/// such arithmetic that stands alone becomes one ScaleShift node.
void fuse_convolutions(WorkingGraph& graph);

/// Product, scale, mask, Softmax and product become one node, which never has all the scores.
void fuse_attention(WorkingGraph& graph);

/// MatMul, MatMulNBits and Gemm take over the bias, the residual addition and the activation that follow them.
void fuse_products(WorkingGraph& graph);

/// x * Sigmoid(x), which nothing before took over, becomes one node.
void fuse_gates(WorkingGraph& graph);

/// Images are kept channels last between the nodes that work on them; reorders stand at the borders.
void lay_out_channels_last(WorkingGraph& graph);

/// Products of constant weights that 16 bits hold exactly keep them so.
void hold_weights_in_halves(WorkingGraph& graph, Isa isa);

/// Products and convolutions read constants whose numbers below the normal ones are 0, where others are so large that these say
/// nothing.
void leave_out_subnormal_weights(WorkingGraph& graph);

}  // namespace backplane::cpu
