#include "plugins/common/device_ops/provider.hpp"

#include "op_table.hpp"

namespace backplane::device_ops {

sdk::KernelList shared_kernels() {
  sdk::KernelList joined;
  for (const sdk::KernelList& family : all_kernels())
    joined.insert(joined.end(), family.begin(), family.end());
  return joined;
}

}  // namespace backplane::device_ops
