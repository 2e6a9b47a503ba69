// https://docs.nvidia.com/deeplearning/cudnn/backend/latest/api/cudnn-graph-library.html
#include "plugins/cuda/engine/cudnn.hpp"

#include <algorithm>

namespace backplane::cuda {
namespace {

/// Of a tensor in a graph, and in a run's list of addresses.
enum Id : std::int64_t { kX = 1, kW, kBias, kAddend, kY, kSum, kSummed, kBiased };

cudnnDataType_t sum_type_of(const Convolution& form) {
  if (form.type == sdk::DataType::Double) return CUDNN_DATA_DOUBLE;
  return form.type == sdk::DataType::Int8 ? CUDNN_DATA_INT32 : CUDNN_DATA_FLOAT;
}

/// A convolution as a graph of the library's.
class Graph {
 public:
  explicit Graph(const Convolution& form) : form_(form), sum_type_(sum_type_of(form)) {
    const std::vector<std::int64_t> x = image(form.channels, form.in);
    std::vector<std::int64_t> w =
        form.is_transposed ? std::vector<std::int64_t>{form.channels, form.filters / form.groups}
                           : std::vector<std::int64_t>{form.filters, form.channels / form.groups};
    w.insert(w.end(), form.kernel.begin(),
             form.kernel.begin() + static_cast<std::ptrdiff_t>(form.rank));
    y_ = image(form.filters, form.out);
    tensor(kX, x);
    tensor(kW, w);
    tensor(has_rest() ? kSum : kY, y_);
    add_convolution();
    add_rest();
  }
  /// Why the library has no such graph; empty where it has.
  std::string try_finish(const Target& target) {
    return try_finish_graph(graph_, operations_, target);
  }
  const Description& graph() const { return graph_; }

 private:
  bool is_int8() const { return form_.type == sdk::DataType::Int8; }
  bool has_rest() const { return form_.is_fused() || is_int8(); }

  std::vector<std::int64_t> image(std::int64_t channels,
                                  const std::array<std::int64_t, 3>& size) const {
    std::vector<std::int64_t> dims{form_.batch, channels};
    dims.insert(dims.end(), size.begin(), size.begin() + static_cast<std::ptrdiff_t>(form_.rank));
    return dims;
  }

  /// The library names axes always in one order; in which order they lie in memory, strides say.
  std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& dims) const {
    std::vector<std::int64_t> strides(dims.size());
    std::int64_t step = form_.is_channels_last ? dims[1] : 1;
    if (form_.is_channels_last) strides[1] = 1;
    for (std::size_t axis = dims.size(); axis-- > 0;) {
      if (axis == 1 && form_.is_channels_last) continue;
      strides[axis] = step;
      step *= dims[axis];
    }
    return strides;
  }

  void tensor(std::int64_t id, const std::vector<std::int64_t>& dims) {
    const std::vector<std::int64_t> strides = strides_of(dims);
    const bool is_virtual = id >= kSum;
    // What lies nowhere is of another type, whose alignment an address need not have.
    const std::int64_t alignment = is_virtual ? kLibraryAlignment : form_.alignment;
    Description& made = tensors_.emplace_back(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE,
             is_virtual ? sum_type_ : cudnn_type(id == kY ? form_.result_type() : form_.type));
    made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims.size(), dims.data());
    made.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, dims.size(), strides.data());
    made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
    made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
    made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
    made.finish();
  }

  void add_convolution() {
    const auto rank = static_cast<std::int64_t>(form_.rank);
    parts_.emplace_back(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    Description& convolution = parts_.back();
    convolution.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, rank);
    convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, sum_type_);
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    convolution.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, mode);
    const std::pair<cudnnBackendAttributeName_t, const std::int64_t*> lists[] = {
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, form_.dilation.data()},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, form_.stride.data()},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, form_.pad_begin.data()},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, form_.pad_end.data()}};
    for (const auto& [name, values] : lists)
      convolution.set(name, CUDNN_TYPE_INT64, form_.rank, values);
    convolution.finish();
    if (form_.is_transposed) return add_backward(convolution);
    operations_.emplace_back(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    Description& operation = operations_.back();
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, tensors_[0]);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, tensors_[1]);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, tensors_[2]);
    set_scale(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1);
    set_scale(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0);
    operation.finish();
  }

  /// A transposed convolution from x to y is the gradient, for its input, of a convolution from y to x.
  void add_backward(const Description& convolution) {
    operations_.emplace_back(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
    Description& operation = operations_.back();
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, convolution);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, tensors_[0]);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, tensors_[1]);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, tensors_[2]);
    set_scale(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1);
    set_scale(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0);
    operation.finish();
  }

  void set_scale(Description& operation, cudnnBackendAttributeName_t name, double value) const {
    if (sum_type_ == CUDNN_DATA_DOUBLE) {
      operation.set(name, CUDNN_TYPE_DOUBLE, value);
    } else {
      operation.set(name, CUDNN_TYPE_FLOAT, static_cast<float>(value));
    }
  }

  /// In the order in which the library's own fused convolutions have it: addend, bias, Relu.
  void add_rest() {
    // Sums of int8 are copied: of a convolution alone the library prefers engines without tensor cores, and has one with them as a
    // last resort; where something follows it ranks those with them (seen with 9.19, for devices of three generations).
    if (is_int8()) {
      tensor(kY, y_);
      return add_pointwise(CUDNN_POINTWISE_IDENTITY, 2, nullptr, 3);
    }
    std::size_t last = 2;  // of tensors_
    const auto result = [this](bool is_last, std::int64_t id) {
      tensor(is_last ? std::int64_t{kY} : id, y_);
      return tensors_.size() - 1;
    };
    if (form_.has_addend) {
      tensor(kAddend, y_);
      const std::size_t other = tensors_.size() - 1;
      const std::size_t to = result(!form_.has_bias && !form_.has_relu, kSummed);
      add_pointwise(CUDNN_POINTWISE_ADD, last, &tensors_[other], to);
      last = to;
    }
    if (form_.has_bias) {
      std::vector<std::int64_t> dims(y_.size(), 1);
      dims[1] = form_.filters;
      tensor(kBias, dims);
      const std::size_t other = tensors_.size() - 1;
      const std::size_t to = result(!form_.has_relu, kBiased);
      add_pointwise(CUDNN_POINTWISE_ADD, last, &tensors_[other], to);
      last = to;
    }
    if (form_.has_relu) add_pointwise(CUDNN_POINTWISE_RELU_FWD, last, nullptr, result(true, kY));
  }

  void add_pointwise(cudnnPointwiseMode_t mode, std::size_t from, const Description* other,
                     std::size_t to) {
    parts_.emplace_back(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    Description& pointwise = parts_.back();
    pointwise.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    pointwise.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, sum_type_);
    pointwise.finish();
    operations_.emplace_back(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    Description& operation = operations_.back();
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensors_[from]);
    if (other != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *other);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors_[to]);
    operation.finish();
  }

  const Convolution& form_;
  cudnnDataType_t sum_type_;
  std::vector<std::int64_t> y_;
  std::vector<Description> tensors_, parts_, operations_;
  Description graph_{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
};

class LinkedConvolution final : public PreparedConvolution {
 public:
  LinkedConvolution(Handles& handles, const Convolution& form, FinishedPlan plan)
      : handles_(handles),
        plan_(std::move(plan)),
        has_bias_(form.has_bias),
        has_addend_(form.has_addend) {}
  ~LinkedConvolution() override { plan_.end(handles_.context()); }
  std::uint64_t workspace_bytes() const override { return plan_.workspace_bytes(); }
  std::string kept() const override { return plan_.kept(); }

 private:
  void put_on(KernelQueue& queue, const ConvolutionAddresses& at) const override {
    std::array<std::int64_t, 5> ids{kX, kW, kY};
    std::array<void*, 5> addresses{pointer(at.x), pointer(at.w), pointer(at.y)};
    std::size_t count = 3;
    const auto add = [&](std::int64_t id, Address address) {
      ids[count] = id;
      addresses[count++] = pointer(address);
    };
    if (has_bias_) add(kBias, at.bias);
    if (has_addend_) add(kAddend, at.addend);
    plan_.enqueue(handles_, queue.for_library(), count, ids.data(), addresses.data(), at.workspace);
  }

  Handles& handles_;
  FinishedPlan plan_;
  bool has_bias_, has_addend_;
};

/// Whether an engine keeps the precision that was asked for: on float32, tensor cores round the operands to TF32, and some
/// engines to less. Sums are float32 always, though of 16 bits the library has engines that add in 16, and prefers them for some
/// forms. On int8 no sum may go by way of floats; engines without tensor cores are left out, since products of the windows
/// by cuBLASLt have them. None adds in an order that differs from run to run, as some gradients do.
bool is_accepted(cudnnBackendDescriptor_t configuration, const Convolution& form) {
  const std::vector<cudnnBackendNumericalNote_t> notes = numerical_notes(configuration);
  const auto has = [&notes](cudnnBackendNumericalNote_t note) {
    return std::find(notes.begin(), notes.end(), note) != notes.end();
  };
  if (has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) return false;
  if (form.type == sdk::DataType::Double) return true;
  if (has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) return false;
  if (form.type == sdk::DataType::Int8)
    return has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) && !has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
  if (form.type != sdk::DataType::Float) return true;
  if (form.precision == Precision::kFp32 && has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE)) return false;
  return form.precision == Precision::kFp16 || !has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
}

}  // namespace

std::string offer_plans(const Convolution& form, const Target& target,
                        std::uint64_t workspace_limit, const PlanTaker& take) {
  if (form.type == sdk::DataType::Int8 && (form.is_fused() || form.is_transposed))
    return "of int8 only the sums of convolutions that are not transposed are asked for";
  Graph graph(form);
  if (std::string why = graph.try_finish(target); !why.empty()) return why;
  return offer_plans(
      target, graph.graph(), workspace_limit,
      [&](cudnnBackendDescriptor_t configuration) { return is_accepted(configuration, form); },
      take);
}

namespace {

class Cudnn final : public ConvolutionLibrary {
 public:
  explicit Cudnn(Context& context) : handles_(context) {}
  std::string version() override { return version_; }
  void begin(const Convolution&) override { handles_.get(); }

  std::string offer(const Convolution& form, std::uint64_t workspace_limit,
                    const Taker& take) override {
    const TakenHandle handle(handles_.get());
    return offer_plans(form, Target(handle.get()), workspace_limit,
                       [&](FinishedPlan plan) { return take(linked(form, std::move(plan))); });
  }

  std::shared_ptr<const PreparedConvolution> restore(const Convolution& form,
                                                     const std::string& kept) override {
    const TakenHandle handle(handles_.get());
    std::optional<FinishedPlan> plan = restored_plan(Target(handle.get()), kept);
    return plan ? linked(form, std::move(*plan)) : nullptr;
  }

 private:
  std::shared_ptr<const PreparedConvolution> linked(const Convolution& form, FinishedPlan plan) {
    return std::make_shared<const LinkedConvolution>(handles_.get(), form, std::move(plan));
  }

  LateHandles handles_;
  std::string version_ = cudnn_version();
};

}  // namespace

std::unique_ptr<ConvolutionLibrary> open_cudnn(Context& context) {
  return std::make_unique<Cudnn>(context);
}

}  // namespace backplane::cuda
