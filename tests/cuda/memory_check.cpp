#include "tests/cuda/memory_check.hpp"

#include <algorithm>

#include "backplane/plugin.hpp"

namespace backplane::cuda {
namespace {

/// Whether a barrier stands between what two items do, or they are one.
bool are_ordered(const MemoryCheck::Maker& a, const MemoryCheck::Maker& b) {
  return a.group == b.group && (a.item == b.item || a.barriers != b.barriers);
}

}  // namespace

void MemoryCheck::begin_launch() {
  // Numbers of launches are even and of groups odd, so that memory that was local once is never taken for the other kind.
  launch_ += 2;
  fault_.clear();
  constexpr std::size_t kMostBlocks = 1 << 16;
  if (blocks_.size() < kMostBlocks) return;
  blocks_.clear();
  recent_.fill({});
}

MemoryCheck::Block& MemoryCheck::block(std::uintptr_t number) {
  Recent& recent = recent_[number % kRecent];
  if (recent.block == nullptr || recent.number != number) recent = {number, &blocks_[number]};
  return *recent.block;
}

void MemoryCheck::note(Byte& byte, Kind kind, bool is_local, const Maker& by,
                       std::uintptr_t address) {
  const std::uint64_t number = is_local ? 2 * group_ + 1 : launch_;
  if (byte.launch != number) {
    byte = Byte();
    byte.launch = number;
  }
  const bool is_write = kind != Kind::kRead;
  if (byte.is_written && !are_ordered(byte.writer, by) &&
      !(byte.is_atomic && kind == Kind::kAtomic))
    report(is_write ? "written by two" : "read by one and written by another", address, is_local,
           byte.writer, by);
  if (is_local && !is_write && !byte.is_written)
    report("read, where nothing was written", address, is_local, by, by);
  if (!is_write) {
    byte.has_several_groups =
        byte.has_several_groups || (byte.is_read && byte.reader.group != by.group);
    const bool is_same =
        byte.is_read && byte.reader.group == by.group && byte.reader.barriers == by.barriers;
    byte.has_several_readers = is_same && (byte.has_several_readers || byte.reader.item != by.item);
    byte.is_read = true;
    byte.reader = by;
    return;
  }
  const bool is_read_by_others =
      byte.is_read && (byte.has_several_groups || !are_ordered(byte.reader, by) ||
                       (byte.has_several_readers && byte.reader.barriers == by.barriers));
  if (is_read_by_others)
    report("read by one and written by another", address, is_local, byte.reader, by);
  byte.is_written = true;
  byte.is_atomic = kind == Kind::kAtomic;
  byte.writer = by;
}

void MemoryCheck::note(std::uintptr_t address, std::uint32_t bytes, Kind kind, bool is_local,
                       const Maker& by) {
  constexpr std::uintptr_t kBytes = 4;
  const std::uintptr_t end = address + bytes;
  for (std::uintptr_t at = address; at < end;) {
    const std::uintptr_t number = at / kBytes, first = at % kBytes;
    const std::uintptr_t past = std::min(kBytes, first + (end - at));
    Word& word = block(number / kWords)[number % kWords];
    at += past - first;
    if (word.parts == nullptr) {
      if (past - first == kBytes) {
        note(word.whole, kind, is_local, by, address);
        continue;
      }
      word.parts = std::make_unique<std::array<Byte, 4>>();
      word.parts->fill(word.whole);
    }
    for (std::uintptr_t i = first; i < past; ++i)
      note((*word.parts)[i], kind, is_local, by, address);
  }
}

void MemoryCheck::report(const char* what, std::uintptr_t address, bool is_local, const Maker& a,
                         const Maker& b) {
  if (!fault_.empty()) return;
  const auto text = [](const Maker& m) {
    return sdk::message("item ", m.item, " of group ", m.group, " after ", m.barriers, " barriers");
  };
  fault_ = sdk::message("a byte of ", is_local ? "local" : "global", " memory, ", address, ", is ",
                        what, ", without an order: ", text(a), ", ", text(b));
}

}  // namespace backplane::cuda
