// A group's local memory on the processor, with the barriers in it and the copies of boxes that come to it and go from it.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "tests/cuda/fibers.hpp"

namespace backplane::cuda {

/// Where an element lies whose line of 128 bytes is swizzled: what is 16 bytes each changes places by the line.
inline std::uint32_t swizzled(std::uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

/// As late as may be, and as bad before: what a copy is to bring is NaN from when it is asked for until somebody waits for it who could not
/// go on otherwise, and a copy out of local memory reads when it is asked for and again when it is waited for, which must be the same.
/// What is no use of the words that a GPU defines stops the item (Fibers::stop).
class GroupMemory {
 public:
  /// Of items that have declared some memory and are given so many bytes.
  void begin(const Range& declared, std::uint32_t bytes, unsigned items);

  std::uint32_t address_of(const void* place) const;
  void* given() { return memory_.data() + given_at_; }

  // https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-mbarrier
  void begin_barrier(std::uint32_t at, std::uint32_t count);
  void arrive(std::uint32_t at, std::uint32_t bytes);
  void await(std::uint32_t at, std::uint32_t parity);

  // Of an item, by a power of 2 of bytes.
  template <class Value>
  Value read(std::uint32_t at) {
    Value made;
    std::memcpy(&made, place(at, sizeof(made)), sizeof(made));
    return made;
  }
  void write(std::uint32_t at, const void* from, std::uint32_t bytes);
  void show_to_copies() { ++shown_[Fibers::all().item()]; }
  /// Of an operand that instructions read; zero, and a fault, where there is none.
  std::uint16_t element(std::uint32_t at) const;

  // https://docs.nvidia.com/cuda/parallel-thread-execution/#tensor
  void load_box(std::uint32_t to, const StandInBoxes& from, const std::array<int, 3>& at,
                std::uint32_t barrier);
  /// At [c, x, y, image, right, down].
  void load_pixels(std::uint32_t to, const StandInBoxes& from, const std::array<int, 6>& at,
                   std::uint32_t barrier);
  void store_box(const StandInBoxes& to, const std::array<int, 3>& at, std::uint32_t from);
  void commit_stores();
  void wait_for_stores();

  /// Brings what somebody waits for; false: there is nothing.
  bool bring();
  /// A reason why the group may not end, or nothing.
  std::string what_is_left() const;
  /// The matrices of which boxes were asked for before the kernel's turn.
  static std::set<Address>& before_turn();

 private:
  struct Barrier {
    std::uint32_t count = 0, pending = 0, awaited = 0;
    std::int64_t bytes = 0;
    unsigned phase = 0;
  };
  struct Load {
    const StandInBoxes* from = nullptr;
    std::array<int, 6> at{};
    std::uint32_t to = 0, lines = 0, barrier = 0;
  };
  struct Store {
    const StandInBoxes* to = nullptr;
    std::array<int, 3> at{};
    std::uint32_t from = 0;
    unsigned item = 0;
    bool is_committed = false;
    std::vector<unsigned char> bytes;
  };
  static constexpr std::uint32_t kLine = 128, kLineElements = 64, kTogether = 16;

  bool has(std::uint32_t at, std::uint32_t bytes) const;
  unsigned char* place(std::uint32_t at, std::uint32_t bytes);
  Barrier& barrier(std::uint32_t at);
  static void turn_phase(Barrier& barrier);
  void be_free(std::uint32_t at, std::uint32_t bytes);
  void load(const Load& load);
  void bring(const Load& load);
  void bring_line(std::uint32_t to, Address from, std::int64_t first, std::int64_t columns);
  void write(const Store& store);

  std::vector<unsigned char> memory_;
  /// Of each word the item that wrote it last, and how often it had shown what it wrote: of such that are not shown.
  std::vector<std::uint32_t> written_;
  std::vector<std::uint32_t> shown_;  ///< by item
  std::vector<Barrier> barriers_;     ///< by words of what is declared
  std::vector<Load> loads_;           ///< that have not come
  std::vector<Store> stores_;
  Range declared_;
  std::uint32_t given_at_ = 0, given_bytes_ = 0;
};

}  // namespace backplane::cuda
