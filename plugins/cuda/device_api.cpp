// The device as the ABI shows it.
#include "plugins/cuda/device_api.hpp"

#include "plugins/common/device_ops/device_table.hpp"
#include "plugins/common/device_ops/provider.hpp"
#include "plugins/common/device_ops/rewrite/passes.hpp"

namespace backplane::cuda {
namespace {

struct Types {
  using Device = cuda::Device;
  using Buffer = cuda::Buffer;
  using Stream = cuda::Stream;
  using Fence = cuda::Fence;
  static const sdk::KernelList& kernels() {
    static const sdk::KernelList list = device_ops::shared_kernels();
    return list;
  }
  static void rewrite(const Device& device, const sdk::Graph& graph, sdk::Rewrite& edit) {
    if (!device.settings().fusion) return;
    device_ops::NodeSet taken;
    device_ops::fuse_chains(graph, taken, edit);
  }
};
using Table = device_ops::DeviceTable<Types>;

}  // namespace

const bp_device_api* device_api() {
  static const bp_device_api kTable = Table::make();
  return &kTable;
}

bp_device* handle_of(std::unique_ptr<Device> device) { return Table::handle_of(std::move(device)); }

}  // namespace backplane::cuda
