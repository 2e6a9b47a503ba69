// Copies on the host by several threads, whole and piece by piece.
#include "core/plugin_host/host_copy.hpp"

#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <numeric>
#include <thread>
#include <vector>

namespace backplane::core {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// Bytes at an odd address, with a fence behind them.
struct Buffers {
  explicit Buffers(std::uint64_t size) : bytes(size), source(size + 3), target(size + 64, 0xEE) {
    std::uint64_t state = 7;
    for (unsigned char& byte : source) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      byte = static_cast<unsigned char>(state >> 56);
    }
  }
  const unsigned char* from() const { return source.data() + 3; }
  unsigned char* to() { return target.data() + 1; }
  bool is_copied() const {
    return std::equal(from(), from() + bytes, target.data() + 1) && target[0] == 0xEE &&
           std::all_of(target.begin() + 1 + static_cast<std::ptrdiff_t>(bytes), target.end(),
                       [](unsigned char byte) { return byte == 0xEE; });
  }
  std::uint64_t bytes;
  std::vector<unsigned char> source, target;
};

TEST(HostCopy, IsRightForAnySizeAndNumberOfThreads) {
  ThreadPool pool(4);
  for (const unsigned threads : {1u, 2u, 4u}) {
    const bp_threads share{&pool, threads};
    for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, kLargeCopyBytes - 1,
                                      kLargeCopyBytes, 5 * kMiB + 12345, 17 * kMiB + 63}) {
      Buffers buffers(bytes);
      copy_on_host(share, buffers.to(), buffers.from(), bytes);
      EXPECT_TRUE(buffers.is_copied()) << bytes << " bytes, " << threads << " threads";
    }
  }
}

/// Notes what it is asked, and ends the copy before a piece is there or behind one.
struct Noted : PieceWork {
  bool is_there() const override { return all_there; }
  bool wait_for(std::size_t piece) override {
    waited.push_back(piece);
    return piece != no_wait;
  }
  bool copied(std::size_t piece) override {
    const auto begin = static_cast<std::ptrdiff_t>(pieces.begin(piece));
    const auto size = static_cast<std::ptrdiff_t>(pieces.size(piece));
    is_right =
        is_right && (all_there || waited.size() > piece) &&
        std::equal(buffers.from() + begin, buffers.from() + begin + size, buffers.to() + begin);
    handed_on.push_back(piece);
    return piece != no_more;
  }
  Noted(Buffers& of, bool there) : buffers(of), pieces(of.bytes), all_there(there) {}

  Buffers& buffers;
  const CopyPieces pieces;
  bool all_there, is_right = true;
  std::size_t no_wait = 1000, no_more = 1000;
  std::vector<std::size_t> waited, handed_on;
};

std::vector<std::size_t> first_numbers(std::size_t count) {
  std::vector<std::size_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  return numbers;
}

TEST(HostCopy, HandsPiecesOnInOrderWhenTheyAreWhole) {
  ThreadPool pool(4);
  for (const unsigned threads : {1u, 2u, 4u}) {
    for (const bool there : {true, false}) {
      for (const std::uint64_t bytes : {2 * kMiB, 2 * kMiB + 1, 7 * kMiB + 131072, 20 * kMiB - 5}) {
        Buffers buffers(bytes);
        Noted work(buffers, there);
        EXPECT_TRUE(
            copy_in_pieces({&pool, threads}, buffers.to(), buffers.from(), work.pieces, work));
        EXPECT_TRUE(buffers.is_copied()) << bytes;
        EXPECT_TRUE(work.is_right) << bytes;
        EXPECT_EQ(work.handed_on, first_numbers(work.pieces.count()));
        EXPECT_EQ(work.waited, first_numbers(there ? 0 : work.pieces.count()));
      }
    }
  }
}

/// Looks at the end of the target when it is told of the first piece.
struct FirstPiece : Noted {
  using Noted::Noted;
  bool copied(std::size_t piece) override {
    if (piece == 0) is_ahead = buffers.to()[buffers.bytes - 1] == 0xEE;
    return Noted::copied(piece);
  }
  bool is_ahead = false;
};

TEST(HostCopy, HandsTheFirstPieceOnBeforeTheLastIsCopied) {
  ThreadPool pool(1);
  Buffers buffers(4 * kMiB);
  buffers.source.back() = 1;
  FirstPiece work(buffers, true);
  EXPECT_TRUE(copy_in_pieces({&pool, 1}, buffers.to(), buffers.from(), work.pieces, work));
  EXPECT_TRUE(work.is_ahead);
  EXPECT_TRUE(buffers.is_copied());
}

TEST(HostCopy, EndsWhereItsCallerSaysSo) {
  ThreadPool pool(4);
  for (const unsigned threads : {1u, 4u}) {
    Buffers buffers(8 * kMiB);
    Noted ended_behind(buffers, true);
    ended_behind.no_more = 2;
    EXPECT_FALSE(copy_in_pieces({&pool, threads}, buffers.to(), buffers.from(), ended_behind.pieces,
                                ended_behind));
    EXPECT_EQ(ended_behind.handed_on, first_numbers(3));
    Noted ended_before(buffers, false);
    ended_before.no_wait = 3;
    EXPECT_FALSE(copy_in_pieces({&pool, threads}, buffers.to(), buffers.from(), ended_before.pieces,
                                ended_before));
    EXPECT_EQ(ended_before.waited, first_numbers(4));
    EXPECT_LE(ended_before.handed_on.size(), 3u);
  }
}

TEST(HostCopy, OfSeveralCallersAreRight) {
  ThreadPool pool(3);
  std::vector<int> wrong(4);
  std::vector<std::thread> callers;
  for (int& mine : wrong) {
    callers.emplace_back([&] {
      for (int turn = 0; turn < 8; ++turn) {
        Buffers buffers(3 * kMiB + static_cast<std::uint64_t>(turn));
        Noted work(buffers, turn % 2 == 0);
        mine += !copy_in_pieces({&pool, 3}, buffers.to(), buffers.from(), work.pieces, work);
        mine += !work.is_right || !buffers.is_copied();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST(HostCopy, HasAtMostSoManyPiecesOfWholeSlices) {
  for (const std::uint64_t bytes : {kLargeCopyBytes, 9 * kMiB + 633600, 67 * kMiB, 5000 * kMiB}) {
    const CopyPieces pieces(bytes);
    EXPECT_LE(pieces.count(), CopyPieces::kMost);
    EXPECT_GE(pieces.count(), 2u);
    EXPECT_EQ(pieces.piece_bytes % CopyPieces::kSliceBytes, 0u);
    EXPECT_GE(pieces.piece_bytes, CopyPieces::kLeastBytes);
    EXPECT_EQ(pieces.begin(pieces.count() - 1) + pieces.size(pieces.count() - 1), bytes);
    EXPECT_GT(pieces.size(pieces.count() - 1), 0u);
  }
}

}  // namespace
}  // namespace backplane::core
