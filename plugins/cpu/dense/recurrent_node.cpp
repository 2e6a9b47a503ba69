#include "plugins/cpu/dense/recurrent_node.hpp"

namespace backplane::cpu {

void check_lengths(const sdk::Tensor& lengths, std::int64_t steps) {
  const auto* length = lengths.data<std::int32_t>();
  for (std::int64_t b = 0; b < lengths.size(); ++b) {
    if (length[b] < 0 || length[b] > steps) {
      sdk::failed("sequence_lens has ", length[b], " for batch entry ", b, ", which is not in [0, ",
                  steps, "]");
    }
  }
}

}  // namespace backplane::cpu
