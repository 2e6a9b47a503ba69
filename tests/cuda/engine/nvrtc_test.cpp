// NVRTC compiles the kernels for devices of three generations, which takes no device: what nodes of every operator
// family ask for on the stand-in is compiled for real. By default one element type a node, and every text for one or
// two of the generations; with BACKPLANE_TEST_FULL all of them.
#include "plugins/cuda/engine/nvrtc.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <functional>
#include <nvrtc.h>
#include <optional>
#include <set>

#include "custom_ops/gated_silu/cuda_kernel.hpp"
#include "plugins/cuda/few_channels.hpp"
#include "tests/cuda/engine/machine_code.hpp"
#include "tests/cuda/node_on_device.hpp"

namespace backplane::cuda {
namespace {

using test_host::ints;

/// An input: dims of the case's element type, or ints that are known when the node is prepared.
struct Input {
  Dims dims;
  std::vector<std::int64_t> values{};
  bool is_known = false;
  bp_dtype dtype = BP_NONE;  ///< other than the case's
};

struct Case {
  std::string op_type;
  int since;
  std::vector<Input> inputs;
  std::vector<bp_dtype> types{BP_FLOAT, BP_FLOAT16, BP_BFLOAT16, BP_DOUBLE};
  std::function<void(NodeUnderTest&)> attributes = [](NodeUnderTest&) {};
  std::size_t outputs = 1;
  const char* domain = "";
};

Input known(const std::vector<std::int64_t>& values) {
  return {{static_cast<std::int64_t>(values.size())}, values, true, BP_INT64};
}
Input of(bp_dtype dtype, Dims dims) { return {std::move(dims), {}, false, dtype}; }

HostTensor tensor_of(const Input& input, bp_dtype dtype) {
  if (input.is_known) return ints(input.dims, input.values);
  HostTensor tensor{dtype, input.dims, {}};
  tensor.data.resize(static_cast<std::size_t>(tensor.size()) * test_host::element_bytes(dtype));
  return tensor;
}

/// With the first kernel for the operator, or the one of that name.
void prepare(const OpenDevice& device, const Case& each, bp_dtype dtype,
             const std::string& name = "") {
  NodeUnderTest node(each.domain, each.op_type, each.since);
  std::vector<HostTensor> tensors;
  std::vector<bool> is_known;
  for (const Input& input : each.inputs) {
    const bp_dtype type = input.dtype == BP_NONE ? dtype : input.dtype;
    node.input(type, input.dims);
    tensors.push_back(tensor_of(input, type));
    is_known.push_back(input.is_known);
  }
  node.outputs(each.outputs);
  each.attributes(node);
  KernelUnderTest kernel(name.empty() ? device.kernel(each.op_type, each.domain)
                                      : kernel_named(device, name, each.op_type),
                         device.raw(), node.raw());
  kernel.prepare(tensors, is_known, each.outputs);
}

const std::vector<bp_dtype> kIntegers{BP_INT32, BP_INT64, BP_UINT8, BP_INT8, BP_UINT64};

std::vector<Case> moving_cases() {
  const Dims image{1, 2, 5, 5};
  return {
      {"Transpose", 13, {{{3, 4, 5}}}, {BP_FLOAT, BP_INT8, BP_UINT16, BP_INT64}},
      {"Concat",
       13,
       {{{2, 3}}, {{2, 4}}},
       {BP_FLOAT, BP_INT8},
       [](auto& n) { n.attribute("axis", std::int64_t{1}); }},
      {"Slice", 13, {{{4, 6}}, known({1, 1}), known({3, 5})}},
      {"Expand", 13, {{{3, 1}}, known({2, 3, 4})}, {BP_FLOAT, BP_BOOL}},
      {"Tile", 13, {{{2, 3}}, known({2, 2})}},
      {"Pad", 13, {{{3, 4}}, known({1, 0, 0, 2})}},
      {"Gather", 13, {{{5, 4}}, of(BP_INT64, {3})}, {BP_FLOAT, BP_INT8}},
      {"GatherElements", 13, {{{5, 4}}, of(BP_INT32, {5, 4})}},
      {"GatherND", 13, {{{5, 4}}, of(BP_INT64, {3, 2})}},
      {"ScatterElements", 16, {{{5, 4}}, of(BP_INT64, {2, 4}), {{2, 4}}}},
      {"ScatterND", 16, {{{5, 4}}, of(BP_INT64, {2, 1}), {{2, 4}}}},
      {"Trilu", 14, {{{4, 4}}}},
      {"Where", 16, {of(BP_BOOL, {3, 1}), {{3, 4}}, {{4}}}},
      {"DepthToSpace",
       13,
       {{{1, 4, 2, 2}}},
       {BP_FLOAT},
       [](auto& n) { n.attribute("blocksize", std::int64_t{2}); }},
      {"Resize",
       13,
       {{image}, {{0}, {}, false, BP_FLOAT}, {{0}, {}, false, BP_FLOAT}, known({1, 2, 10, 10})},
       {BP_FLOAT},
       [](auto& n) { n.attribute("mode", std::string("linear")); }},
  };
}

/// Rows of an expression, as plugins/common/device_ops/rewrite/rows.cpp makes them: of operands of several types, dense and
/// repeated along the row and across it; held and not, divided among groups.
std::vector<Case> made_row_cases() {
  const auto made = [](const char* op, const Dims& dims, std::int64_t axis, std::int64_t type) {
    return [=](auto& n) {
      n.attribute("statements", std::string("  REAL t0 = v0 * (0x1p-3f);\n  REAL t1 = t0 + v1;\n"
                                            "  REAL t2 = t1 + tanh_of(v2);\n"));
      n.attribute("result", std::string("t2")).attribute("operands", std::int64_t{3});
      n.attribute("op", std::string(op)).attribute("axis", axis).attribute("dims", dims);
      n.attribute("type", type);
    };
  };
  const char* const domain = "backplane.cuda";
  const std::vector<bp_dtype> half{BP_FLOAT16};
  std::vector<Case> cases;
  for (const Dims& dims : {Dims{2, 64, 24}, Dims{1, 7, 5}, Dims{1, 1, 100000}}) {
    const Dims mask{dims[0], 1, dims[2]}, row{dims[2]};
    const std::vector<Input> inputs{{dims}, of(BP_FLOAT, mask), of(BP_BFLOAT16, {dims[1], 1})};
    std::vector<Input> scaled = inputs;
    scaled.insert(scaled.end(), {{row}, {row}});
    for (const bp_dtype type : {BP_FLOAT16, BP_FLOAT}) {
      cases.push_back({"FusedSoftmax", 1, inputs, half, made("Softmax", dims, 2, type), 1, domain});
      cases.push_back(
          {"FusedSoftmax", 1, inputs, half, made("LogSoftmax", dims, 1, type), 1, domain});
      cases.push_back(
          {"FusedReduce", 1, inputs, half, made("ReduceMean", dims, 1, type), 1, domain});
      cases.push_back({"FusedNormalization", 1, scaled, half,
                       made("LayerNormalization", dims, 2, type), 2, domain});
    }
  }
  return cases;
}

/// Attention of few rows and of many, in one part and in several, with all that makes another text.
std::vector<Case> cached_attention_cases() {
  std::vector<Case> cases;
  const auto add = [&](std::int64_t queries, std::int64_t width, std::int64_t past, bp_dtype type,
                       const std::function<void(NodeUnderTest&)>& more, bool has_bias = false) {
    const std::int64_t heads = 8, kv_heads = 2, keys = past + queries;
    const Dims fresh{2, queries, kv_heads * width}, cache{2, kv_heads, past, width};
    const Dims angles{keys, width / 4};
    std::vector<Input> inputs{{{2, queries, heads * width}},
                              {fresh},
                              {fresh},
                              {cache},
                              {cache},
                              of(BP_INT32, {2}),
                              known({keys}),
                              {angles},
                              {angles}};
    if (has_bias) {
      inputs.push_back(of(BP_INT64, {2, queries}));
      inputs.push_back({{1, heads, queries, keys}});
    }
    const auto attributes = [=](NodeUnderTest& n) {
      n.attribute("num_heads", heads).attribute("kv_num_heads", kv_heads);
      n.attribute("do_rotary", std::int64_t{1});
      more(n);
    };
    cases.push_back({"GroupQueryAttention", 1, inputs, {type}, attributes, 3, "com.microsoft"});
  };
  const auto nothing = [](NodeUnderTest&) {};
  const auto everything = [](NodeUnderTest& n) {
    n.attribute("rotary_interleaved", std::int64_t{1}).attribute("softcap", 30.0f);
    n.attribute("local_window_size", std::int64_t{100});
  };
  add(1, 64, 1000, BP_FLOAT, nothing);
  add(1, 128, 8, BP_BFLOAT16, everything, true);
  add(300, 80, 40, BP_FLOAT16, everything);
  add(5, 256, 3000, BP_FLOAT16, nothing, true);
  add(2, 20, 7, BP_FLOAT16, nothing);  // rows that are no multiple of 16 bytes
  return cases;
}

/// Few rows by the weights as they lie, many by what is written out; of every number of bits and kind of zero points.
std::vector<Case> block_weights_cases() {
  std::vector<Case> cases;
  const auto add = [&](std::int64_t rows, std::int64_t bits, std::int64_t block, std::int64_t depth,
                       bp_dtype type, bp_dtype zeros) {
    const std::int64_t columns = 3000, blocks = (depth + block - 1) / block;
    const bool is_packed = zeros == BP_UINT8;
    const std::vector<Input> inputs{
        {{rows, depth}},
        of(BP_UINT8, {columns, blocks, block * bits / 8}),
        {{columns, blocks}},
        of(zeros, {columns, is_packed ? (blocks * bits + 7) / 8 : blocks})};
    const auto attributes = [=](NodeUnderTest& n) {
      n.attribute("K", depth).attribute("N", columns).attribute("bits", bits);
      n.attribute("block_size", block);
    };
    cases.push_back({"MatMulNBits", 1, inputs, {type}, attributes, 1, "com.microsoft"});
  };
  add(1, 4, 32, 2048, BP_FLOAT, BP_UINT8);
  add(9, 8, 16, 100, BP_FLOAT16, BP_FLOAT16);
  add(3, 2, 128, 512, BP_BFLOAT16, BP_FLOAT);
  add(4, 4, 16, 50, BP_FLOAT, BP_UINT8);
  add(100, 4, 32, 2048, BP_FLOAT16, BP_UINT8);
  add(100, 8, 16, 100, BP_FLOAT, BP_FLOAT);
  add(100, 2, 64, 512, BP_BFLOAT16, BP_BFLOAT16);
  for (const std::int64_t rows : {1, 4}) {
    const Input weights = of(BP_UINT8, {64, 2, 16}), scales{{64, 2}}, zeros = of(BP_UINT8, {64, 1});
    const auto attributes = [](NodeUnderTest& n) {
      n.attribute("K", std::int64_t{64}).attribute("N", Dims{64, 64});
      n.attribute("bits", std::int64_t{4}).attribute("block_size", std::int64_t{32});
    };
    cases.push_back({"JoinedMatMulNBits",
                     1,
                     {{{rows, 64}}, weights, scales, zeros, {{64}}, weights, scales, zeros, {{64}}},
                     {BP_FLOAT, BP_FLOAT16},
                     attributes,
                     2,
                     "backplane.cuda"});
  }
  return cases;
}

/// A row by large matrices, of all the forms that are compared; and several rows, with what is done after the sum.
std::vector<Case> row_product_cases() {
  const auto gelu = [](auto& n) { n.attribute("activation", std::string("Gelu")); };
  const auto relu = [](auto& n) {
    n.attribute("activation", std::string("Relu")).attribute("transB", std::int64_t{1});
    n.attribute("alpha", 0.5f).attribute("beta", 2.0f);
  };
  const std::vector<bp_dtype> floats{BP_FLOAT, BP_FLOAT16, BP_BFLOAT16};
  const Dims matrix{2048, 320}, row{320};
  std::vector<Case> cases;
  for (const std::int64_t rows : {1, 3}) {
    const Dims a{rows, 2048}, y{rows, 320};
    cases.push_back(
        {"FusedMatMul", 1, {{a}, {matrix}, {row}, {y}}, floats, gelu, 1, "backplane.cuda"});
    cases.push_back(
        {"FusedGemm", 1, {{a}, {{1040, 2048}}, {{rows, 1040}}}, floats, relu, 1, "backplane.cuda"});
  }
  cases.push_back({"MatMul", 13, {{{1, 2048}}, {{2048, 321}}}, floats});
  return cases;
}

/// Layers of one row and of many, whose lines are multiples of 16 bytes and are not, with all that makes another text.
std::vector<Case> recurrent_cases() {
  std::vector<Case> cases;
  const auto add = [&](const char* op_type, std::int64_t gates, std::int64_t batch,
                       std::int64_t hidden, bp_dtype first, std::int64_t before_reset = 0) {
    const std::vector<bp_dtype> types{first, BP_FLOAT, BP_FLOAT16, BP_BFLOAT16, BP_DOUBLE};
    const std::int64_t directions = 2, rows = gates * hidden;
    const Dims states{directions, batch, hidden};
    std::vector<Input> inputs{
        {{3, batch, 8}},          {{directions, rows, 8}}, {{directions, rows, hidden}},
        {{directions, 2 * rows}}, of(BP_INT32, {batch}),   {states}};
    const bool is_lstm = gates == 4;
    if (is_lstm) inputs.insert(inputs.end(), {{states}, {{directions, 3 * hidden}}});
    const auto attributes = [=](NodeUnderTest& n) {
      n.attribute("direction", std::string("bidirectional")).attribute("clip", 2.0f);
      if (before_reset != 0) n.attribute("linear_before_reset", before_reset);
    };
    cases.push_back({op_type, 14, inputs, types, attributes, is_lstm ? 3u : 2u});
  };
  add("LSTM", 4, 1, 512, BP_FLOAT);
  add("LSTM", 4, 20, 130, BP_FLOAT16);
  add("GRU", 3, 1, 64, BP_BFLOAT16);
  add("GRU", 3, 9, 256, BP_FLOAT, 1);
  add("RNN", 1, 3, 96, BP_DOUBLE);
  return cases;
}

/// A copy, sums of one operand, a product of elements, and products whose operands and results are copied.
std::vector<Case> einsum_cases() {
  std::vector<Case> cases;
  const auto add = [&](const char* equation, std::vector<Input> inputs,
                       std::vector<bp_dtype> types = {BP_FLOAT, BP_FLOAT16, BP_BFLOAT16,
                                                      BP_DOUBLE}) {
    cases.push_back({"Einsum", 12, std::move(inputs), std::move(types),
                     [=](NodeUnderTest& n) { n.attribute("equation", std::string(equation)); }});
  };
  add("iij->ji", {{{5, 5, 6}}});
  add("bijk->bj", {{{2, 5, 70, 6}}}, {BP_FLOAT16, BP_FLOAT, BP_DOUBLE});
  add("i,j,k->kij", {{{5}}, {{6}}, {{7}}}, {BP_BFLOAT16, BP_FLOAT, BP_INT32});
  add("bih,bjhk->bijh", {{{2, 9, 3}}, {{2, 18, 3, 40}}}, {BP_FLOAT16, BP_BFLOAT16, BP_DOUBLE});
  add("bih,bjh->bij", {{{2, 9, 3}}, {{2, 18, 3}}}, {BP_INT64, BP_UINT32});
  return cases;
}

/// What rewrites add.
std::vector<Case> private_cases() {
  const char* const domain = "backplane.cuda";
  const auto window = [](auto& n) {
    n.attribute("kernel_shape", Dims{3, 3}).attribute("channels_last", std::int64_t{1});
  };
  const auto fused = [](auto& n) {
    n.attribute("statements", std::string("  REAL t0 = v0 + v1;\n"));
    n.attribute("result", std::string("t0")).attribute("type", std::int64_t{BP_FLOAT16});
  };
  const auto turned = [](auto& n) {
    n.attribute("perm", Dims{0, 2, 1, 3}).attribute("type", std::int64_t{BP_FLOAT16});
  };
  const auto reformat = [](auto& n) {
    n.attribute("to", std::int64_t{BP_FLOAT16}).attribute("perm", Dims{0, 2, 3, 1});
  };
  // By parts, since no library has heads of six elements: rows moved, Softmax that reads a mask along its rows or across them,
  // and in two phases.
  const auto attention = [](auto& n) {
    n.attribute("axes", std::string("bshbshbshbsh")).attribute("scale", 0.5f);
  };
  // With scores that are bounded, and chosen by a mask: of few rows, of many, and of more of them in the mask alone.
  const auto chosen = [](auto& n) {
    n.attribute("axes", std::string("bshbshbshbsh")).attribute("softcap", 2.0f);
    n.attribute("chosen", std::int64_t{0}).attribute("otherwise", -1e4f);
  };
  const auto causal = [](auto& n) { n.attribute("is_causal", std::int64_t{1}); };
  const std::vector<bp_dtype> floats{BP_FLOAT, BP_FLOAT16, BP_BFLOAT16};
  const Input heads{{2, 4, 5, 6}}, groups{{2, 2, 7, 6}};
  const std::vector<bp_dtype> halves{BP_FLOAT16, BP_BFLOAT16};
  const Input short_rows{{2, 4, 7, 64}}, wide_rows{{40, 8, 100, 128}};
  const Input rows{{5, 7, 4, 6}}, row{{1, 1, 1, 6}}, many{{1, 9000, 1, 6}};
  return {
      {"FusedAttention", 1, {rows, rows, rows, {{5, 1, 1, 7}}}, floats, attention, 1, domain},
      {"FusedAttention", 1, {rows, rows, rows, {{4, 7, 1}}}, floats, attention, 1, domain},
      {"FusedAttention", 1, {row, many, many, {{1}}}, floats, attention, 1, domain},
      {"FusedAttention", 1, {row, many, many, {{9000}}}, floats, attention, 1, domain},
      {"FusedAttention", 1, {rows, rows, rows, of(BP_BOOL, {7, 7})}, floats, chosen, 1, domain},
      {"FusedAttention", 1, {row, many, many, of(BP_BOOL, {9000})}, floats, chosen, 1, domain},
      {"FusedAttention", 1, {row, rows, rows, of(BP_BOOL, {5, 7})}, floats, chosen, 1, domain},
      {"Attention", 23, {heads, groups, groups, of(BP_BOOL, {5, 7})}, floats, causal},
      {"Attention", 23, {heads, groups, groups}, floats, causal},
      {"Attention", 23, {short_rows, short_rows, short_rows, {{7, 7}}}, halves, causal},
      {"Attention", 23, {wide_rows, wide_rows, wide_rows}, halves, [](auto&) {}},
      {"MaxPool", 1, {{{1, 8, 8, 3}}}, {BP_FLOAT16, BP_FLOAT}, window, 1, domain},
      {"AveragePool", 1, {{{1, 8, 8, 3}}}, {BP_BFLOAT16, BP_FLOAT}, window, 1, domain},
      {"MaxPool", 1, {{{1, 8, 8, 16}}}, floats, window, 1, domain},
      {"AveragePool", 1, {{{1, 8, 8, 12}}}, floats, window, 1, domain},
      {"FusedPointwise", 1, {{{4, 5}}, of(BP_FLOAT, {5})}, {BP_FLOAT16}, fused, 1, domain},
      {"FusedRotation", 1, {{{2, 5, 3, 16}}, {{5, 16}}, {{16}}}, floats, turned, 1, domain},
      {"FusedRotation",
       1,
       {{{2, 5, 3, 6}}, {{5, 6}}, of(BP_FLOAT, {6})},
       floats,
       turned,
       1,
       domain},
      {"Reformat", 1, {{{1, 3, 4, 5}}}, {BP_FLOAT, BP_BFLOAT16}, reformat, 1, domain},
  };
}

std::vector<Case> computing_cases() {
  const Dims image{1, 2, 8, 8}, vector{2};
  std::vector<Case> cases{
      {"Add", 14, {{{4, 5}}, {{5}}}, {BP_FLOAT, BP_FLOAT16, BP_BFLOAT16, BP_DOUBLE, BP_INT32}},
      {"Div", 14, {{{4, 5}}, {{4, 5}}}, kIntegers},
      {"Mod", 13, {{{4}}, {{4}}}, kIntegers},
      {"Pow", 15, {{{4}}, {{4}}}, {BP_FLOAT, BP_INT32}},
      {"BitShift",
       11,
       {{{4}}, {{4}}},
       {BP_UINT8, BP_UINT64},
       [](auto& n) { n.attribute("direction", std::string("LEFT")); }},
      {"Less", 13, {{{4}}, {{4}}}},
      {"Max", 13, {{{4}}, {{4}}, {{1}}}},
      {"Clip", 13, {{{4}}, {{}}, {{}}}},
      {"Gelu", 20, {{{16}}}},
      {"Softmax", 13, {{{4, 20}}}},
      {"LogSoftmax", 13, {{{4, 20}}}},
      {"LayerNormalization", 17, {{{4, 20}}, {{20}}, {{20}}}, {BP_FLOAT, BP_FLOAT16}},
      {"InstanceNormalization", 6, {{image}, {vector}, {vector}}},
      {"BatchNormalization", 15, {{image}, {vector}, {vector}, {vector}, {vector}}},
      {"LRN", 13, {{image}}, {BP_FLOAT}, [](auto& n) { n.attribute("size", std::int64_t{3}); }},
      {"ReduceSum", 13, {{{4, 20}}, known({1})}, {BP_FLOAT, BP_BFLOAT16, BP_INT64}},
      {"ReduceMax", 13, {{{4, 20}}}, {BP_FLOAT, BP_INT8}},
      {"ReduceLogSumExp", 13, {{{4, 20}}}},
      {"ArgMax", 13, {{{4, 20}}}},
      {"CumSum", 14, {{{4, 20}}, known({1})}},
      {"TopK", 11, {{{4, 20}}, known({3})}, {BP_FLOAT}, [](auto&) {}, 2},
      {"MaxPool",
       12,
       {{image}},
       {BP_FLOAT, BP_FLOAT16},
       [](auto& n) {
         n.attribute("kernel_shape", Dims{3, 3});
       }},
      {"AveragePool",
       11,
       {{image}},
       {BP_FLOAT, BP_FLOAT16},
       [](auto& n) {
         n.attribute("kernel_shape", Dims{2, 2});
       }},
      {"ConvTranspose", 11, {{image}, {{2, 3, 3, 3}}}, {BP_FLOAT}},
      {"MatMulInteger", 10, {{{3, 4}}, {{4, 5}}}, {BP_UINT8, BP_INT8}},
      {"ConvInteger", 10, {{image}, {{3, 2, 3, 3}}}, {BP_UINT8}},
      {"QuantizeLinear", 13, {{{4, 5}}, {{}}, of(BP_UINT8, {})}, {BP_FLOAT}},
      {"DequantizeLinear", 13, {{{4, 5}}, of(BP_FLOAT, {}), {{}}}, {BP_UINT8, BP_INT8}},
      {"Cast",
       13,
       {{{9}}},
       {BP_FLOAT, BP_DOUBLE, BP_INT64},
       [](auto& n) { n.attribute("to", std::int64_t{BP_FLOAT16}); }},
  };
  for (const char* const op_type :
       {"Abs", "Sign", "Round", "Exp", "Log", "Erf", "Tanh", "Sigmoid", "Softplus", "Elu", "Selu",
        "HardSwish", "Mish", "Asinh", "Atanh", "Sqrt", "Sin"})
    cases.push_back({op_type, 13, {{{16}}}});
  return cases;
}

/// Of lines, planes and volumes; points of another type than elements, and of double.
std::vector<Case> sample_cases() {
  std::vector<Case> cases;
  for (const char* const mode : {"nearest", "linear", "cubic"}) {
    for (const char* const padding : {"zeros", "border", "reflection"}) {
      const auto attributes = [=](NodeUnderTest& n) {
        n.attribute("mode", std::string(mode)).attribute("padding_mode", std::string(padding));
        n.attribute("align_corners", std::int64_t{*padding == 'b'});
      };
      const Input line = of(BP_DOUBLE, {2, 30, 1}), plane{{2, 5, 6, 2}}, volume{{2, 4, 5, 6, 3}};
      cases.push_back({"GridSample", 20, {{{2, 3, 9}}, line}, {BP_FLOAT16}, attributes});
      cases.push_back(
          {"GridSample", 20, {{{2, 70, 7, 8}}, plane}, {BP_FLOAT, BP_DOUBLE}, attributes});
      cases.push_back({"GridSample", 20, {{{2, 1, 3, 4, 5}}, volume}, {BP_BFLOAT16}, attributes});
    }
  }
  return cases;
}

/// A channel of a bin and eight, of samples that are asked for and of as many as there are pixels.
std::vector<Case> region_cases() {
  std::vector<Case> cases;
  for (const char* const mode : {"avg", "max"}) {
    for (const std::int64_t channels : {3, 700}) {
      cases.push_back({"RoiAlign",
                       16,
                       {{{2, channels, 9, 8}}, {{50, 4}}, of(BP_INT64, {50})},
                       {BP_FLOAT, BP_FLOAT16, BP_BFLOAT16, BP_DOUBLE},
                       [=](NodeUnderTest& n) {
                         n.attribute("mode", std::string(mode));
                         n.attribute("output_height", std::int64_t{7});
                         n.attribute("output_width", std::int64_t{7});
                         n.attribute("sampling_ratio", std::int64_t{channels > 3 ? 2 : 0});
                       }});
    }
  }
  return cases;
}

/// Updates of a cache, windows whose taps are moved, and states that go on from token to token.
std::vector<Case> moved_cases() {
  const auto heads = [](NodeUnderTest& n) {
    n.attribute("q_num_heads", std::int64_t{2}).attribute("kv_num_heads", std::int64_t{2});
  };
  const auto circular = [](NodeUnderTest& n) { n.attribute("mode", std::string("circular")); };
  const Input starts = of(BP_INT64, {2});
  std::vector<Case> cases{
      {"TensorScatter", 24, {{{2, 3, 9, 8}}, {{2, 3, 2, 8}}, starts}, {BP_FLOAT16, BP_INT8}},
      {"TensorScatter", 24, {{{2, 3, 9, 8}}, {{2, 3, 2, 8}}}, {BP_FLOAT}, circular},
      {"DeformConv", 22, {{{1, 4, 7, 7}}, {{6, 4, 3, 3}}, {{1, 18, 5, 5}}}},
      {"DeformConv",
       22,
       {{{9, 4, 70, 70}}, {{6, 4, 3, 3}}, {{9, 18, 68, 68}}, {{6}}, {{9, 9, 68, 68}}}}};
  for (const std::int64_t keys : {64, 200}) {
    const Dims all{2, 3, 2 * keys}, of_heads{2, 3, 2}, state{2, 2, keys, keys};
    cases.push_back({"LinearAttention",
                     27,
                     {{all}, {all}, {all}, {state}, {of_heads}, {of_heads}},
                     {BP_FLOAT, BP_FLOAT16, BP_BFLOAT16},
                     heads,
                     2});
    cases.push_back({"LinearAttention",
                     27,
                     {{all}, {all}, {all}, of(BP_FLOAT, state), {all}, {{2, 3, 1}}},
                     {BP_FLOAT16},
                     heads,
                     2});
  }
  return cases;
}

/// Rows that items share: along and across, short and long, held and not, divided among groups.
std::vector<Case> row_cases() {
  const auto axis = [](std::int64_t number) {
    return [number](auto& n) { n.attribute("axis", number); };
  };
  std::vector<Case> cases;
  for (const Dims& dims : {Dims{4096, 768}, Dims{3, 100003}, Dims{1, 1 << 20}, Dims{300, 30000}}) {
    const Dims row{dims.back()};
    for (const char* const op_type : {"Softmax", "LogSoftmax"})
      cases.push_back({op_type, 13, {{dims}}});
    cases.push_back({"LayerNormalization",
                     17,
                     {{dims}, {row}, {row}},
                     {BP_FLOAT, BP_FLOAT16},
                     [](auto&) {},
                     3});
    cases.push_back({"ReduceMean", 18, {{dims}, known({1})}});
    cases.push_back({"ReduceLogSumExp", 18, {{dims}, known({1})}});
    cases.push_back({"ReduceMax", 18, {{dims}, known({1})}, {BP_INT8, BP_UINT64, BP_FLOAT16}});
    cases.push_back({"ArgMax", 13, {{dims}}, {BP_FLOAT, BP_INT64, BP_BFLOAT16}, axis(1)});
  }
  for (const Dims& dims : {Dims{300, 512}, Dims{1, 100003}, Dims{2, 65536}}) {
    cases.push_back({"CumSum", 14, {{dims}, known({1})}, {BP_FLOAT, BP_FLOAT16, BP_INT64}});
    cases.push_back({"CumProd", 26, {{dims}, known({1})}, {BP_DOUBLE, BP_UINT8}, [](auto& n) {
                       n.attribute("reverse", std::int64_t{1});
                       n.attribute("exclusive", std::int64_t{1});
                     }});
    cases.push_back({"Hardmax", 13, {{dims}}, {BP_FLOAT, BP_BFLOAT16}});
    cases.push_back({"LpNormalization", 1, {{dims}}, {BP_FLOAT16, BP_DOUBLE}});
    for (const std::int64_t k : {5, 300})
      cases.push_back({"TopK",
                       11,
                       {{dims}, known({k})},
                       {BP_FLOAT, BP_FLOAT16, BP_INT8, BP_INT64, BP_DOUBLE, BP_UINT16},
                       [](auto&) {},
                       2});
  }
  for (const Dims& dims : {Dims{}, Dims{3, 70}, Dims{1, 100003}, Dims{2, 65536}, Dims{0}})
    cases.push_back({"DynamicQuantizeLinear", 11, {{dims}}, {BP_FLOAT}, [](auto&) {}, 3});
  cases.push_back({"CumSum", 14, {{{600, 70}}, known({0})}});
  cases.push_back({"TopK",
                   11,
                   {{{2, 9000, 3}}, known({20})},
                   {BP_BFLOAT16, BP_INT32},
                   [](auto& n) {
                     n.attribute("axis", std::int64_t{1});
                     n.attribute("largest", std::int64_t{0});
                   },
                   2});
  cases.push_back({"Softmax", 13, {{{2, 21, 5000}}}, {BP_FLOAT16}, axis(1)});
  cases.push_back({"Softmax", 13, {{{70000, 3}}}, {BP_DOUBLE}, axis(0)});
  cases.push_back({"ReduceSum", 13, {{{8, 64, 14, 14}}, known({0, 2, 3})}, {BP_FLOAT, BP_INT32}});
  cases.push_back({"ReduceSum", 13, {{{50000, 10}}, known({0})}, {BP_BFLOAT16}});
  cases.push_back({"InstanceNormalization", 6, {{{1, 4, 256, 256}}, {{4}}, {{4}}}, {BP_FLOAT16}});
  return cases;
}

class CudaNvrtc : public CudaTest {};

/// Those of three generations that this NVRTC knows; the last came with 12.8.
std::vector<std::string> generations(Compiler& nvrtc) {
  const std::vector<int> known = nvrtc.architectures();
  std::vector<std::string> names;
  for (const int each : {80, 90, 100}) {
    if (std::find(known.begin(), known.end(), each) != known.end())
      names.push_back(sdk::message("sm_", each));
    else
      std::printf("%s knows no sm_%d: nothing is compiled for it\n", nvrtc.version().c_str(), each);
  }
  EXPECT_GE(names.size(), 2u);
  return names;
}

/// Whether a kernel's code lets the next one begin and waits for those before it before it comes to memory, where the
/// architecture has that, and reads nothing as if it were constant but tables of its own: empty, or what is wrong.
std::string wrong_turn(const std::string& image, const std::string& architecture, bool has_memory) {
  const std::vector<Instruction> code = instructions_of(image);
  const auto first = [&](const auto& is) { return std::find_if(code.begin(), code.end(), is); };
  const auto begins = first([](const Instruction& each) { return each.lets_begin(); });
  const auto waits = first([](const Instruction& each) { return each.waits(); });
  const auto comes = first([](const Instruction& each) { return each.is_global(); });
  const auto leaves = first([](const Instruction& each) { return each.is_branch(); });
  const auto end = code.end();
  if ((comes == end) == has_memory || leaves == end)
    return "it does not come to its memory, or has no end";
  if (architecture == "sm_80")
    return begins == end && waits == end ? "" : "it waits, which the architecture does not";
  if (begins == end || waits == end) return "it does not wait";
  if (begins > waits || waits > comes || waits > leaves) return "something is done before it waits";
  const bool is_held = first([](const Instruction& each) { return each.is_read_only(); }) != end;
  return is_held && !has_tables(image) ? "something is read that is held for constant" : "";
}

/// Those of them that a text of that number is compiled for: sm_90, for which the most is looked at, and of the others
/// one or none, in turn. By the architecture differ the turns of the prelude, which every text has, and nothing else
/// between sm_90 and sm_100. With BACKPLANE_TEST_FULL all.
std::vector<std::string> generations_for(const std::vector<std::string>& all, std::size_t number) {
  if (std::getenv("BACKPLANE_TEST_FULL") != nullptr) return all;
  std::vector<std::string> some;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] == "sm_90" || number % 3 == i) some.push_back(all[i]);
  }
  return some;
}

/// What was compiled on the stand-in, for three generations; how many texts that are.
std::size_t compile_all() {
  const std::set<std::string> sources(compiled_sources().begin(), compiled_sources().end());
  const std::unique_ptr<Compiler> nvrtc = open_nvrtc();
  const std::vector<std::string> architectures = generations(*nvrtc);
  std::size_t number = 0;
  for (const std::string& source : sources) {
    if (source.find("wgmma") != std::string::npos) continue;  // of one generation: tiles_test.cpp
    const std::string kernel = source.substr(source.find("KERNEL run("));
    const bool has_memory = kernel.find("  AT") != std::string::npos;  // not the trials' neighbour
    for (const std::string& architecture : generations_for(architectures, number++)) {
      try {
        EXPECT_EQ(wrong_turn(nvrtc->compile(source, architecture), architecture, has_memory), "")
            << architecture << '\n'
            << kernel;
      } catch (const sdk::Error& error) {
        ADD_FAILURE() << error.what() << '\n' << kernel;
        break;
      }
    }
  }
  return sources.size();
}

// The first of all: to compile opens it, too, where the loader's own places have it.
TEST_F(CudaNvrtc, ItsOtherLibraryIsOpenedFromBesideIt) {
  int major = 0, minor = 0;
  nvrtcVersion(&major, &minor);
  const std::string name = sdk::message("libnvrtc-builtins.so.", major, '.', minor);
  const auto is_open = [&] {
    void* const found = ::dlopen(name.c_str(), RTLD_NOLOAD | RTLD_LAZY);
    return found != nullptr && ::dlclose(found) == 0;
  };
  EXPECT_FALSE(is_open());
  open_nvrtc();
  EXPECT_TRUE(is_open());
}

TEST_F(CudaNvrtc, CompilesWhatEveryOperatorFamilyAsksForForThreeGenerations) {
  const bool is_full = std::getenv("BACKPLANE_TEST_FULL") != nullptr;
  stand_in().libraries_compute = false;  // texts are what is looked at
  {
    const OpenDevice device = open();
    std::vector<Case> cases = moving_cases();
    for (Case& each : computing_cases()) cases.push_back(std::move(each));
    for (Case& each : row_cases()) cases.push_back(std::move(each));
    for (Case& each : sample_cases()) cases.push_back(std::move(each));
    for (Case& each : region_cases()) cases.push_back(std::move(each));
    for (Case& each : moved_cases()) cases.push_back(std::move(each));
    for (Case& each : private_cases()) cases.push_back(std::move(each));
    for (Case& each : made_row_cases()) cases.push_back(std::move(each));
    for (Case& each : cached_attention_cases()) cases.push_back(std::move(each));
    for (Case& each : block_weights_cases()) cases.push_back(std::move(each));
    for (Case& each : row_product_cases()) cases.push_back(std::move(each));
    for (Case& each : recurrent_cases()) cases.push_back(std::move(each));
    for (Case& each : einsum_cases()) cases.push_back(std::move(each));
    for (const Case& each : cases) {
      const std::size_t before = compiled_sources().size();
      for (const bp_dtype dtype : each.types) {
        try {
          prepare(device, each, dtype);
        } catch (const std::exception& error) {
          ADD_FAILURE() << each.op_type << " of type " << dtype << ": " << error.what();
        }
        if (!is_full && compiled_sources().size() > before) break;
      }
    }
  }
  EXPECT_GT(compile_all(), 40u);
}

TEST_F(CudaNvrtc, CompilesTheProductsOfIntegers) {
  {
    const OpenDevice device = open();
    for (const bool has_algorithms : {true, false}) {
      // Convolved, and as products of lines by a kernel.
      if (!has_algorithms) stand_in().proposals.clear();
      stand_in().plans = [has_algorithms](const Convolution&) { return has_algorithms; };
      for (const char* const op_type : {"QLinearMatMul", "QLinearConv"}) {
        const bool is_conv = std::string(op_type) == "QLinearConv";
        const Dims a = is_conv ? Dims{1, 2, 5, 5} : Dims{3, 5},
                   b = is_conv ? Dims{3, 2, 3, 3} : Dims{5, 7};
        std::vector<HostTensor> tensors;
        NodeUnderTest node("", op_type, 10);
        for (const Input& each :
             {of(BP_UINT8, a), of(BP_FLOAT, {}), of(BP_UINT8, {}), of(BP_UINT8, b),
              of(BP_FLOAT, {}), of(BP_UINT8, {}), of(BP_FLOAT, {}), of(BP_INT8, {})}) {
          node.input(each.dtype, each.dims);
          tensors.push_back(tensor_of(each, each.dtype));
        }
        node.outputs(1);
        const char* const name = is_conv ? "cuda:int8 conv" : "cuda:int8 matmul";
        KernelUnderTest kernel(kernel_named(device, name, op_type), device.raw(), node.raw());
        kernel.prepare(tensors, std::vector<bool>(tensors.size(), false), 1);
      }
    }
  }
  {
    const OpenDevice device = open();
    prepare(device, {"MatMul", 13, {{{3, 4}}, {{4, 5}}}}, BP_INT64, "cuda:matmul of integers");
    prepare(device, {"Gemm", 13, {{{3, 4}}, {{4, 5}}, {{5}}}}, BP_UINT32, "cuda:gemm of integers");
  }
  EXPECT_GE(compile_all(), 9u);
}

/// How often a word stands in a text.
std::size_t times(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    ++count;
  return count;
}

TEST_F(CudaNvrtc, CompilesConvolutionsOfFewChannelsForMatrixUnits) {
  struct Layer {
    std::int64_t window, stride, channels, filters;
    std::size_t products;  ///< of a warp's tiles, all steps; 0: they are not unrolled
    bool has_addend;
  };
  const std::unique_ptr<Compiler> nvrtc = open_nvrtc();
  const std::vector<std::string> architectures = generations(*nvrtc);
  std::size_t number = 0;
  for (const Layer& layer :
       {Layer{7, 2, 4, 64, 13 * 4 * 8, false}, Layer{3, 1, 3, 24, 3 * 2 * 8, true},
        Layer{4, 4, 4, 96, 4 * 2 * 8, false}, Layer{9, 1, 1, 8, 0, true}}) {
    for (const sdk::DataType type : {sdk::DataType::Float16, sdk::DataType::BFloat16}) {
      Convolution form;
      form.type = type;
      form.channels = layer.channels;
      form.filters = layer.filters;
      form.in = {512, 512, 1};
      form.kernel = {layer.window, layer.window, 1};
      form.stride = {layer.stride, layer.stride, 1};
      form.out = {512 / layer.stride, 512 / layer.stride, 1};
      form.pad_begin = {layer.window / 2, layer.window / 2, 0};
      form.has_bias = form.is_channels_last = true;
      form.has_relu = form.has_addend = layer.has_addend;
      const std::optional<FewChannels> how = FewChannels::of(form, stand_in_device());
      ASSERT_TRUE(how) << form.key();
      for (const std::string& architecture : generations_for(architectures, number++))
        EXPECT_FALSE(nvrtc->compile(how->source(), architecture).empty());
      const std::string text = nvrtc->compile(how->source(), "compute_90");
      const std::size_t products = times(text, "mma.sync");
      EXPECT_EQ(layer.products == 0 ? products > 0 : products == layer.products, true)
          << form.key() << ": " << products;
      EXPECT_EQ(times(text, ".local."), 0u) << form.key();
      EXPECT_EQ(times(text, "ld.global.v4") > 0, layer.channels == 4) << form.key();
      EXPECT_EQ(times(text, "st.global.v4"), how->slices == 4 ? 16u : 0u) << form.key();
      EXPECT_EQ(times(text, "st.global.v2"), how->slices == 2 ? 16u : 0u) << form.key();
    }
  }
}

TEST_F(CudaNvrtc, ACompilerReadsAheadOfAWaitWhatItHoldsForConstant) {
  const std::unique_ptr<Compiler> nvrtc = open_nvrtc();
  const auto wrong = [&](const char* word, const std::string& begin) {
    const std::string text =
        sdk::message("extern \"C\" __global__ void run(const float* ", word, " x, float* ", word,
                     " y) { ", begin, " y[threadIdx.x] = x[threadIdx.x]; }");
    return wrong_turn(nvrtc->compile(text, "sm_90"), "sm_90", true);
  };
  constexpr char kTurn[] =
      "asm volatile(\"griddepcontrol.launch_dependents;\"); "
      "asm volatile(\"griddepcontrol.wait;\" : : : \"memory\");";
  EXPECT_EQ(wrong("", kTurn), "");
  EXPECT_NE(wrong("__restrict__", kTurn), "");
  EXPECT_NE(wrong("", ""), "");
  EXPECT_NE(wrong("", sdk::message("y[9] = 1; ", kTurn)), "");
}

TEST_F(CudaNvrtc, CompilesTheCustomOperatorsKernel) {
  const std::unique_ptr<Compiler> nvrtc = open_nvrtc();
  std::vector<std::string> architectures = generations(*nvrtc);
  architectures.emplace_back("compute_90");
  for (const std::string& architecture : architectures)
    EXPECT_FALSE(nvrtc->compile(gated_silu::kCudaText, architecture).empty());
}

TEST_F(CudaNvrtc, AnErrorInAKernelShowsTheCompilersLog) {
  const std::unique_ptr<Compiler> nvrtc = open_nvrtc();
  EXPECT_EQ(nvrtc->version().rfind("NVRTC 1", 0), 0u);
  EXPECT_NE(nvrtc->version().find("--std=c++17"), std::string::npos)
      << "kernels on disk are those of these options";
  try {
    nvrtc->compile("extern \"C\" __global__ void run() { no_such_thing(); }", "sm_90");
    FAIL();
  } catch (const sdk::Error& error) {
    EXPECT_NE(std::string(error.what()).find("no_such_thing"), std::string::npos) << error.what();
  }
}

TEST_F(CudaNvrtc, PtxIsMadeForDevicesNewerThanTheCompiler) {
  const std::string text =
      open_nvrtc()->compile("extern \"C\" __global__ void run() {}", "compute_90");
  EXPECT_NE(text.find(".target sm_90"), std::string::npos);
}

}  // namespace
}  // namespace backplane::cuda
