// Programs of an executable: one takes another's place when nodes have to leave their devices.
#include "core/plan/spill.hpp"
#include "core/runtime/executable.hpp"

namespace backplane::core {

/// The newest. That of the caller's last run costs no lock.
std::shared_ptr<Generation> Executable::newest(const PlanMemo* memo) const {
  if (memo != nullptr && memo->generation != nullptr &&
      memo->generation.get() == newest_.load(std::memory_order_acquire))
    return memo->generation;
  return generation();
}

void Executable::replace_generation(const std::shared_ptr<Generation>& old,
                                    const KernelRefused& refused) {
  const std::lock_guard lock(mutex_);
  if (generation_ != old) return;  // another run did it already
  old->program->record_refusal(refused, refusals_);
  build_next();
}

/// The caller holds mutex_.
void Executable::build_next() {
  check_files();
  auto next = std::make_shared<Generation>();
  next->program = std::make_unique<Program>(context_, cut_, refusals_);
  generation_ = std::move(next);
  newest_.store(generation_.get(), std::memory_order_release);
}

/// Throws DeviceFull where a plan's arenas and the weights are too large for a device's limit. What runs take besides
/// each other is theirs to find out.
void Executable::check_room(Generation& generation, const Segment& segment) {
  const DeviceSet& devices = *context_.devices;
  if (context_.spill == Spill::Forbidden || context_.memory == nullptr) return;
  for (int space = kHostSpace + 1; space < static_cast<int>(devices.space_count()); ++space) {
    if (static_cast<std::size_t>(space) >= segment.arena_bytes.size()) break;
    const std::uint64_t bytes = segment.arena_bytes[static_cast<std::size_t>(space)];
    const std::string place = MemoryBudget::place_of(devices, space);
    const auto overrun = context_.memory->overrun(place, bytes);
    if (bytes == 0 || !overrun) continue;
    throw DeviceFull{
        DeviceSet::device_of_space(space), overrun->missing, overrun->limit,
        Error(Code::OutOfMemory, text("a run needs ", bytes, " bytes of memory on '", place,
                                      "', which is with the weights there ", overrun->missing,
                                      " over the option memory_limit.", place, " (", overrun->limit,
                                      "); raise the limit"))};
  }
  if (context_.spill == Spill::Warned)
    std::call_once(generation.moved_told, [&] { warn_of_moved(*generation.program); });
}

/// Says once how many nodes had to leave their devices.
void Executable::warn_of_moved(const Program& program) {
  std::map<std::string, std::size_t> moved;
  for (const auto& [name, placement] : program.first_placement()) {
    for (const Reason& reason : placement.reasons) {
      if (reason.code == kMemoryReason) ++moved[reason.provider];
    }
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [label, count] : moved) {
    std::size_t& said = moved_[label];
    if (said == count) continue;
    said = count;
    context_.logger->warning(
        count, " of ", program.first_placement().size(), " nodes leave ", label,
        ", whose memory_limit is too small for them; `backplane inspect --explain` tells which, "
        "fallback=allow silences this, and fallback=forbid makes it an error");
  }
}

/// Moves nodes from a device. A body that has none there leaves it to the graph around it.
void Executable::make_room(const std::shared_ptr<Generation>& old, const DeviceFull& full) {
  const std::lock_guard lock(mutex_);
  if (generation_ != old) return;  // another run did it already
  const std::vector<std::string> leaving = nodes_to_move(*old->program, cut_, refusals_, full);
  if (leaving.empty() && context_.body != nullptr) throw full;
  if (leaving.empty()) throw full.error;
  refuse_for_memory(leaving, full, refusals_);
  context_.logger->info(leaving.size(), " nodes leave ", context_.devices->at(full.device).label(),
                        ": ", full.error.message());
  build_next();
}

/// For good: a device that could view host memory refused to.
void Executable::copy_all(const ViewRefused& refused) {
  if (!copies_all_.exchange(true))
    context_.logger->info("inputs and outputs are copied: ", refused.text);
}

}  // namespace backplane::core
