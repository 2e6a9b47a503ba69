// MoE, QMoE: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
//
// All experts see all tokens, and those that a token was not sent to weigh nothing: products of a batch of experts, which
// every provider has, and no size that depends on data.
#include "core/onnx/function_operator.hpp"
#include "core/onnx/quantized_body.hpp"

namespace backplane::core {
namespace {

using Name = BodyWriter::Name;

/// One of the projections: where its inputs are. 0: it has none.
struct Projection {
  const char* name;
  std::size_t weights, bias, scales, zeros;
  std::int64_t bits;  ///< of a weight; 0: not quantized
};

class Mixture {
 public:
  explicit Mixture(BodyWriter& body) : body_(body), type_(body.type(0)) {
    activation_ = body.string_of("activation_type", "relu");
    fusion_ = body.int_of("swiglu_fusion");
    if (fusion_ < 0 || fusion_ > 2) invalid("swiglu_fusion is ", fusion_, "; it is 0, 1 or 2");
  }

  void write(const Projection& first, const Projection& second, const Projection& third,
             std::size_t router_weights) {
    hidden_ = body_.needed_dim(second.weights, 1, "the width of its tokens");
    inner_ = body_.needed_dim(second.weights, 2, "the width of its experts") * packed(second);
    experts_ = body_.needed_dim(second.weights, 0, "how many experts there are");
    const bool has_third = body_.has_input(third.weights);
    const bool is_fused = activation_ == "swiglu" && fusion_ != 0;
    if (activation_ == "swiglu" && !is_fused && !has_third)
      invalid("its activation swiglu has neither swiglu_fusion nor fc3_experts_weights");
    if (is_fused && has_third) invalid("it has fc3_experts_weights beside swiglu_fusion");
    const Name tokens = body_.reshape(body_.in(0), {1, -1, hidden_});
    const Name made = projected(tokens, first, is_fused ? 2 * inner_ : inner_, hidden_);
    Name active;
    if (is_fused) {
      active = gated_halves(made);
    } else if (has_third) {
      const Name linear = projected(tokens, third, inner_, hidden_);
      active = activation_ == "swiglu" ? gated(made, linear) : body_.mul(activated(made), linear);
    } else {
      active = activated(made);
    }
    const Name results = projected(active, second, hidden_, inner_);  // [experts, tokens, hidden]
    const Name shares = body_.unsqueeze(body_.transpose(routes(router_weights), {1, 0}), {-1});
    const Name sum =
        body_.op("ReduceSum", {body_.mul(results, shares), body_.ints({0})}, {{"keepdims", 0}});
    body_.output(0, body_.reshape_as(sum, 0));
  }

 private:
  static std::int64_t packed(const Projection& one) {
    return one.bits == 0 ? 1 : kByteBits / one.bits;
  }

  /// How much of each expert a token gets, [tokens, experts].
  Name routes(std::size_t router_weights) {
    const std::int64_t k = body_.int_of("k", 1);
    if (k < 1 || k > experts_) invalid("k is ", k, ", and it has ", experts_, " experts");
    if (body_.int_of("use_sparse_mixer") != 0)
      body_.refuse(
          "use_sparse_mixer is 1, which ONNX Runtime has for GPUs alone; write the routing as "
          "nodes and leave it 0");
    const Name scores = as_float(body_.in(1));
    const Name all = body_.op("Softmax", {scores}, {{"axis", -1}});
    const auto best = body_.ops("TopK", {all, body_.ints({k})}, {true, true}, {{"axis", -1}});
    Name shares = best[0];
    if (router_weights != 0 && body_.has_input(router_weights))
      shares =
          body_.op("GatherElements", {as_float(body_.in(router_weights)), best[1]}, {{"axis", -1}});
    if (body_.int_of("normalize_routing_weights") != 0)
      shares = body_.op("Div", {shares, body_.op("ReduceSum", {shares, body_.ints({-1})})});
    const Name none =
        body_.op("Expand", {body_.scalar(DataType::Float, 0), body_.op("Shape", {scores})});
    const Name whole = body_.op("ScatterElements", {none, best[1], shares}, {{"axis", -1}});
    return type_ == DataType::Float ? whole : body_.cast(whole, type_);
  }

  Name as_float(const Name& value) {
    return type_ == DataType::Float ? value : body_.cast(value, DataType::Float);
  }

  /// [experts or 1, tokens, depth] through the experts' weights: [experts, tokens, columns].
  Name projected(const Name& rows, const Projection& one, std::int64_t columns,
                 std::int64_t depth) {
    const Name weights = one.bits == 0 ? body_.in(one.weights) : real(one, columns, depth);
    Name product = body_.op("MatMul", {rows, body_.transpose(weights, {0, 2, 1})});
    if (!body_.has_input(one.bias)) return product;
    return body_.add(product, body_.unsqueeze(body_.in(one.bias), {1}));
  }

  /// Quantized weights as [experts, columns, depth].
  Name real(const Projection& one, std::int64_t columns, std::int64_t depth) {
    if (!body_.has_input(one.scales)) invalid("its input ", one.name, "_scales is left out");
    const std::int64_t block = body_.int_of("block_size", 0);
    if (block > 0 && depth % block != 0)
      invalid("block_size is ", block, ", which does not divide the ", depth, " of ", one.name);
    const std::int64_t blocks = block > 0 ? depth / block : 1;
    const Name numbers = body_.cast(body_.reshape(unpacked(body_, body_.in(one.weights), one.bits),
                                                  {experts_, columns, blocks, depth / blocks}),
                                    DataType::Float);
    const Name scales = body_.reshape(body_.cast(body_.in(one.scales), DataType::Float),
                                      {experts_, columns, blocks, 1});
    Name zeros = body_.scalar(DataType::Float, static_cast<double>(1 << (one.bits - 1)));
    if (body_.has_input(one.zeros)) zeros = zero_points(one, columns, blocks, block > 0);
    const Name exact = body_.reshape(body_.mul(body_.op("Sub", {numbers, zeros}), scales),
                                     {experts_, columns, depth});
    return type_ == DataType::Float ? exact : body_.cast(exact, type_);
  }

  /// float [experts, columns, blocks, 1]. They are packed along the blocks, or along the columns where there are none.
  Name zero_points(const Projection& one, std::int64_t columns, std::int64_t blocks,
                   bool is_blocked) {
    const std::int64_t lines = is_blocked ? columns : 1, count = is_blocked ? blocks : columns;
    const std::int64_t each = packed(one), bytes = (count + each - 1) / each;
    Name numbers = body_.reshape(
        unpacked(body_, body_.reshape(body_.in(one.zeros), {experts_, lines, bytes}), one.bits),
        {experts_, lines, bytes * each});
    if (bytes * each != count) numbers = body_.slice(numbers, 2, 0, count);
    return body_.cast(body_.reshape(numbers, {experts_, columns, blocks, 1}), DataType::Float);
  }

  Name activated(const Name& value) {
    if (activation_ == "relu") return body_.op("Relu", {value});
    if (activation_ == "gelu") return body_.op("Gelu", {value}, {{"approximate", "tanh"}});
    if (activation_ == "silu") return body_.mul(value, body_.op("Sigmoid", {value}));
    if (activation_ == "identity") return value;
    body_.refuse("its activation_type ", activation_,
                 " is not known; relu, gelu, silu, swiglu and identity are");
  }

  /// gate * Sigmoid(alpha * gate) * (linear + beta), both kept within the limit.
  Name gated(Name gate, Name linear) {
    if (body_.has_attribute("swiglu_limit")) {
      const float limit = body_.float_of("swiglu_limit");
      const Name most = body_.scalar(type_, limit);
      gate = body_.op("Min", {gate, most});
      linear = body_.op("Clip", {linear, body_.scalar(type_, -limit), most});
    }
    const float alpha = body_.float_of("activation_alpha", 1);
    const float beta = body_.float_of("activation_beta", 0);
    const Name bent = alpha == 1 ? gate : body_.mul(gate, body_.scalar(type_, alpha));
    const Name moved = beta == 0 ? linear : body_.add(linear, body_.scalar(type_, beta));
    return body_.mul(body_.mul(gate, body_.op("Sigmoid", {bent})), moved);
  }

  /// [experts, tokens, 2 * inner] whose gates and others alternate, or lie one after another.
  Name gated_halves(const Name& made) {
    const bool is_interleaved = fusion_ == 1;
    const std::vector<std::int64_t> sizes = is_interleaved
                                                ? std::vector<std::int64_t>{0, 0, inner_, 2}
                                                : std::vector<std::int64_t>{0, 0, 2, inner_};
    const int axis = is_interleaved ? 3 : 2;
    const auto halves = body_.ops("Split", {body_.reshape(made, sizes)}, {true, true},
                                  {{"axis", axis}, {"num_outputs", 2}});
    const Name gate = body_.op("Squeeze", {halves[0], body_.ints({axis})});
    const Name linear = body_.op("Squeeze", {halves[1], body_.ints({axis})});
    return gated(gate, linear);
  }

  BodyWriter& body_;
  DataType type_;
  std::string activation_;
  std::int64_t fusion_ = 0;
  std::int64_t hidden_ = 0, inner_ = 0, experts_ = 0;
};

void write_moe(BodyWriter& body) {
  Mixture(body).write({"fc1", 2, 3, 0, 0, 0}, {"fc2", 4, 5, 0, 0, 0}, {"fc3", 6, 7, 0, 0, 0}, 0);
}

void write_qmoe(BodyWriter& body) {
  const std::string kind = body.string_of("quant_type", "int");
  if (kind != "int")
    body.refuse("quant_type is ", kind,
                "; int is supported: quantize the experts to 4 or 8 bits as integers");
  if (body.int_of("weights_prepacked", -1) > 0)
    body.refuse(
        "weights_prepacked is ", body.int_of("weights_prepacked"),
        ": its weights are laid out for one kind of processor; export the model without it");
  const auto bits = [&](const char* own) {
    const std::int64_t found = body.int_of(own, body.int_of("expert_weight_bits", 4));
    if (found != 2 && found != 4 && found != kByteBits)
      body.refuse(own, " is ", found, "; 2, 4 and 8 are supported");
    return found;
  };
  constexpr std::size_t kRouterWeights = 14;
  Mixture(body).write({"fc1", 2, 4, 3, 11, bits("fc1_expert_weight_bits")},
                      {"fc2", 5, 7, 6, 12, bits("fc2_expert_weight_bits")},
                      {"fc3", 8, 10, 9, 13, bits("fc3_expert_weight_bits")}, kRouterWeights);
}

OperatorDraft& routed(OperatorDraft& draft) {
  return draft.int_or("k", 1)
      .string_or("activation_type", "relu")
      .int_or("normalize_routing_weights", 0)
      .int_or("use_sparse_mixer", 0)
      .float_or("activation_alpha", 1)
      .float_or("activation_beta", 0)
      .int_or("swiglu_fusion", 0)
      .optional_float("swiglu_limit")
      .types("T", {"float", "float16", "bfloat16"})
      .keeps_shape();
}

FunctionOperator qmoe() {
  OperatorDraft draft("QMoE", write_qmoe);
  draft.input("input").input("router_probs");
  draft.input("fc1_experts_weights", "T1").optional_input("fc1_scales", "T2");
  draft.optional_input("fc1_experts_bias");
  draft.input("fc2_experts_weights", "T1").optional_input("fc2_scales", "T2");
  draft.optional_input("fc2_experts_bias");
  draft.optional_input("fc3_experts_weights", "T1").optional_input("fc3_scales", "T2");
  draft.optional_input("fc3_experts_bias");
  for (const char* name : {"fc1_zero_points", "fc2_zero_points", "fc3_zero_points"})
    draft.optional_input(name, "T1");
  draft.optional_input("router_weights");
  for (const char* name :
       {"fc1_global_scale", "fc2_global_scale", "fc1_act_scale", "fc2_act_scale"})
    draft.optional_input(name, "T4");
  for (const char* name : {"fc1_act_block_scale", "fc2_act_block_scale"})
    draft.optional_input(name, "T2");
  return routed(draft.output("output"))
      .int_or("expert_weight_bits", 4)
      .optional_int("fc1_expert_weight_bits")
      .optional_int("fc2_expert_weight_bits")
      .optional_int("fc3_expert_weight_bits")
      .optional_int("block_size")
      .int_or("accuracy_level", 0)
      .int_or("weights_prepacked", -1)
      .string_or("quant_type", "int")
      .types("T1", {"uint8", "float8e4m3fn"})
      .types("T2", {"float", "float16", "bfloat16", "float8e8m0", "float8e4m3fn"})
      .types("T4", {"float"})
      .done();
}

}  // namespace

OperatorList mixture_of_experts_operators() {
  OperatorList list;
  OperatorDraft draft("MoE", write_moe);
  draft.input("input").input("router_probs");
  draft.input("fc1_experts_weights").optional_input("fc1_experts_bias");
  draft.input("fc2_experts_weights").optional_input("fc2_experts_bias");
  draft.optional_input("fc3_experts_weights").optional_input("fc3_experts_bias");
  list.push_back(routed(draft.output("output")).done());
  list.push_back(qmoe());
  return list;
}

}  // namespace backplane::core
