// The work of a plan as a CUDA graph: captured from a stream once, launched in every later run.
#pragma once

#include "backplane/plugin_api/optional/plan_capture.h"
#include "plugins/cuda/device.hpp"

namespace backplane::cuda {

/// A graph that can be launched, with what the host has to know of its kernels.
class Recording {
 public:
  /// `may_fault`: some kernel may leave a number in the stream's word.
  Recording(Device& device, GraphExecHandle exec, bool may_fault)
      : device_(device), exec_(exec), may_fault_(may_fault) {}
  ~Recording() { device_.context().destroy_exec(exec_); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// Does what the graph does from now on, if it has the same form; else false.
  bool update(GraphHandle graph, bool may_fault);
  void replay(Stream& stream) const;

 private:
  Device& device_;
  GraphExecHandle exec_;
  bool may_fault_;
};

/// The table behind BP_PLAN_CAPTURE_INTERFACE.
const bp_plan_capture& plan_capture();

}  // namespace backplane::cuda
