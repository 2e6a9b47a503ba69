#include "plugins/common/device_ops/einsum.hpp"

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "plugins/common/device_ops/einsum_layout.hpp"
#include "plugins/common/device_ops/pointwise.hpp"
#include "plugins/common/device_ops/sums.hpp"
#include "plugins/common/device_ops/types.hpp"

namespace backplane::device_ops {
namespace {

using common::EinsumLoops;
using common::EinsumSubscript;

/// A tensor along all subscripts: an input, or what was made of some.
struct Operand {
  MemoryRef memory;
  DataType type = DataType::Float;
  Dims strides;  ///< by subscript; 0: it is the same along it
};

/// A node's work: operands meet one after the other, from the left.
class Contraction {
 public:
  Contraction(const sdk::PrepareContext& ctx, EinsumTarget& target, const EinsumLoops& loops,
              std::size_t operands)
      : target_(target), pieces_(target.launches().device()), type_(ctx.input(0).type()) {
    const Dims steps = common::dense_strides(loops.dims);
    for (std::size_t i = 0; i < loops.outer.size(); ++i) take(loops.outer[i], steps[i]);
    for (const EinsumSubscript& subscript : loops.summed) take(subscript, 0);
    for (std::size_t k = 0; k < operands; ++k) {
      Operand operand{input(static_cast<std::uint32_t>(k)), type_, {}};
      for (const EinsumSubscript& subscript : subscripts_)
        operand.strides.push_back(subscript.strides[k]);
      operands_.push_back(std::move(operand));
    }
    sum_type_ = keeps_sums() ? DataType::Float : type_;
  }

  void add() {
    const Operand y{output(0), type_, steps_};
    const bool has_sums = std::find(steps_.begin(), steps_.end(), 0) != steps_.end();
    if (!has_sums) return multiply(operands_, y);
    if (operands_.size() == 1) return sum(operands_[0], y);
    Operand left = operands_[0];
    for (std::size_t k = 1; k < operands_.size(); ++k) left = meet(left, k);
  }

  std::uint64_t workspace_bytes() const { return pieces_.bytes(); }
  const std::string& way() const { return way_; }

 private:
  /// Subscripts of one element are none.
  void take(const EinsumSubscript& subscript, std::int64_t step) {
    if (subscript.dim == 1) return;
    subscripts_.push_back(subscript);
    steps_.push_back(step);
  }

  /// Sums on the way are float32 where elements have 16 bits, so that nothing is rounded, or leaves its range, before the end.
  bool keeps_sums() const {
    if (!is_half(type_) || operands_.size() < 2) return false;
    if (operands_.size() > 2) return true;
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      if (steps_[s] == 0 && (operands_[0].strides[s] == 0 || operands_[1].strides[s] == 0))
        return true;
    }
    return false;
  }

  void note(const std::string& way) { way_ += (way_.empty() ? "" : ", ") + way; }

  /// A tensor in the workspace, dense along the subscripts for which `has` says so.
  template <class Has>
  Operand made(const Has& has) {
    Operand tensor{{}, sum_type_, Dims(steps_.size(), 0)};
    std::int64_t step = 1;
    for (std::size_t s = steps_.size(); s-- > 0;) {
      if (!has(s)) continue;
      tensor.strides[s] = step;
      step *= subscripts_[s].dim;
    }
    tensor.memory = pieces_.add(step * sdk::element_bytes(sum_type_));
    return tensor;
  }

  /// The elements' product, of which y has all subscripts. One operand is copied.
  void multiply(const std::vector<Operand>& operands, const Operand& y) {
    Dims dims;
    std::vector<std::size_t> places;
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      if (y.strides[s] == 0) continue;
      places.push_back(s);
      dims.push_back(subscripts_[s].dim);
    }
    const auto view = [&](const Operand& operand) {
      View made{operand.memory, operand.type, {}};
      for (const std::size_t s : places) made.strides.push_back(operand.strides[s]);
      return made;
    };
    std::vector<View> views;
    std::string text;
    for (const Operand& operand : operands) {
      text += (text.empty() ? "" : " * ") + common::operand_name(views.size());
      views.push_back(view(operand));
    }
    note(operands.size() == 1 ? "copy" : "pointwise");
    const Operand& first = operands[0];
    if (operands.size() > 1 || first.type != y.type)
      return add_pointwise(target_.launches(), dims, views, view(y), {text, "", {}});
    add_strided_copy(target_.launches(), y.type,
                     {dims, first.memory, y.memory, views[0].strides, view(y).strides, 0, 0, -1});
  }

  /// The sums of x along what y has not.
  void sum(const Operand& x, const Operand& y) {
    StridedSums sums;
    sums.type = x.type;
    sums.made_type = y.type;
    sums.from = x.memory;
    sums.to = y.memory;
    sums.kept.strides.resize(2);
    sums.folded.strides.resize(1);
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      if (x.strides[s] == 0) continue;
      const bool is_kept = y.strides[s] != 0;
      common::StridedLoops& loops = is_kept ? sums.kept : sums.folded;
      loops.dims.push_back(subscripts_[s].dim);
      loops.strides[0].push_back(x.strides[s]);
      if (is_kept) loops.strides[1].push_back(y.strides[s]);
    }
    note("sums");
    add_sums(target_.launches(), sums, pieces_);
  }

  /// x less the subscripts that neither `other` nor anybody later has: summed, in the workspace.
  Operand less_own(const Operand& x, const Operand& other, const std::vector<bool>& is_kept) {
    const auto is_own = [&](std::size_t s) {
      return x.strides[s] != 0 && other.strides[s] == 0 && !is_kept[s];
    };
    bool has_own = false;
    for (std::size_t s = 0; s < steps_.size(); ++s) has_own = has_own || is_own(s);
    if (!has_own) return x;
    Operand y = made([&](std::size_t s) { return x.strides[s] != 0 && !is_own(s); });
    sum(x, y);
    return y;
  }

  /// The product of what there is and operand k.
  Operand meet(const Operand& left, std::size_t k) {
    const bool is_last = k + 1 == operands_.size();
    std::vector<bool> is_kept(steps_.size());
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      is_kept[s] = steps_[s] != 0;
      for (std::size_t later = k + 1; later < operands_.size(); ++later)
        is_kept[s] = is_kept[s] || operands_[later].strides[s] != 0;
    }
    const Operand a = less_own(left, operands_[k], is_kept);
    const Operand b = less_own(operands_[k], a, is_kept);
    const auto has = [&](std::size_t s) { return a.strides[s] != 0 || b.strides[s] != 0; };
    bool has_depth = false;
    for (std::size_t s = 0; s < steps_.size(); ++s)
      has_depth = has_depth || (has(s) && !is_kept[s]);
    if (has_depth) return multiply_matrices(a, b, is_kept, is_last);
    Operand y = is_last ? Operand{output(0), type_, steps_} : made(has);
    multiply({a, b}, y);
    return y;
  }

  /// By the provider's product. What is not the last lies as the product makes it.
  Operand multiply_matrices(Operand a, Operand b, const std::vector<bool>& is_kept, bool is_last) {
    EinsumMatrices matrices;
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      const std::int64_t step = is_last && is_kept[s] ? steps_[s] : 0;
      matrices.add({subscripts_[s].dim, a.strides[s], b.strides[s], step, s}, is_kept[s]);
    }
    if (matrices.wants_swap(target_, sum_type_, !is_last)) {
      matrices.swap();
      std::swap(a, b);
    }
    EinsumProduct product;
    product.type = sum_type_;
    EinsumLayout layout =
        EinsumLayout::of(matrices, target_, product,
                         {a.memory, b.memory, a.type != sum_type_, b.type != sum_type_, !is_last,
                          is_last && sum_type_ != type_});
    const EinsumMatrices& m = layout.matrices;
    product.a = layout.copies_a ? copied(a, {&m.batch, &m.rows, &m.depth}, &EinsumAxis::a).memory
                                : a.memory;
    product.b = layout.copies_b ? copied(b, {&m.batch, &m.depth, &m.columns}, &EinsumAxis::b).memory
                                : b.memory;
    Operand y{output(0), type_, steps_};
    Operand whole = y;
    if (!is_last || layout.copies_y) {
      whole = placed({&m.batch, &m.rows, &m.columns}, &EinsumAxis::y);
      whole.memory = pieces_.add(m.results() * sdk::element_bytes(sum_type_));
    }
    product.y = whole.memory;
    layout.set_steps(product);
    note(target_.add(product, pieces_));
    if (!is_last) return whole;
    if (layout.copies_y) multiply({whole}, y);
    return y;
  }

  /// A tensor of the type of sums with the steps that axes have.
  Operand placed(std::initializer_list<const EinsumAxes*> groups,
                 std::int64_t EinsumAxis::*step) const {
    Operand tensor{{}, sum_type_, Dims(steps_.size(), 0)};
    for (const EinsumAxes* group : groups) {
      for (const EinsumAxis& axis : *group) tensor.strides[axis.subscript] = axis.*step;
    }
    return tensor;
  }

  Operand copied(const Operand& x, std::initializer_list<const EinsumAxes*> groups,
                 std::int64_t EinsumAxis::*step) {
    Operand copy = placed(groups, step);
    std::int64_t elements = 1;
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      if (copy.strides[s] != 0) elements *= subscripts_[s].dim;
    }
    copy.memory = pieces_.add(elements * sdk::element_bytes(sum_type_));
    multiply({x}, copy);
    return copy;
  }

  EinsumTarget& target_;
  WorkspacePieces pieces_;
  DataType type_, sum_type_ = DataType::Float;
  std::vector<EinsumSubscript> subscripts_;
  Dims steps_;  ///< of the output, by subscript; 0: it is summed
  std::vector<Operand> operands_;
  std::string way_;
};

}  // namespace

void Einsum::prepare(sdk::PrepareContext& ctx, EinsumTarget& target) const {
  const std::size_t operands = equation_.term_count();
  std::vector<DimsView> shapes;
  std::uint64_t bytes = 0;
  for (std::size_t k = 0; k < operands; ++k) {
    const sdk::Tensor tensor = ctx.input(static_cast<std::uint32_t>(k));
    shapes.push_back(tensor.dims());
    bytes += tensor.bytes();
  }
  const EinsumLoops loops = equation_.loops(shapes);
  const DataType type = ctx.input(0).type();
  ctx.set_output(0, type, loops.dims);
  const std::int64_t results = sdk::element_count(loops.dims);
  if (results == 0) return;
  std::int64_t terms = 1;
  for (const EinsumSubscript& subscript : loops.summed) terms *= subscript.dim;
  if (terms == 0) {  // sums of nothing
    ctx.set_variant("no elements");
    return add_pointwise(target.launches(), loops.dims, {}, dense_view(output(0), type, loops.dims),
                         {"0", "", {}});
  }
  Contraction contraction(ctx, target, loops, operands);
  contraction.add();
  if (contraction.workspace_bytes() > 0)
    ctx.set_workspace(contraction.workspace_bytes(), target.launches().device().limits().alignment);
  ctx.set_variant(contraction.way());
  ctx.set_cost(operands * static_cast<std::uint64_t>(results * terms), bytes);
}

sdk::KernelBuilder einsum_op() {
  return sdk::op("Einsum")
      .name(kernel_name("einsum"))
      .types("T", common::join(float_types(), {DataType::Int32, DataType::Int64, DataType::UInt32,
                                               DataType::UInt64}));
}

}  // namespace backplane::device_ops
