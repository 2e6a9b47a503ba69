// The products of a warpgroup on the processor.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "tests/cuda/warpgroup_memory.hpp"

namespace backplane::cuda {

/// Four warps whose items multiply together: wgmma of m64nNk16 with both matrices in local memory.
/// https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-instructions
/// As late as may be, and as bad before: operands are read when all items wait and nobody in the group can go on otherwise, and what items
/// have of the sums is NaN until then.
class Warpgroup {
 public:
  static constexpr unsigned kItems = 128;

  // Of the item that runs.
  void order_sums() { states_[lane()].is_ordered = true; }
  void multiply(const char* instruction, float* sums, std::uint64_t a, std::uint64_t b, bool adds);
  void commit();
  void await(unsigned but);

  /// Does what all items wait for; false: not all wait.
  bool go_on(const GroupMemory& memory);
  /// Whether an item's products so far are done, by their number.
  bool has_done(std::uint64_t count) const { return done_ >= count; }

 private:
  /// What an instruction's text says.
  struct Form {
    unsigned columns = 0;
    bool is_half = false, is_transposed = false;
  };
  /// 64 lines of sums, while products go on that add to them; where each item has its part.
  struct Sums {
    std::vector<float> values;
    std::array<float*, kItems> places{};
    unsigned products = 0;
  };
  struct Product {
    Form form;
    const char* instruction = nullptr;
    std::uint64_t a = 0, b = 0;
    bool adds = false;
    Sums* sums = nullptr;
  };
  struct State {
    bool is_ordered = false;
    std::uint64_t begun = 0, awaited = 0;  ///< products; 0: it does not wait
    std::vector<std::uint64_t> committed;  ///< by group
  };

  static unsigned lane() { return Fibers::all().item() % kItems; }
  static const Form& form_of(const char* instruction);
  Sums* sums_at(float* place);
  void take(Sums& sums, float* place, unsigned columns);
  static void give_back(Sums& sums, unsigned columns);
  static void compute(const Product& product, const GroupMemory& memory);

  std::array<State, kItems> states_{};
  std::deque<Product> products_;  ///< from number `done_` on
  std::uint64_t done_ = 0;
  std::vector<std::unique_ptr<Sums>> sums_;
};

}  // namespace backplane::cuda
