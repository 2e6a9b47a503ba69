// backplane_session_run_tensors: whole runs in raw memory, compared with what the same models compute by hand.
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "tests/session/run/models.hpp"

namespace backplane::session_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// sum = a + b, product = a * b, of [n,2]; a weight that may be fed, too.
ModelMaker two_outputs() {
  ModelMaker maker;
  maker.input("a", {"n", 2}).input("b", {"n", 2}).output("sum").output("product");
  return maker.node("Add", {"a", "b"}, {"sum"}).node("Mul", {"a", "b"}, {"product"});
}

/// As float tensors are told.
backplane_tensor tensor_of(const char* name, std::vector<float>& elements,
                           const std::vector<std::int64_t>& dims) {
  return {sizeof(backplane_tensor),
          name,
          nullptr,
          elements.data(),
          elements.size() * sizeof(float),
          dims.data(),
          dims.size(),
          static_cast<std::int32_t>(ElementType::Float),
          0};
}

backplane_tensor fetch_of(const char* name) {
  backplane_tensor tensor{};
  tensor.struct_size = sizeof(tensor);
  tensor.name = name;
  return tensor;
}

std::string message_of(backplane_status* status, std::int32_t code = BACKPLANE_INVALID_ARGUMENT) {
  if (status == nullptr) return "no error";
  EXPECT_EQ(backplane_status_code(status), code);
  std::string message = backplane_status_message(status);
  backplane_status_free(status);
  return message;
}

std::vector<float> floats_of(const backplane_tensor& tensor) {
  const auto* first = static_cast<const float*>(tensor.data);
  return {first, first + tensor.bytes / sizeof(float)};
}

class RunTensors : public ::testing::Test {
 protected:
  template <class Feeds, class Fetches>
  backplane_status* run(Feeds& feeds, Fetches& fetches, const RunOptions* options = nullptr) {
    return backplane_session_run_tensors(
        session_->get(), options != nullptr ? options->get() : nullptr, feeds.data(), feeds.size(),
        fetches.data(), fetches.size());
  }

  TestSession session_{two_outputs()};
  std::vector<float> a_{1, 2, 3, 4}, b_{5, 6, 7, 8};
  std::vector<std::int64_t> dims_{2, 2};
  std::vector<backplane_tensor> feeds_{tensor_of("a", a_, dims_), tensor_of("b", b_, dims_)};
};

TEST_F(RunTensors, GivesTypeDimsMemoryAndOwnerOfEachFetch) {
  for (const bool by_index : {false, true}) {
    std::vector<backplane_tensor> fetches{fetch_of(by_index ? nullptr : "sum"),
                                          fetch_of(by_index ? nullptr : "product")};
    if (by_index) feeds_[0].name = feeds_[1].name = nullptr;
    ASSERT_EQ(run(feeds_, fetches), nullptr);
    for (backplane_tensor& fetch : fetches) {
      EXPECT_EQ(fetch.kind, BACKPLANE_KIND_TENSOR);
      EXPECT_EQ(fetch.dtype, static_cast<std::int32_t>(ElementType::Float));
      ASSERT_EQ(fetch.rank, 2u);
      EXPECT_EQ(std::vector<std::int64_t>(fetch.dims, fetch.dims + 2), dims_);
      ASSERT_EQ(fetch.bytes, 16u);
      ASSERT_NE(fetch.value, nullptr);
      EXPECT_EQ(backplane_value_data(fetch.value), fetch.data);
      EXPECT_EQ(backplane_value_dims(fetch.value), fetch.dims);
    }
    EXPECT_THAT(floats_of(fetches[0]), ElementsAre(6, 8, 10, 12));
    EXPECT_THAT(floats_of(fetches[1]), ElementsAre(5, 12, 21, 32));
    for (backplane_tensor& fetch : fetches) backplane_value_destroy(fetch.value);
  }
}

TEST_F(RunTensors, ShapesMayChangeFromRunToRun) {
  for (std::int64_t rows = 0; rows < 40; ++rows) {
    std::vector<float> a, b, expected;
    for (std::int64_t i = 0; i < rows * 2; ++i) {
      a.push_back(static_cast<float>(i));
      b.push_back(static_cast<float>(rows));
      expected.push_back(a.back() + b.back());
    }
    const std::vector<std::int64_t> dims{rows, 2};
    std::vector<backplane_tensor> feeds{tensor_of("b", b, dims), tensor_of("a", a, dims)};
    std::vector<backplane_tensor> fetches{fetch_of("sum")};
    ASSERT_EQ(run(feeds, fetches), nullptr);
    EXPECT_EQ(fetches[0].dims[0], rows);
    EXPECT_EQ(floats_of(fetches[0]), expected);
    backplane_value_destroy(fetches[0].value);
  }
}

TEST_F(RunTensors, WritesMemoryOfTheCallers) {
  std::vector<float> product(4, -1);
  std::vector<backplane_tensor> fetches{fetch_of("sum"), tensor_of("product", product, dims_)};
  ASSERT_EQ(run(feeds_, fetches), nullptr);
  EXPECT_THAT(product, ElementsAre(5, 12, 21, 32));
  EXPECT_EQ(fetches[1].value, nullptr) << "a value was made of the caller's memory";
  EXPECT_EQ(fetches[1].data, product.data());
  EXPECT_EQ(fetches[1].kind, BACKPLANE_KIND_TENSOR);
  backplane_value_destroy(fetches[0].value);

  const std::vector<std::int64_t> wrong{4, 1};
  fetches = {tensor_of("product", product, wrong)};
  EXPECT_THAT(message_of(run(feeds_, fetches)), HasSubstr("'product'"));
}

TEST_F(RunTensors, TakesValuesAndTellsWhatTheyAre) {
  const Value a = Value::tensor<float>({1, 2}, std::vector<float>{1, 2});
  const std::vector<std::int64_t> dims{1, 2};
  std::vector<float> b{10, 20};
  Value to = Value::tensor<float>({1, 2});
  std::vector<backplane_tensor> feeds{fetch_of("a"), tensor_of("b", b, dims)};
  feeds[0].value = const_cast<backplane_value*>(a.get());
  std::vector<backplane_tensor> fetches{fetch_of("product")};
  fetches[0].value = to.get();
  ASSERT_EQ(run(feeds, fetches), nullptr);
  EXPECT_EQ(fetches[0].value, to.get());
  EXPECT_EQ(fetches[0].data, backplane_value_data(to.get()));
  EXPECT_EQ(fetches[0].bytes, 8u);
  EXPECT_THAT(to.numbers(), ElementsAre(10, 40));
}

TEST_F(RunTensors, ValuesThatAreNoTensorsOfNumbersGoThroughAsWell) {
  ModelMaker maker;
  maker.input("s", {2}, ElementType::String).output("t", ElementType::String);
  TestSession session(maker.node("Identity", {"s"}, {"t"}));
  const std::int64_t dims[] = {2};
  backplane_value* strings = nullptr;
  ASSERT_EQ(backplane_value_create(8, dims, 1, &strings), nullptr);
  ASSERT_EQ(backplane_value_set_string(strings, 1, "word", 4), nullptr);
  backplane_tensor feed = fetch_of(nullptr), fetch = fetch_of(nullptr);
  feed.value = strings;
  ASSERT_EQ(backplane_session_run_tensors(session->get(), nullptr, &feed, 1, &fetch, 1), nullptr);
  EXPECT_EQ(fetch.dtype, 8);
  EXPECT_EQ(fetch.data, nullptr);
  const char* text = nullptr;
  std::uint64_t size = 0;
  ASSERT_EQ(backplane_value_get_string(fetch.value, 1, &text, &size), nullptr);
  EXPECT_EQ(std::string(text, size), "word");
  backplane_value_destroy(fetch.value);
  backplane_value_destroy(strings);
}

TEST_F(RunTensors, HeedsRunOptions) {
  RunOptions options;
  std::size_t nodes = 0;
  options.set_callbacks(nullptr, [&](const NodeView&) { return ++nodes > 0; });
  std::vector<backplane_tensor> fetches{fetch_of("sum")};
  ASSERT_EQ(run(feeds_, fetches, &options), nullptr);
  EXPECT_EQ(nodes, 1u) << "only the sum was fetched";
  backplane_value_destroy(fetches[0].value);
  Cancel cancel;
  options.set_cancel(cancel);
  cancel.request();
  fetches = {fetch_of("sum")};
  EXPECT_THAT(message_of(run(feeds_, fetches, &options), BACKPLANE_CANCELLED),
              HasSubstr("cancelled"));
  EXPECT_EQ(fetches[0].value, nullptr);
}

TEST_F(RunTensors, MemoryIsRefusedWhereTheRunGoesOnAfterTheCall) {
  RunOptions options;
  options.set("synchronize", "false");
  std::vector<backplane_tensor> fetches{fetch_of("sum")};
  EXPECT_THAT(message_of(run(feeds_, fetches, &options)), HasSubstr("synchronize=false"));
}

TEST_F(RunTensors, WhatIsWrongIsNamed) {
  const auto said = [&](const auto& change) {
    std::vector<backplane_tensor> feeds = feeds_, fetches{fetch_of("sum"), fetch_of("product")};
    change(feeds, fetches);
    const std::vector<backplane_tensor> before = fetches;
    std::string message = message_of(run(feeds, fetches));
    if (!fetches.empty()) {
      EXPECT_EQ(std::memcmp(fetches.data(), before.data(), fetches.size() * sizeof(fetches[0])), 0)
          << message;
    }
    return message;
  };
  EXPECT_THAT(said([](auto& feeds, auto&) { feeds[1].struct_size = 8; }),
              HasSubstr("feeds[1] is 8"));
  EXPECT_THAT(said([](auto&, auto& fetches) { fetches[0].struct_size = 0; }),
              HasSubstr("fetches[0] is 0"));
  EXPECT_THAT(said([](auto& feeds, auto&) { feeds[0].bytes = 15; }),
              HasSubstr("the input 'a': the memory has 15 bytes"));
  EXPECT_THAT(said([](auto& feeds, auto&) { feeds[0].dtype = 0; }), HasSubstr("'a'"));
  EXPECT_THAT(said([](auto& feeds, auto&) { feeds[0].dtype = 8; }), HasSubstr("'a': a string"));
  EXPECT_THAT(said([](auto& feeds, auto&) { feeds[0].dims = nullptr; }),
              HasSubstr("'dims' is null"));
  EXPECT_THAT(said([](auto& feeds, auto&) { feeds[0].data = nullptr; }),
              HasSubstr("'data' is null"));
  EXPECT_THAT(said([](auto& feeds, auto&) { feeds[0].name = "aa"; }), HasSubstr("no input 'aa'"));
  EXPECT_THAT(said([](auto& feeds, auto&) { feeds.pop_back(); }), HasSubstr("'b'"));
  EXPECT_THAT(said([](auto&, auto& fetches) { fetches[1].name = "som"; }), HasSubstr("'som'"));
  EXPECT_THAT(said([](auto&, auto& fetches) { fetches.clear(); }), HasSubstr("fetches nothing"));
  EXPECT_THAT(said([](auto&, auto& fetches) { fetches.push_back(fetch_of(nullptr)); }),
              HasSubstr("no output 2"));
  EXPECT_THAT(said([](auto& feeds, auto&) {
                feeds[1].data = static_cast<char*>(feeds[1].data) + 2;
                feeds[1].bytes -= 2;
                feeds[1].rank = 1;
              }),
              HasSubstr("not aligned"));
}

TEST_F(RunTensors, ElementsOfALaterVersionAreLonger) {
  struct Later {
    backplane_tensor tensor;
    std::uint64_t more[2];
  };
  std::vector<Later> feeds{{feeds_[0], {7, 7}}, {feeds_[1], {7, 7}}},
      fetches{{fetch_of(nullptr), {}}};
  for (auto* array : {&feeds, &fetches}) {
    for (Later& element : *array) element.tensor.struct_size = sizeof(Later);
  }
  ASSERT_EQ(backplane_session_run_tensors(session_->get(), nullptr, &feeds[0].tensor, 2,
                                          &fetches[0].tensor, 1),
            nullptr);
  EXPECT_THAT(floats_of(fetches[0].tensor), ElementsAre(6, 8, 10, 12));
  backplane_value_destroy(fetches[0].tensor.value);
}

// Names are looked up once and kept: other names, other orders and values to be saved are told apart.
TEST_F(RunTensors, RunsOfOtherNamesBetweenDoNotMixUp) {
  for (int round = 0; round < 6; ++round) {
    std::vector<backplane_tensor> feeds = feeds_, fetches{fetch_of("sum"), fetch_of("product")};
    if (round % 2 != 0) std::swap(feeds[0], feeds[1]);
    if (round % 3 != 0) std::swap(fetches[0], fetches[1]);
    if (round == 4) fetches.pop_back();
    if (round == 5) session_->save({"product"});
    ASSERT_EQ(run(feeds, fetches), nullptr);
    for (backplane_tensor& fetch : fetches) {
      EXPECT_EQ(floats_of(fetch)[3], std::string(fetch.name) == "sum" ? 12 : 32);
      backplane_value_destroy(fetch.value);
    }
  }
  std::vector<backplane_tensor> fetches{fetch_of("sum")};
  ASSERT_EQ(run(feeds_, fetches), nullptr);
  backplane_value_destroy(fetches[0].value);
  EXPECT_THAT(session_->saved("product").numbers(), ElementsAre(5, 12, 21, 32));
}

TEST_F(RunTensors, ASavedValueIsNotInMemoryThatWasLentForTheRunAlone) {
  session_->save({"product"});
  std::vector<float> product(4, -1);
  std::vector<backplane_tensor> fetches{tensor_of("product", product, dims_)};
  ASSERT_EQ(run(feeds_, fetches), nullptr);
  product.assign(4, -2);
  EXPECT_THAT(session_->saved("product").numbers(), ElementsAre(5, 12, 21, 32));
}

TEST_F(RunTensors, ManyThreadsAtATime) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this, i] {
      std::vector<float> b(4, static_cast<float>(i));
      std::vector<backplane_tensor> feeds{feeds_[0], tensor_of("b", b, dims_)};
      for (int round = 0; round < 200; ++round) {
        std::vector<backplane_tensor> fetches{fetch_of(round % 2 != 0 ? "sum" : "product")};
        ASSERT_EQ(run(feeds, fetches), nullptr);
        const float expected =
            round % 2 != 0 ? 4 + static_cast<float>(i) : 4 * static_cast<float>(i);
        EXPECT_EQ(floats_of(fetches[0])[3], expected);
        backplane_value_destroy(fetches[0].value);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace backplane::session_test
