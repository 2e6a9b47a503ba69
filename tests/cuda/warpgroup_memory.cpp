#include "tests/cuda/warpgroup_memory.hpp"

#include <algorithm>
#include <cstring>

#include "backplane/plugin.hpp"
#include "tests/cuda/warpgroups.hpp"

namespace backplane::cuda {
namespace {

constexpr int kItemBits =
    16;  // of a word's writer; the rest is how often that had shown what it wrote

void stop_item(const std::string& fault) { Fibers::all().stop(fault); }

/// What is found while no item runs.
void note_fault(const std::string& fault) {
  if (Watch::all().fault.empty()) Watch::all().fault = fault;
}

/// How far the last line's pixels of results begin, along an axis of an image.
int last_begin(const BoxedPixels& pixels, std::size_t axis) {
  return static_cast<int>(axis == 0 ? pixels.width : pixels.height) - 1 + pixels.upper[axis];
}

}  // namespace

void GroupMemory::begin(const Range& declared, std::uint32_t bytes, unsigned items) {
  // What is given is aligned by as much as text can rely on, and no more.
  constexpr std::uint32_t kAlignment = 1024, kBeside = 16, kWord = 8;
  declared_ = declared;
  const auto declared_bytes = static_cast<std::uint32_t>(declared.end - declared.begin);
  given_at_ = (declared_bytes + kAlignment - 1) / kAlignment * kAlignment + kBeside;
  given_bytes_ = bytes;
  memory_.assign(given_at_ + bytes, 0xff);  // NaN
  written_.assign(memory_.size() / sizeof(std::uint32_t) + 1, 0);
  shown_.assign(items, 1);
  barriers_.assign(declared_bytes / kWord, {});
  loads_.clear();
  stores_.clear();
}

std::uint32_t GroupMemory::address_of(const void* place) const {
  const auto at = reinterpret_cast<std::uintptr_t>(place);
  return static_cast<std::uint32_t>(declared_.has(at)
                                        ? at - declared_.begin
                                        : at - reinterpret_cast<std::uintptr_t>(memory_.data()));
}

bool GroupMemory::has(std::uint32_t at, std::uint32_t bytes) const {
  return at >= given_at_ && at + bytes <= given_at_ + given_bytes_;
}

unsigned char* GroupMemory::place(std::uint32_t at, std::uint32_t bytes) {
  if (!has(at, bytes) || at % std::min(bytes, kLine) != 0)
    stop_item(sdk::message("no place of ", bytes, " bytes in local memory: ", at));
  return memory_.data() + at;
}

GroupMemory::Barrier& GroupMemory::barrier(std::uint32_t at) {
  if (at % 8 != 0 || at / 8 >= barriers_.size())
    stop_item(sdk::message("no barrier in local memory: ", at));
  return barriers_[at / 8];
}

void GroupMemory::begin_barrier(std::uint32_t at, std::uint32_t count) {
  Barrier& begun = barrier(at);
  if (begun.count != 0) stop_item("a barrier is begun twice");
  begun.count = begun.pending = count;
}

void GroupMemory::turn_phase(Barrier& barrier) {
  if (barrier.pending > 0 || barrier.bytes != 0) return;
  barrier.pending = barrier.count;
  ++barrier.phase;
}

void GroupMemory::arrive(std::uint32_t at, std::uint32_t bytes) {
  Barrier& reached = barrier(at);
  if (reached.pending == 0) stop_item("more items come to a barrier than it is for");
  reached.bytes += bytes;
  --reached.pending;
  turn_phase(reached);
}

void GroupMemory::await(std::uint32_t at, std::uint32_t parity) {
  Barrier& awaited = barrier(at);
  if (awaited.count == 0) stop_item("a barrier is awaited that has not begun");
  ++awaited.awaited;
  Fibers::all().wait({[](const Wait& wait) {
                        const GroupMemory& memory = Warpgroups::all().memory(wait.group);
                        return memory.barriers_[wait.number / 8].phase % 2 != wait.more;
                      },
                      "for a phase of a barrier in local memory", Fibers::all().group(), 0, at,
                      parity});
  --awaited.awaited;
}

void GroupMemory::write(std::uint32_t at, const void* from, std::uint32_t bytes) {
  std::memcpy(place(at, bytes), from, bytes);
  const unsigned item = Fibers::all().item();
  for (std::uint32_t i = 0; i < bytes; i += sizeof(std::uint32_t))
    written_[(at + i) / sizeof(std::uint32_t)] = shown_[item] << kItemBits | item;
}

std::uint16_t GroupMemory::element(std::uint32_t at) const {
  std::uint16_t made = 0;
  if (has(at, sizeof(made)))
    std::memcpy(&made, memory_.data() + at, sizeof(made));
  else
    note_fault(sdk::message("an operand lies outside of local memory: ", at));
  return made;
}

/// Copies see it as items have written it.
void GroupMemory::be_free(std::uint32_t at, std::uint32_t bytes) {
  constexpr std::uint32_t kItem = 0xffff;
  for (std::uint32_t i = at / 4; i < (at + bytes) / 4; ++i) {
    if (written_[i] == 0) continue;
    if (shown_[written_[i] & kItem] == written_[i] >> kItemBits)
      stop_item("a copy is asked for of what is not shown to copies");
    written_[i] = 0;
  }
}

void GroupMemory::load(const Load& load) {
  const std::uint32_t bytes = load.lines * kLine;
  unsigned char* const to = place(load.to, bytes);
  barrier(load.barrier);
  for (const Load& other : loads_) {
    if (load.to < other.to + other.lines * kLine && other.to < load.to + bytes)
      stop_item("two boxes come to the same place");
  }
  be_free(load.to, bytes);
  std::fill_n(to, bytes, static_cast<unsigned char>(0xff));
  loads_.push_back(load);
}

void GroupMemory::load_box(std::uint32_t to, const StandInBoxes& from, const std::array<int, 3>& at,
                           std::uint32_t barrier) {
  if (from.matrices.address == 0) stop_item("a box of pixels is asked for as one of a matrix");
  if (!Watch::all().has_turn) before_turn().insert(from.matrices.address);
  load({&from, {at[0], at[1], at[2]}, to, from.matrices.box_rows, barrier});
}

void GroupMemory::load_pixels(std::uint32_t to, const StandInBoxes& from,
                              const std::array<int, 6>& at, std::uint32_t barrier) {
  constexpr int kMostOffset = 255;
  const BoxedPixels& pixels = from.pixels;
  if (pixels.address == 0) stop_item("a box of a matrix is asked for as one of pixels");
  if (!Watch::all().has_turn) before_turn().insert(pixels.address);
  for (std::size_t axis = 0; axis < 2; ++axis) {
    const int begin = at[1 + axis], offset = at[4 + axis];
    if (begin < pixels.lower[axis] || begin > last_begin(pixels, axis))
      stop_item("pixels are asked for from where no window begins");
    if (offset < 0 || offset > kMostOffset)
      stop_item("pixels are asked for too far from where windows begin");
  }
  load({&from, at, to, pixels.box_pixels, barrier});
}

/// A line of 64 elements of which `columns` are there, from the first on.
void GroupMemory::bring_line(std::uint32_t to, Address from, std::int64_t first,
                             std::int64_t columns) {
  constexpr std::int64_t kElement = 2;
  for (std::uint32_t at = 0; at < kLineElements; ++at) {
    const std::int64_t column = first + at;
    std::uint16_t value = 0;
    if (column >= 0 && column < columns)
      std::memcpy(&value, memory_at<char>(from) + column * kElement, sizeof(value));
    std::memcpy(memory_.data() + swizzled(to + at * 2), &value, sizeof(value));
  }
}

void GroupMemory::bring(const Load& load) {
  constexpr std::int64_t kElement = 2;
  const auto move = [](Address address, std::int64_t elements) {
    return address + static_cast<Address>(elements * kElement);
  };
  if (load.from->pixels.address == 0) {
    const BoxedMatrices& from = load.from->matrices;
    for (std::uint32_t line = 0; line < load.lines; ++line) {
      const std::int64_t row = load.at[1] + std::int64_t{line}, matrix = load.at[2];
      const bool is_there = row >= 0 && row < from.rows && matrix >= 0 && matrix < from.matrices;
      bring_line(load.to + line * kLine,
                 move(from.address, is_there ? row * from.step + matrix * from.matrix_step : 0),
                 load.at[0], is_there ? from.columns : 0);
    }
    return;
  }
  // https://docs.nvidia.com/cuda/parallel-thread-execution/#tensor-im2col-mode
  const BoxedPixels& from = load.from->pixels;
  std::int64_t x = load.at[1], y = load.at[2], image = load.at[3];
  for (std::uint32_t line = 0; line < load.lines; ++line) {
    const std::int64_t u = x + load.at[4], v = y + load.at[5];
    const bool is_there =
        u >= 0 && u < from.width && v >= 0 && v < from.height && image >= 0 && image < from.images;
    const std::int64_t pixel = is_there ? (image * from.height + v) * from.width + u : 0;
    bring_line(load.to + line * kLine, move(from.address, pixel * from.channels), load.at[0],
               is_there ? from.channels : 0);
    x += from.stride[0];
    if (x <= last_begin(from, 0)) continue;
    x = from.lower[0];
    y += from.stride[1];
    if (y <= last_begin(from, 1)) continue;
    y = from.lower[1];
    ++image;
  }
}

/// The last one that was asked for comes first, until a phase is over.
bool GroupMemory::bring() {
  const auto is_awaited = [&](const Load& load) { return barriers_[load.barrier / 8].awaited > 0; };
  const auto found = std::find_if(loads_.rbegin(), loads_.rend(), is_awaited);
  if (found == loads_.rend()) return false;
  const std::uint32_t at = found->barrier;
  Barrier& waiting = barriers_[at / 8];
  for (const unsigned phase = waiting.phase; waiting.phase == phase;) {
    const auto next = std::find_if(loads_.rbegin(), loads_.rend(),
                                   [at](const Load& load) { return load.barrier == at; });
    if (next == loads_.rend()) break;
    bring(*next);
    waiting.bytes -= next->lines * kLine;
    if (waiting.bytes < 0) note_fault("more bytes come to a barrier than it was told of");
    loads_.erase(std::next(next).base());
    turn_phase(waiting);
  }
  return true;
}

void GroupMemory::store_box(const StandInBoxes& to, const std::array<int, 3>& at,
                            std::uint32_t from) {
  if (to.matrices.address == 0) stop_item("pixels are stored");
  if (!Watch::all().has_turn) stop_item("results are stored before the kernel's turn");
  const std::uint32_t bytes = to.matrices.box_rows * kLine;
  const unsigned char* const first = place(from, bytes);
  be_free(from, bytes);
  stores_.push_back({&to, at, from, Fibers::all().item(), false, {first, first + bytes}});
}

void GroupMemory::commit_stores() {
  for (Store& store : stores_)
    store.is_committed = store.is_committed || store.item == Fibers::all().item();
}

void GroupMemory::wait_for_stores() {
  const auto is_mine = [](const Store& store) {
    return store.is_committed && store.item == Fibers::all().item();
  };
  for (const Store& store : stores_) {
    if (is_mine(store)) write(store);
  }
  stores_.erase(std::remove_if(stores_.begin(), stores_.end(), is_mine), stores_.end());
}

void GroupMemory::write(const Store& store) {
  constexpr std::int64_t kElement = 2;
  if (std::memcmp(memory_.data() + store.from, store.bytes.data(), store.bytes.size()) != 0)
    stop_item("local memory is written while a copy may still read it");
  const BoxedMatrices& to = store.to->matrices;
  Watch& watch = Watch::all();
  const std::int64_t matrix = store.at[2];
  for (std::uint32_t line = 0; line < to.box_rows; ++line) {
    const std::int64_t row = store.at[1] + std::int64_t{line};
    if (row < 0 || row >= to.rows || matrix < 0 || matrix >= to.matrices) continue;
    for (std::uint32_t i = 0; i < kLineElements; ++i) {
      const std::int64_t column = store.at[0] + std::int64_t{i};
      if (column < 0 || column >= to.columns) continue;
      const Address element =
          to.address +
          static_cast<Address>((row * to.step + matrix * to.matrix_step + column) * kElement);
      std::memcpy(memory_at<void>(element),
                  memory_.data() + swizzled(store.from + line * kLine + i * 2), kElement);
      if (i % 2 == 0 && column + 1 < to.columns)
        watch.memory.note(element, 2 * kElement, MemoryCheck::Kind::kWrite, false, watch.item);
    }
  }
}

std::string GroupMemory::what_is_left() const {
  if (!loads_.empty()) return "a group ends before a box has come to its local memory";
  if (!stores_.empty()) return "a group ends before a box was read from its local memory";
  return "";
}

std::set<Address>& GroupMemory::before_turn() {
  static std::set<Address> addresses;
  return addresses;
}

}  // namespace backplane::cuda
