// com.microsoft::MoE, QMoE: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
//
// Constant weights are packed once; those of 4 and 8 bits stay so. Tokens are gathered by expert, so that each expert that has any
// is read once, and one that has none not at all. What is not handled is the operator's body.
#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "plugins/cpu/dense/matmul_f32.hpp"
#include "plugins/cpu/dense/product_nbits.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/softmax_f32.hpp"
#include "plugins/cpu/kernels/unary_f32.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

constexpr std::int64_t kMostRows = 256;  // of an expert at a time

/// QMoE: the weights of one projection of all experts: inputs `weights`, and after it scales and bias.
class NBitsExperts {
 public:
  using Shape = NBitsShape;  // columns and depth of an expert's matrix
  using Product = NBitsProduct;
  static constexpr const char* kOperator = "QMoE";
  static constexpr std::uint32_t kFirst = 2, kSecond = 5, kThird = 8;

  static NBitsExperts first(const sdk::Node& node, Isa isa) {
    constexpr std::uint32_t kZeros = 11;
    return {node, kFirst, kZeros, "fc1_expert_weight_bits", isa};
  }
  static NBitsExperts second(const sdk::Node& node, Isa isa) {
    constexpr std::uint32_t kZeros = 12;
    return {node, kSecond, kZeros, "fc2_expert_weight_bits", isa};
  }
  static std::optional<NBitsExperts> third(const sdk::Node& node, Isa) {
    for (std::uint32_t input = kThird; input < kThird + 3; ++input) {
      if (node.input(input)) sdk::unsupported("QMoE: input ", input, " (of fc3) is given");
    }
    return std::nullopt;
  }

  NBitsExperts(const sdk::Node& node, std::uint32_t weights, std::uint32_t zeros,
               const char* own_bits, Isa isa)
      : weights_(weights),
        zeros_(zeros),
        bits_(static_cast<int>(node.get_int(own_bits, node.get_int("expert_weight_bits", 4)))),
        block_(node.get_int("block_size", 0)),
        has_zeros_(static_cast<bool>(node.input(zeros))),
        isa_(isa),
        rounds_(node.get_int("accuracy_level", 0) == 4) {
    if (bits_ != 4 && bits_ != 8) sdk::unsupported("QMoE: weights of ", bits_, " bits");
    if (block_ > 0 && block_ % 16 != 0) sdk::unsupported("QMoE: blocks of ", block_);
    for (const std::uint32_t input : {weights, weights + 1}) {
      if (!node.input(input) || !node.input(input).is_constant())
        sdk::unsupported("QMoE: input ", input, " is no constant");
    }
    if (has_zeros_ && !node.input(zeros).is_constant())
      sdk::unsupported("QMoE: input ", zeros, " is no constant");
  }

  std::uint32_t bias_input() const { return weights_ + 2; }

  NBitsShape shape_of(const sdk::Tensor& weights) const {
    if (weights.rank() != 3)
      sdk::invalid("QMoE: weights have dims ", sdk::to_string(weights.dims()), ", 3 are needed");
    const std::int64_t depth = weights.dim(2) * 8 / bits_;
    if (block_ > 0 && depth % block_ != 0)
      sdk::invalid("QMoE: block_size ", block_, " does not divide the ", depth, " of weights ",
                   sdk::to_string(weights.dims()));
    return {bits_, depth, weights.dim(1), block_ > 0 ? block_ : depth,
            has_zeros_ ? NBitsShape::kBytes : NBitsShape::kMiddle};
  }

  NBitsProduct product(std::int64_t rows, const NBitsShape& shape, unsigned threads) const {
    return {rows, shape, Activation{}, isa_, threads, rounds_};
  }
  std::uint64_t expert_bytes(const NBitsShape& shape) const {
    return align64(product(1, shape, 1).packed_bytes());
  }
  static std::uint64_t workspace_bytes(const NBitsProduct& product) {
    return product.workspace_bytes();
  }
  static void run(const NBitsProduct& product, const NBitsShape&, const NBitsArgs& args,
                  void* workspace, const sdk::Threads& threads) {
    product.run(args, workspace, threads);
  }

  std::uint32_t request(sdk::PrepareContext& ctx) const {
    const sdk::Tensor weights = ctx.input(weights_), scales = ctx.input(weights_ + 1);
    const NBitsShape shape = shape_of(weights);
    const std::int64_t experts = weights.dim(0), blocks = shape.depth / shape.block;
    check_size("scales", scales, experts * shape.columns * blocks);
    if (has_zeros_) {
      const std::int64_t lines = block_ > 0 ? shape.columns : 1;
      const std::int64_t count = block_ > 0 ? blocks : shape.columns;
      check_size("zero points", ctx.input(zeros_), experts * lines * zero_bytes(count));
    }
    const std::string key =
        sdk::message("experts isa ", static_cast<int>(isa_), " ", product(1, shape, 1).variant(),
                     " bits ", bits_, " block ", block_, " zeros ", has_zeros_, " dims ",
                     sdk::to_string(weights.dims()), " ", sdk::type_name(scales.type()));
    const std::uint64_t bytes = static_cast<std::uint64_t>(experts) * expert_bytes(shape);
    if (has_zeros_) return ctx.request_pack(key, {weights_, weights_ + 1, zeros_}, bytes, this);
    return ctx.request_pack(key, {weights_, weights_ + 1}, bytes, this);
  }

  void pack(const sdk::PackContext& ctx) const {
    const sdk::Tensor weights = ctx.source(0), scales = ctx.source(1);
    const NBitsShape shape = shape_of(weights);
    const NBitsProduct made = product(1, shape, 1);
    const std::int64_t blocks = shape.depth / shape.block;
    const std::int64_t scale_bytes = shape.columns * blocks * sdk::element_bytes(scales.type());
    NBitsSource source;
    source.depth_step = 1;
    source.column_step = shape.depth;
    source.scale_type = scales.type();
    source.scale_block_step = block_ > 0 ? 1 : 0;
    source.scale_column_step = blocks;
    const std::int64_t line = zero_bytes(block_ > 0 ? blocks : shape.columns);
    source.zero_block_step = block_ > 0 ? 1 : 0;
    source.zero_column_step = block_ > 0 ? line * 8 / bits_ : 1;
    const std::int64_t expert_zeros = line * (block_ > 0 ? shape.columns : 1);
    for (std::int64_t expert = 0; expert < weights.dim(0); ++expert) {
      source.values = static_cast<const std::uint8_t*>(weights.bytes_data()) +
                      expert * shape.columns * weights.dim(2);
      source.scales = static_cast<const char*>(scales.bytes_data()) + expert * scale_bytes;
      if (has_zeros_)
        source.zeros =
            static_cast<const std::uint8_t*>(ctx.source(2).bytes_data()) + expert * expert_zeros;
      made.pack(source,
                ctx.target().mutable_data<char>() +
                    static_cast<std::uint64_t>(expert) * expert_bytes(shape),
                ctx.threads());
    }
  }

 private:
  std::int64_t zero_bytes(std::int64_t count) const { return (count * bits_ + 7) / 8; }
  static void check_size(const char* what, const sdk::Tensor& tensor, std::int64_t size) {
    if (tensor.size() != size)
      sdk::invalid("QMoE: ", what, " have dims ", sdk::to_string(tensor.dims()), ", expected ",
                   size, " elements");
  }

  std::uint32_t weights_, zeros_;
  int bits_;
  std::int64_t block_;
  bool has_zeros_;
  Isa isa_;
  bool rounds_;
};

/// MoE: the weights of one projection of all experts, and after them their bias.
class FloatExperts {
 public:
  struct Shape {
    std::int64_t depth = 0, columns = 0;
  };
  using Product = MatMulF32;
  static constexpr const char* kOperator = "MoE";
  static constexpr std::uint32_t kFirst = 2, kSecond = 4, kThird = 6;

  static FloatExperts first(const sdk::Node& node, Isa isa) { return {node, kFirst, isa}; }
  static FloatExperts second(const sdk::Node& node, Isa isa) { return {node, kSecond, isa}; }
  static std::optional<FloatExperts> third(const sdk::Node& node, Isa isa) {
    if (!node.input(kThird)) return std::nullopt;
    return FloatExperts(node, kThird, isa);
  }

  FloatExperts(const sdk::Node& node, std::uint32_t weights, Isa isa)
      : weights_(weights), isa_(isa) {
    if (!node.input(weights) || !node.input(weights).is_constant())
      sdk::unsupported("MoE: input ", weights, " is no constant");
  }

  std::uint32_t bias_input() const { return weights_ + 1; }

  static Shape shape_of(const sdk::Tensor& weights) {
    if (weights.rank() != 3)
      sdk::invalid("MoE: weights have dims ", sdk::to_string(weights.dims()), ", 3 are needed");
    return {weights.dim(2), weights.dim(1)};
  }

  MatMulF32 product(std::int64_t rows, const Shape& shape, unsigned threads) const {
    MatMulShape all;
    all.rows = rows;
    all.depth = shape.depth;
    all.columns = shape.columns;
    all.b_transposed = true;
    return {all, true, Activation{}, isa_, threads};
  }
  std::uint64_t expert_bytes(const Shape& shape) const {
    return align64(product(1, shape, 1).packed_bytes());
  }
  static std::uint64_t workspace_bytes(const MatMulF32& product) {
    return product.workspace_bytes(true);
  }
  static void run(const MatMulF32& product, const Shape& shape, const NBitsArgs& args,
                  void* workspace, const sdk::Threads& threads) {
    const std::int64_t first = 0;
    MatMulArgs all;
    all.a = args.a;
    all.a_stride = shape.depth;
    all.a_offsets = &first;
    all.packed = args.packed;
    all.bias = args.bias;
    all.y = args.y;
    product.run(all, workspace, threads);
  }

  std::uint32_t request(sdk::PrepareContext& ctx) const {
    const sdk::Tensor weights = ctx.input(weights_);
    const std::string key = sdk::message("experts float isa ", static_cast<int>(isa_), " dims ",
                                         sdk::to_string(weights.dims()));
    const std::uint64_t bytes =
        static_cast<std::uint64_t>(weights.dim(0)) * expert_bytes(shape_of(weights));
    ctx.ignore_input(weights_);
    return ctx.request_pack(key, {weights_}, bytes, this);
  }

  void pack(const sdk::PackContext& ctx) const {
    const sdk::Tensor weights = ctx.source(0);
    const Shape shape = shape_of(weights);
    const MatMulF32 made = product(1, shape, 1);
    char* target = ctx.target().mutable_data<char>();
    for (std::int64_t expert = 0; expert < weights.dim(0); ++expert) {
      made.pack(weights.data<float>() + expert * shape.columns * shape.depth, 1.0F,
                target + static_cast<std::uint64_t>(expert) * expert_bytes(shape), ctx.threads());
    }
  }

 private:
  std::uint32_t weights_;
  Isa isa_;
};

/// A projection in a plan: a product for 1, 2, 4 ... rows, of which an expert takes the next one that is enough.
template <class Experts>
struct Projection {
  std::vector<typename Experts::Product> products;
  typename Experts::Shape shape;
  std::uint64_t expert_bytes = 0, workspace_bytes = 0;
  std::uint32_t packed = 0, bias = 0;

  void run(const sdk::ComputeContext& ctx, std::int64_t expert, std::int64_t rows, const float* a,
           float* y, void* workspace) const {
    NBitsArgs args;
    args.a = a;
    args.packed =
        ctx.packed(packed).data<char>() + static_cast<std::uint64_t>(expert) * expert_bytes;
    if (ctx.has_input(bias)) args.bias = ctx.input(bias).data<float>() + expert * shape.columns;
    args.y = y;
    const auto index = std::bit_width(static_cast<std::uint64_t>(rows - 1));
    Experts::run(products[static_cast<std::size_t>(index)], shape, args, workspace, ctx.threads());
  }
};

/// What a token's first products become.
struct ExpertActivation {
  UnaryF32 loop = nullptr;  // null: none
  UnaryParams params;
  int fusion =
      0;  // 1: gates and others alternate; 2: one after another; 0: there are no others, or they are apart
  float beta = 0, limit = 0;
  bool is_limited = false;

  /// `apart`: the row of the third projection, or null.
  void row(const float* x, const float* apart, std::int64_t inner, float* y) const {
    const std::int64_t step = fusion == 1 ? 2 : 1;
    for (std::int64_t i = 0; i < inner; ++i)
      y[i] = is_limited ? std::min(x[i * step], limit) : x[i * step];
    if (loop != nullptr) loop(y, y, inner, params);
    if (fusion == 0 && apart == nullptr) return;
    const float* linear = apart;
    if (apart == nullptr) linear = x + (fusion == 1 ? 1 : inner);
    for (std::int64_t i = 0; i < inner; ++i) {
      const float other = linear[i * step];
      y[i] *= (is_limited ? std::clamp(other, -limit, limit) : other) + beta;
    }
  }
};

template <class Experts>
class Mixture {
 public:
  static constexpr std::uint32_t kInput = 0, kRouter = 1, kShares = 14;  // no input of MoE

  struct Prepared {
    Projection<Experts> first, second;
    std::optional<Projection<Experts>> third;  // of what gates multiply, where it is apart
    ExpertActivation activation;
    const SoftmaxF32* softmax = nullptr;
    std::int64_t tokens = 0, experts = 0, k = 1, inner = 0, rows = 1;
    bool is_normalized = false;

    std::int64_t hidden() const { return second.shape.columns; }

    /// Parts of the workspace. `gathered` and what follows are rows of one expert, `rows` at most.
    struct Memory {
      float* probabilities;  // [tokens, experts]
      std::int32_t* order;   // [experts]: of a token, the greatest first
      std::int32_t* chosen;  // [tokens, k]
      float* shares;         // [tokens, k]
      std::int32_t* places;  // [rows]: of `chosen`
      float *gathered, *made, *apart, *active, *results;
      void* scratch;
    };

    /// Their sizes, of elements of 4 bytes, in their order.
    std::array<std::int64_t, 10> counts() const {
      return {tokens * experts,
              experts,
              tokens * k,
              tokens * k,
              rows,
              rows * hidden(),
              rows * first.shape.columns,
              third ? rows * inner : 0,
              rows * inner,
              rows * hidden()};
    }
    std::uint64_t workspace_bytes() const {
      std::uint64_t bytes = std::max(first.workspace_bytes, second.workspace_bytes);
      if (third) bytes = std::max(bytes, third->workspace_bytes);
      for (const std::int64_t count : counts())
        bytes += align64(static_cast<std::uint64_t>(count) * 4);
      return bytes;
    }
    Memory memory(char* at) const {
      std::array<char*, 10> parts{};
      for (std::size_t i = 0; i < parts.size(); ++i) {
        parts[i] = at;
        at += align64(static_cast<std::uint64_t>(counts()[i]) * 4);
      }
      const auto floats = [&](std::size_t i) { return reinterpret_cast<float*>(parts[i]); };
      const auto ints = [&](std::size_t i) { return reinterpret_cast<std::int32_t*>(parts[i]); };
      return {floats(0), ints(1),   ints(2),   floats(3), ints(4), floats(5),
              floats(6), floats(7), floats(8), floats(9), at};
    }

    void compute(const sdk::ComputeContext& ctx) const {
      const Memory memory = this->memory(ctx.workspace().mutable_data<char>());
      auto* y = ctx.output(0).mutable_data<float>();
      std::fill_n(y, tokens * hidden(), 0.0F);
      route(ctx, memory);
      for (std::int64_t expert = 0; expert < experts; ++expert) {
        std::int64_t count = 0;
        for (std::int64_t place = 0; place < tokens * k; ++place) {
          if (memory.chosen[place] != expert) continue;
          memory.places[count++] = static_cast<std::int32_t>(place);
          if (count < rows) continue;
          run_expert(ctx, memory, expert, count, y);
          count = 0;
        }
        if (count > 0) run_expert(ctx, memory, expert, count, y);
      }
    }

   private:
    /// Which experts a token goes to, and how much of each it gets.
    void route(const sdk::ComputeContext& ctx, const Memory& memory) const {
      softmax->rows(ctx.input(kRouter).data<float>(), memory.probabilities, experts, tokens);
      const float* given =
          ctx.has_input(kShares) ? ctx.input(kShares).data<float>() : memory.probabilities;
      for (std::int64_t token = 0; token < tokens; ++token) {
        const float* row = memory.probabilities + token * experts;
        std::iota(memory.order, memory.order + experts, 0);
        std::partial_sort(memory.order, memory.order + k, memory.order + experts,
                          [row](std::int32_t a, std::int32_t b) {
                            return row[a] > row[b] || (row[a] == row[b] && a < b);
                          });
        float sum = 0;
        for (std::int64_t i = 0; i < k; ++i) {
          memory.chosen[token * k + i] = memory.order[i];
          memory.shares[token * k + i] = given[token * experts + memory.order[i]];
          sum += memory.shares[token * k + i];
        }
        for (std::int64_t i = 0; is_normalized && i < k; ++i) memory.shares[token * k + i] /= sum;
      }
    }

    void run_expert(const sdk::ComputeContext& ctx, const Memory& memory, std::int64_t expert,
                    std::int64_t count, float* y) const {
      const float* x = ctx.input(kInput).data<float>();
      for (std::int64_t i = 0; i < count; ++i)
        std::copy_n(x + memory.places[i] / k * hidden(), hidden(), memory.gathered + i * hidden());
      first.run(ctx, expert, count, memory.gathered, memory.made, memory.scratch);
      if (third) third->run(ctx, expert, count, memory.gathered, memory.apart, memory.scratch);
      for (std::int64_t i = 0; i < count; ++i)
        activation.row(memory.made + i * first.shape.columns,
                       third ? memory.apart + i * inner : nullptr, inner,
                       memory.active + i * inner);
      second.run(ctx, expert, count, memory.active, memory.results, memory.scratch);
      for (std::int64_t i = 0; i < count; ++i) {
        float* sum = y + memory.places[i] / k * hidden();
        const float share = memory.shares[memory.places[i]];
        for (std::int64_t j = 0; j < hidden(); ++j)
          sum[j] += share * memory.results[i * hidden() + j];
      }
    }
  };

  Mixture(const sdk::CreateContext& ctx, const sdk::Node& node)
      : isa_(isa_of(ctx)),
        first_(Experts::first(node, isa_)),
        second_(Experts::second(node, isa_)),
        third_(Experts::third(node, isa_)),
        k_(node.get_int("k", 1)),
        is_normalized_(node.get_int("normalize_routing_weights", 0) != 0) {
    if (node.get_string("quant_type", "int") != "int") refuse("quant_type");
    if (node.get_int("weights_prepacked", -1) > 0) refuse("weights_prepacked");
    if (node.get_int("use_sparse_mixer", 0) != 0) refuse("use_sparse_mixer");
    choose_activation(node);
  }
  Mixture(const Mixture&) = delete;
  Mixture& operator=(const Mixture&) = delete;

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(kInput), router = ctx.input(kRouter);
    Prepared prepared;
    prepared.activation = activation_;
    prepared.softmax = &softmax_f32(isa_);
    prepared.is_normalized = is_normalized_;
    prepared.k = k_;
    const sdk::Tensor first_weights = ctx.input(Experts::kFirst),
                      second_weights = ctx.input(Experts::kSecond);
    const auto first = first_.shape_of(first_weights), second = second_.shape_of(second_weights);
    prepared.experts = first_weights.dim(0);
    prepared.inner = second.depth;
    prepared.tokens = x.rank() > 0 && x.dim(x.rank() - 1) > 0 ? x.size() / x.dim(x.rank() - 1) : 0;
    const std::int64_t halves = activation_.fusion != 0 ? 2 : 1;
    if (x.rank() < 2 || x.dim(x.rank() - 1) != first.depth || second.columns != first.depth ||
        first.columns != halves * second.depth || second_weights.dim(0) != prepared.experts)
      sdk::invalid(Experts::kOperator, ": input ", sdk::to_string(x.dims()),
                   " does not fit experts of ", first.columns, " x ", first.depth, " and ",
                   second.columns, " x ", second.depth);
    for (const sdk::Tensor& scores : {router, ctx.input(kShares)}) {
      if (scores.present() && scores.size() != prepared.tokens * prepared.experts)
        sdk::invalid(Experts::kOperator, ": scores have dims ", sdk::to_string(scores.dims()),
                     " for ", prepared.tokens, " tokens and ", prepared.experts, " experts");
    }
    if (k_ < 1 || k_ > prepared.experts)
      sdk::invalid(Experts::kOperator, ": k is ", k_, ", and there are ", prepared.experts,
                   " experts");
    const auto most =
        static_cast<std::uint64_t>(std::clamp<std::int64_t>(prepared.tokens, 1, kMostRows));
    prepared.rows = static_cast<std::int64_t>(std::bit_ceil(most));
    prepared.first = project(ctx, first_, first, prepared.rows);
    prepared.second = project(ctx, second_, second, prepared.rows);
    if (third_) {
      const sdk::Tensor weights = ctx.input(Experts::kThird);
      const auto third = third_->shape_of(weights);
      if (third.columns != second.depth || third.depth != first.depth ||
          weights.dim(0) != prepared.experts)
        sdk::invalid(Experts::kOperator, ": weights of fc3 have dims ",
                     sdk::to_string(weights.dims()), ", and those of fc1 ",
                     sdk::to_string(first_weights.dims()));
      prepared.third = project(ctx, *third_, third, prepared.rows);
    }
    ctx.set_output(0, sdk::DataType::Float, x.dims());
    ctx.set_workspace(prepared.workspace_bytes());
    return prepared;
  }

 private:
  template <class... Parts>
  [[noreturn]] static void refuse(const Parts&... parts) {
    sdk::unsupported(Experts::kOperator, ": ", parts...);
  }

  void choose_activation(const sdk::Node& node) {
    const std::string kind = node.get_string("activation_type", "relu");
    const auto fusion = static_cast<int>(node.get_int("swiglu_fusion", 0));
    if (kind == "swiglu") {
      if (fusion < 0 || fusion > 2 || (fusion != 0) == third_.has_value())
        refuse("swiglu_fusion ", fusion, third_ ? " with" : " without", " fc3");
      activation_.fusion = fusion;
      activation_.loop = unary_f32(isa_, UnaryOp::kSwish);
      activation_.params.a = node.get_float("activation_alpha", 1.0F);
      activation_.beta = node.get_float("activation_beta", 0.0F);
      activation_.is_limited = node.has("swiglu_limit");
      activation_.limit = node.get_float("swiglu_limit", 0.0F);
    } else if (kind == "silu") {
      activation_.loop = unary_f32(isa_, UnaryOp::kSwish);
      activation_.params.a = 1;
    } else if (kind == "gelu") {
      activation_.loop = unary_f32(isa_, UnaryOp::kGeluTanh);
    } else if (kind == "relu") {
      activation_.loop = unary_f32(isa_, UnaryOp::kRelu);
    } else if (kind != "identity") {
      refuse("activation_type ", kind);
    }
  }

  static Projection<Experts> project(sdk::PrepareContext& ctx, const Experts& weights,
                                     const typename Experts::Shape& shape, std::int64_t most_rows) {
    Projection<Experts> projection;
    projection.shape = shape;
    projection.expert_bytes = weights.expert_bytes(shape);
    projection.bias = weights.bias_input();
    projection.packed = weights.request(ctx);
    for (std::int64_t rows = 1; rows <= most_rows; rows *= 2) {
      projection.products.push_back(weights.product(rows, shape, ctx.threads().count()));
      projection.workspace_bytes = std::max(projection.workspace_bytes,
                                            Experts::workspace_bytes(projection.products.back()));
    }
    return projection;
  }

  Isa isa_;
  Experts first_, second_;
  std::optional<Experts> third_;
  std::int64_t k_;
  bool is_normalized_;
  ExpertActivation activation_;
};

}  // namespace

sdk::KernelList mixture_of_experts_kernels() {
  return {sdk::op("MoE", "com.microsoft")
              .name("cpu:moe")
              .types("T", {sdk::DataType::Float})
              .flags(BP_KERNEL_WIDENS_HALF)
              .kernel<Mixture<FloatExperts>>(),
          sdk::op("QMoE", "com.microsoft")
              .name("cpu:qmoe")
              .types("T", {sdk::DataType::Float})
              .types("T1", {sdk::DataType::UInt8})
              .types("T2", {sdk::DataType::Float, sdk::DataType::Float16, sdk::DataType::BFloat16})
              .flags(BP_KERNEL_WIDENS_HALF)
              .kernel<Mixture<NBitsExperts>>()};
}

}  // namespace backplane::cpu
