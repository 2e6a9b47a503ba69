// Operators that only move elements, by strides: Transpose, Concat, Split, Slice, Part, JoinedPart, Expand,
// Tile, DepthToSpace, SpaceToDepth. https://onnx.ai/onnx/operators/onnx__Transpose.html and the pages beside it.
#include <algorithm>
#include <limits>

#include "op_table.hpp"
#include "plugins/common/broadcast.hpp"
#include "plugins/common/checked.hpp"
#include "plugins/common/device_ops/joined_parts.hpp"
#include "plugins/common/device_ops/pointwise.hpp"
#include "plugins/common/device_ops/types.hpp"
#include "plugins/common/device_ops/walk.hpp"

namespace backplane::device_ops {
namespace {

using common::dense_strides;

/// Whether the elements lie one after another where they come from and where they go.
bool is_one_piece(const StridedCopy& copy) {
  const common::StridedLoops loops =
      common::merge_axes({copy.dims, {copy.from_strides, copy.to_strides}});
  const auto is_dense = [&](const Dims& strides) { return strides[0] == 1; };
  return loops.dims.size() == 1 &&
         (loops.dims[0] == 1 || std::all_of(loops.strides.begin(), loops.strides.end(), is_dense));
}

/// Makes a whole output of elements of input 0. What lies there in one piece is a view, and copied only where the host does
/// not grant that.
void add_move(sdk::PrepareContext& ctx, Work& work, DataType type, const StridedCopy& copy) {
  if (sdk::element_count(copy.dims) == 0) return;
  const auto offset_bytes = static_cast<std::uint64_t>(copy.from_offset) *
                            static_cast<std::uint64_t>(sdk::element_bytes(type));
  if (is_one_piece(copy) && offset_bytes % work.device().limits().alignment == 0)
    ctx.set_view(copy.to.index, 0, offset_bytes);
  add_strided_copy(work, type, copy);
}

class Transpose {
 public:
  Transpose(const Device&, const sdk::Node& node) : order_(node.get_ints("perm")) {}
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    Dims order = order_;
    if (order.empty()) {
      for (int axis = x.rank(); axis-- > 0;) order.push_back(axis);
    }
    if (static_cast<int>(order.size()) != x.rank())
      sdk::invalid("Transpose of ", to_string(x.dims()), " with perm ", sdk::to_string(order));
    const Dims strides = dense_strides(x.dims());
    StridedCopy copy;
    copy.from = input(0);
    copy.to = output(0);
    for (const std::int64_t from : order) {
      const auto axis = static_cast<std::size_t>(normalize_axis(from, x.rank()));
      copy.dims.push_back(x.dims()[axis]);
      copy.from_strides.push_back(strides[axis]);
    }
    copy.to_strides = dense_strides(copy.dims);
    ctx.set_output(0, x.type(), copy.dims);
    add_move(ctx, work, x.type(), copy);
  }

 private:
  Dims order_;
};

class Concat {
 public:
  Concat(const Device&, const sdk::Node& node) : axis_(node.get_int("axis", 1)) {}
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor first = ctx.input(0);
    const int axis = normalize_axis(axis_, first.rank());
    const auto at = static_cast<std::size_t>(axis);
    Dims dims(first.dims().begin(), first.dims().end());
    for (std::uint32_t i = 1; i < ctx.input_count(); ++i) {
      const DimsView more = ctx.input(i).dims();
      for (std::size_t d = 0; d < dims.size(); ++d) {
        if (more.size() != dims.size() || (d != at && more[d] != dims[d]))
          sdk::invalid("Concat of ", to_string(first.dims()), " and ", to_string(more),
                       " along axis ", axis);
      }
      dims[at] = (common::Checked(dims[at]) + more[at])
                     .value("Concat: the sum of the inputs' sizes along axis ", axis);
    }
    ctx.set_output(0, first.type(), dims);
    const Dims strides = dense_strides(dims);
    const auto bytes = static_cast<std::uint64_t>(sdk::element_bytes(first.type()));
    const bool is_outermost = common::product(dims, 0, axis) == 1;
    if (!is_outermost && add_at_once(ctx, work, axis, dims)) return;
    const std::uint64_t alignment = work.device().limits().alignment;
    std::int64_t begin = 0;
    for (std::uint32_t i = 0; i < ctx.input_count(); ++i) {
      const sdk::Tensor x = ctx.input(i);
      const std::int64_t offset = begin * strides[at];
      const std::uint64_t offset_bytes = static_cast<std::uint64_t>(offset) * bytes;
      const bool may_be_inside = is_outermost && offset_bytes % alignment == 0 && x.size() > 0;
      if (may_be_inside) ctx.set_inside(i, 0, offset_bytes);
      // The only one with elements is all there is.
      if (x.size() > 0 && x.dims()[at] == dims[at]) ctx.set_view(0, i);
      add_strided_copy(
          work, x.type(),
          {Dims(x.dims().begin(), x.dims().end()), input(i), output(0), dense_strides(x.dims()),
           strides, 0, offset, may_be_inside ? static_cast<int>(i) : -1});
      begin += x.dims()[at];
    }
  }

 private:
  /// One launch for all operands, whose rows lie one after another in the output's: an item finds the operand that its elements are
  /// of, 16 bytes of them where the rows of all operands are multiples of that. Not on processors, and not for many operands: then
  /// nothing is added.
  static bool add_at_once(const sdk::PrepareContext& ctx, Work& work, int axis, const Dims& dims) {
    constexpr std::size_t kMost = 8;
    std::vector<std::uint32_t> operands;
    for (std::uint32_t i = 0; i < ctx.input_count(); ++i) {
      if (ctx.input(i).size() > 0) operands.push_back(i);
    }
    if (work.device().limits().is_processor || operands.size() < 2 || operands.size() > kMost)
      return false;
    const int rank = static_cast<int>(dims.size());
    const DataType word = word_of(ctx.input(0).type());
    const std::int64_t bytes = sdk::element_bytes(word), row = common::product(dims, axis, rank);
    std::int64_t width = common::kWidestBytes / bytes;
    for (const std::uint32_t i : operands) {
      while (common::product(ctx.input(i).dims(), axis, rank) % width != 0) width /= 2;
    }
    Walk walk(Dims{common::product(dims, 0, axis), row / width});
    std::string find;
    for (std::size_t k = operands.size(); k-- > 0;) {
      const std::string place = sdk::message("from = x", k, " + i1 * row", k, " + at;");
      find = find.empty() ? place
                          : sdk::message("if (at < row", k, ") ", place, "\n  else {\n  at -= row",
                                         k, ";\n  ", find, "\n  }");
    }
    for (std::size_t k = 0; k < operands.size(); ++k) {
      walk.in(sdk::message('x', k), input(operands[k]), word);
      walk.number(sdk::message("row", k),
                  common::product(ctx.input(operands[k]).dims(), axis, rank));
    }
    walk.out("y", output(0), word).number("row", row);
    const std::int64_t total = width * bytes;
    walk.functions = common::kNeighbourWords;
    walk.body = sdk::message("  i64 at = i0 * ", width, ";\n  GLOBAL STORAGE(", type_code(word),
                             ") *to = y + i1 * row + at;\n  GLOBAL const STORAGE(", type_code(word),
                             ") *from;\n  ", find, "\n");
    if (width > 1)
      walk.body +=
          sdk::message("  if (IS_AT(from, ", total, ") && IS_AT(to, ", total, ")) {\n    write_",
                       total, "(to, read_", total, "(from));\n    return;\n  }\n");
    walk.body += sdk::message("  UNROLL for (int e = 0; e < ", width, "; ++e) to[e] = from[e];");
    walk.name("concat").add_to(work);
    return true;
  }

  std::int64_t axis_;
};

class Split {
 public:
  Split(const Device&, const sdk::Node& node)
      : axis_(node.get_int("axis", 0)),
        sizes_(node.get_ints("split")),
        parts_(static_cast<std::int64_t>(node.output_count())) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    const int axis = normalize_axis(axis_, x.rank());
    const auto at = static_cast<std::size_t>(axis);
    Dims sizes = ctx.input(1).present() ? ctx.input(1).to_ints() : sizes_;
    if (sizes.empty()) {
      const std::int64_t part = (x.dims()[at] + parts_ - 1) / parts_;
      for (std::int64_t rest = x.dims()[at], i = 0; i < parts_; ++i, rest -= part)
        sizes.push_back(std::clamp<std::int64_t>(rest, 0, part));
    }
    common::Checked total(0);
    for (const std::int64_t size : sizes) {
      if (size < 0) sdk::invalid("Split into ", sdk::to_string(sizes));
      total = total + size;
    }
    const std::int64_t sum =
        total.value("Split: the sum of the part sizes ", sdk::to_string(sizes));
    if (static_cast<std::int64_t>(sizes.size()) != parts_ || sum != x.dims()[at])
      sdk::invalid("Split of axis ", axis, " of ", to_string(x.dims()), " into ",
                   sdk::to_string(sizes));
    const Dims strides = dense_strides(x.dims());
    std::int64_t begin = 0;
    for (std::uint32_t i = 0; i < sizes.size(); begin += sizes[i++]) {
      if (!ctx.output_wanted(i)) continue;
      Dims dims(x.dims().begin(), x.dims().end());
      dims[at] = sizes[i];
      ctx.set_output(i, x.type(), dims);
      add_move(ctx, work, x.type(),
               {dims, input(0), output(i), strides, dense_strides(dims), begin * strides[at]});
    }
  }

 private:
  std::int64_t axis_;
  Dims sizes_;
  std::int64_t parts_;
};

/// One place of an axis: what a rewrite makes of a Gather.
class Part {
 public:
  Part(const Device&, const sdk::Node& node)
      : axis_(node.get_int("axis", 0)),
        begin_(node.get_int("begin", 0)),
        keeps_axis_(node.get_int("keeps_axis", 0) != 0) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    const int axis = normalize_axis(axis_, x.rank());
    const auto at = static_cast<std::size_t>(axis);
    if (begin_ < 0 || begin_ >= x.dim(axis))
      sdk::invalid("place ", begin_, " of axis ", axis, " of ", to_string(x.dims()));
    const Dims strides = dense_strides(x.dims());
    Dims part(x.dims().begin(), x.dims().end());
    part[at] = 1;
    Dims dims = part;
    if (!keeps_axis_) dims.erase(dims.begin() + axis);
    ctx.set_output(0, x.type(), dims);
    add_move(ctx, work, x.type(),
             {part, input(0), output(0), strides, dense_strides(part), begin_ * strides[at]});
  }

 private:
  std::int64_t axis_, begin_;
  bool keeps_axis_;
};

/// The result of one product of several that are one: what a rewrite's node made begins there.
class JoinedPart {
 public:
  JoinedPart(const Device&, const sdk::Node& node) : place_(node.get_int("place", 0)) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    if (place_ < 0 || x.rank() < 1 || place_ >= x.dim(0))
      sdk::invalid("part ", place_, " of ", to_string(x.dims()));
    const Dims dims(x.dims().begin() + 1, x.dims().end());
    ctx.set_output(0, x.type(), dims);
    const std::int64_t step =
        step_of_parts(sdk::element_count(dims), x.type(), work.device().limits().alignment);
    const Dims strides = dense_strides(dims);
    add_move(ctx, work, x.type(), {dims, input(0), output(0), strides, strides, place_ * step});
  }

 private:
  std::int64_t place_;
};

/// Begin, end and step of one axis, as in NumPy, but that a begin before the first element is the first, whatever the step.
struct SliceRange {
  std::int64_t begin, step, count;
};

SliceRange resolve_range(std::int64_t begin, std::int64_t end, std::int64_t step,
                         std::int64_t size) {
  if (step == 0) sdk::invalid("Slice with step 0");
  if (size == 0) return {0, step, 0};
  const auto fit = [&](std::int64_t at) {
    if (at < 0) at += size;
    return std::clamp<std::int64_t>(at, 0, step > 0 ? size : size - 1);
  };
  // An end far below zero means "past the first" and stays there.
  const std::int64_t first = fit(begin);
  const std::int64_t last = step < 0 && end < -size ? -1 : fit(end);
  const std::int64_t span = step > 0 ? last - first : first - last;
  const std::int64_t stride = step > 0 ? step
                              : step == std::numeric_limits<std::int64_t>::min()
                                  ? std::numeric_limits<std::int64_t>::max()
                                  : -step;
  return {first, step, span <= 0 ? 0 : (span - 1) / stride + 1};
}

class Slice {
 public:
  Slice(const Device&, const sdk::Node& node)
      : starts_(node.get_ints("starts")),
        ends_(node.get_ints("ends")),
        axes_(node.get_ints("axes")) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    const auto list = [&](std::uint32_t index, const Dims& otherwise) {
      return ctx.input(index).present() ? ctx.input(index).to_ints() : otherwise;
    };
    const Dims starts = list(1, starts_), ends = list(2, ends_), steps = list(4, {});
    Dims axes = list(3, axes_);
    if (axes.empty()) {
      for (std::size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
    }
    if (ends.size() != starts.size() || axes.size() != starts.size())
      sdk::invalid("Slice with ", starts.size(), " starts, ", ends.size(), " ends and ",
                   axes.size(), " axes");
    StridedCopy copy;
    copy.from = input(0);
    copy.to = output(0);
    copy.dims.assign(x.dims().begin(), x.dims().end());
    copy.from_strides = dense_strides(x.dims());
    for (std::size_t i = 0; i < starts.size(); ++i) {
      const auto at = static_cast<std::size_t>(normalize_axis(axes[i], x.rank()));
      const SliceRange range =
          resolve_range(starts[i], ends[i], i < steps.size() ? steps[i] : 1, x.dims()[at]);
      copy.dims[at] = range.count;
      copy.from_offset += range.begin * copy.from_strides[at];
      copy.from_strides[at] *= range.count <= 1 ? 1 : range.step;
    }
    copy.to_strides = dense_strides(copy.dims);
    ctx.set_output(0, x.type(), copy.dims);
    add_move(ctx, work, x.type(), copy);
  }

 private:
  Dims starts_, ends_, axes_;
};

class Expand {
 public:
  Expand(const Device&, const sdk::Node&) {}
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    const Dims wanted = ctx.input(1).to_ints();
    const Dims dims = common::broadcast_dims({x.dims(), wanted});
    ctx.set_output(0, x.type(), dims);
    const View from = broadcast_view(input(0), x.type(), x.dims(), dims);
    add_move(ctx, work, x.type(), {dims, input(0), output(0), from.strides, dense_strides(dims)});
  }
};

/// Each axis becomes two: the repeats, which do not move in the input, and the elements.
class TileCopies {
 public:
  TileCopies(const Device&, const sdk::Node&) {}
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    const Dims repeats = ctx.input(1).to_ints(), strides = dense_strides(x.dims());
    if (repeats.size() != x.dims().size())
      sdk::invalid("Tile of ", to_string(x.dims()), " with ", repeats.size(), " repeats");
    Dims dims;
    StridedCopy copy;
    copy.from = input(0);
    copy.to = output(0);
    for (std::size_t axis = 0; axis < repeats.size(); ++axis) {
      if (repeats[axis] < 0) sdk::invalid("Tile repeats axis ", axis, " ", repeats[axis], " times");
      dims.push_back((common::Checked(x.dims()[axis]) * repeats[axis])
                         .value("Tile: ", repeats[axis], " times the ", x.dims()[axis],
                                " elements of axis ", axis));
      copy.dims.insert(copy.dims.end(), {repeats[axis], x.dims()[axis]});
      copy.from_strides.insert(copy.from_strides.end(), {0, strides[axis]});
    }
    copy.to_strides = dense_strides(copy.dims);
    ctx.set_output(0, x.type(), dims);
    add_move(ctx, work, x.type(), copy);
  }
};

/// DepthToSpace and SpaceToDepth: a transposition of six axes.
class Blocks {
 public:
  Blocks(const Device&, const sdk::Node& node)
      : to_space_(node.op_type() == "DepthToSpace"),
        is_crd_(node.get_string("mode", "DCR") == "CRD"),
        block_(node.get_int("blocksize", 0)) {
    if (block_ <= 0) sdk::invalid(node.op_type(), " with blocksize ", block_);
    const std::string mode = node.get_string("mode", "DCR");
    if (mode != "DCR" && mode != "CRD")
      sdk::invalid(node.op_type(), " with mode '", mode, "', which is neither DCR nor CRD");
  }
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    if (x.rank() != 4) sdk::invalid("the input has dims ", to_string(x.dims()), ", not four");
    const std::int64_t n = x.dim(0), c = x.dim(1), h = x.dim(2), w = x.dim(3), b = block_;
    const std::int64_t block =
        (common::Checked(b) * b).value("a block of ", b, " x ", b, " pixels");
    const auto times = [](std::int64_t factor, std::int64_t dim) {
      return (common::Checked(factor) * dim).value(factor, " times ", dim, " elements of an axis");
    };
    const bool fits = to_space_ ? c % block == 0 : h % b == 0 && w % b == 0;
    if (!fits) sdk::invalid("blocks of ", b, " do not divide ", to_string(x.dims()));
    StridedCopy copy;
    copy.from = input(0);
    copy.to = output(0);
    Dims from, order;
    if (to_space_) {
      from = is_crd_ ? Dims{n, c / block, b, b, h, w} : Dims{n, b, b, c / block, h, w};
      order = is_crd_ ? Dims{0, 1, 4, 2, 5, 3} : Dims{0, 3, 4, 1, 5, 2};
      ctx.set_output(0, x.type(), Dims{n, c / block, times(b, h), times(b, w)});
    } else {
      from = {n, c, h / b, b, w / b, b};
      order = is_crd_ ? Dims{0, 1, 3, 5, 2, 4} : Dims{0, 3, 5, 1, 2, 4};
      ctx.set_output(0, x.type(), Dims{n, times(block, c), h / b, w / b});
    }
    const Dims strides = dense_strides(from);
    for (const std::int64_t axis : order) {
      copy.dims.push_back(from[static_cast<std::size_t>(axis)]);
      copy.from_strides.push_back(strides[static_cast<std::size_t>(axis)]);
    }
    copy.to_strides = dense_strides(copy.dims);
    add_move(ctx, work, x.type(), copy);
  }

 private:
  bool to_space_, is_crd_;
  std::int64_t block_;
};

}  // namespace

KernelList movement_kernels() {
  const common::TypeList types = element_types();
  const auto host = BP_INPUT_HOST_VALUE;
  return {
      device_kernel<Transpose>(
          sdk::op("Transpose").name(kernel_name("strided copy")).types("T", types)),
      device_kernel<Concat>(
          sdk::op("Concat").name(kernel_name("strided copy")).since(4).types("T", types)),
      device_kernel<Split>(sdk::op("Split")
                               .name(kernel_name("strided copy"))
                               .since(2)
                               .types("T", types)
                               .roles({BP_INPUT_DATA, host})),
      device_kernel<Slice>(sdk::op("Slice")
                               .name(kernel_name("strided copy"))
                               .types("T", types)
                               .roles({BP_INPUT_DATA, host})),
      device_kernel<Part>(sdk::op("Part", private_domain())
                              .name(kernel_name("part"))
                              .input_types(0, {DataType::Float, DataType::Double, DataType::Float16,
                                               DataType::BFloat16})),
      device_kernel<JoinedPart>(
          sdk::op("JoinedPart", private_domain())
              .name(kernel_name("part"))
              .input_types(0, {DataType::Float, DataType::Float16, DataType::BFloat16})),
      device_kernel<Expand>(sdk::op("Expand")
                                .name(kernel_name("strided copy"))
                                .types("T", types)
                                .roles({BP_INPUT_DATA, host})),
      device_kernel<TileCopies>(sdk::op("Tile")
                                    .name(kernel_name("strided copy"))
                                    .since(6)
                                    .types("T", types)
                                    .roles({BP_INPUT_DATA, host})),
      device_kernel<Blocks>(
          sdk::op("DepthToSpace").name(kernel_name("strided copy")).types("T", types)),
      device_kernel<Blocks>(
          sdk::op("SpaceToDepth").name(kernel_name("strided copy")).types("T", types)),
  };
}

}  // namespace backplane::device_ops
