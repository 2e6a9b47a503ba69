#include "plugins/cuda/capture.hpp"

#include <memory>

namespace backplane::cuda {
namespace {

Device& device_of(bp_device* handle) {
  return static_cast<Device&>(*reinterpret_cast<device_ops::Device*>(handle));
}
Stream& stream_of(bp_stream* handle) { return *reinterpret_cast<Stream*>(handle); }

void begin(Device& device, Stream& stream) {
  if (device.context().is_captured(stream.handle()))
    sdk::unsupported("the program that the stream belongs to is capturing it already");
  stream.begin_capture();
}

GraphExecHandle instantiate(Device& device, GraphHandle graph, bool overlaps) {
  Context& context = device.context();
  try {
    return retry_trimmed(context, [&] { return context.instantiate(graph); });
  } catch (const sdk::Error& error) {
    if (!overlaps || (error.code() != BP_INTERNAL && error.code() != BP_UNSUPPORTED)) throw;
    // It may be for that: the host captures the steps again, then without.
    device.stop_overlaps(error.what());
    throw sdk::Error(BP_CANCELLED, error.what());
  }
}

Recording* end(Device& device, Stream& stream, Recording* former) {
  const Stream::CaptureEnd captured = stream.end_capture();
  const CapturedGraph graph(device.context(), captured.captured);
  if (former != nullptr && former->update(graph.get(), captured)) return former;
  GraphExecHandle exec = instantiate(device, graph.get(), captured.overlaps);
  return std::make_unique<Recording>(device, exec, captured).release();
}

void abandon(Device& device, Stream& stream) {
  abandon_capture(device.context(), stream.end_capture().captured);
}

}  // namespace

CapturedGraph::CapturedGraph(Context& context, StreamHandle stream)
    : context_(context), graph_(context.end_capture(stream)) {}

CapturedGraph::~CapturedGraph() {
  if (graph_ != nullptr) context_.destroy_graph(graph_);
}

void abandon_capture(Context& context, StreamHandle stream) {
  try {
    const CapturedGraph graph(context, stream);
  } catch (const sdk::Error&) {
    // Spoiled by the call that failed: it has ended all the same.
  }
}

bool Recording::update(GraphHandle graph, const Stream::CaptureEnd& of) {
  if (of.form != form_ || !device_.context().update(exec_, graph)) return false;
  may_fault_ = of.may_fault;
  return true;
}

void Recording::replay(Stream& stream) const {
  if (may_fault_) stream.faults().arm();
  const TimedWork timed(stream, "captured steps");
  device_.context().launch_graph(exec_, stream.handle());
}

const bp_plan_capture& plan_capture() {
  static const bp_plan_capture kTable = [] {
    bp_plan_capture table = sdk::abi_struct<bp_plan_capture>();
    table.begin = [](bp_device* device, bp_stream* stream) {
      return sdk::guarded([&] { begin(device_of(device), stream_of(stream)); });
    };
    table.end = [](bp_device* device, bp_stream* stream, bp_recording* former, bp_recording** out) {
      return sdk::guarded([&] {
        *out = reinterpret_cast<bp_recording*>(
            end(device_of(device), stream_of(stream), reinterpret_cast<Recording*>(former)));
      });
    };
    table.abandon = [](bp_device* device, bp_stream* stream) {
      abandon(device_of(device), stream_of(stream));
    };
    table.replay = [](bp_device*, bp_stream* stream, const bp_recording* recording) {
      return sdk::guarded(
          [&] { reinterpret_cast<const Recording*>(recording)->replay(stream_of(stream)); });
    };
    table.release = [](bp_device*, bp_recording* recording) {
      delete reinterpret_cast<Recording*>(recording);
    };
    return table;
  }();
  return kTable;
}

}  // namespace backplane::cuda
