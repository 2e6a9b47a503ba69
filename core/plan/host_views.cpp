#include "core/plan/host_views.hpp"

#include <algorithm>

#include "core/plan/program.hpp"

namespace backplane::core {
namespace {

class Finder {
 public:
  explicit Finder(const Program& program)
      : program_(program),
        devices_(*program.context().devices),
        reads_(program.graph().value_count()) {
    for (const NodeId id : program_.order()) note_reads(id);
  }

  HostViewPlaces find() const {
    HostViewPlaces places;
    for (const ValueId feed : program_.feeds()) places.feeds.push_back(reads_[feed].alignment);
    for (const ValueId fetch : program_.fetches())
      places.fetches.push_back(alignment_of_fetch(fetch));
    const auto is_some = [](std::uint64_t alignment) { return alignment != 0; };
    places.any = std::any_of(places.feeds.begin(), places.feeds.end(), is_some) ||
                 std::any_of(places.fetches.begin(), places.fetches.end(), is_some);
    return places;
  }

 private:
  /// Who reads a value's elements.
  struct Reads {
    std::uint64_t alignment =
        0;            ///< the largest that a device needs to view it; 0: no reader views memory
    int device = -1;  ///< the one that reads it
    bool elsewhere = false;  ///< somebody else does too
  };

  void note_reads(NodeId id) {
    const Node& node = program_.graph().node(id);
    const ProgramNode& placed = program_.node(id);
    const bool on_device = !program_.is_host_node(id) && placed.control == nullptr && placed.kernel;
    for (const ValueId value : node.captured) reads_[value].elsewhere = true;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNone) continue;
      Reads& reads = reads_[node.inputs[i]];
      const std::int32_t role = on_device ? placed.kernel.input_role(i) : BP_INPUT_HOST_DATA;
      if (role == BP_INPUT_SHAPE_ONLY) continue;
      const bool by_host = role == BP_INPUT_HOST_VALUE || role == BP_INPUT_HOST_DATA;
      if (by_host || (reads.device >= 0 && reads.device != placed.device)) reads.elsewhere = true;
      if (by_host) continue;
      reads.device = placed.device;
      if (const HostMemory* memory = devices_.at(placed.device).host_memory())
        reads.alignment = std::max(reads.alignment, memory->alignment);
    }
  }

  std::uint64_t alignment_of_fetch(ValueId value) const {
    const Reads& reads = reads_[value];
    const NodeId producer = program_.graph().value(value).producer;
    if (producer == kNone || program_.is_host_node(producer) ||
        std::count(program_.fetches().begin(), program_.fetches().end(), value) != 1)
      return 0;
    const ProgramNode& placed = program_.node(producer);
    if (placed.control != nullptr || !placed.kernel || reads.elsewhere ||
        (reads.device >= 0 && reads.device != placed.device))
      return 0;
    const HostMemory* memory = devices_.at(placed.device).host_memory();
    return memory != nullptr ? memory->alignment : 0;
  }

  const Program& program_;
  const DeviceSet& devices_;
  PerValue<Reads> reads_;
};

}  // namespace

HostViewPlaces find_host_views(const Program& program) {
  const ProgramContext& context = program.context();
  if (!context.zero_copy || context.body != nullptr) return {};
  return Finder(program).find();
}

}  // namespace backplane::core
