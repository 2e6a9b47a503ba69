// The optional interface "bp.plan_capture": what is recorded is not done, a replay does it again on what is then in the
// memory, a recording made anew is of the new memory, and a stream works as before whatever became of a recording.
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "backplane/plugin_api/optional/plan_capture.h"
#include "tools/backplane/check/device_work.hpp"
#include "tools/backplane/failure.hpp"

namespace backplane::cli::check {
namespace {

constexpr std::uint64_t kRecordedBytes = 1 << 16;

/// Memory that recorded copies may lie in at both ends.
std::optional<bp_memory_kind> recorded_kind(const OpenDevice& device) {
  if (device.has_heap(BP_MEMORY_PINNED) &&
      device.copy_mode(BP_MEMORY_PINNED, BP_MEMORY_DEVICE) != BP_COPY_NONE &&
      device.copy_mode(BP_MEMORY_DEVICE, BP_MEMORY_PINNED) != BP_COPY_NONE)
    return BP_MEMORY_PINNED;
  if (device.copy_mode(BP_MEMORY_DEVICE, BP_MEMORY_DEVICE) != BP_COPY_NONE) return BP_MEMORY_DEVICE;
  return std::nullopt;
}

/// From one end over the device's memory to the other.
struct Way {
  Way(const OpenDevice& device, bp_memory_kind kind)
      : source(&device, kind, kRecordedBytes),
        inner(&device, BP_MEMORY_DEVICE, kRecordedBytes),
        target(&device, kind, kRecordedBytes) {
    clear(0);
  }
  void put(const OpenDevice& device, const Stream& stream) const {
    copy(device, stream, source, inner);
    copy(device, stream, inner, target);
  }
  /// New bytes at the source, none of them elsewhere.
  void clear(std::uint64_t seed) {
    data = pattern(kRecordedBytes, 50 + seed);
    source.write(data.data());
    inner.fill(0x22);
    target.fill(0x33);
  }
  bool is_untouched() const {
    return target.read() == std::vector<std::uint8_t>(kRecordedBytes, 0x33);
  }
  std::string wrong() const { return compared(target.read(), data); }

  Memory source, inner, target;
  std::vector<std::uint8_t> data;
};

class CaptureCheck {
 public:
  CaptureCheck(const OpenDevice& device, const bp_plan_capture& table, bp_memory_kind kind)
      : device_(device), table_(table), kind_(kind), stream_(device) {}

  std::string first_wrong() {
    for (const auto& check :
         {&CaptureCheck::wrong_replay, &CaptureCheck::wrong_order, &CaptureCheck::wrong_anew,
          &CaptureCheck::wrong_after_abandon, &CaptureCheck::leak}) {
      std::string wrong = (this->*check)();
      if (!wrong.empty()) return wrong;
    }
    return "";
  }

 private:
  using Recording = std::unique_ptr<bp_recording, std::function<void(bp_recording*)>>;

  /// Puts it plainly first, as the host does; `way` has not been gone when it returns.
  bp_recording* record(Way& way, bp_recording* former) {
    way.put(device_, stream_);
    stream_.sync();
    way.clear(1);
    begin();
    way.put(device_, stream_);
    bp_recording* made = nullptr;
    enter("end of a recording");
    judge(ask([&] { return table_.end(device_.raw(), stream_.raw(), former, &made); }));
    if (made == nullptr) throw Broken(current_step() + " succeeds and gives no recording");
    return made;
  }
  Recording owned(bp_recording* made) {
    return {made, [this](bp_recording* old) {
              enter("release of a recording");
              table_.release(device_.raw(), old);
            }};
  }
  void begin() {
    enter("begin of a recording");
    judge(ask([&] { return table_.begin(device_.raw(), stream_.raw()); }));
  }
  static void judge(const Outcome& outcome) {
    if (outcome.code == BP_UNSUPPORTED && !outcome.message.empty()) throw Refused{outcome.message};
    if (!outcome.is_ok()) throw Broken(current_step() + " failed: " + described(outcome));
  }
  void replay(const Recording& recording) const {
    enter("replay");
    need([&] { return table_.replay(device_.raw(), stream_.raw(), recording.get()); });
  }

  std::string wrong_replay() {
    Way way(device_, kind_);
    const Recording recording = owned(record(way, nullptr));
    stream_.sync();
    if (!way.is_untouched()) return "what was put between begin and end was done";
    for (std::uint64_t round = 2; round < 5; ++round) {
      way.clear(round);
      replay(recording);
      stream_.sync();
      const std::string wrong = way.wrong();
      if (!wrong.empty())
        return text("replay number ", round - 1,
                    " does not do what was recorded with what is in the memory then: ", wrong);
    }
    return "";
  }

  /// A replay stands between what is put before it and after it.
  std::string wrong_order() {
    Way way(device_, kind_);
    const Recording recording = owned(record(way, nullptr));
    way.clear(6);
    Memory before(&device_, BP_MEMORY_DEVICE, kRecordedBytes),
        after(&device_, BP_MEMORY_DEVICE, kRecordedBytes), last(&device_, kind_, kRecordedBytes);
    const std::vector<std::uint8_t> data = pattern(kRecordedBytes, 57);
    before.write(data.data());
    copy(device_, stream_, before, way.source);
    replay(recording);
    copy(device_, stream_, way.target, after);
    copy(device_, stream_, after, last);
    stream_.sync();
    const std::string wrong = compared(last.read(), data);
    return wrong.empty() ? "" : "a replay is not in order with the stream's other work: " + wrong;
  }

  /// The same steps with other memory, with the older recording at hand.
  std::string wrong_anew() {
    Way first(device_, kind_), second(device_, kind_);
    Recording former = owned(record(first, nullptr));
    bp_recording* const made = record(second, former.get());
    const bool is_changed = made == former.get();
    const Recording other = is_changed ? std::move(former) : owned(made);
    first.clear(8);
    second.clear(9);
    replay(other);
    stream_.sync();
    if (!first.is_untouched())
      return "a recording made anew for other memory still works on the former memory";
    const std::string wrong = second.wrong();
    if (!wrong.empty())
      return "a recording made anew for other memory does not do what was recorded: " + wrong;
    if (is_changed) return "";
    replay(former);
    stream_.sync();
    return first.wrong().empty() ? "" : "a former recording that was left as it is does not work";
  }

  std::string wrong_after_abandon() {
    Way way(device_, kind_);
    way.put(device_, stream_);
    stream_.sync();
    way.clear(10);
    begin();
    way.put(device_, stream_);
    enter("abandon of a recording");
    across([&] { table_.abandon(device_.raw(), stream_.raw()); });
    stream_.sync();
    if (!way.is_untouched()) return "what was recorded and abandoned was done";
    way.put(device_, stream_);
    stream_.sync();
    if (!way.wrong().empty()) return "after abandon the stream does not work as before";
    const Recording recording = owned(record(way, nullptr));
    way.clear(11);
    replay(recording);
    stream_.sync();
    return way.wrong().empty() ? "" : "after abandon nothing can be recorded";
  }

  std::uint64_t heap_after(Way& way, int rounds) {
    for (int i = 0; i < rounds; ++i) {
      const Recording recording = owned(record(way, nullptr));
      replay(recording);
      stream_.sync();
    }
    return heap_bytes();
  }

  std::string leak() {
    constexpr int kRounds = 32;
    constexpr std::uint64_t kLeast =
        kRounds * 512;  // notes of what once lived may stay, objects not
    Way way(device_, kind_);
    heap_after(way, kRounds);
    const std::uint64_t start = heap_after(way, kRounds), middle = heap_after(way, kRounds),
                        end = heap_after(way, kRounds);
    if (middle < start + kLeast || end < middle + kLeast) return "";
    return text((end - start) / (2 * kRounds), " bytes of heap are lost per recording");
  }

  const OpenDevice& device_;
  const bp_plan_capture& table_;
  bp_memory_kind kind_;
  Stream stream_;
};

bool is_whole(const bp_plan_capture* table) {
  return BP_HAS_FN(bp_plan_capture, table, begin) && BP_HAS_FN(bp_plan_capture, table, end) &&
         BP_HAS_FN(bp_plan_capture, table, abandon) && BP_HAS_FN(bp_plan_capture, table, replay) &&
         BP_HAS_FN(bp_plan_capture, table, release);
}

}  // namespace

std::vector<Row> check_plan_capture(Subject& subject, const Piece& piece) {
  const std::string name = "device.plan_capture";
  const auto skip = [&](const std::string& reason) {
    return std::vector<Row>{skipped(name, piece.subject, reason)};
  };
  const auto device = subject.open(piece);
  if (!device->has_own_memory()) return not_applicable(name, piece);
  const auto* table =
      static_cast<const bp_plan_capture*>(interface_of(subject, piece, BP_PLAN_CAPTURE_INTERFACE));
  if (table == nullptr) return skip("the provider has no bp.plan_capture");
  if (!is_whole(table)) return verdict(name, piece, "its bp_plan_capture lacks a function");
  const auto kind = recorded_kind(*device);
  if (!kind) return skip("it copies neither with pinned memory nor within its own");
  try {
    return verdict(name, piece, CaptureCheck(*device, *table, *kind).first_wrong());
  } catch (const Refused& refused) {
    return skip("the device records nothing: " + refused.reason);
  }
}

}  // namespace backplane::cli::check
