// TopK: https://onnx.ai/onnx/operators/onnx__TopK.html
#include <algorithm>
#include <array>
#include <numeric>

#include "backplane/plugin.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/dims.hpp"
#include "plugins/cpu/kernels/half_f32.hpp"

namespace backplane::cpu {
namespace {

/// Orders the places of one row: the better value first, of equal ones the first. NaN is the largest value.
template <class T, bool kLargest>
struct Better {
  const T* row;
  std::int64_t stride;

  auto value(std::int64_t at) const { return common::widen(row[at * stride]); }
  /// True when none of the places [at, at + kBlock) is better than `worst`, which comes before them.
  static constexpr std::int64_t kBlock = 32;
  bool none_better(std::int64_t at, common::Wide<T> worst) const {
    if (stride != 1) return false;
    std::int32_t worse = 0;  // counted and not combined, which compilers turn into vector code
    for (std::int64_t i = 0; i < kBlock; ++i) {
      const auto next = common::widen(row[at + i]);
      worse += (kLargest ? next <= worst : next >= worst) ? 1 : 0;
    }
    return worse == kBlock;
  }
  /// True for a place that comes after `worst` in the row and is not better; may be false for others.
  bool no_better(std::int64_t at, common::Wide<T> worst) const {
    return kLargest ? value(at) <= worst : value(at) >= worst;
  }
  /// True where a comes before b wherever they are.
  static bool before(common::Wide<T> a, common::Wide<T> b) {
    const bool beyond = kLargest ? a > b : a < b;
    if constexpr (common::kIsFloatType<T>) {
      const bool unordered = kLargest ? (a != a) & (b == b) : (b != b) & (a == a);
      return beyond | unordered;  // without branches
    } else {
      return beyond;
    }
  }
  bool operator()(std::int64_t left, std::int64_t right) const {
    const auto a = value(left), b = value(right);
    return before(a, b) || (left < right && !before(b, a));
  }
};

/// So few best ones are kept in order.
constexpr std::int64_t kFew = 16;

/// Whether all places are ordered, instead of a heap of the k best.
bool orders_all(std::int64_t dim, std::int64_t k) { return k > kFew && k > dim / 16; }

/// The k <= kFew best places of [0, dim), best first. Most are no better than the worst of them, and a block of such is
/// skipped at once.
template <class Compare>
void select_few(std::int64_t dim, std::int64_t k, const Compare& better, std::int64_t* places) {
  std::array<decltype(better.value(0)), kFew> values;
  std::int64_t block = k;  // where the next one begins
  for (std::int64_t i = 0; i < dim; ++i) {
    if (i == block) {
      const auto worst = values[static_cast<std::size_t>(k - 1)];
      while (i + Compare::kBlock <= dim && better.none_better(i, worst)) i += Compare::kBlock;
      if (i == dim) return;
      block = i + Compare::kBlock;
    }
    const auto value = better.value(i);
    auto at = static_cast<std::size_t>(std::min(i, k - 1));
    if (i >= k && !Compare::before(value, values[at])) continue;
    for (; at > 0 && Compare::before(value, values[at - 1]); --at) {
      values[at] = values[at - 1];
      places[at] = places[at - 1];
    }
    values[at] = value;
    places[at] = i;
  }
}

/// The best place of [0, dim).
template <class Compare>
std::int64_t best_of(std::int64_t dim, const Compare& better) {
  auto best = better.value(0);
  std::int64_t place = 0;
  std::int64_t block = 1;
  for (std::int64_t i = 1; i < dim; ++i) {
    if (i == block) {
      while (i + Compare::kBlock <= dim && better.none_better(i, best)) i += Compare::kBlock;
      if (i == dim) break;
      block = i + Compare::kBlock;
    }
    const auto value = better.value(i);
    const bool is_better = Compare::before(value, best);
    best = is_better ? value : best;
    place = is_better ? i : place;
  }
  return place;
}

/// The k best places of [0, dim) in `places`, best first; `places` has room for dim where all are ordered, else for k.
template <class Compare>
void select(std::int64_t dim, std::int64_t k, const Compare& better, std::int64_t* places) {
  if (k == 1) {
    places[0] = best_of(dim, better);
    return;
  }
  if (k <= kFew) return select_few(dim, k, better, places);
  if (orders_all(dim, k)) {
    std::iota(places, places + dim, std::int64_t{0});
    if (k < dim) std::nth_element(places, places + k, places + dim, better);
    std::sort(places, places + k, better);
    return;
  }
  // A heap of the k best, the worst of them on top; whole blocks are skipped that have nothing better.
  std::iota(places, places + k, std::int64_t{0});
  std::make_heap(places, places + k, better);
  auto worst = better.value(places[0]);
  for (std::int64_t i = k; i < dim;) {
    const std::int64_t end = std::min(i + Compare::kBlock, dim);
    if (end - i == Compare::kBlock && better.none_better(i, worst)) {
      i = end;
      continue;
    }
    for (; i < end; ++i) {
      if (better.no_better(i, worst) || !better(i, places[0])) continue;
      std::pop_heap(places, places + k, better);
      places[k - 1] = i;
      std::push_heap(places, places + k, better);
      worst = better.value(places[0]);
    }
  }
  std::sort_heap(places, places + k, better);
}

class TopK {
 public:
  struct Prepared {
    std::int64_t outer, dim, inner, k;
    bool largest;
    const HalfConversion* half;  // rows of 16 bits, which are compared as floats

    std::int64_t rows() const { return outer * inner; }
    /// What a thread orders at a time.
    std::int64_t places() const { return orders_all(dim, k) ? dim : k; }
    bool serial() const { return rows() == 1 || rows() * dim < 8192; }
    std::uint64_t workspace_bytes(unsigned threads) const {
      if (rows() * k == 0) return 0;
      return scratch_bytes() * (serial() ? 1 : threads);
    }
    /// Of a thread: its places, and a row of floats.
    std::uint64_t scratch_bytes() const {
      const std::int64_t floats = half != nullptr ? (dim + 1) / 2 * 8 : 0;
      return static_cast<std::uint64_t>(places() * 8 + floats);
    }

    void compute(const sdk::ComputeContext& ctx) const {
      if (rows() * k == 0) return;
      common::with_number(ctx.input(0).type(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        largest ? run<T, true>(ctx) : run<T, false>(ctx);
      });
    }

   private:
    template <class T, bool kLargest>
    void run(const sdk::ComputeContext& ctx) const {
      const T* input = ctx.input(0).data<T>();
      T* values = ctx.has_output(0) ? ctx.output(0).mutable_data<T>() : nullptr;
      std::int64_t* indices =
          ctx.has_output(1) ? ctx.output(1).mutable_data<std::int64_t>() : nullptr;
      char* scratch = ctx.workspace().mutable_data<char>();
      const auto part = [&](std::uint64_t begin, std::uint64_t end, std::uint32_t worker) {
        auto* places = reinterpret_cast<std::int64_t*>(scratch + worker * scratch_bytes());
        auto* floats = reinterpret_cast<float*>(places + this->places());
        const auto first = static_cast<std::int64_t>(begin);
        std::int64_t block = first / inner, column = first % inner;
        for (std::int64_t n = first; n < static_cast<std::int64_t>(end); ++n) {
          const T* row = input + block * dim * inner + column;
          if (half != nullptr) {
            half->to_float(row, floats, dim);
            select(dim, k, Better<float, kLargest>{floats, 1}, places);
          } else {
            select(dim, k, Better<T, kLargest>{row, inner}, places);
          }
          const std::int64_t target = block * k * inner + column;
          for (std::int64_t i = 0; i < k; ++i) {
            if (values != nullptr) values[target + i * inner] = row[places[i] * inner];
            if (indices != nullptr) indices[target + i * inner] = places[i];
          }
          if (++column == inner) {
            column = 0;
            ++block;
          }
        }
      };
      const auto count = static_cast<std::uint64_t>(rows());
      if (serial()) return part(0, count, 0);
      ctx.threads().parallel_for(count, static_cast<std::uint64_t>(1 + 4096 / dim), part);
    }
  };

  TopK(const sdk::CreateContext& ctx, const sdk::Node& node)
      : isa_(isa_of(ctx)),
        axis_(node.get_int("axis", -1)),
        k_(node.get_int("k", -1)),
        from_input_(node.since_version() >= 10),
        largest_(node.get_int("largest", 1) != 0) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor input = ctx.input(0);
    const int axis = normalize_axis(axis_, input.rank());
    const auto at = static_cast<std::size_t>(axis);
    std::int64_t k = k_;
    if (from_input_) {
      if (ctx.input(1).size() != 1)
        sdk::invalid("TopK: K has ", ctx.input(1).size(), " elements, 1 is needed");
      k = ctx.input(1).to_ints()[0];
    }
    if (k < 0 || k > input.dim(axis))
      sdk::invalid("TopK: k is ", k, ", axis ", axis, " has ", input.dim(axis), " elements");
    sdk::Dims dims = to_dims(input.dims());
    dims[at] = k;
    if (ctx.output_wanted(0)) ctx.set_output(0, input.type(), dims);
    if (ctx.output_wanted(1)) ctx.set_output(1, sdk::DataType::Int64, dims);
    Prepared prepared{dims_product(dims, 0, at),
                      input.dim(axis),
                      dims_product(dims, at + 1, dims.size()),
                      k,
                      largest_,
                      nullptr};
    const bool is_half =
        input.type() == sdk::DataType::Float16 || input.type() == sdk::DataType::BFloat16;
    if (is_half && prepared.inner == 1) prepared.half = &half_conversion(isa_, input.type());
    ctx.set_workspace(prepared.workspace_bytes(ctx.threads().count()));
    return prepared;
  }

 private:
  Isa isa_;
  std::int64_t axis_, k_;
  bool from_input_, largest_;
};

}  // namespace

sdk::KernelList topk_kernels() {
  return {
      sdk::op("TopK").name("cpu:topk").roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE}).kernel<TopK>()};
}

}  // namespace backplane::cpu
