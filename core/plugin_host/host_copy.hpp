// Copies of large values from host memory to host memory, by several threads, and piece by piece where somebody else works on
// each piece before or after.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/plugin_host/thread_pool.hpp"

namespace backplane::core {

/// From so much on a copy is shared by threads, and one by way of pinned memory goes piece by piece. Less is copied by one thread
/// before the others are awake.
inline constexpr std::uint64_t kLargeCopyBytes = std::uint64_t{2} << 20;

/// A range of bytes as pieces of one size, the last one aside.
struct CopyPieces {
  /// Long enough that starting a device's copy does not count beside it, short since the first and the last one overlap nothing.
  static constexpr std::uint64_t kLeastBytes = std::uint64_t{1} << 20;
  static constexpr std::uint64_t kMost = 32;
  /// What a thread copies at a time.
  static constexpr std::uint64_t kSliceBytes = std::uint64_t{128} << 10;

  explicit CopyPieces(std::uint64_t all_bytes) : bytes(all_bytes) {
    const std::uint64_t wanted = std::max(all_bytes / kMost + 1, kLeastBytes);
    piece_bytes = (wanted + kSliceBytes - 1) / kSliceBytes * kSliceBytes;
  }

  std::size_t count() const {
    return static_cast<std::size_t>((bytes + piece_bytes - 1) / piece_bytes);
  }
  std::uint64_t begin(std::size_t piece) const { return piece * piece_bytes; }
  std::uint64_t size(std::size_t piece) const {
    return std::min(piece_bytes, bytes - begin(piece));
  }

  std::uint64_t bytes;
  std::uint64_t piece_bytes;
};

/// Who works on the pieces of a copy besides the threads that copy. All is called on the thread that asked for the copy.
class PieceWork {
 public:
  PieceWork() = default;
  PieceWork(const PieceWork&) = delete;
  PieceWork& operator=(const PieceWork&) = delete;
  virtual ~PieceWork() = default;
  /// Whether all pieces can be read from the beginning; else wait_for() is called for each, in order, before it is read.
  virtual bool is_there() const = 0;
  /// Waits until the piece can be read. False: the copy ends.
  virtual bool wait_for(std::size_t piece) = 0;
  /// The piece is copied; called in order. False: the copy ends.
  virtual bool copied(std::size_t piece) = 0;
};

/// Copies `bytes` bytes, which do not overlap: by several of the threads where they are many.
void copy_on_host(const bp_threads& threads, void* to, const void* from, std::uint64_t bytes);

/// Likewise piece by piece. Returns when no thread works on it any more, also where `work` ended it: then false. Nothing that
/// `work` is asked may throw.
bool copy_in_pieces(const bp_threads& threads, void* to, const void* from, const CopyPieces& pieces,
                    PieceWork& work);

}  // namespace backplane::core
