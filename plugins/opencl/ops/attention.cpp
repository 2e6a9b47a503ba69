// Attention with caches, by the shared kernels.
#include "plugins/common/device_ops/cached_attention.hpp"
#include "plugins/common/device_ops/group_query_attention.hpp"
#include "plugins/opencl/kernel.hpp"

namespace backplane::opencl {

sdk::KernelList attention_kernels() {
  return {device_kernel<device_ops::CachedAttention>(device_ops::cached_attention_op()),
          device_kernel<device_ops::GroupQueryAttention>(device_ops::group_query_attention_op())};
}

}  // namespace backplane::opencl
