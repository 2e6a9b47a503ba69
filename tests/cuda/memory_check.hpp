// What a GPU may do in any order, and items that take turns on the processor do in one: accesses of a launch's items to the same
// byte without a barrier between them, of which one is a write.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

namespace backplane::cuda {

/// A launch's accesses. Those of a group to its local memory and to all other memory are ordered by the group's barriers alone, those of
/// different groups by nothing; shuffles order nothing. Atomic ones may meet each other.
class MemoryCheck {
 public:
  enum class Kind : std::uint8_t { kRead, kWrite, kAtomic };
  /// Who makes an access: the group's number in the launch, the item's in the group, and how many barriers it has passed.
  struct Maker {
    std::uint32_t group = 0, item = 0, barriers = 0;
  };

  void begin_launch();
  /// A group's local memory holds nothing that it has not written.
  void begin_group() { ++group_; }
  void note(std::uintptr_t address, std::uint32_t bytes, Kind kind, bool is_local, const Maker& by);
  /// The first fault since begin_launch(), or empty.
  const std::string& fault() const { return fault_; }

 private:
  /// A byte's last write, and its reads since: of one group after its last barrier, and whether other groups read it too.
  struct Byte {
    std::uint64_t launch = 0;  ///< or group, of local memory: older ones do not count
    Maker writer, reader;
    bool is_written = false, is_atomic = false, is_read = false;
    bool has_several_readers = false, has_several_groups = false;
  };
  /// Four bytes. As long as they are only ever accessed together, one says what all are.
  struct Word {
    Byte whole;
    std::unique_ptr<std::array<Byte, 4>> parts;
  };
  static constexpr std::uintptr_t kWords = 16;  ///< of a block
  using Block = std::array<Word, kWords>;
  /// A block that was looked for, at the place that its number has among these: most accesses are to one of few.
  struct Recent {
    std::uintptr_t number = 0;
    Block* block = nullptr;
  };
  static constexpr std::size_t kRecent = 1024;

  Block& block(std::uintptr_t number);

  void note(Byte& byte, Kind kind, bool is_local, const Maker& by, std::uintptr_t address);
  void report(const char* what, std::uintptr_t address, bool is_local, const Maker& a,
              const Maker& b);

  std::unordered_map<std::uintptr_t, Block> blocks_;
  std::array<Recent, kRecent> recent_{};
  std::uint64_t launch_ = 0, group_ = 0;
  std::string fault_;
};

}  // namespace backplane::cuda
