// Large values by way of pinned memory, piece by piece: a device copies while the host does.
#include "core/plugin_host/host_copy.hpp"
#include "core/plugin_host/status.hpp"
#include "core/runtime/segment_run.hpp"

namespace backplane::core {

/// A device's copy whose pieces are put on the run's stream one by one.
class SegmentRun::DevicePieces {
 public:
  DevicePieces(SegmentRun& run, const Step& step)
      : run_(run),
        step_(step),
        source_(run.end_of_copy(step, step.inputs[0])),
        target_(run.end_of_copy(step, step.outputs[0])),
        pieces_(source_.bytes) {}

  const CopyPieces& pieces() const { return pieces_; }

  bp_status* put(std::size_t piece) {
    // Bytes are bytes to a copy, and elements might not end where a piece does.
    const auto count = static_cast<std::int64_t>(pieces_.size(piece));
    const auto part_of = [&](bp_tensor tensor) {
      tensor.dtype = BP_UINT8;
      tensor.rank = 1;
      tensor.dims = &count;
      tensor.bytes = pieces_.size(piece);
      if (tensor.buffer != nullptr) tensor.offset += pieces_.begin(piece);
      if (tensor.host_ptr != nullptr)
        tensor.host_ptr = static_cast<std::byte*>(tensor.host_ptr) + pieces_.begin(piece);
      return tensor;
    };
    const bp_tensor from = part_of(source_), to = part_of(target_);
    Device& device = run_.run_.devices.at(step_.device);
    return device.call(device.api().copy, run_.run_.streams.raw(step_.device), &from, &to);
  }

 private:
  SegmentRun& run_;
  const Step& step_;
  const bp_tensor source_, target_;
  const CopyPieces pieces_;
};

/// What the run's thread does beside the threads that copy: what went wrong is kept until they are done.
class SegmentRun::HostPieces : public PieceWork {
 public:
  explicit HostPieces(const SegmentRun& run) : stop_(run.run_.controls.stop) {}
  /// Throws what ended the copy, as the error of a step.
  [[noreturn]] void fail(RunState& run) { run.fail(*failed_, status_); }

 protected:
  bool end(const Step& step, bp_status* status) {
    failed_ = &step;
    status_ = status;
    return false;
  }
  bool is_stopped(const Step& step) {
    const Code why = stop_.may_be_raised() ? stop_.raised() : Code::Ok;
    if (why == Code::Ok) return false;
    end(step, make_status(why, stop_.error(why).message()));
    return true;
  }

 private:
  const StopSignal& stop_;
  const Step* failed_ = nullptr;
  bp_status* status_ = nullptr;
};

/// Does both halves: a piece goes on the stream as soon as it is in pinned memory.
void SegmentRun::upload_in_pieces(const Step& host, const Step& device) {
  class Upload final : public HostPieces {
   public:
    Upload(SegmentRun& run, const Step& step) : HostPieces(run), step_(step), put_(run, step) {}
    bool is_there() const override { return true; }
    bool wait_for(std::size_t) override { return true; }
    bool copied(std::size_t piece) override {
      if (is_stopped(step_)) return false;
      bp_status* const status = put_.put(piece);
      return status == nullptr || end(step_, status);
    }
    const CopyPieces& pieces() const { return put_.pieces(); }

   private:
    const Step& step_;
    DevicePieces put_;
  } upload(*this, device);
  wait_for(host);
  if (!copy_in_pieces(*run_.threads, context_.value(host.outputs[0]).description.host_ptr,
                      context_.value(host.inputs[0]).description.host_ptr, upload.pieces(), upload))
    upload.fail(run_);
}

/// Puts the device's half on the stream, with a mark behind each piece.
void SegmentRun::download_in_pieces(const Step& device) {
  wait_for(device);
  DevicePieces put(*this, device);
  std::uint64_t& mark = context_.marks()[index_of(device)];
  for (std::size_t i = 0; i < put.pieces().count(); ++i) {
    if (bp_status* status = put.put(i)) run_.fail(device, status);
    signal(device, mark);
  }
}

/// The host's half: each piece when its mark is passed.
void SegmentRun::fetch_in_pieces(const Step& host, const Step& device) {
  class Fetch final : public HostPieces {
   public:
    Fetch(SegmentRun& run, const Step& step, std::uint64_t first_mark)
        : HostPieces(run),
          step_(step),
          stream_(run.run_.streams.at(step.device)),
          first_mark_(first_mark) {}
    bool is_there() const override { return false; }
    bool wait_for(std::size_t piece) override {
      if (is_stopped(step_)) return false;
      try {
        stream_.host_wait(first_mark_ + piece);
        return true;
      } catch (const Error& error) {
        return end(step_, make_status(error.code(), "at or before this: " + error.message()));
      }
    }
    bool copied(std::size_t) override { return true; }

   private:
    const Step& step_;
    Stream& stream_;
    const std::uint64_t first_mark_;
  };
  const CopyPieces pieces(context_.value(host.inputs[0]).description.bytes);
  // Marks of a stream are numbered, and nothing else marked it between the pieces.
  Fetch fetch(*this, device, context_.marks()[index_of(device)] - (pieces.count() - 1));
  if (!fetch.wait_for(0) ||  // others are not called until there is something to copy
      !copy_in_pieces(*run_.threads, context_.value(host.outputs[0]).description.host_ptr,
                      context_.value(host.inputs[0]).description.host_ptr, pieces, fetch))
    fetch.fail(run_);
}

/// One of the two steps of a copy by pieces.
void SegmentRun::copy_half(const Step& step) {
  const Step& other = step_at(step.other_half);
  const bool is_first = index_of(step) < index_of(other);
  if (step.kind == StepKind::HostCopy) {
    is_first ? upload_in_pieces(step, other) : fetch_in_pieces(step, other);
  } else if (is_first) {
    download_in_pieces(step);
  } else if (step.signals) {
    signal(step, context_.marks()[index_of(step)]);
  }
}

}  // namespace backplane::core
