// A device with memory and streams of its own: buffers, copies, streams, fences.
#include <algorithm>
#include <cstring>

#include "tools/backplane/check/device_work.hpp"
#include "tools/backplane/failure.hpp"

namespace backplane::cli::check {
namespace {

constexpr std::uint64_t kLarge = std::uint64_t{1} << 20;

std::string kind_name(bp_memory_kind kind) {
  return kind == BP_MEMORY_DEVICE ? "device" : kind == BP_MEMORY_HOST ? "host" : "pinned";
}

std::string checked_copy(const OpenDevice& device, bp_memory_kind from, bp_memory_kind to,
                         std::uint64_t bytes) {
  const std::string what =
      text("a copy of ", bytes, " bytes from ", kind_name(from), " to ", kind_name(to), " memory");
  const std::vector<std::uint8_t> data = pattern(bytes, bytes + 1);
  Memory source(&device, from, bytes), target(&device, to, bytes);
  source.write(data.data());
  target.fill(0x11);
  const Stream stream(device);
  copy(device, stream, source, target);
  stream.sync();
  const std::string wrong = compared(target.read(), data);
  if (!wrong.empty()) return what + ": " + wrong;
  const std::string damage = target.damage();
  if (!damage.empty()) return what + ": " + damage;
  if (source.read() != data) return what + " changed its source";
  return "";
}

/// Work on the stream that takes a while: the whole way in and out again, several times.
struct Traffic {
  Memory source, inner, outer;
  std::vector<std::uint8_t> data;

  Traffic(const OpenDevice& device, std::uint64_t seed)
      : source(&device, outer_kind(device), kLarge),
        inner(&device, BP_MEMORY_DEVICE, kLarge),
        outer(&device, outer_kind(device), kLarge),
        data(pattern(kLarge, seed)) {
    source.write(data.data());
    inner.fill(0x22);
    outer.fill(0x33);
  }
};

std::string wrong_order(const OpenDevice& device) {
  Traffic traffic(device, 5);
  Memory other(&device, BP_MEMORY_DEVICE, kLarge);
  const Stream stream(device);
  copy(device, stream, traffic.source, traffic.inner);
  if (device.copy_mode(BP_MEMORY_DEVICE, BP_MEMORY_DEVICE) != BP_COPY_NONE) {
    copy(device, stream, traffic.inner, other);
    copy(device, stream, other, traffic.outer);
  } else {
    copy(device, stream, traffic.inner, traffic.outer);
  }
  stream.sync();
  const std::string wrong = compared(traffic.outer.read(), traffic.data);
  return wrong.empty()
             ? ""
             : "work put on one stream after another does not run in that order: " + wrong;
}

/// A fence that a stream raises says that the work before it is done.
std::string signalled_too_early(const OpenDevice& device) {
  Traffic traffic(device, 6);
  const Stream stream(device);
  const Fence fence(device);
  copy(device, stream, traffic.source, traffic.inner);
  copy(device, stream, traffic.inner, traffic.outer);
  fence.signal(stream, 1);
  const Outcome outcome = fence.host_wait(1, UINT64_MAX);
  if (!outcome.is_ok()) return "fence_host_wait: " + described(outcome);
  // Read as the host does: without touching the stream.
  std::vector<std::int64_t> size{static_cast<std::int64_t>(kLarge)};
  const auto* seen =
      static_cast<const std::uint8_t*>(traffic.outer.describe_bytes(size, 0).base.host_ptr);
  const std::vector<std::uint8_t> copied(seen, seen + kLarge);
  stream.sync();
  const std::string wrong = compared(copied, traffic.data);
  return wrong.empty() ? ""
                       : "a fence was raised before the work in front of it was done: " + wrong;
}

/// A stream that waits for a fence, asked before the other one has raised it.
std::string does_not_wait(const OpenDevice& device) {
  Traffic traffic(device, 7);
  const Stream first(device), second(device);
  const Fence fence(device);
  fence.wait(second, 1);
  copy(device, second, traffic.inner, traffic.outer);
  copy(device, first, traffic.source, traffic.inner);
  fence.signal(first, 1);
  second.sync();
  first.sync();
  const std::string wrong = compared(traffic.outer.read(), traffic.data);
  return wrong.empty() ? ""
                       : "a stream did not wait for the fence it was told to wait for: " + wrong;
}

std::string wrong_timeout(const OpenDevice& device) {
  const Stream stream(device);
  const Fence fence(device);
  const Outcome outcome = fence.host_wait(1, 1000000);
  if (outcome.code != BP_TIMEOUT)
    return "fence_host_wait on a fence that nobody raises gives " + described(outcome) +
           " and not BP_TIMEOUT";
  fence.signal(stream, 3);
  const Outcome passed_by = fence.host_wait(2, UINT64_MAX);
  return passed_by.is_ok()
             ? ""
             : "a fence that went past a value counts as not there: " + described(passed_by);
}

}  // namespace

std::vector<Row> check_buffers(Subject& subject, const Piece& piece) {
  const auto device = subject.open(piece);
  const std::string name = "device.buffers";
  if (!device->has_own_memory()) return not_applicable(name, piece);
  if (!device->has_heap(BP_MEMORY_DEVICE))
    return verdict(name, piece, "it shows no heap of BP_MEMORY_DEVICE");
  std::string wrong;
  for (const bp_memory_kind kind : {BP_MEMORY_DEVICE, BP_MEMORY_PINNED}) {
    const std::uint64_t alignment = device->alignment(kind);
    if (!device->has_heap(kind)) continue;
    if ((alignment & (alignment - 1)) != 0)
      wrong = text("an alignment of ", alignment, " is no power of two");
    for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{255}, kLarge}) {
      Memory first(device.get(), kind, bytes), second(device.get(), kind, bytes);
      first.fill(1);
      second.fill(2);
      if (first.read() != std::vector<std::uint8_t>(bytes, 1))
        wrong = text("two buffers of ", bytes, " bytes share memory");
    }
  }
  return verdict(name, piece, wrong);
}

std::vector<Row> check_copies(Subject& subject, const Piece& piece) {
  const auto device = subject.open(piece);
  const std::string name = "device.copies";
  if (!device->has_own_memory()) return not_applicable(name, piece);
  outer_kind(*device);
  const std::vector<std::pair<bp_memory_kind, bp_memory_kind>> ways = {
      {BP_MEMORY_HOST, BP_MEMORY_DEVICE},
      {BP_MEMORY_DEVICE, BP_MEMORY_HOST},
      {BP_MEMORY_PINNED, BP_MEMORY_DEVICE},
      {BP_MEMORY_DEVICE, BP_MEMORY_PINNED},
      {BP_MEMORY_DEVICE, BP_MEMORY_DEVICE}};
  for (const auto& [from, to] : ways) {
    const bool lacks =
        (from == BP_MEMORY_PINNED || to == BP_MEMORY_PINNED) && !device->has_heap(BP_MEMORY_PINNED);
    if (lacks) continue;
    const int mode = device->copy_mode(from, to);
    if (mode == BP_COPY_NONE) continue;
    if (mode != BP_COPY_SYNC && mode != BP_COPY_ASYNC)
      return verdict(name, piece,
                     text("copy_caps from ", kind_name(from), " to ", kind_name(to),
                          " memory gives mode ", mode, ", which there is not"));
    for (const std::uint64_t bytes :
         {1, 2, 3, 4, 7, 16, 63, 64, 65, 255, 1000, 4096, 4097, 65537}) {
      const std::string wrong = checked_copy(*device, from, to, bytes);
      if (!wrong.empty()) return verdict(name, piece, wrong);
    }
  }
  return verdict(name, piece, "");
}

std::vector<Row> check_streams(Subject& subject, const Piece& piece) {
  const auto device = subject.open(piece);
  const std::string name = "device.streams";
  if (!device->has_own_memory()) return not_applicable(name, piece);
  Stream(*device).sync();  // of an empty one
  return verdict(name, piece, wrong_order(*device));
}

std::vector<Row> check_fences(Subject& subject, const Piece& piece) {
  const auto device = subject.open(piece);
  const std::string name = "device.fences";
  if (!device->has_own_memory()) return not_applicable(name, piece);
  std::string wrong = wrong_timeout(*device);
  for (int round = 0; wrong.empty() && round < 5; ++round) wrong = signalled_too_early(*device);
  for (int round = 0; wrong.empty() && round < 5; ++round) wrong = does_not_wait(*device);
  return verdict(name, piece, wrong);
}

std::vector<Row> check_device_leaks(Subject& subject, const Piece& piece) {
  constexpr int kRounds = 16;
  const auto live = [&] {
    for (int i = 0; i < kRounds; ++i) {
      const auto device = subject.open(piece);
      device->kernels();
      if (!device->has_own_memory()) continue;
      const Stream stream(*device);
      const Fence fence(*device);
      fence.signal(stream, 1);
      Memory memory(device.get(), BP_MEMORY_DEVICE, 4096);
      stream.sync();
    }
    return heap_bytes();
  };
  live();
  const std::int64_t blocks = live_host_blocks(), statuses = live_statuses();
  const std::uint64_t start = live(), middle = live(), end = live();
  constexpr std::uint64_t kLeast = kRounds * 512;  // notes of what once lived may stay, objects not
  std::string wrong;
  if (middle >= start + kLeast && end >= middle + kLeast)
    wrong = text(
        (end - start) / (2 * kRounds),
        " bytes of heap are lost per opened and closed device with a stream, a fence and a buffer");
  if (live_host_blocks() >= blocks + kRounds)
    wrong = "memory of the host's alloc is not given back";
  if (live_statuses() != statuses) wrong = "statuses of the host are not freed";
  return verdict("device.leaks", piece, wrong);
}

}  // namespace backplane::cli::check
