// Einsum: https://onnx.ai/onnx/operators/onnx__Einsum.html
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/common/einsum_node.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/dense/strided_product.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

using Subscript = common::EinsumSubscript;

/// Walks some loops at once and keeps each operand's place.
class Walk {
 public:
  static constexpr std::size_t kMaxOperands = 8, kMaxLoops = 32;

  explicit Walk(const std::vector<Subscript>& loops) : loops_(loops) {}
  void start(std::int64_t at, const std::int64_t* base, std::size_t operands) {
    std::copy(base, base + operands, place.begin());
    for (std::size_t i = loops_.size(); i-- > 0;) {
      index_[i] = at % loops_[i].dim;
      at /= loops_[i].dim;
      for (std::size_t k = 0; k < operands; ++k) place[k] += index_[i] * loops_[i].strides[k];
    }
  }
  void step(std::size_t operands) {
    for (std::size_t i = loops_.size(); i-- > 0;) {
      for (std::size_t k = 0; k < operands; ++k) place[k] += loops_[i].strides[k];
      if (++index_[i] < loops_[i].dim) return;
      index_[i] = 0;
      for (std::size_t k = 0; k < operands; ++k) place[k] -= loops_[i].dim * loops_[i].strides[k];
    }
  }
  std::array<std::int64_t, kMaxOperands> place{};

 private:
  const std::vector<Subscript>& loops_;
  std::array<std::int64_t, kMaxLoops> index_{};
};

/// output[outer subscripts] = sum over the summed subscripts of the product of the operands, by plain loops.
struct SumLoops {
  std::vector<Subscript> outer, summed;
  Subscript last;  // of the output: its elements are summed up side by side
  std::size_t operands = 0;
  std::int64_t rows = 1, terms = 1;

  SumLoops() = default;
  SumLoops(std::vector<Subscript> of_output, std::vector<Subscript> sums, std::size_t operand_count)
      : outer(std::move(of_output)), summed(std::move(sums)), operands(operand_count) {
    if (outer.size() > Walk::kMaxLoops || summed.size() > Walk::kMaxLoops)
      sdk::unsupported("Einsum over more than ", Walk::kMaxLoops, " subscripts");
    for (const Subscript& subscript : summed) terms *= subscript.dim;
    last.strides.assign(operands, 0);
    if (!outer.empty()) {
      last = outer.back();
      outer.pop_back();
    }
    for (const Subscript& subscript : outer) rows *= subscript.dim;
  }

  /// Of all types.
  std::uint64_t workspace_bytes(unsigned threads) const {
    return align64(8 * static_cast<std::uint64_t>(last.dim) * threads);
  }

  /// Operand k lies at data[k].
  template <class T>
  void run(const T* const* data, T* output, void* workspace, const sdk::Threads& threads) const {
    // Integers wrap around; floating-point sums are kept in double.
    using Sum = std::conditional_t<common::kIsFloatType<T>, double, std::uint64_t>;
    auto* scratch = static_cast<Sum*>(workspace);
    const std::array<std::int64_t, Walk::kMaxOperands> zero{};
    const auto part = [&](std::uint64_t begin, std::uint64_t end, std::uint32_t worker) {
      Walk places(outer), sums(summed);
      Sum* total = scratch + static_cast<std::int64_t>(worker) * last.dim;
      places.start(static_cast<std::int64_t>(begin), zero.data(), operands);
      for (auto row = static_cast<std::int64_t>(begin); row < static_cast<std::int64_t>(end);
           ++row) {
        std::fill(total, total + last.dim, Sum(0));
        if (terms > 0) sums.start(0, places.place.data(), operands);
        for (std::int64_t s = 0; s < terms; ++s) {
          add_products(data, sums.place.data(), total);
          sums.step(operands);
        }
        for (std::int64_t i = 0; i < last.dim; ++i) {
          output[row * last.dim + i] = common::narrow<T>(total[i]);
        }
        places.step(operands);
      }
    };
    const std::int64_t work = std::max<std::int64_t>(1, terms) * (last.dim + 4);
    threads.parallel_for(static_cast<std::uint64_t>(rows),
                         static_cast<std::uint64_t>(1 + 32 * 1024 / work), part);
  }

 private:
  // Adds one term to each element along the output's last subscript.
  template <class T, class Sum>
  void add_products(const T* const* data, const std::int64_t* places, Sum* total) const {
    const auto at = [&](std::size_t k, std::int64_t i) {
      return static_cast<Sum>(common::widen(data[k][places[k] + i * last.strides[k]]));
    };
    if (operands == 2 && last.strides[0] == 0 && last.strides[1] == 1) {  // a matrix product
      const Sum factor = at(0, 0);
      const T* row = data[1] + places[1];
      for (std::int64_t i = 0; i < last.dim; ++i) {
        total[i] += factor * static_cast<Sum>(common::widen(row[i]));
      }
      return;
    }
    for (std::int64_t i = 0; i < last.dim; ++i) {
      Sum product = at(0, i);
      for (std::size_t k = 1; k < operands; ++k) product *= at(k, i);
      total[i] += product;
    }
  }
};

/// Two operands of float by the kernels of matrices. An operand that has sums of its own is summed first.
struct MatrixEinsum {
  struct OwnSum {
    bool needed = false;
    SumLoops loops;
    std::uint64_t bytes() const {
      return needed
                 ? align64(sizeof(float) * static_cast<std::uint64_t>(loops.rows * loops.last.dim))
                 : 0;
    }
  };
  std::array<OwnSum, 2> own;
  std::uint64_t loop_bytes = 0;  // at the start of the workspace
  std::optional<StridedProduct> product;

  /// `product` stays empty where plain loops are as good.
  MatrixEinsum(std::vector<Subscript> outer, std::vector<Subscript> summed, Isa isa,
               unsigned threads) {
    for (std::size_t k = 0; k < 2; ++k) sum_alone(k, outer, summed, threads);
    ProductAxes axes;
    for (const std::vector<Subscript>* group : {&outer, &summed}) {
      for (const Subscript& s : *group) axes.push_back({s.dim, s.strides[0], s.strides[1], 0});
    }
    std::int64_t step = 1;
    for (std::size_t i = outer.size(); i-- > 0; step *= outer[i].dim) axes[i].y = step;
    product = StridedProduct::make(std::move(axes), isa, threads);
  }

  std::uint64_t workspace_bytes() const {
    return loop_bytes + own[0].bytes() + own[1].bytes() + product->workspace_bytes();
  }

  void compute(const sdk::ComputeContext& ctx) const {
    auto* memory = ctx.workspace().mutable_data<char>();
    void* loop_memory = memory;
    memory += loop_bytes;
    std::array<const float*, 2> data{};
    for (std::size_t k = 0; k < 2; ++k) {
      data[k] = ctx.input(static_cast<std::uint32_t>(k)).data<float>();
      if (!own[k].needed) continue;
      auto* sums = reinterpret_cast<float*>(memory);
      own[k].loops.run(&data[k], sums, loop_memory, ctx.threads());
      data[k] = sums;
      memory += own[k].bytes();
    }
    product->run(data[0], data[1], ctx.output(0).mutable_data<float>(), memory, ctx.threads());
  }

 private:
  // Operand k alone has some of the sums: what is left of it is dense, and they are gone.
  void sum_alone(std::size_t k, std::vector<Subscript>& outer, std::vector<Subscript>& summed,
                 unsigned threads) {
    const auto alone = [k](const Subscript& s) {
      return s.strides[k] != 0 && s.strides[1 - k] == 0;
    };
    std::vector<Subscript> sums, kept;
    for (const Subscript& s : summed) {
      if (alone(s)) sums.push_back({s.dim, {s.strides[k]}});
    }
    if (sums.empty()) return;
    summed.erase(std::remove_if(summed.begin(), summed.end(), alone), summed.end());
    std::vector<Subscript*> left;
    for (std::vector<Subscript>* group : {&outer, &summed}) {
      for (Subscript& s : *group) {
        if (s.strides[k] == 0) continue;
        left.push_back(&s);
        kept.push_back({s.dim, {s.strides[k]}});
      }
    }
    std::int64_t step = 1;
    for (std::size_t i = left.size(); i-- > 0; step *= left[i]->dim) left[i]->strides[k] = step;
    own[k] = {true, SumLoops(std::move(kept), std::move(sums), 1)};
    loop_bytes = std::max(loop_bytes, own[k].loops.workspace_bytes(threads));
  }
};

class Einsum {
 public:
  struct Prepared {
    SumLoops loops;
    std::optional<MatrixEinsum> matrices;

    void compute(const sdk::ComputeContext& ctx) const {
      if (ctx.output(0).size() == 0) return;
      if (matrices) return matrices->compute(ctx);
      common::with_number(ctx.output(0).type(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        std::array<const T*, Walk::kMaxOperands> data{};
        for (std::size_t k = 0; k < loops.operands; ++k)
          data[k] = ctx.input(static_cast<std::uint32_t>(k)).data<T>();
        loops.run(data.data(), ctx.output(0).mutable_data<T>(),
                  ctx.workspace().mutable_data<void>(), ctx.threads());
      });
    }
  };

  Einsum(const sdk::CreateContext& ctx, const sdk::Node& node)
      : equation_(node), isa_(isa_of(ctx)) {
    if (equation_.term_count() > Walk::kMaxOperands)
      sdk::unsupported("Einsum of more than ", Walk::kMaxOperands, " inputs");
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    std::vector<sdk::DimsView> shapes;
    for (std::size_t k = 0; k < equation_.term_count(); ++k)
      shapes.push_back(ctx.input(static_cast<std::uint32_t>(k)).dims());
    common::EinsumLoops found = equation_.loops(shapes);
    std::int64_t work = sdk::element_count(found.dims);
    for (const Subscript& subscript : found.summed) work *= subscript.dim;
    Prepared prepared;
    const unsigned threads = ctx.threads().count();
    if (shapes.size() == 2 && ctx.input(0).type() == sdk::DataType::Float && work > 0) {
      MatrixEinsum matrices(found.outer, found.summed, isa_, threads);
      if (matrices.product) prepared.matrices = std::move(matrices);
    }
    prepared.loops = SumLoops(std::move(found.outer), std::move(found.summed), shapes.size());
    ctx.set_workspace(prepared.matrices ? prepared.matrices->workspace_bytes()
                                        : prepared.loops.workspace_bytes(threads));
    ctx.set_variant(prepared.matrices ? "matrices" : "loops");
    ctx.set_output(0, ctx.input(0).type(), found.dims);
    return prepared;
  }

 private:
  common::EinsumEquation equation_;
  Isa isa_;
};

}  // namespace

sdk::KernelList einsum_kernels() {
  return {sdk::op("Einsum").name("cpu:einsum").flags(BP_KERNEL_WIDENS_HALF).kernel<Einsum>()};
}

}  // namespace backplane::cpu
