#include "core/plan/capture_ranges.hpp"

#include <algorithm>

#include "backplane/plugin_api/optional/plan_capture.h"
#include "core/plan/program.hpp"
#include "core/plan/segment.hpp"

namespace backplane::core {
namespace {

/// One step is one call either way.
constexpr int kFewestSteps = 2;
constexpr const char* kInPieces =
    "it goes piece by piece, while the host copies the next one or the one before";
constexpr const char* kOnView = "it works on memory of the host where that lies";

class RangeFinder {
 public:
  RangeFinder(const Segment& segment, const Program& program)
      : segment_(segment), program_(program), devices_(*program.context().devices) {}

  std::shared_ptr<CapturePlan> find() {
    for (std::size_t i = 0; i < segment_.steps.size(); ++i) {
      const Step& step = segment_.steps[i];
      if (open_.device >= 0 && step.kind == StepKind::HostCopy && step.waits.empty() &&
          step.other_half < 0) {
        waiting_copies_.push_back(static_cast<int>(i));
        continue;
      }
      const std::string reason = reason_against(step);
      if (!reason.empty() || (open_.device >= 0 && step.device != open_.device)) close();
      if (reason.empty()) {
        take(i);
      } else {
        leave(static_cast<int>(i), reason);
      }
    }
    close();
    plan_->tallies = std::make_unique<CaptureTally[]>(plan_->ranges.size());
    for (std::size_t i = 0; i < segment_.incoming.size(); ++i) {
      if (segment_.incoming[i].space != kHostSpace) plan_->incoming.push_back(static_cast<int>(i));
    }
    for (const auto& [fetch, slot] : segment_.fetches) {
      if (segment_.slot(slot).space != kHostSpace) plan_->fetches.push_back(fetch);
    }
    return plan_;
  }

 private:
  void take(std::size_t i) {
    if (open_.device < 0) {
      open_.begin = i;
      open_.device = segment_.steps[i].device;
    }
    open_.host_copies.insert(open_.host_copies.end(), waiting_copies_.begin(),
                             waiting_copies_.end());
    waiting_copies_.clear();
    open_.end = i + 1;
    open_.signals = open_.signals || segment_.steps[i].signals;
    taken_.push_back(static_cast<int>(i));
  }

  void close() {
    if (static_cast<int>(taken_.size()) >= kFewestSteps) {
      plan_->ranges.push_back(std::move(open_));
    } else if (!taken_.empty()) {
      leave(taken_.front(), "it is alone: nothing before and after it can be recorded with it");
    }
    open_ = CaptureRange();
    taken_.clear();
    waiting_copies_.clear();
  }

  void leave(int step, const std::string& reason) {
    for (CaptureBreak& known : plan_->breaks) {
      if (known.reason != reason) continue;
      ++known.steps;
      return;
    }
    plan_->breaks.push_back({reason, step, 1});
  }

  std::string reason_against(const Step& step) const {
    if (step.other_half >= 0) return kInPieces;
    if (step.kind == StepKind::Control) return "the core runs it, and waits for its bodies";
    if (step.kind == StepKind::HostCopy)
      return step.waits.empty() ? "the host copies" : "the host copies when a device is done";
    if (step.kind == StepKind::HandOver || step.kind == StepKind::HandBack)
      return "it hands memory of the host over, which may be another one next time";
    if (!step.on_stream) return "it runs on host memory";
    const Device& device = devices_.at(step.device);
    if (device.plan_capture() == nullptr)
      return text("device '", device.label(), "' records no work");
    if (!step.waits.empty()) return "the host waits for other work before it";
    return step.kind == StepKind::Copy ? reason_against_copy(step) : reason_against_kernel(step);
  }

  std::string reason_against_copy(const Step& step) const {
    for (const int index : {step.inputs[0], step.outputs[0]}) {
      const Slot& slot = segment_.slot(index);
      if (slot.place == Place::View) return kOnView;
      if (slot.space != kHostSpace) continue;
      if (slot.place != Place::Arena || slot.arena != pinned_arena(devices_, step.device))
        return "it copies from or to memory that is not pinned";
    }
    return "";
  }

  std::string reason_against_kernel(const Step& step) const {
    const KernelHandle& kernel = program_.node(step.node).kernel;
    const std::uint32_t flags = kernel.def().flags;
    if ((flags & BP_KERNEL_DATA_DEPENDENT) != 0) return "the size of what it makes depends on data";
    if ((flags & BP_KERNEL_NOT_DETERMINISTIC) != 0) return "two runs of it may differ";
    if (kernel.library() != nullptr && (flags & BP_KERNEL_CAPTURE) == 0)
      return text("its library, ", kernel.library()->name(),
                  ", does not say that it may be recorded");
    for (const std::vector<int>* list : {&step.inputs, &step.outputs}) {
      for (const int index : *list) {
        if (index < 0) continue;
        const Slot& slot = segment_.slot(index);
        if (slot.place == Place::View) return kOnView;
        if (slot.place == Place::Dynamic)
          return "the size of what it reads or makes depends on data";
        const bool is_live = slot.place != Place::Nowhere && slot.place != Place::Weight;
        if (is_live && slot.space == kHostSpace) return "it reads or writes host memory";
      }
    }
    return "";
  }

  const Segment& segment_;
  const Program& program_;
  const DeviceSet& devices_;
  std::shared_ptr<CapturePlan> plan_ = std::make_shared<CapturePlan>();
  CaptureRange open_;
  std::vector<int> taken_;           ///< steps on the stream
  std::vector<int> waiting_copies_;  ///< in the open range if another step of it follows
};

}  // namespace

void CaptureTally::refuse(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  refusal_ = reason;
}

std::string CaptureTally::refusal() const {
  const std::lock_guard lock(mutex_);
  return refusal_;
}

std::shared_ptr<CapturePlan> find_capture_ranges(const Segment& segment, const Program& program) {
  const auto on_stream = [](const Step& step) { return step.on_stream; };
  if (std::none_of(segment.steps.begin(), segment.steps.end(), on_stream)) return nullptr;
  return RangeFinder(segment, program).find();
}

}  // namespace backplane::core
