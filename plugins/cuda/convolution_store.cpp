#include "plugins/cuda/convolution_store.hpp"

#include <utility>

namespace backplane::cuda {

std::string Convolution::key() const {
  std::string text = sdk::message(
      sdk::type_name(type), ' ', batch, 'x', channels, " to ", filters, " in ", groups,
      is_transposed ? ", transposed" : "", has_bias ? ", bias" : "", has_addend ? ", addend" : "",
      has_relu ? ", relu" : "", is_channels_last ? ", channels last" : "", ", ",
      precision_name(precision), ", aligned ", alignment);
  for (std::size_t axis = 0; axis < rank; ++axis)
    text += sdk::message("; ", in[axis], " by ", kernel[axis], " to ", out[axis], " stride ",
                         stride[axis], " dilation ", dilation[axis], " pads ", pad_begin[axis], ' ',
                         pad_end[axis]);
  return text;
}

std::vector<std::uint64_t> operand_bytes(const Convolution& form) {
  const auto points = [&form](const std::array<std::int64_t, 3>& size) {
    std::int64_t count = 1;
    for (std::size_t axis = 0; axis < form.rank; ++axis) count *= size[axis];
    return count;
  };
  const auto bytes = [](sdk::DataType type, std::int64_t elements) {
    return static_cast<std::uint64_t>(elements * sdk::element_bytes(type));
  };
  const std::int64_t results = form.batch * form.filters * points(form.out);
  return {bytes(form.type, form.batch * form.channels * points(form.in)),
          bytes(form.type, form.filters * form.channels / form.groups * points(form.kernel)),
          form.has_bias ? bytes(form.type, form.filters) : 0,
          form.has_addend ? bytes(form.type, results) : 0, bytes(form.result_type(), results)};
}

TrialRun trial_run(const Convolution&, std::shared_ptr<const PreparedConvolution> plan) {
  return [plan = std::move(plan)](KernelQueue& queue, const std::vector<Address>& operands,
                                  Address workspace) {
    ConvolutionAddresses at;
    at.x = operands[0];
    at.w = operands[1];
    at.w_is_constant = true;
    at.bias = operands[2];
    at.addend = operands[3];
    at.y = operands[4];
    at.workspace = workspace;
    plan->enqueue(queue, at);
  };
}

}  // namespace backplane::cuda
