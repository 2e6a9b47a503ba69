// L5: outputs bound on a device stay there until they are asked for, by the fake device's own count of copies.
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/session/run/fake_device.hpp"
#include "tests/session/run/models.hpp"

namespace backplane::session_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// y = relu(a + b) on a fake device; `host_copy`: none, sync or async.
class DeviceBinding : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { fakegpu().reset(); }
  void TearDown() override { EXPECT_EQ(findings(), 0u); }

  Options options() const {
    Options options;
    options.AppendExecutionProvider("fakegpu", {{"host_copy", GetParam()}, {"delay_us", "20"}});
    options.AppendExecutionProvider("cpu");
    options.set("optimization", "none");
    return options;
  }

  const std::string model_ = ModelMaker()
                                 .input("a", {"n", 2})
                                 .input("b", {"n", 2})
                                 .output("y")
                                 .node("Add", {"a", "b"}, {"sum"})
                                 .node("Relu", {"sum"}, {"y"})
                                 .bytes();
  const Environment environment_ = device_environment();
  const Session session_{environment_, model_.data(), model_.size(), options()};
  const Value a_ = Value::tensor<float>({2, 2}, std::vector<float>{1, -2, 3, -4});
  const Value b_ = Value::tensor<float>({2, 2}, std::vector<float>{1, 1, 1, 1});
};

/// Nothing is placed anew in the middle of a run: what a device cannot do there is the run's failure, wherever it says so.
TEST_P(DeviceBinding, L5ADeviceThatRefusesToBeginARunFailsIt) {
  session_.run({{"a", a_}, {"b", b_}});
  fakegpu().fail_call(1, BP_UNSUPPORTED, 0);  // run_begin
  const auto [code, message] = failure_of([&] { session_.run({{"a", a_}, {"b", b_}}); });
  EXPECT_EQ(code, BACKPLANE_FAILED);
  EXPECT_THAT(message, HasSubstr("could not begin the run"));
  fakegpu().reset();
  EXPECT_THAT(session_.run({{"a", a_}, {"b", b_}})[0].numbers(), ElementsAre(2, 0, 4, 0));
}

TEST_P(DeviceBinding, L5AnOutputOnADeviceStaysThereUntilAskedFor) {
  Binding binding(session_);
  binding.bind_input("a", a_);
  binding.bind_input("b", b_);
  binding.bind_output_to("y", "fakegpu");
  for (int i = 0; i < 5; ++i) binding.run();
  EXPECT_EQ(counters().copies_d2h, 0u) << "nobody has asked for it";
  EXPECT_EQ(binding.output("y").device(), "fakegpu:0");
  EXPECT_EQ(binding.output("y").dims(), (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(binding.output("y").bytes(), nullptr);
  const Value y = binding.output("y").to_host();
  EXPECT_EQ(counters().copies_d2h, 1u);
  EXPECT_THAT(y.numbers(), ElementsAre(2, 0, 4, 0));
  EXPECT_EQ(y.device(), "");
  const std::uint64_t allocations = counters().allocations;
  binding.run();
  EXPECT_EQ(counters().allocations, allocations) << "its memory is used again";
}

TEST_P(DeviceBinding, L5AnOutputOnADeviceIsTheNextRunsInputWithoutACopy) {
  Binding first(session_), second(session_);
  first.bind_input("a", a_);
  first.bind_input("b", b_);
  first.bind_output_to("y", "fakegpu");
  first.run();
  second.bind_input("a", first.output("y"));
  second.bind_input("b", first.output("y"));
  second.bind_output_to("y", "fakegpu:0");
  const fakegpu_counters before = counters();
  second.run();
  EXPECT_EQ(counters().copies_h2d, before.copies_h2d);
  EXPECT_EQ(counters().copies_d2h, before.copies_d2h);
  EXPECT_THAT(second.output("y").to_host().numbers(), ElementsAre(4, 0, 8, 0));
}

TEST_P(DeviceBinding, L5DevicesAreNamedAndTheirValuesAreFedToRunsByNameToo) {
  Binding binding(session_);
  EXPECT_THAT(failure_of([&] { binding.bind_output_to("y", "fakegpus"); }).second,
              HasSubstr("did you mean 'fakegpu:0'"));
  EXPECT_THAT(failure_of([&] { binding.bind_output_to("yy", "fakegpu"); }).second,
              HasSubstr("'yy'"));
  binding.bind_input("a", a_);
  binding.bind_input("b", b_);
  binding.bind_output_to("y", "cpu");  // host memory is the host's
  binding.run();
  EXPECT_THAT(binding.output("y").numbers(), ElementsAre(2, 0, 4, 0));
  binding.bind_output_to("y", "fakegpu");
  binding.run();
  const backplane_value* y = binding.output("y").get();
  const fakegpu_counters before = counters();
  const std::vector<Value> again = session_.run({{"a", ValueView(y)}, {"b", ValueView(y)}});
  EXPECT_THAT(again.at(0).numbers(), ElementsAre(4, 0, 8, 0));
  EXPECT_EQ(counters().copies_h2d, before.copies_h2d);
  // What a session made there is no other run's to write: its owner makes it anew with each run.
  std::vector<backplane_value*> given{const_cast<backplane_value*>(y)};
  const char* const names[] = {"a", "b"};
  const backplane_value* const feeds[] = {a_.get(), b_.get()};
  backplane_status* const status =
      backplane_session_run(session_.get(), names, feeds, 2, nullptr, given.data(), 1);
  EXPECT_THAT(backplane_status_message(status), HasSubstr("bind the output to the device"));
  backplane_status_free(status);
  EXPECT_THAT(failure_of([&] { ValueView(y).numbers(); }).second, HasSubstr("not on the host"));
}

TEST_P(DeviceBinding, L6RunsThatAreNotSynchronizedGoOnAndAreWaitedFor) {
  Binding binding(session_);
  binding.bind_input("a", a_);
  binding.bind_input("b", b_);
  binding.bind_output_to("y", "fakegpu");
  RunOptions options;
  options.set("synchronize", "false");
  for (int i = 0; i < 5; ++i) binding.run(options);
  session_.synchronize();
  EXPECT_EQ(counters().open_runs, 0u);
  EXPECT_THAT(binding.output("y").to_host().numbers(), ElementsAre(2, 0, 4, 0));
}

TEST_P(DeviceBinding, M5ACallbackSeesValuesOfADeviceAsCopies) {
  // Fused, the two nodes have no value between them.
  const Session session(environment_, model_.data(), model_.size(),
                        options().set("disabled_passes", "provider_rewrites"));
  std::vector<double> made, read;
  RunOptions run_options;
  run_options.set_callbacks(
      [&](const NodeView& node) {
        if (node.op_type == "Relu") read = node.inputs.at(0).numbers();
        return true;
      },
      [&](const NodeView& node) {
        if (node.op_type == "Add") made = node.outputs.at(0).numbers();
        return true;
      });
  const std::vector<Value> y = session.run({{"a", a_}, {"b", b_}}, {}, run_options);
  EXPECT_THAT(y.at(0).numbers(), ElementsAre(2, 0, 4, 0));
  EXPECT_THAT(made, ElementsAre(2, -1, 4, -3));
  EXPECT_THAT(read, ElementsAre(2, -1, 4, -3));
}

TEST_P(DeviceBinding, L8ATraceShowsWhenTheDeviceDidTheWorkOfEachNode) {
  const Session session(environment_, model_.data(), model_.size(),
                        options().set("profile", "true"));
  for (int i = 0; i < 2; ++i) session.run({{"a", a_}, {"b", b_}});
  const nlohmann::json trace = nlohmann::json::parse(session.trace());
  std::map<int, std::string> lanes;
  for (const auto& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") lanes[event["tid"]] = event["args"]["name"];
  }
  // By the host's clock a node takes until its stream is done, so that the device's times lie inside.
  std::size_t count = 0;
  for (const auto& work : trace["traceEvents"]) {
    if (work.value("cat", "") != "device") continue;
    ++count;
    EXPECT_EQ(lanes[work["tid"]], "fakegpu:0 work");
    EXPECT_NE(work["args"]["work"], "");
    const double begin = work["ts"], end = begin + work["dur"].get<double>();
    const auto holds = [&](const auto& event) {
      return event["ph"] == "X" && event["cat"] != "device" && event["name"] == work["name"] &&
             event["ts"].template get<double>() <= begin &&
             end <=
                 event["ts"].template get<double>() + event["dur"].template get<double>() + 0.001;
    };
    EXPECT_TRUE(std::any_of(trace["traceEvents"].begin(), trace["traceEvents"].end(), holds))
        << work;
  }
  EXPECT_GE(count, 2u * 4) << "two copies in, the node or nodes, a copy out, twice";
}

INSTANTIATE_TEST_SUITE_P(Copies, DeviceBinding, ::testing::Values("none", "sync", "async"));

}  // namespace
}  // namespace backplane::session_test
