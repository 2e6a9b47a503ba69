// Sequences: SequenceConstruct, SequenceEmpty, SequenceAt, SequenceLength, SequenceInsert, SequenceErase,
// SplitToSequence, ConcatFromSequence. https://onnx.ai/onnx/operators/onnx__SequenceConstruct.html and the others
#include <string>
#include <string_view>

#include "backplane/plugin.hpp"
#include "plugins/common/checked.hpp"
#include "plugins/cpu/kernels/dims.hpp"
#include "plugins/cpu/kernels/element_mover.hpp"
#include "plugins/cpu/kernels/index_tensor.hpp"
#include "plugins/cpu/kernels/value_type.hpp"

namespace backplane::cpu {
namespace {

/// The only element of an index input.
std::int64_t read_position(const sdk::Tensor& tensor) {
  if (tensor.size() != 1)
    sdk::failed("a position of dims ", sdk::to_string(tensor.dims()), " is not one number");
  std::int64_t position = 0;
  with_index_type(tensor, [&](const auto* data) { position = static_cast<std::int64_t>(data[0]); });
  return position;
}

std::uint64_t checked_position(const char* op, std::int64_t position, std::uint64_t limit) {
  const auto count = static_cast<std::int64_t>(limit);
  if (position < -count || position >= count)
    sdk::failed(op, ": position ", position, " is out of range for ", count, " places");
  return static_cast<std::uint64_t>(position < 0 ? position + count : position);
}

class SequenceConstruct {
 public:
  struct Prepared {
    void compute(const sdk::ComputeContext& ctx) const {
      for (std::uint32_t i = 0; i < ctx.input_count(); ++i)
        ctx.output_value(0).append(ctx.input_value(i));
    }
  };

  SequenceConstruct(const sdk::CreateContext&, const sdk::Node&) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::DataType type = ctx.input(0).type();
    for (std::uint32_t i = 1; i < ctx.input_count(); ++i) {
      if (ctx.input(i).type() != type)
        sdk::invalid("SequenceConstruct: input ", i, " has type ",
                     sdk::type_name(ctx.input(i).type()), ", input 0 ", sdk::type_name(type));
    }
    ctx.set_output_type(0, ("seq(" + sdk::tensor_type(type) + ")").c_str());
    return {};
  }
};

class SequenceEmpty {
 public:
  struct Prepared {
    void compute(const sdk::ComputeContext&) const {}
  };

  SequenceEmpty(const sdk::CreateContext&, const sdk::Node& node)
      : type_(static_cast<sdk::DataType>(node.get_int("dtype", BP_FLOAT))) {
    require_storable(type_);
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output_type(0, ("seq(" + sdk::tensor_type(type_) + ")").c_str());
    return {};
  }

 private:
  sdk::DataType type_;
};

class SequenceAt {
 public:
  struct Prepared {
    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Value sequence = ctx.input_value(0);
      const std::uint64_t at =
          checked_position("SequenceAt", read_position(ctx.input(1)), sequence.sequence_size());
      copy_to_new_output(ctx, sequence.sequence_at(at), 0);
    }
  };

  SequenceAt(const sdk::CreateContext&, const sdk::Node& node)
      : type_(element_type_of(node.input(0).type_string())) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output_unknown(0, type_, -1);
    return {};
  }

 private:
  sdk::DataType type_;
};

class SequenceLength {
 public:
  struct Prepared {
    void compute(const sdk::ComputeContext& ctx) const {
      *ctx.output(0).mutable_data<std::int64_t>() =
          static_cast<std::int64_t>(ctx.input_value(0).sequence_size());
    }
  };

  SequenceLength(const sdk::CreateContext&, const sdk::Node&) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output(0, sdk::DataType::Int64, sdk::DimsView());
    return {};
  }
};

/// Without a position: at the end.
class SequenceInsert {
 public:
  struct Prepared {
    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Value sequence = ctx.input_value(0);
      const std::uint64_t count = sequence.sequence_size();
      std::uint64_t at = count;
      if (ctx.has_input(2)) {
        const std::int64_t position = read_position(ctx.input(2));
        at = position == static_cast<std::int64_t>(count)
                 ? count
                 : checked_position("SequenceInsert", position, count);
      }
      for (std::uint64_t i = 0; i <= count; ++i) {
        if (i == at) ctx.output_value(0).append(ctx.input_value(1));
        if (i < count) ctx.output_value(0).append(sequence.sequence_at(i));
      }
    }
  };

  SequenceInsert(const sdk::CreateContext&, const sdk::Node&) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output_type(0, ("seq(" + sdk::tensor_type(ctx.input(1).type()) + ")").c_str());
    return {};
  }
};

/// Without a position: the last element.
class SequenceErase {
 public:
  struct Prepared {
    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Value sequence = ctx.input_value(0);
      const std::uint64_t count = sequence.sequence_size();
      const std::int64_t position = ctx.has_input(1) ? read_position(ctx.input(1)) : -1;
      const std::uint64_t at = checked_position("SequenceErase", position, count);
      for (std::uint64_t i = 0; i < count; ++i) {
        if (i != at) ctx.output_value(0).append(sequence.sequence_at(i));
      }
    }
  };

  SequenceErase(const sdk::CreateContext&, const sdk::Node& node)
      : type_(node.input(0).type_string()) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output_type(0, type_.c_str());
    return {};
  }

 private:
  std::string type_;
};

/// Parts of a tensor along an axis: one element each without `split`, parts of equal size for a scalar.
class SplitToSequence {
 public:
  struct Prepared {
    sdk::Dims dims;
    std::size_t axis;
    std::int64_t outer, run;
    bool keep;

    void compute(const sdk::ComputeContext& ctx) const {
      if (!ctx.has_input(1)) return equal_parts(ctx, 1, keep);
      const sdk::Tensor split = ctx.input(1);
      if (split.rank() == 0) return equal_parts(ctx, read_position(split), true);
      with_index_type(split, [&](const auto* sizes) {
        common::Checked total(0);
        for (std::int64_t i = 0; i < split.size(); ++i) {
          if (sizes[i] < 0)
            sdk::failed("SplitToSequence: part ", i, " has the negative size ", sizes[i]);
          total = total + static_cast<std::int64_t>(sizes[i]);
        }
        const std::int64_t sum = total.value("SplitToSequence: the sum of the parts' sizes");
        if (sum != dims[axis])
          sdk::failed("SplitToSequence: the parts sum up to ", sum, ", axis ", axis, " has ",
                      dims[axis], " elements");
        std::int64_t start = 0;
        for (std::int64_t i = 0; i < split.size(); ++i) {
          add_part(ctx, start, static_cast<std::int64_t>(sizes[i]), true);
          start += static_cast<std::int64_t>(sizes[i]);
        }
      });
    }

   private:
    void equal_parts(const sdk::ComputeContext& ctx, std::int64_t size, bool keep_axis) const {
      if (size <= 0) sdk::failed("SplitToSequence: the part size ", size, " is not positive");
      for (std::int64_t start = 0; start < dims[axis];) {
        const std::int64_t part = std::min(size, dims[axis] - start);
        add_part(ctx, start, part, keep_axis);
        start += part;
      }
    }

    void add_part(const sdk::ComputeContext& ctx, std::int64_t start, std::int64_t size,
                  bool keep_axis) const {
      auto* part = ctx.workspace().mutable_data<std::int64_t>();
      std::size_t rank = 0;
      for (std::size_t i = 0; i < dims.size(); ++i) {
        if (i != axis) part[rank++] = dims[i];
        if (i == axis && keep_axis) part[rank++] = size;
      }
      const sdk::Value element =
          ctx.output_value(0).append(ctx.input(0).type(), sdk::DimsView(part, rank));
      if (size * run == 0) return;
      const ElementMover mover(ctx.input_value(0), element);
      for (std::int64_t o = 0; o < outer; ++o)
        mover.copy(o * size * run, (o * dims[axis] + start) * run, size * run);
    }
  };

  SplitToSequence(const sdk::CreateContext&, const sdk::Node& node)
      : axis_(node.get_int("axis", 0)), keep_(node.get_int("keepdims", 1) != 0) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor input = ctx.input(0);
    require_storable(input.type());
    const auto axis = static_cast<std::size_t>(normalize_axis(axis_, input.rank()));
    if (ctx.input(1).present() && ctx.input(1).rank() > 1)
      sdk::invalid("SplitToSequence: split has rank ", ctx.input(1).rank());
    ctx.set_output_type(0, ("seq(" + sdk::tensor_type(input.type()) + ")").c_str());
    ctx.set_workspace(8 * static_cast<std::uint64_t>(input.rank()));  // for the dims of a part
    return {to_dims(input.dims()), axis, dims_product(input.dims(), 0, axis),
            dims_product(input.dims(), axis + 1, input.dims().size()), keep_};
  }

 private:
  std::int64_t axis_;
  bool keep_;
};

/// Concat, or with new_axis Stack, of all elements.
class ConcatFromSequence {
 public:
  struct Prepared {
    std::int64_t axis;
    bool new_axis;

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Value sequence = ctx.input_value(0);
      const std::uint64_t count = sequence.sequence_size();
      if (count == 0) sdk::failed("ConcatFromSequence: the sequence is empty");
      const sdk::Tensor first = sequence.sequence_at(0).tensor();
      const int rank = first.rank() + (new_axis ? 1 : 0);
      if (rank > kMaxRank || axis < -rank || axis >= rank)
        sdk::failed("ConcatFromSequence: axis ", axis, " does not fit elements of rank ",
                    first.rank());
      const int at = static_cast<int>(axis < 0 ? axis + rank : axis);
      std::int64_t dims[kMaxRank] = {};
      for (int i = 0; i < rank; ++i) {
        if (i != at) dims[i] = first.dim(new_axis && i > at ? i - 1 : i);
      }
      for (std::uint64_t n = 0; n < count; ++n)
        dims[at] += size_along(sequence.sequence_at(n).tensor(), first, at, n);
      ctx.alloc_output(0, sdk::DimsView(dims, static_cast<std::size_t>(rank)));
      std::int64_t outer = 1, run = 1, start = 0;
      for (int i = 0; i < rank; ++i) (i < at ? outer : run) *= i == at ? 1 : dims[i];
      if (outer * run == 0) return;
      for (std::uint64_t n = 0; n < count; ++n) {
        const sdk::Value element = sequence.sequence_at(n);
        const std::int64_t size = size_along(element.tensor(), first, at, n) * run;
        const ElementMover mover(element, ctx.output_value(0));
        for (std::int64_t o = 0; o < outer && size > 0; ++o)
          mover.copy(o * dims[at] * run + start, o * size, size);
        start += size;
      }
    }

   private:
    static constexpr int kMaxRank = 32;

    std::int64_t size_along(const sdk::Tensor& element, const sdk::Tensor& first, int at,
                            std::uint64_t index) const {
      bool fits = element.rank() == first.rank();
      for (int i = 0; fits && i < first.rank(); ++i)
        fits = (!new_axis && i == at) || element.dim(i) == first.dim(i);
      if (!fits)
        sdk::failed("ConcatFromSequence: element ", index, " has dims ",
                    sdk::to_string(element.dims()), ", element 0 ", sdk::to_string(first.dims()));
      return new_axis ? 1 : element.dim(at);
    }
  };

  ConcatFromSequence(const sdk::CreateContext&, const sdk::Node& node)
      : axis_(node.get_int("axis", 0)),
        new_axis_(node.get_int("new_axis", 0) != 0),
        type_(element_type_of(node.input(0).type_string())) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output_unknown(0, type_, -1);
    return {axis_, new_axis_};
  }

 private:
  std::int64_t axis_;
  bool new_axis_;
  sdk::DataType type_;
};

}  // namespace

sdk::KernelList sequence_kernels() {
  return {sdk::op("SequenceConstruct").name("cpu:sequence_construct").kernel<SequenceConstruct>(),
          sdk::op("SequenceEmpty").name("cpu:sequence_empty").kernel<SequenceEmpty>(),
          sdk::op("SequenceAt")
              .name("cpu:sequence_at")
              .flags(BP_KERNEL_DATA_DEPENDENT)
              .kernel<SequenceAt>(),
          sdk::op("SequenceLength").name("cpu:sequence_length").kernel<SequenceLength>(),
          sdk::op("SequenceInsert").name("cpu:sequence_insert").kernel<SequenceInsert>(),
          sdk::op("SequenceErase").name("cpu:sequence_erase").kernel<SequenceErase>(),
          sdk::op("SplitToSequence").name("cpu:split_to_sequence").kernel<SplitToSequence>(),
          sdk::op("ConcatFromSequence")
              .name("cpu:concat_from_sequence")
              .flags(BP_KERNEL_DATA_DEPENDENT)
              .kernel<ConcatFromSequence>()};
}

}  // namespace backplane::cpu
