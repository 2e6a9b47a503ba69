// The work of a plan as a CUDA graph: captured from a stream once, launched in every later run.
#pragma once

#include <cstdint>

#include "backplane/plugin_api/optional/plan_capture.h"
#include "plugins/cuda/device.hpp"

namespace backplane::cuda {

/// Ends the capture of a stream; its graph, until something that can be launched is made of it.
class CapturedGraph {
 public:
  /// Errors: as Context::end_capture's; the capture has ended all the same.
  CapturedGraph(Context& context, StreamHandle stream);
  ~CapturedGraph();
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  GraphHandle get() const { return graph_; }

 private:
  Context& context_;
  GraphHandle graph_;
};

/// Of a capture in which a call failed: a stream must not be left in one.
void abandon_capture(Context& context, StreamHandle stream);

/// A graph that can be launched, with what the host has to know of its kernels.
class Recording {
 public:
  Recording(Device& device, GraphExecHandle exec, const Stream::CaptureEnd& of)
      : device_(device), exec_(exec), may_fault_(of.may_fault), form_(of.form) {}
  ~Recording() { device_.context().destroy_exec(exec_); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// Does what the graph does from now on, if it has the same form; else false. CUDA does not say whether it compares which kernels
  /// may overlap, so the order of kinds of work has to be the same.
  bool update(GraphHandle graph, const Stream::CaptureEnd& of);
  void replay(Stream& stream) const;

 private:
  Device& device_;
  GraphExecHandle exec_;
  bool may_fault_;  ///< some kernel may leave a number in the stream's word
  std::uint64_t form_;
};

/// The table behind BP_PLAN_CAPTURE_INTERFACE.
const bp_plan_capture& plan_capture();

}  // namespace backplane::cuda
