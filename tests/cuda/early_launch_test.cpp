// Kernels that may begin before the one before them has ended: which are launched so, and which are not. That a kernel waits, and follows
// another one, the stand-in looks after in every test.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backplane/plugin_api/optional/device_times.h"
#include "backplane/plugin_api/optional/plan_capture.h"
#include "tests/cuda/node_on_device.hpp"

namespace backplane::cuda {
namespace {

using Early = std::vector<bool>;

/// What the provider logs, of one test after the other.
std::vector<std::string>& logged() {
  static std::vector<std::string> lines;
  return lines;
}

class CudaEarlyLaunch : public CudaTest {
 protected:
  CudaEarlyLaunch() {
    static bp_host_api table = *test_host::api();
    table.log = [](std::int32_t, const char* text, std::uint64_t size) {
      logged().emplace_back(text, size);
    };
    logged().clear();
    sdk::host_table = &table;
  }
  ~CudaEarlyLaunch() override { sdk::host_table = test_host::api(); }
  template <class Table>
  const Table& table(const char* name) const {
    return *static_cast<const Table*>(provider()->get_interface(provider()->self, name, 1));
  }
};

/// Nodes on memory of their own.
class Nodes {
 public:
  explicit Nodes(const OpenDevice& device) : device_(device) {
    neg_node_.input(BP_FLOAT, {4}).outputs(1);
    neg_ = std::make_unique<KernelUnderTest>(device.kernel("Neg"), device.raw(), neg_node_.raw());
    neg_->prepare({floats({4}, {1, 2, 3, 4})}, {false}, 1);
    stand_in().early.clear();
  }
  /// A kernel of the provider's.
  void negate(const TestStream& stream) const {
    check(neg_->compute({{nullptr, x_.raw()}}, {{nullptr, y_.raw()}}, {}, {}, stream.raw()));
  }
  void copy(const TestStream& stream) const {
    check(copy_floats(device_, stream, {nullptr, x_.raw()}, {nullptr, y_.raw()}, 4));
  }
  /// Two kernels, captured.
  bp_recording* record(const TestStream& stream, const bp_plan_capture& capture,
                       bp_recording* former = nullptr) const {
    check(capture.begin(device_.raw(), stream.raw()));
    negate(stream);
    negate(stream);
    bp_recording* made = nullptr;
    check(capture.end(device_.raw(), stream.raw(), former, &made));
    return made;
  }

 private:
  const OpenDevice& device_;
  TestBuffer x_{device_, BP_MEMORY_DEVICE, 64}, y_{device_, BP_MEMORY_DEVICE, 64};
  NodeUnderTest neg_node_{"", "Neg", 13};
  std::unique_ptr<KernelUnderTest> neg_;
};

std::string number_of_stream(const OpenDevice& device, const TestStream& stream) {
  std::uint64_t handle = 0;
  check(device->native(device.raw(), BP_NATIVE_STREAM, stream.raw(), nullptr, &handle));
  return std::to_string(handle);
}

TEST_F(CudaEarlyLaunch, AKernelBehindAnotherOneMayBeginEarlyAndBehindAnythingElseNot) {
  const OpenDevice device = open();
  const TestStream stream(device), other(device);
  const TestFence fence(device);
  const Nodes nodes(device);
  const auto twice = [&](const std::string& after) {
    stand_in().early.clear();
    nodes.negate(stream);
    nodes.negate(stream);
    EXPECT_EQ(stand_in().early, (Early{false, true})) << after;
  };
  twice("nothing");
  nodes.copy(stream);
  twice("a copy");
  fence.signal(stream, 1);
  twice("an event that was recorded");
  fence.signal(other, 2);
  fence.wait(stream, 2);
  twice("an event that is waited for");
  fence.wait(stream, 3);
  twice("a word that is waited for");
  number_of_stream(device, stream);
  twice("whatever a guest has put there");
  fence.signal(other, 3);
  stream.sync();
}

TEST_F(CudaEarlyLaunch, AKernelDoesNotBeginEarlyBehindTheKernelsOfALibrary) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const Nodes nodes(device);
  NodeUnderTest product("", "MatMul", 13);
  product.input(BP_FLOAT, {4, 4}).input(BP_FLOAT, {4, 4}).outputs(1);
  KernelUnderTest kernel(device.kernel("MatMul"), device.raw(), product.raw());
  kernel.prepare({numbers({4, 4}, 1), numbers({4, 4}, 2)}, {false, false}, 1);
  const TestBuffer x(device, BP_MEMORY_DEVICE, 64), y(device, BP_MEMORY_DEVICE, 64),
      workspace(device, BP_MEMORY_DEVICE, kernel.workspace_bytes() + 64);
  test_host::upload(device, stream, std::vector<float>(16), {nullptr, x.raw()});
  stand_in().early.clear();
  check(kernel.compute({{nullptr, x.raw()}, {nullptr, x.raw()}}, {{nullptr, y.raw()}}, {},
                       {nullptr, workspace.raw()}, stream.raw()));
  nodes.negate(stream);
  EXPECT_EQ(stand_in().early, Early{false});
}

TEST_F(CudaEarlyLaunch, PartsOfALaunchFollowEachOther) {
  const OpenDevice device = open();
  const TestStream stream(device);
  NodeUnderTest node("", "Transpose", 13);
  node.input(BP_FLOAT, {256, 140000}).outputs(1);
  KernelUnderTest kernel(device.kernel("Transpose"), device.raw(), node.raw());
  kernel.prepare({floats({256, 140000}, {})}, {false}, 1);
  const TestBuffer x(device, BP_MEMORY_DEVICE, 64), y(device, BP_MEMORY_DEVICE, 64);
  check(kernel.compute({{nullptr, x.raw()}}, {{nullptr, y.raw()}}, {}, {}, stream.raw()));
  EXPECT_EQ(stand_in().early, (Early{false, true, true}));
}

TEST_F(CudaEarlyLaunch, NoneDoesWhereTheOptionTheDeviceOrItsDriverDoesNotHaveIt) {
  const auto launches = [&](const OpenDevice::Options& options) {
    const OpenDevice device = open(options);
    const TestStream stream(device);
    const Nodes nodes(device);
    for (int i = 0; i < 3; ++i) nodes.negate(stream);
    return stand_in().early;
  };
  EXPECT_EQ(launches({}), (Early{false, true, true}));
  EXPECT_EQ(launches({{"overlap_launches", "auto"}}), (Early{false, true, true}));
  EXPECT_EQ(launches({{"overlap_launches", "off"}}), (Early{false, false, false}));
}

TEST_F(CudaEarlyLaunch, NoneDoesOnADeviceOfLess) {
  stand_in().devices = {stand_in_device(8, 6), stand_in_device(9, 0), stand_in_device(9, 0)};
  // Whose kernels wait, but a driver of whose nobody knows what its graphs make of them; and one whose kernels do not wait.
  stand_in().devices[1].has_early_launches = false;
  stand_in().devices[2].major = 8;
  for (std::size_t index = 0; index < stand_in().devices.size(); ++index) {
    const OpenDevice device = open({}, index);
    const TestStream stream(device);
    const Nodes nodes(device);
    for (int i = 0; i < 3; ++i) nodes.negate(stream);
    EXPECT_EQ(stand_in().early, (Early{false, false, false})) << index;
  }
}

TEST_F(CudaEarlyLaunch, EachKernelHasItsOwnTimesWhereTheyAreTaken) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const Nodes nodes(device);
  const auto& times = table<bp_device_times>(BP_DEVICE_TIMES_INTERFACE);
  const auto thrice = [&] {
    stand_in().early.clear();
    for (int i = 0; i < 3; ++i) nodes.negate(stream);
    return stand_in().early;
  };
  nodes.negate(stream);
  check(times.record(device.raw(), stream.raw(), 1));
  EXPECT_EQ(thrice(), (Early{false, false, false}));
  check(times.record(device.raw(), stream.raw(), 0));
  EXPECT_EQ(thrice(), (Early{false, true, true}));
}

TEST_F(CudaEarlyLaunch, OfWhatIsCapturedTheFirstKernelHasNoneBeforeIt) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const Nodes nodes(device);
  const auto& capture = table<bp_plan_capture>(BP_PLAN_CAPTURE_INTERFACE);
  nodes.negate(stream);
  stand_in().early.clear();
  bp_recording* const recording = nodes.record(stream, capture);
  nodes.negate(stream);
  EXPECT_EQ(stand_in().early, (Early{false, true, false}));
  check(capture.replay(device.raw(), stream.raw(), recording));
  nodes.negate(stream);
  EXPECT_EQ(stand_in().early.back(), false) << "behind a graph";
  capture.release(device.raw(), recording);
  check(capture.begin(device.raw(), stream.raw()));
  nodes.negate(stream);
  capture.abandon(device.raw(), stream.raw());
  nodes.negate(stream);
  EXPECT_EQ(stand_in().early.back(), false) << "behind a capture that is given up";
}

TEST_F(CudaEarlyLaunch, OnTheProgramsStreamNoneDoesButInWhatIsCapturedBesideIt) {
  stand_in().shares_contexts = true;
  const OpenDevice program = open();
  const TestStream users(program);
  const OpenDevice device = open({{"user_stream", number_of_stream(program, users)}});
  const TestStream stream(device);
  const Nodes nodes(device);
  const auto& capture = table<bp_plan_capture>(BP_PLAN_CAPTURE_INTERFACE);
  for (int i = 0; i < 3; ++i) nodes.negate(stream);
  EXPECT_EQ(stand_in().early, (Early{false, false, false}));
  stand_in().early.clear();
  capture.release(device.raw(), nodes.record(stream, capture));
  EXPECT_EQ(stand_in().early, (Early{false, true}));
}

TEST_F(CudaEarlyLaunch, ADriverThatRefusesIsAskedOnceAndTheKernelIsLaunchedAllTheSame) {
  stand_in().takes_early_launches = false;
  const OpenDevice device = open();
  const TestStream stream(device);
  const Nodes nodes(device);
  std::size_t runs = 0;
  stand_in().kernel = [&](const std::string&, const Extent&, const Extent&, void**) { ++runs; };
  for (int i = 0; i < 4; ++i) nodes.negate(stream);
  EXPECT_EQ(stand_in().early, (Early{false, false, false, false}));
  EXPECT_EQ(runs, 4u);
  EXPECT_EQ(stand_in().count("launch_early"), 1u);
  ASSERT_EQ(logged().size(), 1u);
  EXPECT_NE(logged()[0].find("overlap_launches=off"), std::string::npos) << logged()[0];
}

TEST_F(CudaEarlyLaunch, AGraphThatCannotBeMadeIsCapturedAgainWithoutThem) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const Nodes nodes(device);
  const auto& capture = table<bp_plan_capture>(BP_PLAN_CAPTURE_INTERFACE);
  stand_in().failures["instantiate"] = {"CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_NOT_SUPPORTED"};
  const auto record = [&]() -> std::pair<bp_code, std::string> {
    try {
      capture.release(device.raw(), nodes.record(stream, capture));
    } catch (const test_host::StatusError& error) {
      return {error.code(), error.what()};
    }
    return {BP_OK, ""};
  };
  const auto [code, text] = record();
  EXPECT_EQ(code, BP_CANCELLED) << "the host tries again";
  EXPECT_NE(text.find("CUDA_ERROR_NOT_SUPPORTED"), std::string::npos) << text;
  EXPECT_EQ(logged().size(), 1u);
  EXPECT_EQ(record().first, BP_INTERNAL) << "it was not for them";
  EXPECT_EQ(record().first, BP_OK);
  EXPECT_EQ(stand_in().early, (Early{false, true, false, false, false, false}));
}

TEST_F(CudaEarlyLaunch, AGraphTakesTheFormOfNoneInWhichOtherKernelsOverlap) {
  const OpenDevice device = open();
  const TestStream stream(device);
  const Nodes nodes(device);
  const auto& capture = table<bp_plan_capture>(BP_PLAN_CAPTURE_INTERFACE);
  bp_recording* const first = nodes.record(stream, capture);
  EXPECT_EQ(nodes.record(stream, capture, first), first);
  EXPECT_EQ(stand_in().count("update"), 1u);
  stand_in().takes_early_launches = false;
  bp_recording* const second = nodes.record(stream, capture, first);
  EXPECT_NE(second, first);
  EXPECT_EQ(stand_in().count("update"), 1u) << "CUDA was not asked";
  EXPECT_EQ(nodes.record(stream, capture, second), second);
  capture.release(device.raw(), first);
  capture.release(device.raw(), second);
}

TEST_F(CudaEarlyLaunch, EveryTextBeginsByWaiting) {
  const std::unique_ptr<Driver> driver = load_stand_in();
  const std::unique_ptr<Context> context = driver->open(0);
  const std::unique_ptr<Engine> engine = load_stand_in_engine();
  ModuleStore store(*context, engine->compiler(), "sm_90", "");
  EXPECT_TRUE(store.get("#define A(x) x\nKERNEL run(A(int) b,\n  int c)\n{\n}\n")->waits());
  EXPECT_EQ(compiled_sources().back(),
            "#define A(x) x\nKERNEL run(A(int) b,\n  int c)\n{ IN_TURN;\n}\n");
  store.get("#if B\nKERNEL run(int b) { c; }\n#else\nKERNEL run(int d) {}\n#endif");
  EXPECT_EQ(
      compiled_sources().back(),
      "#if B\nKERNEL run(int b) { IN_TURN; c; }\n#else\nKERNEL run(int d) { IN_TURN;}\n#endif");
  const std::size_t compiled = compiled_sources().size();
  for (const char* const text : {"", "void run(int b) {}", "KERNEL run(int b", "KERNEL run(int b);",
                                 "KERNEL run(int b) {}\nKERNEL run(int c) MORE {}"}) {
    try {
      store.get(text);
      ADD_FAILURE() << text;
    } catch (const sdk::Error& error) {
      EXPECT_EQ(error.code(), BP_INTERNAL);
    }
  }
  EXPECT_EQ(compiled_sources().size(), compiled);
  for (const char* const older : {"sm_86", "compute_89"})
    EXPECT_FALSE(
        ModuleStore(*context, engine->compiler(), older, "").get("KERNEL run(int b) {}")->waits());
  for (const char* const newer : {"compute_90", "sm_100", "compute_121"})
    EXPECT_TRUE(
        ModuleStore(*context, engine->compiler(), newer, "").get("KERNEL run(int b) {}")->waits());
}

}  // namespace
}  // namespace backplane::cuda
