// A program's cache of keys and values, fed as the past and given as the present: one memory on the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "tests/session/run/models.hpp"

namespace backplane::session_test {
namespace {

using ::testing::ElementsAre;

void set_int(::onnx::NodeProto& node, const char* name, std::int64_t value) {
  ::onnx::AttributeProto* attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(::onnx::AttributeProto::INT);
  attribute->set_i(value);
}

/// One head of two columns.
ModelMaker decoder() {
  ModelMaker model;
  for (const char* name : {"q", "k", "v"}) model.input(name, {1, "new", 2});
  for (const char* name : {"past_k", "past_v"}) model.input(name, {1, 1, "room", 2});
  model.input("lengths", {1}, ElementType::Int32).input("total", {}, ElementType::Int32);
  model.output("y").output("present_k").output("present_v");
  model.node("GroupQueryAttention", {"q", "k", "v", "past_k", "past_v", "lengths", "total"},
             {"y", "present_k", "present_v"});
  ::onnx::NodeProto& node = *model.proto().mutable_graph()->mutable_node(0);
  node.set_domain("com.microsoft");
  set_int(node, "num_heads", 1);
  set_int(node, "kv_num_heads", 1);
  ::onnx::OperatorSetIdProto* contrib = model.proto().add_opset_import();
  contrib->set_domain("com.microsoft");
  contrib->set_version(1);
  return model;
}

/// Runs with past and present apart, and then with both in the memory of `keys` and `values`, [1, 1, 4, 2] each: what comes
/// out is to be the same.
void expect_same_results(TestSession& session, const Value& row, std::int32_t total,
                         std::vector<float>& keys, std::vector<float>& values) {
  const Value lengths = Value::tensor<std::int32_t>({1}, std::vector<std::int32_t>{total - 1});
  const Value positions = Value::tensor<std::int32_t>({}, std::vector<std::int32_t>{total});
  const auto run = [&](const Value& past_k, const Value& past_v, std::vector<Value>& results) {
    session->run({{"q", row},
                  {"k", row},
                  {"v", row},
                  {"past_k", past_k},
                  {"past_v", past_v},
                  {"lengths", lengths},
                  {"total", positions}},
                 {"y", "present_k", "present_v"}, results);
  };
  std::vector<Value> apart(3);
  run(Value::tensor<float>({1, 1, 4, 2}, keys), Value::tensor<float>({1, 1, 4, 2}, values), apart);
  const auto over = [](std::vector<float>& memory) {
    return Value::borrow<float>({1, 1, 4, 2}, memory.data(), memory.size());
  };
  const std::vector<float> keys_before = keys, values_before = values;
  for (const bool is_one_value : {true, false}) {
    keys = keys_before;
    values = values_before;
    std::vector<Value> shared;
    shared.emplace_back();
    shared.push_back(over(keys));
    shared.push_back(over(values));
    if (is_one_value)
      run(shared[1], shared[2], shared);
    else
      run(over(keys), over(values), shared);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_EQ(apart[i].numbers(), shared[i].numbers()) << i << is_one_value;
  }
}

/// The host takes one memory as a feed and as an output: the kernel writes the new rows alone, and what comes out is what comes
/// out with memory apart.
TEST(SharedCache, PastAndPresentAreOneMemory) {
  TestSession session(decoder());
  std::vector<float> keys{1, 2, 3, 4, 0, 0, 7, 7}, values{1, 0, 0, 1, 0, 0, 9, 9};
  const Value row = Value::tensor<float>({1, 1, 2}, std::vector<float>{0.5f, -1});
  expect_same_results(session, row, 3, keys, values);
  EXPECT_THAT(keys, ElementsAre(1, 2, 3, 4, 0.5f, -1, 7, 7));
  EXPECT_THAT(values, ElementsAre(1, 0, 0, 1, 0.5f, -1, 9, 9));
}

/// A cache of a window that is full: what goes makes room in the same memory, for one row and for more than the room.
TEST(SharedCache, ThatSlidesIsOneMemory) {
  for (const std::int64_t rows : {1, 2, 5}) {
    ModelMaker model = decoder();
    ::onnx::NodeProto& node = *model.proto().mutable_graph()->mutable_node(0);
    set_int(node, "local_window_size", 2);
    set_int(node, "sliding_window_cache", 1);
    TestSession session(model);
    std::vector<float> keys{1, 2, 3, 4, 5, 6, 7, 8}, values{1, 0, 0, 1, 2, 0, 0, 2};
    std::vector<float> fresh;
    for (std::int64_t i = 0; i < 2 * rows; ++i) fresh.push_back(0.5f * static_cast<float>(i) - 1);
    const Value row = Value::tensor<float>({1, rows, 2}, fresh);
    const auto count =
        static_cast<std::int32_t>(7 + rows);  // 7 before: the last 4 are in the cache
    expect_same_results(session, row, count, keys, values);
    const std::vector<float> before{5, 6, 7, 8};
    // Of 8 positions the cache has 2, of 9 it has 3, of 12 again 3.
    const std::ptrdiff_t kept = rows == 1 ? 2 : 3;
    std::vector<float> all = before;
    all.insert(all.end(), fresh.begin(), fresh.end());
    EXPECT_EQ(std::vector<float>(keys.begin(), keys.begin() + 2 * kept),
              std::vector<float>(all.end() - 2 * kept, all.end()));
  }
}

}  // namespace
}  // namespace backplane::session_test
