// LinearAttention of ONNX and of com.microsoft: see linear_attention_node.hpp.
#include "op_table.hpp"
#include "plugins/common/device_ops/walk.hpp"
#include "plugins/common/linear_attention_node.hpp"

namespace backplane::device_ops {
namespace {

/// An item has W columns of a state from `first` on, of head i1 in batch i2, from the first token to the last: columns need nothing of
/// each other. Where the present state is the past one in memory, an item has read its columns before it writes them.
constexpr char kColumns[] = R"kernel(
  REAL state[KEYS * W], found[W], sums[W];
  i64 first = i0 * W, columns = (i2 * heads + i1) * KEYS * values + first;
  EACH_KEY EACH_COLUMN state[k * W + e] = PAST(columns + k * values + e);
  for (i64 t = 0; t < tokens; ++t) {
    i64 token = i2 * tokens + t, mine = token * heads + i1, key_at = (token * key_heads + i1 / of_key) * KEYS;
    EACH_COLUMN found[e] = 0;
#if DECAYS == 1
    REAL kept = exp((REAL)LOAD(T, decay, mine));
#endif
    EACH_KEY {
#if DECAYS > 1
      REAL kept = exp((REAL)LOAD(T, decay, mine * KEYS + k));
#endif
#if DECAYS > 0
      EACH_COLUMN state[k * W + e] *= kept;
#endif
#if IS_DELTA
      REAL is_key = LOAD(T, key, key_at + k);
      EACH_COLUMN found[e] = FMA(state[k * W + e], is_key, found[e]);
#endif
    }
    EACH_COLUMN found[e] = RATE * (LOAD(T, value, mine * values + first + e) - found[e]);
    EACH_KEY {
      REAL is_key = LOAD(T, key, key_at + k);
      EACH_COLUMN state[k * W + e] = FMA(is_key, found[e], state[k * W + e]);
    }
    for (i64 answer = i1 * of_state; answer < (i1 + 1) * of_state; ++answer) {
      i64 query_at = (token * query_heads + answer / of_query) * KEYS;
      EACH_COLUMN sums[e] = 0;
      EACH_KEY {
        REAL asks = scale * LOAD(T, query, query_at + k);
        EACH_COLUMN sums[e] = FMA(state[k * W + e], asks, sums[e]);
      }
      EACH_COLUMN STORE(T, y, (token * answers + answer) * values + first + e, sums[e]);
    }
  }
  EACH_KEY EACH_COLUMN STORE(S, present, columns + k * values + e, state[k * W + e]);
)kernel";

class LinearAttention {
 public:
  LinearAttention(const Device&, const sdk::Node& node) : rule_(node) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    constexpr std::int64_t kMostKeys = 1024;
    const common::LinearAttentionSizes sizes = rule_.set_dims(ctx);
    if (sizes.keys > kMostKeys)
      sdk::unsupported("heads of ", sizes.keys, " keys; at most ", kMostKeys, " are handled");
    if (ctx.input(Rule::kPast).present()) ctx.allow_in_place(1, Rule::kPast);
    if (sizes.keys > 0 && sizes.batch * sizes.values > 0) add_launch(ctx, work, sizes);
  }

 private:
  using Rule = common::LinearAttentionRule;

  void add_launch(const sdk::PrepareContext& ctx, Work& work,
                  const common::LinearAttentionSizes& sizes) const {
    const DataType type = ctx.input(Rule::kQuery).type();
    const sdk::Tensor past = ctx.input(Rule::kPast);
    const DataType state_type = past.present() ? past.type() : type;
    const std::int64_t width = columns_at_once(work.device(), sizes.values);
    Walk walk(Dims{sizes.batch, sizes.heads, sizes.values / width});
    walk.in("query", input(Rule::kQuery), type).in("key", input(Rule::kKey), type);
    walk.in("value", input(Rule::kValue), type);
    if (past.present()) walk.in("past", input(Rule::kPast), state_type);
    if (rule_.is_gated) walk.in("decay", input(Rule::kDecay), type);
    if (rule_.is_delta) walk.in("beta", input(Rule::kBeta), type);
    walk.out("y", output(0), type).out("present", output(1), state_type);
    walk.number("tokens", sizes.tokens).number("heads", sizes.heads);
    walk.number("values", sizes.values).number("key_heads", sizes.key_heads);
    walk.number("query_heads", sizes.query_heads).number("answers", sizes.answers());
    walk.number("of_key", sizes.heads / sizes.key_heads);
    walk.number("of_state", sizes.answers() / sizes.heads);
    walk.number("of_query", sizes.answers() / sizes.query_heads);
    walk.real("scale", sizes.scale).real_type(type).define("T", type_code(type));
    walk.define("S", type_code(state_type)).define("KEYS", sizes.keys);
    walk.define("W", width).define("EACH_COLUMN", "for (int e = 0; e < W; ++e)");
    walk.define("PAST(at)", past.present() ? "LOAD(S, past, at)" : "0");
    walk.define("DECAYS", sizes.decays).define("IS_DELTA", rule_.is_delta ? 1 : 0);
    walk.define("RATE", rule_.is_delta ? rate_text(sizes) : "1");
    walk.define("EACH_KEY", sdk::message(unrolled(work.device(), sizes.keys),
                                         "for (int k = 0; k < KEYS; ++k)"));
    walk.name("linear attention").body = kColumns;
    walk.add_to(work);
  }

  static const char* rate_text(const common::LinearAttentionSizes& sizes) {
    return sizes.rates > 1 ? "LOAD(T, beta, mine)" : "LOAD(T, beta, token)";
  }

  /// On processors as many as vectors have; elsewhere neighbouring items read neighbouring columns.
  static std::int64_t columns_at_once(const Device& device, std::int64_t values) {
    std::int64_t width = shares_rows(device) ? 1 : 16;
    while (values % width != 0) width /= 2;
    return width;
  }

  /// So that the state is in registers, which have no places that are computed.
  static const char* unrolled(const Device& device, std::int64_t keys) {
    constexpr std::int64_t kMostInRegisters = 128;
    return shares_rows(device) && keys <= kMostInRegisters ? "_Pragma(\"unroll\") " : "";
  }

  Rule rule_;
};

sdk::KernelEntry entry(const char* domain) {
  const common::TypeList types{DataType::Float, DataType::Float16, DataType::BFloat16};
  return device_kernel<LinearAttention>(sdk::op("LinearAttention", domain)
                                            .name(kernel_name("linear attention"))
                                            .types("T", types)
                                            .types("S", types));
}

}  // namespace

KernelList linear_attention_kernels() { return {entry(""), entry("com.microsoft")}; }

}  // namespace backplane::device_ops
