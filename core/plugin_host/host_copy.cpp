#include "core/plugin_host/host_copy.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace backplane::core {
namespace {

/// More threads bring nothing where eight copy: memory, or the bus to a device, is what is slow then.
constexpr unsigned kMostThreads = 8;
/// A thread that has less to do is not worth waking.
constexpr std::uint64_t kBytesPerThread = std::uint64_t{512} << 10;
/// What is larger than caches hold is written past them: the lines that are written need not be read first.
constexpr std::uint64_t kPastCachesBytes = std::uint64_t{16} << 20;

unsigned threads_for(const bp_threads& threads, std::uint64_t bytes) {
  const std::uint64_t useful = std::min<std::uint64_t>(kMostThreads, bytes / kBytesPerThread);
  return std::min(threads.max_threads, static_cast<unsigned>(useful));
}

void copy_past_caches(std::byte* to, const std::byte* from, std::uint64_t bytes) {
#if defined(__x86_64__)
  constexpr std::uint64_t kLine = 64;
  const std::uint64_t before =
      std::min((kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine, bytes);
  std::memcpy(to, from, before);
  to += before;
  from += before;
  bytes -= before;
  for (; bytes >= kLine; bytes -= kLine, to += kLine, from += kLine) {
    const auto* const source = reinterpret_cast<const __m128i*>(from);
    auto* const target = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  _mm_sfence();  // others see these writes before what tells them that they are done
#endif
  std::memcpy(to, from, bytes);
}

/// A range of bytes that threads copy in slices.
struct Slices {
  std::byte* to;
  const std::byte* from;
  std::uint64_t bytes;

  std::uint64_t count() const {
    return (bytes + CopyPieces::kSliceBytes - 1) / CopyPieces::kSliceBytes;
  }
  void copy(std::uint64_t first, std::uint64_t last) const {
    const std::uint64_t begin = first * CopyPieces::kSliceBytes;
    const std::uint64_t end = std::min(last * CopyPieces::kSliceBytes, bytes);
    if (bytes >= kPastCachesBytes) {
      copy_past_caches(to + begin, from + begin, end - begin);
    } else {
      std::memcpy(to + begin, from + begin, end - begin);
    }
  }
};

/// One copy by pieces. Slices are claimed in order, so that pieces are done in about that order; the caller, member 0 of the
/// region, opens pieces to the others and hands on what is done.
class PieceCopy {
 public:
  PieceCopy(const Slices& slices, const CopyPieces& pieces, PieceWork& work)
      : slices_(slices),
        pieces_(pieces),
        work_(work),
        slices_of_piece_(pieces.piece_bytes / CopyPieces::kSliceBytes) {}

  static void join(void* self, unsigned member) {
    auto& copy = *static_cast<PieceCopy*>(self);
    if (member != 0) return copy.help();
    const bool is_whole = copy.lead();
    copy.is_over_.store(true, std::memory_order_relaxed);
    copy.is_whole_ = is_whole;
  }
  bool is_whole() const { return is_whole_; }

 private:
  bool lead() {
    std::size_t opened = 0, handed_on = 0;
    if (work_.is_there()) open(opened = pieces_.count());
    Spin spin;
    while (handed_on < pieces_.count()) {
      if (handed_on < opened && is_done(handed_on)) {
        if (!work_.copied(handed_on++)) return false;
      } else if (copy_one()) {
        spin = Spin();
      } else if (opened < pieces_.count()) {
        if (!work_.wait_for(opened)) return false;
        open(++opened);
      } else {
        spin.once();
      }
    }
    return true;
  }

  void help() {
    Spin spin;
    while (!is_over_.load(std::memory_order_relaxed) &&
           next_.load(std::memory_order_relaxed) < slices_.count()) {
      if (copy_one()) {
        spin = Spin();
      } else {
        spin.once();
      }
    }
  }

  /// Copies the next slice, if one is open.
  bool copy_one() {
    std::uint64_t slice = next_.load(std::memory_order_relaxed);
    do {
      if (slice >= open_.load(std::memory_order_acquire)) return false;
    } while (!next_.compare_exchange_weak(slice, slice + 1, std::memory_order_relaxed));
    slices_.copy(slice, slice + 1);
    done_[static_cast<std::size_t>(slice / slices_of_piece_)].fetch_add(1,
                                                                        std::memory_order_release);
    return true;
  }

  void open(std::size_t pieces) {
    open_.store(std::min(pieces * slices_of_piece_, slices_.count()), std::memory_order_release);
  }
  bool is_done(std::size_t piece) const {
    const std::uint64_t all =
        (pieces_.size(piece) + CopyPieces::kSliceBytes - 1) / CopyPieces::kSliceBytes;
    return done_[piece].load(std::memory_order_acquire) == all;
  }

  /// Waits a moment for another thread, which may have lost its core.
  class Spin {
   public:
    void once() {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
      if (++count_ % 256 == 0) std::this_thread::yield();
    }

   private:
    unsigned count_ = 0;
  };

  const Slices slices_;
  const CopyPieces pieces_;
  PieceWork& work_;
  const std::uint64_t slices_of_piece_;
  bool is_whole_ = false;
  std::atomic<bool> is_over_{false};
  std::atomic<std::uint64_t> next_{0};  ///< slices before it are claimed
  std::atomic<std::uint64_t> open_{0};  ///< those before it may be
  std::array<std::atomic<std::uint64_t>, CopyPieces::kMost> done_{};  ///< slices, by piece
};

}  // namespace

void copy_on_host(const bp_threads& threads, void* to, const void* from, std::uint64_t bytes) {
  if (bytes < kLargeCopyBytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  Slices slices{static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes};
  const auto copy = [](void* all, std::uint64_t begin, std::uint64_t end, std::uint32_t) {
    static_cast<const Slices*>(all)->copy(begin, end);
  };
  threads.pool->parallel_for(threads_for(threads, bytes), slices.count(),
                             kBytesPerThread / CopyPieces::kSliceBytes, copy, &slices);
}

bool copy_in_pieces(const bp_threads& threads, void* to, const void* from, const CopyPieces& pieces,
                    PieceWork& work) {
  PieceCopy copy({static_cast<std::byte*>(to), static_cast<const std::byte*>(from), pieces.bytes},
                 pieces, work);
  if (!threads.pool->run_region(threads_for(threads, pieces.bytes), PieceCopy::join, &copy))
    PieceCopy::join(&copy, 0);
  return copy.is_whole();
}

}  // namespace backplane::core
