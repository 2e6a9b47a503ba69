// Element-wise kernels move 16 bytes at a time: what NVRTC makes of them is looked at, which takes no device.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "plugins/cuda/engine/nvrtc.hpp"
#include "tests/cuda/node_on_device.hpp"

namespace backplane::cuda {
namespace {

struct Operand {
  bp_dtype type;
  Dims dims;
};

/// How often a word stands in a text.
std::size_t count_of(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    ++count;
  return count;
}

class CudaVectors : public CudaTest {
 protected:
  /// PTX of the one kernel that a node asks for.
  std::string ptx_of(
      const std::string& op_type, const std::vector<Operand>& operands,
      const std::function<void(NodeUnderTest&)>& attributes = [](NodeUnderTest&) {}, int since = 14,
      const char* domain = "", std::size_t outputs = 1) {
    const OpenDevice device = open();
    NodeUnderTest node(domain, op_type, since);
    std::vector<HostTensor> tensors;
    for (const Operand& operand : operands) {
      node.input(operand.type, operand.dims);
      HostTensor tensor{operand.type, operand.dims, {}};
      tensor.data.resize(static_cast<std::size_t>(tensor.size()) *
                         test_host::element_bytes(operand.type));
      tensors.push_back(std::move(tensor));
    }
    node.outputs(outputs);
    attributes(node);
    const std::size_t before = compiled_sources().size();
    KernelUnderTest kernel(device.kernel(op_type, domain), device.raw(), node.raw());
    kernel.prepare(tensors, std::vector<bool>(tensors.size(), false), outputs);
    EXPECT_EQ(compiled_sources().size(), before + 1);
    source_ = compiled_sources().back();
    return open_nvrtc()->compile(source_, "compute_90");
  }
  /// Of a tree of element-wise nodes: a sum of the first two operands, through Tanh, times the last one.
  std::string ptx_of_chain(const std::vector<Operand>& operands, bp_dtype out) {
    const auto chain = [&](NodeUnderTest& node) {
      node.attribute("statements", "  REAL t0 = v0 + v1;\n  REAL t1 = tanh_of(t0) * v" +
                                       std::to_string(operands.size() - 1) + ";\n");
      node.attribute("result", std::string("t1")).attribute("type", std::int64_t{out});
    };
    return ptx_of("FusedPointwise", operands, chain, 1, "backplane.cuda");
  }

  std::string source_;
};

const Dims kDims{64, 96}, kRow{96}, kColumn{64, 1};

TEST_F(CudaVectors, AChainOfHalvesReadsAndWrites16BytesAtATime) {
  for (const bp_dtype type : {BP_FLOAT16, BP_BFLOAT16}) {
    const std::string text = ptx_of_chain({{type, kDims}, {type, kDims}}, type);
    EXPECT_EQ(count_of(text, "ld.global.v4"), 2u) << source_ << text;
    EXPECT_EQ(count_of(text, "st.global.v4"), 1u) << text;
    EXPECT_EQ(count_of(text, ".local."), 0u) << text;
  }
}

TEST_F(CudaVectors, OperandsThatRepeatAreReadOnceOrAlongTheRow) {
  const std::string text =
      ptx_of_chain({{BP_FLOAT16, kDims}, {BP_FLOAT16, kRow}, {BP_FLOAT16, kColumn}}, BP_FLOAT16);
  EXPECT_EQ(count_of(text, "ld.global.v4"), 2u) << source_ << text;
  EXPECT_EQ(count_of(text, "st.global.v4"), 1u) << text;
  EXPECT_EQ(count_of(text, ".local."), 0u) << text;
}

TEST_F(CudaVectors, TheWidestOperandHas16BytesAndNarrowerOnesAsManyElements) {
  const std::string text =
      ptx_of_chain({{BP_FLOAT, kDims}, {BP_FLOAT16, kDims}, {BP_INT8, kDims}}, BP_FLOAT16);
  EXPECT_EQ(count_of(text, "ld.global.v4"), 1u) << source_ << text;
  EXPECT_EQ(count_of(text, "ld.global.v2"), 1u) << text;
  EXPECT_EQ(count_of(text, "st.global.v2"), 1u) << text;
  EXPECT_EQ(count_of(text, ".local."), 0u) << text;
}

TEST_F(CudaVectors, EveryTypeOfElementsIsMovedSo) {
  for (const bp_dtype type : {BP_FLOAT, BP_DOUBLE, BP_FLOAT16, BP_BFLOAT16, BP_INT8, BP_UINT8,
                              BP_INT16, BP_UINT16, BP_INT32, BP_UINT32, BP_INT64, BP_UINT64}) {
    const std::string text = ptx_of("Add", {{type, kDims}, {type, kDims}});
    EXPECT_EQ(count_of(text, "ld.global.v4"), 2u) << type << source_ << text;
    EXPECT_EQ(count_of(text, "st.global.v4"), 1u) << type << text;
    EXPECT_EQ(count_of(text, ".local."), 0u) << type << text;
  }
}

TEST_F(CudaVectors, CastsAndQuantizers) {
  const auto to = [](std::int64_t type) {
    return [type](NodeUnderTest& node) { node.attribute("to", type); };
  };
  for (const auto& [from, into] :
       {std::pair{BP_FLOAT, BP_FLOAT16}, {BP_FLOAT16, BP_FLOAT}, {BP_INT64, BP_BFLOAT16}}) {
    const std::string text = ptx_of("Cast", {{from, kDims}}, to(into), 13);
    EXPECT_EQ(count_of(text, "ld.global.v4") + count_of(text, "st.global.v4"), 1u) << source_;
    EXPECT_EQ(count_of(text, ".local."), 0u) << text;
  }
  const auto none = [](NodeUnderTest&) {};
  const std::string quantized =
      ptx_of("QuantizeLinear", {{BP_FLOAT, kDims}, {BP_FLOAT, {}}, {BP_INT8, {}}}, none, 13);
  EXPECT_EQ(count_of(quantized, "ld.global.v4"), 1u) << source_ << quantized;
  const std::string back =
      ptx_of("DequantizeLinear", {{BP_INT8, kDims}, {BP_FLOAT, {}}, {BP_INT8, {}}}, none, 13);
  EXPECT_EQ(count_of(back, "st.global.v4"), 1u) << source_ << back;
}

TEST_F(CudaVectors, OperandsThatAreJoined) {
  const auto axis = [](NodeUnderTest& node) { node.attribute("axis", std::int64_t{1}); };
  for (const bp_dtype type : {BP_FLOAT, BP_FLOAT16, BP_INT8, BP_INT64}) {
    const std::string text =
        ptx_of("Concat", {{type, {4, 16, 2}}, {type, {4, 48, 2}}, {type, {4, 8, 2}}}, axis, 13);
    EXPECT_EQ(count_of(text, "ld.global.v4"), 1u) << source_ << text;
    EXPECT_EQ(count_of(text, "st.global.v4"), 1u) << text;
  }
}

/// Of heads that are read from behind positions, by angles of these.
TEST_F(CudaVectors, HalvesThatAreTurned) {
  const auto turned = [](NodeUnderTest& node) {
    node.attribute("perm", Dims{0, 2, 1, 3}).attribute("type", std::int64_t{BP_FLOAT16});
  };
  for (const bp_dtype angles : {BP_FLOAT16, BP_FLOAT}) {
    const std::string text =
        ptx_of("FusedRotation",
               {{BP_FLOAT16, {2, 5, 3, 64}}, {angles, {2, 1, 5, 64}}, {BP_FLOAT16, {5, 64}}},
               turned, 1, "backplane.cuda");
    const bool is_narrow = angles == BP_FLOAT16;
    EXPECT_EQ(count_of(text, "ld.global.v4"), is_narrow ? 6u : 2u) << source_ << text;
    EXPECT_EQ(count_of(text, "st.global.v4"), is_narrow ? 2u : 0u) << text;
    EXPECT_EQ(count_of(text, "ld.global.v2"), is_narrow ? 0u : 4u) << text;
    EXPECT_EQ(count_of(text, ".local."), 0u) << text;
  }
}

TEST_F(CudaVectors, PoolsOfChannelsThatComeLast) {
  const auto window = [](NodeUnderTest& node) {
    node.attribute("kernel_shape", Dims{3, 3}).attribute("channels_last", std::int64_t{1});
  };
  for (const char* const op_type : {"MaxPool", "AveragePool"}) {
    for (const auto& [type, channels] :
         {std::pair{BP_FLOAT16, 64}, {BP_BFLOAT16, 8}, {BP_FLOAT, 4}}) {
      const std::string text =
          ptx_of(op_type, {{type, {2, 9, 9, channels}}}, window, 1, "backplane.cuda");
      EXPECT_GE(count_of(text, "ld.global.v4"), 1u) << source_ << text;
      EXPECT_EQ(count_of(text, "st.global.v4"), 1u) << text;
      EXPECT_EQ(count_of(text, ".local."), 0u) << text;
    }
  }
}

TEST_F(CudaVectors, ARowByAMatrixAsksForManyWordsAtOnce) {
  for (const bp_dtype type : {BP_FLOAT16, BP_BFLOAT16, BP_FLOAT}) {
    for (const bool is_apart : {false, true}) {
      const OpenDevice device = open({{"tuning", "off"}});
      NodeUnderTest node("", "Gemm", 13);
      const Dims a{1, 4096}, b = is_apart ? Dims{256, 4096} : Dims{4096, 256};
      std::vector<HostTensor> tensors;
      for (const Dims& dims : {a, b}) {
        node.input(type, dims);
        tensors.push_back({type, dims, {}});
        tensors.back().data.resize(static_cast<std::size_t>(backplane::cuda::count_of(dims)) *
                                   test_host::element_bytes(type));
      }
      node.attribute("transB", std::int64_t{is_apart}).outputs(1);
      const std::size_t before = compiled_sources().size();
      KernelUnderTest kernel(device.kernel("Gemm"), device.raw(), node.raw());
      kernel.prepare(tensors, {false, true}, 1);
      ASSERT_EQ(compiled_sources().size(), before + 1);
      const std::string text = open_nvrtc()->compile(compiled_sources().back(), "compute_90");
      // With a question for each, of which the last one's answer is known, and without.
      EXPECT_GE(count_of(text, "ld.global.v4"), 7u + 8u) << text;
      EXPECT_EQ(count_of(text, ".local."), 0u) << text;
      EXPECT_EQ(count_of(text, ".minnctapersm"), 1u) << text;
    }
  }
}

TEST_F(CudaVectors, AStepOfALayerReadsTheLinesOfItsGates16BytesAtATime) {
  for (const bp_dtype type : {BP_FLOAT, BP_FLOAT16, BP_BFLOAT16}) {
    for (const std::int64_t batch : {1, 8}) {
      constexpr std::int64_t kInputs = 8, kHidden = 256, kRows = 4 * kHidden;
      const OpenDevice device = open({{"tuning", "off"}});
      NodeUnderTest node("", "LSTM", 14);
      std::vector<HostTensor> tensors;
      for (const Dims& dims :
           {Dims{3, batch, kInputs}, Dims{1, kRows, kInputs}, Dims{1, kRows, kHidden}}) {
        node.input(type, dims);
        tensors.push_back({type, dims, {}});
        tensors.back().data.resize(static_cast<std::size_t>(backplane::cuda::count_of(dims)) *
                                   test_host::element_bytes(type));
      }
      node.outputs(1);
      KernelUnderTest kernel(device.kernel("LSTM"), device.raw(), node.raw());
      kernel.prepare(tensors, {false, true, true}, 1);
      const std::string text = open_nvrtc()->compile(compiled_sources().back(), "compute_90");
      // Of four gates, and of the states that meet them.
      const std::size_t states = type == BP_FLOAT ? 1 : 2;
      EXPECT_GE(count_of(text, "ld.global.v4"), 4u + states * static_cast<std::size_t>(batch))
          << text;
      EXPECT_EQ(count_of(text, ".local."), 0u) << text;
    }
  }
}

TEST_F(CudaVectors, RowsOfOddLengthAreDoneOneByOne) {
  const std::string text =
      ptx_of_chain({{BP_FLOAT16, {64, 95}}, {BP_FLOAT16, {95}}, {BP_FLOAT, {64, 1}}}, BP_FLOAT16);
  EXPECT_EQ(count_of(text, "ld.global.v"), 0u) << source_;
}

/// Four channels of a point, whose reads do not wait for each other: all taps have places of their own.
TEST_F(CudaVectors, SamplesOfAPointAreInRegisters) {
  for (const auto& [mode, taps] : {std::pair{"linear", 4u}, {"cubic", 16u}}) {
    const auto attributes = [name = mode](NodeUnderTest& node) {
      node.attribute("mode", std::string(name)).attribute("padding_mode", std::string("border"));
    };
    const std::string text = ptx_of(
        "GridSample", {{BP_FLOAT, {64, 4, 20, 20}}, {BP_FLOAT, {64, 40, 40, 2}}}, attributes, 20);
    EXPECT_EQ(count_of(text, "ld.global.f32"), 2 + 4 * taps) << source_ << text;
    EXPECT_EQ(count_of(text, "st.global.f32"), 4u) << text;
    EXPECT_EQ(count_of(text, ".local."), 0u) << text;
  }
}

/// Beside the state nothing of the loop over tokens is kept from one key to the next.
TEST_F(CudaVectors, AColumnOfAStateIsInRegisters) {
  const Dims heads{1, 1, 256}, gates{1, 1, 2}, state{1, 2, 128, 128};
  const auto attributes = [](NodeUnderTest& node) {
    node.attribute("q_num_heads", std::int64_t{2}).attribute("kv_num_heads", std::int64_t{2});
  };
  const std::string text = ptx_of("LinearAttention",
                                  {{BP_FLOAT16, heads},
                                   {BP_FLOAT16, heads},
                                   {BP_FLOAT16, heads},
                                   {BP_FLOAT, state},
                                   {BP_FLOAT16, gates},
                                   {BP_FLOAT16, gates}},
                                  attributes, 27, "", 2);
  EXPECT_EQ(count_of(text, "ld.global.f32"), 128u) << source_ << text;
  EXPECT_EQ(count_of(text, "st.global.f32"), 128u) << text;
  EXPECT_EQ(count_of(text, ".local."), 0u) << text;
}

}  // namespace
}  // namespace backplane::cuda
