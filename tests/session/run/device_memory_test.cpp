// L5: memory of the program's own on a device is fed, and given as an output, without a copy, by the fake device's own
// count of them.
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>
#include <string>
#include <vector>

#include "backplane/plugin_api/optional/import_memory.h"
#include "tests/session/run/fake_device.hpp"
#include "tests/session/run/models.hpp"

namespace backplane::session_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Floats = std::vector<float>;
const std::vector<std::int64_t> kDims{2, 2};

std::uint64_t all_copies(const fakegpu_counters& of) {
  return of.copies_h2d + of.copies_d2h + of.copies_d2d + of.copies_peer;
}

/// y = relu(a + b) on a fake device, in two steps; `host_copy`: none, sync or async.
class DeviceMemory : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { fakegpu().reset(); }
  void TearDown() override { EXPECT_EQ(findings(), 0u); }

  static Options options(const std::string& device = "fakegpu", std::uint64_t stream = 0) {
    Options options;
    options.AppendExecutionProvider(device, {{"host_copy", GetParam()},
                                             {"delay_us", "20"},
                                             {"rewrite", "false"},
                                             {"user_stream", std::to_string(stream)}});
    options.AppendExecutionProvider("cpu");
    options.set("optimization", "none");
    return options;
  }
  Session session(const Options& with = options()) const {
    return Session(environment_, model_.data(), model_.size(), with);
  }
  static std::string sum_model() {
    return ModelMaker()
        .input("a", {"n", 2})
        .input("b", {"n", 2})
        .output("y")
        .node("Add", {"a", "b"}, {"sum"})
        .node("Relu", {"sum"}, {"y"})
        .bytes();
  }

  const std::string model_ = sum_model();
  const Environment environment_ = device_environment();
  NativeFloats a_{0, {1, -2, 3, -4}}, b_{0, {1, 1, 1, 1}}, y_{0, 4};
  const Value host_b_ = Value::tensor<float>(kDims, Floats{1, 1, 1, 1});
};

TEST_P(DeviceMemory, L5ABindingWorksOnItWithoutACopy) {
  const Session session = this->session();
  Value y = y_.as(session, kDims);
  Binding binding(session);
  {
    const Value a = a_.as(session, kDims), b = b_.as(session, kDims);
    EXPECT_EQ(a.device(), "fakegpu:0");
    EXPECT_EQ(a.bytes(), nullptr);
    EXPECT_EQ(a.byte_count(), 16u);
    binding.bind_input("a", a);
    binding.bind_input("b", b);
  }  // values that are bound may be destroyed before a run
  binding.bind_output("y", y);
  for (int i = 0; i < 5; ++i) binding.run();
  EXPECT_EQ(all_copies(counters()), 0u);
  EXPECT_EQ(y_.read(), (Floats{2, 0, 4, 0}));
  EXPECT_EQ(binding.output("y").device(), "fakegpu:0");
  a_.write({-2, 2, 0, 5});
  const std::uint64_t allocations = counters().allocations;
  for (int i = 0; i < 5; ++i) binding.run();
  EXPECT_EQ(y_.read(), (Floats{0, 3, 1, 6}));
  EXPECT_EQ(counters().allocations, allocations);
  EXPECT_GT(counters().replays, 0u) << "work on it is recorded, too";
  EXPECT_THAT(y.to_host().numbers(), ElementsAre(0, 3, 1, 6));
}

TEST_P(DeviceMemory, L5ARunByNameWorksOnItWithoutACopy) {
  const Session session = this->session();
  const Value a = a_.as(session, kDims), b = b_.as(session, kDims);
  std::vector<Value> results;
  results.push_back(y_.as(session, kDims));
  session.run({{"a", a}, {"b", b}}, {"y"}, results);
  EXPECT_EQ(all_copies(counters()), 0u);
  EXPECT_EQ(y_.read(), (Floats{2, 0, 4, 0}));
  // Beside values of the host's each is copied as it must be.
  const std::vector<Value> made = session.run({{"a", a}, {"b", host_b_}});
  EXPECT_EQ(counters().copies_h2d, 1u);
  EXPECT_EQ(counters().copies_d2h, 1u);
  EXPECT_THAT(made.at(0).numbers(), ElementsAre(2, 0, 4, 0));
  EXPECT_EQ(made.at(0).device(), "");
}

TEST_P(DeviceMemory, L5ItIsOrderedByTheProgramsOwnStream) {
  const std::uint64_t stream = fakegpu().stream_new();
  {
    const Session session = this->session(options("fakegpu", stream));
    Value y = y_.as(session, kDims);
    Binding binding(session);
    binding.bind_input("a", a_.as(session, kDims));
    binding.bind_input("b", b_.as(session, kDims));
    binding.bind_output("y", y);
    RunOptions going_on;
    going_on.set("synchronize", "false");
    for (float i = 0; i < 8; ++i) {
      a_.write({i, -i, 2 * i, -9}, stream);  // nobody waits for it
      binding.run(going_on);
      EXPECT_EQ(y_.read(stream), (Floats{i + 1, std::max(0.0f, 1 - i), 2 * i + 1, 0}));
    }
    EXPECT_EQ(all_copies(counters()), 0u);
    session.synchronize();
  }
  fakegpu().stream_free(stream);
}

TEST_P(DeviceMemory, L5RingsOfItRunAndAreReplayed) {
  const Session session = this->session();
  NativeFloats other{0, {5, 5, 5, 5}}, other_y{0, 4};
  Value values[] = {a_.as(session, kDims), other.as(session, kDims)};
  Value results[] = {y_.as(session, kDims), other_y.as(session, kDims)};
  Binding binding(session);
  binding.bind_input("b", b_.as(session, kDims));
  for (int i = 0; i < 12; ++i) {
    binding.bind_input("a", values[i % 2]);
    binding.bind_output("y", results[i % 2]);
    binding.run();
  }
  EXPECT_EQ(y_.read(), (Floats{2, 0, 4, 0}));
  EXPECT_EQ(other_y.read(), (Floats{6, 6, 6, 6}));
  EXPECT_EQ(counters().recorded, 2u);
  // The same memory imported anew is another owner's: what was recorded may be of memory that is gone.
  results[0] = y_.as(session, kDims);
  binding.bind_output("y", results[0]);
  a_.write({0, 0, 0, 0});
  binding.bind_input("a", values[0]);
  binding.run();
  EXPECT_EQ(y_.read(), (Floats{1, 1, 1, 1}));
  EXPECT_EQ(all_copies(counters()), 0u);
}

TEST_P(DeviceMemory, L5WhereNodesRunElsewhereItIsCopiedExactly) {
  // Add on the cpu, Relu on the device: a and b come to the host, the sum goes back.
  const Session session = this->session(options().add_placement("sum", "cpu"));
  NativeFloats at_last{0, 4};
  const Value a = a_.as(session, kDims), b = b_.as(session, kDims);
  std::vector<Value> results;
  results.push_back(y_.as(session, kDims));
  session.run({{"a", a}, {"b", b}}, {"y"}, results);
  EXPECT_EQ(y_.read(), (Floats{2, 0, 4, 0}));
  EXPECT_EQ(counters().copies_d2h, 2u);
  EXPECT_EQ(counters().copies_h2d, 1u);
  // And the other way round: the cpu makes the output, which goes to the device once.
  const Session last = this->session(options().add_placement("y", "cpu"));
  results[0] = at_last.as(last, kDims);
  fakegpu().reset();
  last.run({{"a", a}, {"b", b}}, {"y"}, results);
  EXPECT_EQ(at_last.read(), (Floats{2, 0, 4, 0}));
  EXPECT_EQ(counters().copies_d2h, 1u);
  EXPECT_EQ(counters().copies_h2d, 1u);
}

TEST_P(DeviceMemory, L5AnInputOrAPartOfItIsFetchedFromThere) {
  const Session session = this->session();
  NativeFloats large{0, 128}, a_too{0, 2};
  const std::uint64_t begin = 256;
  Floats elements(128, -7);
  elements[64] = 10, elements[65] = 20;
  large.write(elements);
  const Value part =
      session.borrow_on("fakegpu", ElementType::Float, {1, 2}, large.number(), begin, 8);
  const Value b = Value::tensor<float>({1, 2}, Floats{1, 1});
  std::vector<Value> results(2);
  results[1] = a_too.as(session, {1, 2});
  session.run({{"a", part}, {"b", b}}, {"y", "a"}, results);
  EXPECT_THAT(results[0].numbers(), ElementsAre(11, 21));
  EXPECT_EQ(a_too.read(), (Floats{10, 20}));
}

TEST_P(DeviceMemory, L5ShapesAndSizesThatAreKnownLateWorkInIt) {
  // The shape of a Reshape lies on the device; the number of what is not zero is known when the run is done.
  const std::string model = ModelMaker()
                                .input("a", {4})
                                .input("shape", {2}, ElementType::Int64)
                                .output("y")
                                .output("where", ElementType::Int64)
                                .node("Relu", {"a"}, {"positive"})
                                .node("Reshape", {"positive", "shape"}, {"y"})
                                .node("NonZero", {"positive"}, {"where"})
                                .bytes();
  const Session session(environment_, model.data(), model.size(), options());
  NativeFloats shape{0, 4}, where{0, 4};
  const std::int64_t dims[] = {2, 2};
  ASSERT_EQ(fakegpu().memory_write(0, shape.number(), 0, dims, sizeof(dims)), nullptr);
  const Value a = a_.as(session, {4});
  const Value shape_value =
      session.borrow_on("fakegpu:0", ElementType::Int64, {2}, shape.number(), 0, 16);
  std::vector<Value> results;
  results.push_back(y_.as(session, kDims));
  results.push_back(
      session.borrow_on("fakegpu:0", ElementType::Int64, {1, 2}, where.number(), 0, 16));
  session.run({{"a", a}, {"shape", shape_value}}, {"y", "where"}, results);
  EXPECT_EQ(y_.read(), (Floats{1, 0, 3, 0}));
  EXPECT_THAT(results[1].to_host().numbers(), ElementsAre(0, 2));
  a_.write({1, 1, 1, 1});  // now there are four of them, for which there is no room
  EXPECT_THAT(failure_of([&] {
                session.run({{"a", a}, {"shape", shape_value}}, {"y", "where"}, results);
              }).second,
              HasSubstr("the value given for output 'where' is tensor(int64) [1,2]"));
}

/// last = x * 2^m, all: what each of the m turns made.
std::string loop_model() {
  ModelMaker maker;
  maker.input("m", {}, ElementType::Int64).input("x", {2}).output("last").output("all");
  maker.node("Loop", {"m", "", "x"}, {"last", "all"});
  ::onnx::AttributeProto& attribute =
      *maker.proto().mutable_graph()->mutable_node(0)->add_attribute();
  attribute.set_name("body");
  attribute.set_type(::onnx::AttributeProto::GRAPH);
  ::onnx::GraphProto& body = *attribute.mutable_g();
  body.set_name("turn");
  const auto add = [](::onnx::ValueInfoProto& value, const char* name, std::int32_t type,
                      std::int64_t size) {
    value.set_name(name);
    auto& tensor = *value.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(type);
    auto& shape = *tensor.mutable_shape();
    if (size > 0) shape.add_dim()->set_dim_value(size);
  };
  add(*body.add_input(), "turn", ::onnx::TensorProto::INT64, 0);
  add(*body.add_input(), "go_on", ::onnx::TensorProto::BOOL, 0);
  add(*body.add_input(), "before", ::onnx::TensorProto::FLOAT, 2);
  add(*body.add_output(), "goes_on", ::onnx::TensorProto::BOOL, 0);
  add(*body.add_output(), "after", ::onnx::TensorProto::FLOAT, 2);
  add(*body.add_output(), "kept", ::onnx::TensorProto::FLOAT, 2);
  const auto node = [&](const char* op, const std::vector<std::string>& inputs,
                        const char* output) {
    ::onnx::NodeProto& made = *body.add_node();
    made.set_op_type(op);
    made.set_name(output);
    for (const std::string& input : inputs) made.add_input(input);
    made.add_output(output);
  };
  node("Identity", {"go_on"}, "goes_on");
  node("Add", {"before", "before"}, "after");
  node("Relu", {"after"}, "kept");
  return maker.bytes();
}

TEST_P(DeviceMemory, L5WhatALoopMakesOfASizeNobodyKnewIsCopiedThereOnTheDevice) {
  const std::string model = loop_model();
  const Session session(environment_, model.data(), model.size(), options());
  NativeFloats turns{0, 2}, x{0, {1, 2}}, last{0, 2}, all{0, 6};
  std::int64_t count = 3;
  ASSERT_EQ(fakegpu().memory_write(0, turns.number(), 0, &count, sizeof(count)), nullptr);
  const Value m = session.borrow_on("fakegpu:0", ElementType::Int64, {}, turns.number(), 0, 8);
  const Value from = x.as(session, {2});
  std::vector<Value> results;
  results.push_back(last.as(session, {2}));
  results.push_back(all.as(session, {3, 2}));
  session.run({{"m", m}, {"x", from}}, {"last", "all"}, results);
  EXPECT_EQ(last.read(), (Floats{8, 16}));
  EXPECT_EQ(all.read(), (Floats{2, 4, 4, 8, 8, 16}));
  count = 2;
  ASSERT_EQ(fakegpu().memory_write(0, turns.number(), 0, &count, sizeof(count)), nullptr);
  const auto [code, message] = failure_of([&] {
    session.run({{"m", m}, {"x", from}}, {"last", "all"}, results);
  });
  EXPECT_EQ(code, BACKPLANE_INVALID_ARGUMENT);
  EXPECT_THAT(message, HasSubstr("the value given for output 'all' is tensor(float) [3,2]; the "
                                 "run makes tensor(float) [2,2]"));
}

TEST_P(DeviceMemory, L5WhatDoesNotFitIsAnErrorThatNamesTheValue) {
  const Session session = this->session();
  const Value a = a_.as(session, kDims), b = b_.as(session, kDims);
  NativeFloats eight{0, 8};
  const auto failure_with = [&](Value given) {
    std::vector<Value> results;
    results.push_back(std::move(given));
    return failure_of([&] { session.run({{"a", a}, {"b", b}}, {"y"}, results); });
  };
  EXPECT_THAT(failure_with(eight.as(session, {4, 2})).second,
              HasSubstr("the value given for output 'y' is tensor(float) [4,2]; the run makes "
                        "tensor(float) [2,2]"));
  EXPECT_THAT(
      failure_with(session.borrow_on("fakegpu", ElementType::Int32, kDims, eight.number(), 0, 16))
          .second,
      HasSubstr("tensor(int32)"));
  EXPECT_THAT(failure_with(a_.as(session, kDims)).second,
              HasSubstr("the output 'y' and the input 'a' are given the same memory of fakegpu:0"));
  EXPECT_THAT(failure_of([&] {
                session.run({{"a", eight.as(session, {8})}, {"b", b}});
              }).second,
              HasSubstr("the input 'a' should be"));
  Binding binding(session);
  binding.bind_input("a", a);
  binding.bind_input("b", b);
  Value same = b_.as(session, kDims), wrong = eight.as(session, {4, 2});
  binding.bind_output("y", same);
  EXPECT_THAT(failure_of([&] { binding.run(); }).second, HasSubstr("the input 'b'"));
  binding.bind_output("y", wrong);
  const auto [code, message] = failure_of([&] { binding.run(); });
  EXPECT_EQ(code, BACKPLANE_INVALID_ARGUMENT);
  EXPECT_THAT(message, HasSubstr("the value given for output 'y'"));
  binding.bind_output("y");
  binding.run();
  EXPECT_THAT(binding.output("y").numbers(), ElementsAre(2, 0, 4, 0)) << "the session is usable";
}

TEST_P(DeviceMemory, L5MemoryThatADeviceCannotUseIsRefusedWithTheReason) {
  const Session session = this->session();
  const auto failure_on = [&](const char* device, std::uint64_t memory, std::uint64_t offset = 0,
                              std::uint64_t bytes = 16, ElementType type = ElementType::Float) {
    return failure_of([&] { session.borrow_on(device, type, kDims, memory, offset, bytes); });
  };
  EXPECT_THAT(failure_on("fakegpus", a_.number()).second, HasSubstr("did you mean 'fakegpu:0'"));
  EXPECT_THAT(failure_on("fakegpu:1", a_.number()).second, HasSubstr("has no device"));
  EXPECT_THAT(failure_on("fakegpu", 0).second, HasSubstr("'memory' is null"));
  EXPECT_THAT(failure_on("fakegpu", 4711).second, HasSubstr("there is no memory 4711"));
  EXPECT_THAT(failure_on("fakegpu", a_.number(), 0, 15).second, HasSubstr("needs 16"));
  EXPECT_THAT(failure_on("fakegpu", a_.number(), 0, 17).second, HasSubstr("has 16 bytes"));
  EXPECT_THAT(failure_on("fakegpu", a_.number(), ~std::uint64_t{0}).second, HasSubstr("no memory"));
  EXPECT_THAT(failure_on("fakegpu", a_.number(), 0, 16, ElementType::String).second,
              HasSubstr("string"));
  NativeFloats large{0, 128}, of_another{1, 4}, readable{0, 4, true};
  EXPECT_THAT(failure_on("fakegpu", large.number(), 16).second, HasSubstr("multiple of 256"));
  const auto [code, message] = failure_on("fakegpu", of_another.number());
  EXPECT_EQ(code, BACKPLANE_INVALID_ARGUMENT);
  EXPECT_THAT(message, HasSubstr("fakegpu device 1"));
  Value y = readable.as(session, kDims);
  Binding binding(session);
  EXPECT_THAT(failure_of([&] { binding.bind_output("y", y); }).second,
              HasSubstr("output 'y' lies in memory that fakegpu:0 may only read"));
  EXPECT_EQ(counters().imports, 1u);
}

TEST_P(DeviceMemory, L5DevicesThatImportNothingAndThoseOfOtherSessionsSaySo) {
  Options none = options();
  none.set("provider.fakegpu.import", "false");
  const Session without = this->session(none);
  const auto [code, message] = failure_of([&] { a_.as(without, kDims); });
  EXPECT_EQ(code, BACKPLANE_UNSUPPORTED);
  EXPECT_THAT(message, HasSubstr("'import'"));
  fakegpu().hide_interface(BP_IMPORT_MEMORY_INTERFACE);
  const Session lacking = this->session(options("fakegpu:1"));
  fakegpu().hide_interface(nullptr);
  NativeFloats of_one{1, 4};
  EXPECT_THAT(failure_of([&] { of_one.as(lacking, kDims, "fakegpu:1"); }).second,
              HasSubstr("lacks the interface 'bp.import_memory'"));
  // The second session works on the same device opened another way.
  const Session session = this->session();
  const Value a = a_.as(session, kDims);
  EXPECT_THAT(failure_of([&] {
                without.run({{"a", a}, {"b", host_b_}});
              }).second,
              HasSubstr("'a' is in the memory of fakegpu:0, which the session does not use"));
  const Session twin = this->session();
  EXPECT_THAT(twin.run({{"a", a}, {"b", host_b_}}).at(0).numbers(), ElementsAre(2, 0, 4, 0));
}

TEST_P(DeviceMemory, L5ADeviceOnHostMemoryTakesAnAddressAndNothingIsNothing) {
  const Session session = this->session();
  Floats elements{0, 1, -2, 3, -4};
  const Value a = session.borrow_on("cpu", ElementType::Float, kDims, elements.data(), 4, 16);
  EXPECT_EQ(a.device(), "");
  EXPECT_EQ(a.bytes(), elements.data() + 1);
  EXPECT_THAT(session.run({{"a", a}, {"b", b_.as(session, kDims)}}).at(0).numbers(),
              ElementsAre(2, 0, 4, 0));
  EXPECT_THAT(failure_of([&] {
                session.borrow_on("cpu", ElementType::Float, kDims, elements.data(), 2, 16);
              }).second,
              HasSubstr("not aligned"));
  const Value empty =
      session.borrow_on("fakegpu", ElementType::Float, {0, 2}, std::uint64_t{0}, 0, 0);
  std::vector<Value> results;
  results.push_back(session.borrow_on("fakegpu", ElementType::Float, {0, 2}, 0, 0, 0));
  session.run({{"a", empty}, {"b", empty}}, {"y"}, results);
  EXPECT_EQ(results[0].dims(), (std::vector<std::int64_t>{0, 2}));
}

TEST_P(DeviceMemory, M5SavedOutputsSayWhereTheyLie) {
  Session session = this->session();
  session.save({"y", "sum"});
  const Value a = a_.as(session, kDims), b = b_.as(session, kDims);
  std::vector<Value> results;
  results.push_back(y_.as(session, kDims));
  session.run({{"a", a}, {"b", b}}, {"y"}, results);
  EXPECT_EQ(session.saved("y").device(), "fakegpu:0");
  EXPECT_THAT(session.saved("y").to_host().numbers(), ElementsAre(2, 0, 4, 0));
  EXPECT_THAT(session.saved("sum").numbers(), ElementsAre(2, -1, 4, -3));
  Binding binding(session);
  binding.bind_input("a", a);
  binding.bind_input("b", b);
  binding.bind_output("y", results[0]);
  binding.run();
  EXPECT_THAT(binding.saved("y").to_host().numbers(), ElementsAre(2, 0, 4, 0));
}

TEST_P(DeviceMemory, M1PathsAreFedFromItToo) {
  const Session session = this->session(options().set("path.half.outputs", "sum"));
  const Value a = a_.as(session, kDims), b = b_.as(session, kDims);
  const std::vector<Value> sum = session.run_path("half", {{"a", a}, {"b", b}});
  EXPECT_THAT(sum.at(0).numbers(), ElementsAre(2, -1, 4, -3));
  EXPECT_EQ(counters().copies_h2d, 0u);
}

TEST_P(DeviceMemory, L5EveryCallMayFailAndNothingIsLeft) {
  const Session session = this->session(options().set("capture", "off"));
  std::uint64_t failures = 0;
  for (std::uint64_t position = 1; position < 200; ++position) {
    SCOPED_TRACE(position);
    fakegpu().fail_call(position, BP_OUT_OF_MEMORY, 0);
    const auto [code, message] = failure_of([&] {
      std::vector<Value> results;
      results.push_back(y_.as(session, kDims));
      session.run({{"a", a_.as(session, kDims)}, {"b", b_.as(session, kDims)}}, {"y"}, results);
    });
    const bool is_done = code == 0;
    fakegpu().fail_call(0, BP_OK, 0);
    EXPECT_EQ(counters().imports, 0u);
    if (is_done) {
      EXPECT_EQ(y_.read(), (Floats{2, 0, 4, 0}));
      EXPECT_GT(failures, 4u);
      return;
    }
    ++failures;
    EXPECT_EQ(code, BACKPLANE_OUT_OF_MEMORY) << message;
    EXPECT_THAT(message, HasSubstr("fakegpu:0"));
  }
  ADD_FAILURE() << "a run makes 200 calls?";
}

TEST_P(DeviceMemory, L5ALostDeviceImportsNothing) {
  const Session session = this->session();
  fakegpu().lose_device(0);
  EXPECT_EQ(failure_of([&] { a_.as(session, kDims); }).first, BACKPLANE_DEVICE_LOST);
  EXPECT_EQ(failure_of([&] { a_.as(session, kDims); }).first, BACKPLANE_DEVICE_LOST);
}

INSTANTIATE_TEST_SUITE_P(Copies, DeviceMemory, ::testing::Values("none", "sync", "async"));

/// Values hold what they need: the environment and the session may go first.
TEST(DeviceMemoryLife, L5AValueOutlivesTheSessionItWasMadeFor) {
  NativeFloats floats{0, {1, 2}};
  Value kept;
  {
    const std::string model =
        ModelMaker().input("x", {2}).output("y").node("Relu", {"x"}, {"y"}).bytes();
    const Environment environment = device_environment();
    const Session session(environment, model.data(), model.size(),
                          Options().AppendExecutionProvider("fakegpu"));
    kept = floats.as(session, {2});
  }
  EXPECT_THAT(kept.to_host().numbers(), ElementsAre(1, 2));
  kept = Value();
  EXPECT_EQ(counters().imports, 0u);
  EXPECT_EQ(counters().open_devices, 0u);
}

}  // namespace
}  // namespace backplane::session_test
