// Every call of the cpu and the OpenCL provider fails once: the error says where, the next run is right, nothing is
// left over. The plugins are wrapped: they have no code for this.
#include <cstring>
#include <mutex>
#include <set>

#include <nlohmann/json.hpp>

#include "core/plugin_host/host_api.hpp"
#include "core/runtime/binding.hpp"
#include "tests/faults/fault_test.hpp"
#include "tests/fixtures/wrapped/wrapped.h"

namespace backplane::core::faults {
namespace {

struct Fault {
  const char* provider;
  bp_code code;
  Code seen;
};

/// Both devices, with copies in both directions, a packed weight and a view.
std::string two_devices() {
  ModelMaker maker;
  maker.input("x", {3, 4}).weight("w", random_tensor({4, 4}, 5)).ints("shape", {1, 24});
  maker.node("left", "MatMul", {"x", "w"}, "a")
      .node("right", "Tanh", {"x"}, "b")
      .node("cross", "Add", {"a", "b"}, "c")
      .node("host", "MatMul", {"c", "w"}, "d")
      .node("join", "Concat", {"a", "d"}, "e", 1)
      .node("flat", "Reshape", {"e", "shape"}, "f")
      .node("last", "Relu", {"f"}, "y");
  return maker.output("y").output("c").bytes();
}
const Placement kOnBoth{{"left", "opencl"}, {"right", "cpu"}, {"cross", "opencl"},
                        {"host", "cpu"},    {"join", "cpu"},  {"flat", "opencl"},
                        {"last", "opencl"}};
const Placement kOnCpu;
const Tensors kFeeds{{"x", random_tensor({3, 4}, 6)}};

std::string objects(const wrapped_api& api) {
  wrapped_objects now{};
  api.alive(&now);
  return text(now.devices, " devices, ", now.buffers, " buffers, ", now.streams, " streams, ",
              now.fences, " fences, ", now.kernels, " kernels, ", now.prepared, " prepared, ",
              now.open_runs, " open runs, ", now.host_blocks, " blocks of host memory, ", now.views,
              " views");
}

class WrappedDevices : public ::testing::TestWithParam<Fault> {
 protected:
  static void SetUpTestSuite() { use_plugins_of(BACKPLANE_TEST_FIXTURES_DIR "/wrapped"); }

  void SetUp() override {
    if (!has_device("opencl") && std::string(GetParam().provider) == "opencl")
      GTEST_SKIP() << "no OpenCL device is there";
    const bp_provider* provider = nullptr;
    plugin_ = environment()->plugins().find_provider(GetParam().provider, &provider);
    wrapped_ = static_cast<const wrapped_api*>(
        provider->get_interface(provider->self, WRAPPED_INTERFACE, 1));
    ASSERT_NE(wrapped_, nullptr);
    want_ = open()->run(kFeeds);
    before_ = objects(*wrapped_);
  }

  static std::unique_ptr<MixedSession> open() {
    const bool has_opencl = has_device("opencl");
    return std::make_unique<MixedSession>(
        two_devices(), has_opencl ? kOnBoth : kOnCpu, ProviderOptions(),
        has_opencl ? std::vector<std::string>{"opencl", "cpu"} : std::vector<std::string>{"cpu"});
  }

  void arm(std::uint64_t position) const { wrapped_->fail_call(position, GetParam().code); }
  std::string failed() const { return wrapped_->failed(); }

  /// What an error that follows from the fault says.
  void judge(const Error& error) const {
    EXPECT_EQ(error.code(), GetParam().seen) << error.what();
    EXPECT_NE(error.message().find(GetParam().provider), std::string::npos)
        << "names no device: " << error.what();
  }

  PluginPtr plugin_;
  const wrapped_api* wrapped_ = nullptr;
  Tensors want_;
  std::string before_;
};

bool names_a_step(const std::string& message) {
  for (const char* words : {"node '", "copy '", "begin the run"}) {
    if (message.find(words) != std::string::npos) return true;
  }
  return false;
}

bool is_of_a_view(const std::string& message) {
  return message.find("view '") != std::string::npos ||
         message.find("give back '") != std::string::npos;
}

TEST_P(WrappedDevices, FailAtEveryCallOfAWarmRun) {
  std::set<std::string> functions;
  {
    const auto session = open();
    session->run(kFeeds);
    const std::string warm = objects(*wrapped_);
    arm(0);
    session->run(kFeeds);
    const std::uint64_t calls = wrapped_->calls();
    ASSERT_GE(calls, 3u);
    for (std::uint64_t position = 1; position <= calls; ++position) {
      arm(position);
      try {
        session->run(kFeeds);
        ADD_FAILURE() << "nobody noticed that " << failed() << " failed, call " << position;
      } catch (const Error& error) {
        SCOPED_TRACE(text("call ", position, ", ", failed()));
        judge(error);
        EXPECT_TRUE(names_a_step(error.message())) << error.what();
      }
      functions.insert(failed());
      arm(0);
      EXPECT_EQ(difference(session->run(kFeeds), want_), "") << "the run after call " << position;
      EXPECT_EQ(objects(*wrapped_), warm) << "after call " << position;
    }
  }
  EXPECT_TRUE(functions.contains("compute"));
  EXPECT_EQ(functions.contains("copy"), std::string(GetParam().provider) == "opencl");
  EXPECT_EQ(objects(*wrapped_), before_);
}

TEST_P(WrappedDevices, FailAtEveryCallOfLoadingAndAFirstRun) {
  std::set<std::string> functions;
  std::uint64_t position = 1, errors = 0;
  for (bool reached = true; reached && position < 400; ++position) {
    {
      arm(position);
      std::unique_ptr<MixedSession> session;
      try {
        session = open();
        EXPECT_EQ(difference(session->run(kFeeds), want_), "") << "call " << position;
      } catch (const Error& error) {
        SCOPED_TRACE(text("call ", position, ", ", failed()));
        judge(error);
        EXPECT_NE(failed(), "");
        ++errors;
      }
      reached = !failed().empty();
      functions.insert(failed());
      arm(0);
      if (session) {
        EXPECT_EQ(difference(session->run(kFeeds), want_), "") << "call " << position;
      }
    }
    EXPECT_EQ(objects(*wrapped_), before_) << "after call " << position;
  }
  EXPECT_LT(position, 400u) << "loading and a run make 400 calls?";
  EXPECT_GT(errors, 5u);
  for (const char* function : {"create", "prepare", "compute"})
    EXPECT_TRUE(functions.contains(function)) << function;
}

/// Nobody could be told: the log is, and everything goes on.
TEST_P(WrappedDevices, ExceptionsOfWhatEndsThingsAreLoggedAndChangeNothing) {
  if (GetParam().code != WRAPPED_THROWS) GTEST_SKIP() << "of exceptions alone";
  std::mutex mutex;
  std::string lines;
  set_plugin_logger(
      std::make_shared<const Logger>(LogLevel::Warning, [&](LogLevel, std::string_view line) {
        const std::lock_guard lock(mutex);
        lines.append(line).append("\n");
      }));
  wrapped_->throw_at_ends(1);
  {
    const auto session = open();
    EXPECT_EQ(difference(session->run(kFeeds), want_), "");
    EXPECT_EQ(difference(session->run(kFeeds), want_), "");
  }
  wrapped_->throw_at_ends(0);
  set_plugin_logger(nullptr);
  EXPECT_EQ(objects(*wrapped_), before_);
  std::vector<std::string> functions{"release was", "destroy was"};
  if (std::string(GetParam().provider) == "opencl") {
    for (const char* function : {"buffer_free", "stream_destroy", "fence_destroy"})
      functions.push_back(text("device 'opencl': ", function, ": it threw an exception"));
  }
  for (const std::string& function : functions)
    EXPECT_NE(lines.find(function), std::string::npos) << function << " is not in " << lines;
}

/// Feeds and fetches that are large enough for a device that shares the host's memory to work on them where they lie.
class WrappedViews : public WrappedDevices {
 protected:
  static std::string model() {
    ModelMaker maker;
    maker.input("x", kDims).node("neg", "Neg", {"x"}, "a").node("tanh", "Tanh", {"a"}, "y");
    return maker.output("y").bytes();
  }
  static std::shared_ptr<Session> viewing_session(const std::string& bytes) {
    SessionOptions options;
    options.providers = {{"opencl", {}}, {"cpu", {}}};
    return std::make_shared<Session>(environment(), "", std::as_bytes(std::span(bytes)), options);
  }
  static Tensor tensor_of(const RuntimeValue& value) {
    const auto* first = static_cast<const float*>(value.description.host_ptr);
    return {kDims, {first, first + value.description.bytes / sizeof(float)}};
  }
  static std::uint64_t views_of(Session& session) {
    return nlohmann::json::parse(session.statistics())["views"].get<std::uint64_t>();
  }

  inline static const Dims kDims{64, 256};
  const Tensor x_ = random_tensor(kDims, 8);
};

TEST_P(WrappedViews, FailAtEveryCallOfARunAndOfABindingThatKeepsThem) {
  const std::string bytes = model();
  const Tensors want = run_on_cpu(bytes, {{"x", x_}});
  for (const bool keeps_views : {false, true}) {
    SCOPED_TRACE(keeps_views ? "a binding" : "a run");
    std::set<std::string> functions;
    {
      const std::shared_ptr<Session> session = viewing_session(bytes);
      Binding binding(session);
      RuntimeValue feed, fetch;
      feed.set_owned_tensor(DataType::Float, kDims);
      fetch.set_owned_tensor(DataType::Float, kDims);
      for (RuntimeValue* x : {&feed, binding.input("x").get()})
        std::memcpy(x->description.host_ptr, x_.elements.data(),
                    x_.elements.size() * sizeof(float));
      const auto run = [&] {
        if (keeps_views) {
          binding.run(nullptr);
        } else {
          session->run({{"x", &feed}}, {{"y", &fetch}});
        }
      };
      const auto result = [&] {
        return Tensors{{"y", tensor_of(keeps_views ? *binding.output("y") : fetch)}};
      };
      run();
      if (views_of(*session) != 2) GTEST_SKIP() << "the device has memory of its own";
      const std::string warm = objects(*wrapped_);
      arm(0);
      run();
      const std::uint64_t calls = wrapped_->calls();
      for (std::uint64_t position = 1; position <= calls; ++position) {
        arm(position);
        try {
          run();
          ADD_FAILURE() << "nobody noticed that " << failed() << " failed, call " << position;
        } catch (const Error& error) {
          SCOPED_TRACE(text("call ", position, ", ", failed()));
          judge(error);
          EXPECT_TRUE(names_a_step(error.message()) || is_of_a_view(error.message()))
              << error.what();
        }
        functions.insert(failed());
        arm(0);
        run();
        EXPECT_EQ(difference(result(), want), "") << "the run after call " << position;
        EXPECT_EQ(objects(*wrapped_), warm) << "after call " << position;
      }
    }
    EXPECT_EQ(functions.contains("view"), !keeps_views);
    for (const char* const function : {"hand_over", "hand_back", "compute"})
      EXPECT_TRUE(functions.contains(function)) << function;
    EXPECT_EQ(objects(*wrapped_), before_);
  }
}

INSTANTIATE_TEST_SUITE_P(Codes, WrappedViews,
                         ::testing::Values(Fault{"opencl", BP_FAILED, Code::Failed},
                                           Fault{"opencl", BP_OUT_OF_MEMORY, Code::OutOfMemory},
                                           Fault{"opencl", WRAPPED_THROWS, Code::Internal}),
                         [](const auto& fault) { return text("code_", fault.param.code); });

INSTANTIATE_TEST_SUITE_P(Codes, WrappedDevices,
                         ::testing::Values(Fault{"cpu", BP_FAILED, Code::Failed},
                                           Fault{"cpu", BP_OUT_OF_MEMORY, Code::OutOfMemory},
                                           Fault{"opencl", BP_FAILED, Code::Failed},
                                           Fault{"opencl", BP_OUT_OF_MEMORY, Code::OutOfMemory},
                                           Fault{"cpu", WRAPPED_THROWS, Code::Internal},
                                           Fault{"opencl", WRAPPED_THROWS, Code::Internal}),
                         [](const auto& fault) {
                           return text(fault.param.provider, "_code_", fault.param.code);
                         });

}  // namespace
}  // namespace backplane::core::faults
