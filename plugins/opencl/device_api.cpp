// The device as the ABI shows it.
#include "plugins/opencl/device_api.hpp"

#include "op_table.hpp"
#include "plugins/common/device_ops/device_table.hpp"
#include "plugins/common/device_ops/provider.hpp"
#include "plugins/opencl/rewrite/rewrite.hpp"

namespace backplane::opencl {
namespace {

struct Types {
  using Device = opencl::Device;
  using Buffer = opencl::Buffer;
  using Stream = opencl::Stream;
  using Fence = opencl::Fence;
  static const sdk::KernelList& kernels() { return opencl::kernels(); }
  static void rewrite(const Device& device, const sdk::Graph& graph, sdk::Rewrite& edit) {
    opencl::rewrite(device, graph, edit);
  }
};
using Table = device_ops::DeviceTable<Types>;

}  // namespace

bp_device* handle_of(std::unique_ptr<Device> device) { return Table::handle_of(std::move(device)); }

const bp_device_api* device_api() {
  static const bp_device_api kTable = Table::make();
  return &kTable;
}

const sdk::KernelList& kernels() {
  static const sdk::KernelList list = [] {
    sdk::KernelList joined = device_ops::shared_kernels();
    for (const sdk::KernelList& family : all_kernels())
      joined.insert(joined.end(), family.begin(), family.end());
    return joined;
  }();
  return list;
}

}  // namespace backplane::opencl
