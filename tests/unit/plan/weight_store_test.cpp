// Constants in the forms that kernels want: made once per content, shared, dropped with the last user.
#include "core/plan/weight_store.hpp"

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <unistd.h>

#include "core/base/mapped_file.hpp"
#include "core/plugin_host/status.hpp"
#include "tests/fixtures/resident_pages.hpp"
#include "tests/unit/plan/stub_device.hpp"

namespace backplane::core {
namespace {

/// What packing functions of these tests are told, and how often they were called.
struct Packer {
  std::atomic<int> calls{0};
  std::atomic<int> failures{0};  ///< so many calls from now on fail
  std::chrono::milliseconds time{0};

  /// Negates floats.
  static bp_status* pack(void* self, const bp_pack_ctx* ctx) {
    auto& packer = *static_cast<Packer*>(self);
    ++packer.calls;
    std::this_thread::sleep_for(packer.time);
    if (packer.failures.fetch_sub(1) > 0) {
      std::memset(ctx->target->host_ptr, 0x55, ctx->target->bytes);  // half done
      return make_status(Code::Failed, "the packer has no ink");
    }
    const auto* from = static_cast<const float*>(ctx->sources[0]->host_ptr);
    auto* to = static_cast<float*>(ctx->target->host_ptr);
    for (std::size_t i = 0; i < ctx->target->bytes / sizeof(float); ++i) to[i] = -from[i];
    return nullptr;
  }
};

ConstantPtr constant(const std::vector<float>& elements) {
  return Constant::copy_of(DataType::Float, {static_cast<std::int64_t>(elements.size())},
                           std::as_bytes(std::span(elements)));
}

std::vector<float> elements(const WeightPtr& weight) {
  const auto* first = static_cast<const float*>(weight->value.description.host_ptr);
  return {first, first + weight->value.description.bytes / sizeof(float)};
}

class WeightStoreTest : public ::testing::Test {
 protected:
  PackWish wish(const std::string& key = "negated", std::uint64_t bytes = 16) {
    return {key, {0}, bytes, 64, &packer_, Packer::pack};
  }
  WeightPtr packed(const ConstantPtr& source, const std::string& key = "negated",
                   std::uint64_t bytes = 16) {
    return store_.packed(device_, wish(key, bytes), {{source, nullptr}}, &threads_);
  }
  std::string failure(const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::Failed);
      return error.message();
    }
    ADD_FAILURE() << "nothing failed";
    return "";
  }

  ThreadPool pool_{1};
  bp_threads threads_{&pool_, 1};
  StubProvider provider_{"stub"};
  DevicePtr device_ = provider_.open(&threads_);
  Packer packer_;
  WeightStore store_;
};

TEST_F(WeightStoreTest, SharesByContent) {
  const WeightPtr first = packed(constant({1, 2, 3, 4}));
  EXPECT_EQ(elements(first), (std::vector<float>{-1, -2, -3, -4}));
  EXPECT_EQ(packed(constant({1, 2, 3, 4})), first) << "another constant of the same contents";
  EXPECT_EQ(packer_.calls, 1);
  EXPECT_NE(packed(constant({1, 2, 3, 5})), first);
  EXPECT_EQ(packer_.calls, 2);
}

TEST_F(WeightStoreTest, LibrariesThatChoseTheSameKeyShareNothing) {
  PackWish of_library = wish();
  of_library.library = "somebody's 1.0";
  const ConstantRef source{constant({1, 2, 3, 4}), nullptr};
  const WeightPtr own = store_.packed(device_, wish(), {source}, &threads_);
  const WeightPtr other = store_.packed(device_, of_library, {source}, &threads_);
  EXPECT_NE(other, own);
  EXPECT_EQ(store_.packed(device_, of_library, {source}, &threads_), other);
}

TEST_F(WeightStoreTest, APackedWeightOfAFileTakesItsMemoryOnce) {
  constexpr std::size_t kFloats = 1 << 18;
  const std::vector<float> contents(kFloats, 2.5f);
  for (const std::size_t skipped : {0u, 1u}) {  // at the second, floats are copied to be aligned
    const std::string path = ::testing::TempDir() + "/weight_" + std::to_string(::getpid());
    std::ofstream file(path, std::ios::binary);
    file.write("?", static_cast<std::streamsize>(skipped));
    file.write(reinterpret_cast<const char*>(contents.data()), kFloats * sizeof(float));
    file.close();
    const auto mapped = MappedFile::open(path);
    const auto bytes = mapped->bytes().subspan(skipped);
    const auto source = std::make_shared<const Constant>(
        DataType::Float, std::vector<std::int64_t>{kFloats}, bytes, mapped);
    const WeightPtr weight = packed(source, "negated", kFloats * sizeof(float));
    EXPECT_EQ(elements(weight), std::vector<float>(kFloats, -2.5f));
    EXPECT_LE(test_host::resident_pages(bytes), 2u);
    std::filesystem::remove(path);
  }
}

TEST_F(WeightStoreTest, TellsFormsAndShapesApart) {
  const ConstantPtr source = constant({1, 2, 3, 4});
  const WeightPtr first = packed(source);
  EXPECT_NE(packed(source, "other"), first);
  EXPECT_NE(packed(source, "negated", 8), first);
  const std::vector<float> same{1, 2, 3, 4};
  const ConstantPtr matrix =
      Constant::copy_of(DataType::Float, {2, 2}, std::as_bytes(std::span(same)));
  EXPECT_NE(packed(matrix), first) << "the same bytes in other dims";
  EXPECT_EQ(packer_.calls, 4);
}

TEST_F(WeightStoreTest, TellsDevicesApart) {
  StubProvider other("other");
  const DevicePtr second = other.open(&threads_);
  const ConstantPtr source = constant({1, 2, 3, 4});
  const WeightPtr first = packed(source);
  EXPECT_NE(store_.packed(second, wish(), {{source, nullptr}}, &threads_), first);
  const DevicePtr again = provider_.open(&threads_);
  EXPECT_NE(store_.packed(again, wish(), {{source, nullptr}}, &threads_), first)
      << "a device that was opened again has nothing of before";
}

TEST_F(WeightStoreTest, DropsAWeightWithItsLastUser) {
  const ConstantPtr source = constant({1, 2, 3, 4});
  WeightPtr first = packed(source);
  WeightPtr second = packed(source);
  const std::weak_ptr<const Weight> watch = first;
  first = nullptr;
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(packer_.calls, 1);
  second = nullptr;
  EXPECT_TRUE(watch.expired()) << "the store holds nothing by itself";
  EXPECT_EQ(elements(packed(source)), (std::vector<float>{-1, -2, -3, -4}));
  EXPECT_EQ(packer_.calls, 2) << "it is made again";
}

TEST_F(WeightStoreTest, AWeightKeepsItsDeviceOpen) {
  const std::weak_ptr<Device> watch = device_;
  WeightPtr weight = packed(constant({1, 2, 3, 4}));
  device_ = nullptr;
  EXPECT_FALSE(watch.expired());
  weight = nullptr;
  EXPECT_TRUE(watch.expired());
}

TEST_F(WeightStoreTest, AFailureLeavesNothingHalfMade) {
  const ConstantPtr source = constant({1, 2, 3, 4});
  packer_.failures = 2;
  for (int attempt = 0; attempt < 2; ++attempt) {
    const std::string message = failure([&] { packed(source); });
    EXPECT_NE(message.find("the packer has no ink"), std::string::npos) << message;
    EXPECT_NE(message.find("packing a weight for stub"), std::string::npos) << message;
  }
  EXPECT_EQ(elements(packed(source)), (std::vector<float>{-1, -2, -3, -4}));
  EXPECT_EQ(packer_.calls, 3);
}

TEST_F(WeightStoreTest, NothingIsPackedOfNothing) {
  const WeightPtr weight = packed(constant({}));
  EXPECT_NE(weight, nullptr);
  EXPECT_EQ(packer_.calls, 0);
}

/// All wait for the one who came first.
TEST_F(WeightStoreTest, ConcurrentFirstUsesPackOnce) {
  packer_.time = std::chrono::milliseconds(20);
  const ConstantPtr source = constant({1, 2, 3, 4});
  std::vector<WeightPtr> weights(8);
  std::vector<std::thread> threads;
  for (WeightPtr& weight : weights) threads.emplace_back([&] { weight = packed(source); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(packer_.calls, 1);
  for (const WeightPtr& weight : weights) EXPECT_EQ(weight, weights[0]);
  EXPECT_EQ(elements(weights[0]), (std::vector<float>{-1, -2, -3, -4}));
}

/// The first one fails alone: the next one tries, and the rest share what it made.
TEST_F(WeightStoreTest, ConcurrentFirstUsesSurviveAFailure) {
  packer_.time = std::chrono::milliseconds(5);
  packer_.failures = 1;
  const ConstantPtr source = constant({1, 2, 3, 4});
  std::vector<WeightPtr> weights(8);
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (WeightPtr& weight : weights) {
    threads.emplace_back([&] {
      try {
        weight = packed(source);
      } catch (const Error&) {
        ++failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(packer_.calls, 2);
  for (const WeightPtr& weight : weights) {
    if (weight != nullptr) {
      EXPECT_EQ(elements(weight), (std::vector<float>{-1, -2, -3, -4}));
    }
  }
}

TEST_F(WeightStoreTest, DifferentWeightsAreMadeAtATimeAndDroppedMeanwhile) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int round = 0; round < 200; ++round) {
        const auto value = static_cast<float>((thread + round) % 5);
        const WeightPtr weight = packed(constant({value, value, value, value}));
        wrong += elements(weight) != std::vector<float>(4, -value) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(WeightStoreTest, APlainOneOnTheHostLiesWhereTheConstantIs) {
  ConstantPtr source = constant({1, 2, 3, 4});
  const void* const place = source->bytes().data();
  const WeightPtr weight = store_.plain(device_, {source, nullptr}, &threads_);
  EXPECT_EQ(weight->value.description.host_ptr, place);
  source = nullptr;
  EXPECT_EQ(elements(weight), (std::vector<float>{1, 2, 3, 4})) << "and keeps it alive";
}

/// Bytes in a mapped file may lie anywhere; kernels want floats at multiples of four.
TEST_F(WeightStoreTest, APlainOneIsAlignedForItsElements) {
  const auto memory = std::make_shared<std::vector<std::byte>>(17 + 64);
  std::byte* odd = memory->data();
  while (reinterpret_cast<std::uintptr_t>(odd) % 4 != 1) ++odd;
  const std::vector<float> values{1, 2, 3, 4};
  std::memcpy(odd, values.data(), 16);
  const auto source = std::make_shared<Constant>(DataType::Float, std::vector<std::int64_t>{4},
                                                 std::span<const std::byte>(odd, 16), memory);
  const WeightPtr weight = store_.plain(device_, {source, nullptr}, &threads_);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(weight->value.description.host_ptr) % 4, 0u);
  EXPECT_EQ(elements(weight), values);
}

/// A constant that a rewrite added, computed from another by the packer.
class LazyWeights : public WeightStoreTest {
 protected:
  std::shared_ptr<LazyConstant> lazy(const ConstantPtr& source, const std::string& key = "half") {
    auto made =
        std::make_shared<LazyConstant>("made", DataType::Float, std::vector<std::int64_t>{4});
    made->plugin = device_->plugin();
    made->identity = device_->identity();
    made->key = key;
    made->sources = {{source, nullptr}};
    made->self = &packer_;
    made->compute = Packer::pack;
    made->drop = [](void*) {};
    return made;
  }
};

TEST_F(LazyWeights, AreComputedWhenTheyAreNeededAndOnce) {
  const ConstantPtr source = constant({1, 2, 3, 4});
  const auto first = lazy(source), second = lazy(source), other = lazy(source, "other");
  EXPECT_EQ(packer_.calls, 0);
  const ConstantPtr value = first->get(store_, &threads_);
  EXPECT_EQ(packer_.calls, 1);
  EXPECT_EQ(second->get(store_, &threads_)->bytes().data(), value->bytes().data()) << "shared";
  EXPECT_EQ(packer_.calls, 1);
  other->get(store_, &threads_);
  EXPECT_EQ(packer_.calls, 2);
}

TEST_F(LazyWeights, OfOtherSourcesOrShapesAreOthers) {
  const auto one = lazy(constant({1, 2, 3, 4})), other = lazy(constant({1, 2, 3, 5}));
  auto flat =
      std::make_shared<LazyConstant>("made", DataType::Float, std::vector<std::int64_t>{2, 2});
  flat->plugin = device_->plugin();
  flat->identity = one->identity;
  flat->key = one->key;
  flat->sources = one->sources;
  flat->self = &packer_;
  flat->compute = Packer::pack;
  flat->drop = [](void*) {};
  const ConstantPtr first = one->get(store_, &threads_);
  EXPECT_NE(other->get(store_, &threads_)->bytes().data(), first->bytes().data());
  EXPECT_NE(flat->get(store_, &threads_)->bytes().data(), first->bytes().data());
  EXPECT_EQ(packer_.calls, 3);
}

TEST_F(LazyWeights, AreDroppedWithTheirLastUser) {
  const auto made = lazy(constant({1, 2, 3, 4}));
  ConstantPtr value = made->get(store_, &threads_);
  value = nullptr;
  made->get(store_, &threads_);
  EXPECT_EQ(packer_.calls, 2);
}

TEST_F(LazyWeights, NameTheConstantThatFails) {
  packer_.failures = 1;
  const auto made = lazy(constant({1, 2, 3, 4}));
  const std::string message = failure([&] { made->get(store_, &threads_); });
  EXPECT_NE(message.find("computing the constant 'made'"), std::string::npos) << message;
  EXPECT_EQ(made->get(store_, &threads_)->bytes().size(), 16u);
}

TEST_F(LazyWeights, CanBePackedAndSharedByWhatTheyComeFrom) {
  const ConstantPtr source = constant({1, 2, 3, 4});
  const auto first = lazy(source), second = lazy(source);
  const auto pack = [&](const std::shared_ptr<LazyConstant>& of) {
    return store_.packed(device_, wish(), {{nullptr, of}}, &threads_);
  };
  const WeightPtr weight = pack(first);
  EXPECT_EQ(elements(weight), (std::vector<float>{1, 2, 3, 4})) << "negated twice";
  EXPECT_EQ(pack(second), weight);
  EXPECT_EQ(packer_.calls, 2);
}

}  // namespace
}  // namespace backplane::core
