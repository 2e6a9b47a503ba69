#include "plugins/cuda/convolution_store.hpp"

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

}  // namespace backplane::cuda
