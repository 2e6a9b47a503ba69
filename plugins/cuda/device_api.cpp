// The device as the ABI shows it.
#include "plugins/cuda/device_api.hpp"

#include "op_table.hpp"
#include "plugins/common/device_ops/device_table.hpp"
#include "plugins/common/device_ops/provider.hpp"
#include "plugins/common/device_ops/rewrite/passes.hpp"
#include "plugins/cuda/rewrite/attention.hpp"
#include "plugins/cuda/rewrite/convolutions.hpp"
#include "plugins/cuda/rewrite/formats.hpp"
#include "plugins/cuda/rewrite/packed_products.hpp"
#include "plugins/cuda/rewrite/products.hpp"
#include "plugins/cuda/rewrite/quantized.hpp"

namespace backplane::cuda {
namespace {

struct Types {
  using Device = cuda::Device;
  using Buffer = cuda::Buffer;
  using Stream = cuda::Stream;
  using Fence = cuda::Fence;
  static const sdk::KernelList& kernels() {
    static const sdk::KernelList list = [] {
      sdk::KernelList joined = device_ops::shared_kernels();
      for (const sdk::KernelList& family : all_kernels())
        joined.insert(joined.end(), family.begin(), family.end());
      return joined;
    }();
    return list;
  }
  static void rewrite(Device& device, const sdk::Graph& graph, sdk::Rewrite& edit) {
    const DeviceSettings& settings = device.settings();
    RecordedEdit recorded(graph, edit);
    if (settings.fusion) {
      device_ops::NodeSet taken;
      fuse_quantized(graph, taken, recorded.edit());
      fuse_attention(device, graph, taken, recorded.edit());
      device_ops::fuse_rotations(graph, taken, recorded.edit());
      fuse_convolutions(graph, taken, recorded.edit());
      fuse_products(settings.precision, settings.gelu, graph, taken, recorded.edit());
      join_packed_products(settings.precision, graph, taken, recorded.edit());
      device_ops::fuse_rows(device, graph, taken, recorded.edit());
      device_ops::fuse_chains(graph, taken, recorded.edit());
    }
    std::vector<DraftNode> nodes = recorded.nodes();
    FormatPass(settings.precision, settings.layout, graph, recorded, edit).run(nodes);
    recorded.hand_over(nodes);
  }
};
using Table = device_ops::DeviceTable<Types>;

}  // namespace

const bp_device_api* device_api() {
  static const bp_device_api kTable = [] {
    bp_device_api table = Table::make();
    // Before anything is put on the stream, where it would become the program's graph.
    table.run_begin = [](bp_device* device, std::uint64_t) {
      return sdk::guarded([&] { Table::device_of(device)->refuse_while_programs_capture(); });
    };
    return table;
  }();
  return &kTable;
}

bp_device* handle_of(std::unique_ptr<Device> device) { return Table::handle_of(std::move(device)); }

}  // namespace backplane::cuda
