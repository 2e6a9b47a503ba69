// What a session counts against its limits.
#include "core/plan/memory_budget.hpp"

#include <cstddef>
#include <memory>

#include "tests/unit/plan/stub_device.hpp"

namespace backplane::core {
namespace {

std::size_t held_blocks = 0;

/// Memory goes back when the last weak owner is gone, too.
template <class T>
struct CountingAllocator {
  using value_type = T;
  CountingAllocator() = default;
  template <class U>
  CountingAllocator(const CountingAllocator<U>&) {}  // implicit, as allocators are
  T* allocate(std::size_t n) {
    ++held_blocks;
    return std::allocator<T>().allocate(n);
  }
  void deallocate(T* memory, std::size_t n) {
    --held_blocks;
    std::allocator<T>().deallocate(memory, n);
  }
  bool operator==(const CountingAllocator&) const { return true; }
};

class MemoryBudgetTest : public PlanTest {
 protected:
  MemoryBudgetTest() { device_ = provider_.open(&threads_); }
  WeightPtr weight(std::uint64_t bytes) {
    auto made = std::allocate_shared<Weight>(CountingAllocator<Weight>());
    made->buffer = DeviceBuffer(device_, BP_MEMORY_HOST, bytes, 64);
    return made;
  }

  StubProvider provider_{"stub"};
  DevicePtr device_;
  MemoryBudget budget_{{}};
};

TEST_F(MemoryBudgetTest, WeightsOfPlansThatAreGoneTakeNoMemory) {
  constexpr int kPlans = 10000;
  const WeightPtr lasting = weight(64);
  budget_.hold("host", lasting, "a weight");
  std::size_t most = 0;
  for (int plan = 0; plan < kPlans; ++plan) {
    budget_.hold("host", weight(64), "a weight");
    most = std::max(most, held_blocks);
  }
  EXPECT_LE(most, 300u);
  EXPECT_EQ(budget_.taken().at("host").second, 64u);
}

TEST_F(MemoryBudgetTest, WeightsThatLiveAreCountedHoweverManyThereAre) {
  constexpr std::uint64_t kWeights = 3000;
  std::vector<WeightPtr> weights;
  for (std::uint64_t i = 0; i < kWeights; ++i) {
    weights.push_back(weight(64));
    budget_.hold("host", weights.back(), "a weight");
    budget_.hold("host", weight(64), "a weight that ends");
  }
  EXPECT_EQ(budget_.taken().at("host").second, kWeights * 64);
}

}  // namespace
}  // namespace backplane::core
