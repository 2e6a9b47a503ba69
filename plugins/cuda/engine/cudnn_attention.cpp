// The graph is that of cuDNN's own front end for a fused attention, node by node: the library knows it by its form.
#include "plugins/cuda/engine/cudnn_attention.hpp"

#include <limits>
#include <map>

namespace backplane::cuda {
namespace {

/// Of a tensor in a graph, and in a run's list of addresses.
enum AttentionId : std::int64_t {
  kQuery = 1,
  kKey,
  kValue,
  kResult,
  kMaskValues,
  kScaleNumber,
  kLowestNumber,
  kInner,  ///< and what follows lies nowhere
};

using AttentionDims = std::array<std::int64_t, 4>;

/// An attention as a graph of the library's.
class AttentionGraph {
 public:
  explicit AttentionGraph(const Attention& form) : form_(form), type_(cudnn_type(form.type)) {
    scores_ = {form.batch, form.heads, form.rows, form.columns};
    sums_ = {form.batch, form.heads, form.rows, 1};
    add_operands();
    std::int64_t last = new_inner(scores_, CUDNN_DATA_FLOAT);
    add_product(kQuery, kKey, last);
    last = pointwise(CUDNN_POINTWISE_MUL, last, kScaleNumber, scores_);
    if (form.has_mask) last = pointwise(CUDNN_POINTWISE_ADD, last, kMaskValues, scores_);
    if (form.is_causal) last = add_causal(last);
    last = add_softmax(last);
    add_product(last, kValue, kResult);
  }
  /// Why the library has no such graph; empty where it has.
  std::string try_finish(const Target& target) {
    return try_finish_graph(graph_, operations_, target);
  }
  const Description& graph() const { return graph_; }

 private:
  static AttentionDims dense(const AttentionDims& dims) {
    return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
  }

  void add_operands() {
    const Attention& f = form_;
    tensor(kQuery, {f.batch, f.heads, f.rows, f.width}, strides(f.q), type_);
    // Its transpose is multiplied.
    tensor(kKey, {f.batch, f.groups, f.width, f.columns}, {f.k.batch, f.k.head, 1, f.k.position},
           type_);
    tensor(kValue, {f.batch, f.groups, f.columns, f.value_width}, strides(f.v), type_);
    tensor(kResult, {f.batch, f.heads, f.rows, f.value_width}, strides(f.y), type_);
    if (f.has_mask) tensor(kMaskValues, f.mask_dims, dense(f.mask_dims), type_);
    const AttentionDims one{1, 1, 1, 1};
    tensor(kScaleNumber, one, one, CUDNN_DATA_FLOAT);
    if (f.is_causal) tensor(kLowestNumber, one, one, CUDNN_DATA_FLOAT);
  }
  static AttentionDims strides(const AttentionSteps& steps) {
    return {steps.batch, steps.head, steps.position, 1};
  }

  void tensor(std::int64_t id, const AttentionDims& dims, const AttentionDims& strides,
              cudnnDataType_t type) {
    const std::int64_t alignment = kLibraryAlignment;
    const bool is_virtual = id >= kInner, is_number = id == kScaleNumber || id == kLowestNumber;
    Description& made = tensors_.emplace(id, CUDNN_BACKEND_TENSOR_DESCRIPTOR).first->second;
    made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims.size(), dims.data());
    made.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.size(), strides.data());
    made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
    made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
    made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
    if (is_number) made.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, is_number);
    made.finish();
  }
  std::int64_t new_inner(const AttentionDims& dims, cudnnDataType_t type) {
    const std::int64_t id = next_++;
    tensor(id, dims, dense(dims), type);
    return id;
  }

  void add_product(std::int64_t a, std::int64_t b, std::int64_t c) {
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    Description& product = parts_.emplace_back(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    product.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, sums);
    product.finish();
    Description& operation = operations_.emplace_back(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensors_.at(a));
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensors_.at(b));
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensors_.at(c));
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, product);
    operation.finish();
  }

  /// What is computed of x, and of `other` and the condition where they are given (not 0).
  struct Pointwise {
    cudnnPointwiseMode_t mode;
    std::int64_t x = 0, other = 0, condition = 0, axis = -1;
    cudnnDataType_t arithmetic = CUDNN_DATA_FLOAT, result = CUDNN_DATA_FLOAT;
  };
  std::int64_t pointwise(const Pointwise& wanted, const AttentionDims& dims) {
    const std::int64_t to = new_inner(dims, wanted.result);
    Description& pointwise = parts_.emplace_back(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    pointwise.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, wanted.mode);
    pointwise.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, wanted.arithmetic);
    if (wanted.axis >= 0) pointwise.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, wanted.axis);
    pointwise.finish();
    Description& operation = operations_.emplace_back(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensors_.at(wanted.x));
    if (wanted.other != 0)
      operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensors_.at(wanted.other));
    if (wanted.condition != 0)
      operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, tensors_.at(wanted.condition));
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors_.at(to));
    operation.finish();
    return to;
  }
  std::int64_t pointwise(cudnnPointwiseMode_t mode, std::int64_t x, std::int64_t other,
                         const AttentionDims& dims) {
    return pointwise({mode, x, other}, dims);
  }

  /// Where a column is past its row, the lowest number.
  std::int64_t add_causal(std::int64_t from) {
    const auto index = [&](std::int64_t axis) {
      return pointwise(
          {CUDNN_POINTWISE_GEN_INDEX, from, 0, 0, axis, CUDNN_DATA_INT32, CUDNN_DATA_INT32},
          scores_);
    };
    const std::int64_t row = index(2), column = index(3);
    const std::int64_t is_seen = pointwise(
        {CUDNN_POINTWISE_CMP_GE, row, column, 0, -1, CUDNN_DATA_BOOLEAN, CUDNN_DATA_BOOLEAN},
        scores_);
    return pointwise({CUDNN_POINTWISE_BINARY_SELECT, from, kLowestNumber, is_seen}, scores_);
  }

  std::int64_t add_softmax(std::int64_t from) {
    const std::int64_t greatest = reduce(CUDNN_REDUCE_TENSOR_MAX, from);
    const std::int64_t moved = pointwise(CUDNN_POINTWISE_SUB, from, greatest, scores_);
    const std::int64_t powers = pointwise(CUDNN_POINTWISE_EXP, moved, 0, scores_);
    const std::int64_t sums = reduce(CUDNN_REDUCE_TENSOR_ADD, powers);
    // What a training would keep. It is read by nobody, and the library knows no attention without it.
    pointwise(CUDNN_POINTWISE_ADD, greatest, pointwise(CUDNN_POINTWISE_LOG, sums, 0, sums_), sums_);
    return pointwise({CUDNN_POINTWISE_DIV, powers, sums, 0, -1, CUDNN_DATA_FLOAT, type_}, scores_);
  }
  std::int64_t reduce(cudnnReduceTensorOp_t kind, std::int64_t from) {
    const cudnnDataType_t arithmetic = CUDNN_DATA_FLOAT;
    const std::int64_t to = new_inner(sums_, arithmetic);
    Description& reduction = parts_.emplace_back(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    reduction.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, kind);
    reduction.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, arithmetic);
    reduction.finish();
    Description& operation = operations_.emplace_back(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensors_.at(from));
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensors_.at(to));
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction);
    operation.finish();
    return to;
  }

  const Attention& form_;
  cudnnDataType_t type_;
  AttentionDims scores_{}, sums_{};
  std::int64_t next_ = kInner;
  std::map<std::int64_t, Description> tensors_;
  std::vector<Description> parts_, operations_;
  Description graph_{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
};

class LinkedAttention final : public PreparedAttention {
 public:
  LinkedAttention(Handles& handles, const Attention& form, FinishedPlan plan)
      : handles_(handles),
        plan_(std::move(plan)),
        has_mask_(form.has_mask),
        is_causal_(form.is_causal) {}
  ~LinkedAttention() override { plan_.end(handles_.context()); }
  std::uint64_t workspace_bytes() const override { return plan_.workspace_bytes(); }
  std::string kept() const override { return plan_.kept(); }

 private:
  void put_on(KernelQueue& queue, const AttentionAddresses& at, float scale) const override {
    float lowest = std::numeric_limits<float>::lowest();
    std::array<std::int64_t, 7> ids{kQuery, kKey, kValue, kResult, kScaleNumber};
    std::array<void*, 7> addresses{pointer(at.q), pointer(at.k), pointer(at.v), pointer(at.y),
                                   &scale};
    std::size_t count = 5;
    const auto add = [&](std::int64_t id, void* address) {
      ids[count] = id;
      addresses[count++] = address;
    };
    if (has_mask_) add(kMaskValues, pointer(at.mask));
    if (is_causal_) add(kLowestNumber, &lowest);
    plan_.enqueue(handles_, queue.for_library(), count, ids.data(), addresses.data(), at.workspace);
  }

  Handles& handles_;
  FinishedPlan plan_;
  bool has_mask_, is_causal_;
};

}  // namespace

std::string offer_plans(const Attention& form, const Target& target, std::uint64_t workspace_limit,
                        const PlanTaker& take) {
  if (has_known_fault(form, cudnnGetVersion()))
    return "this version's attention is known for faults";
  AttentionGraph graph(form);
  if (std::string why = graph.try_finish(target); !why.empty()) return why;
  return offer_plans(
      target, graph.graph(), workspace_limit, [](cudnnBackendDescriptor_t) { return true; }, take);
}

namespace {

class CudnnAttention final : public AttentionLibrary {
 public:
  explicit CudnnAttention(Context& context) : handles_(context) {}
  std::string version() override { return version_; }
  void begin(const Attention&) override { handles_.get(); }

  std::string offer(const Attention& form, std::uint64_t workspace_limit,
                    const Taker& take) override {
    const TakenHandle handle(handles_.get());
    return offer_plans(form, Target(handle.get()), workspace_limit,
                       [&](FinishedPlan plan) { return take(linked(form, std::move(plan))); });
  }

  std::shared_ptr<const PreparedAttention> restore(const Attention& form,
                                                   const std::string& kept) override {
    const TakenHandle handle(handles_.get());
    std::optional<FinishedPlan> plan = restored_plan(Target(handle.get()), kept);
    return plan ? linked(form, std::move(*plan)) : nullptr;
  }

 private:
  std::shared_ptr<const PreparedAttention> linked(const Attention& form, FinishedPlan plan) {
    return std::make_shared<const LinkedAttention>(handles_.get(), form, std::move(plan));
  }

  LateHandles handles_;
  std::string version_ = cudnn_version();
};

}  // namespace

std::unique_ptr<AttentionLibrary> open_cudnn_attention(Context& context) {
  return std::make_unique<CudnnAttention>(context);
}

}  // namespace backplane::cuda
