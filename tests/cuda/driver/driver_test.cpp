// What the provider asks of the driver's library, on one that keeps books: contexts, captures of others, failures.
#include <gtest/gtest.h>

#include "plugins/cuda/driver_library.hpp"
#include "tests/cuda/driver/scripted.hpp"

namespace backplane::cuda {
namespace {

class DriverLibrary : public testing::Test {
 protected:
  DriverLibrary() { script() = Script(); }
  ~DriverLibrary() override {
    EXPECT_EQ(script().pools + script().streams, 0);
    EXPECT_EQ(script().current, nullptr) << "the thread is the caller's";
  }
};

bp_code code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const sdk::Error& error) {
    return error.code();
  }
  return BP_OK;
}

TEST_F(DriverLibrary, ADriverThatIsTooOldIsAskedForItsVersionAlone) {
  script().version = 11040;
  EXPECT_EQ(code_of([] { load_driver(); }), BP_UNSUPPORTED);
  EXPECT_EQ(script().calls, (std::vector<std::string>{"cuDriverGetVersion"}));
}

TEST_F(DriverLibrary, APrimaryContextStaysWhenNobodyHasItOpen) {
  const std::unique_ptr<Driver> driver = load_driver();
  for (int i = 0; i < 3; ++i) {
    const std::unique_ptr<Context> one = driver->open(0), two = driver->open(0);
    EXPECT_EQ(one->native(), two->native());
  }
  EXPECT_EQ(script().count("cuDevicePrimaryCtxRetain"), 1u);
  EXPECT_EQ(script().resets, 0);
}

TEST_F(DriverLibrary, APrimaryContextThatIsLostIsResetWhenTheLastOneCloses) {
  const std::unique_ptr<Driver> driver = load_driver();
  std::unique_ptr<Context> one = driver->open(0), two = driver->open(0);
  const StreamHandle stream = one->create_stream();
  script().is_lost = true;
  EXPECT_EQ(code_of([&] { one->synchronize(stream); }), BP_DEVICE_LOST);
  one->destroy_stream(stream);
  one.reset();
  EXPECT_EQ(script().resets, 0) << "somebody still has it open";
  EXPECT_EQ(code_of([&] { driver->open(0); }), BP_DEVICE_LOST);
  two.reset();
  EXPECT_EQ(script().resets, 1);
  script().pools = script().streams = 0;  // they went with the context
  driver->open(0)->destroy_stream(driver->open(0)->create_stream());
  EXPECT_EQ(script().references, 1);
}

TEST_F(DriverLibrary, ALossThatOnlyTheClosingMeetsResetsTheContextToo) {
  const std::unique_ptr<Driver> driver = load_driver();
  std::unique_ptr<Context> context = driver->open(0);
  script().is_lost = true;
  context.reset();
  EXPECT_EQ(script().resets, 1);
  script().pools = script().streams = 0;
}

TEST_F(DriverLibrary, ADeviceThatMakesNoPoolAllocatesWithoutOne) {
  const std::unique_ptr<Driver> driver = load_driver();
  script().failures["cuMemPoolCreate"] = {CUDA_ERROR_NOT_SUPPORTED};
  {
    const std::unique_ptr<Context> context = driver->open(0);
    context->free(context->allocate(64));
    context->trim();
  }
  EXPECT_EQ(script().count("cuMemAlloc"), 1u);
  EXPECT_EQ(script().count("cuMemFree"), 1u);
  EXPECT_EQ(script().count("cuMemAllocFromPoolAsync"), 0u);
  for (const auto& [failure, code] : {std::pair(CUDA_ERROR_OUT_OF_MEMORY, BP_OUT_OF_MEMORY),
                                      std::pair(CUDA_ERROR_ILLEGAL_ADDRESS, BP_DEVICE_LOST)}) {
    script().failures["cuMemPoolCreate"] = {failure};
    EXPECT_EQ(code_of([&] { driver->open(0); }), code);
  }
}

TEST_F(DriverLibrary, AGraphThatDoesNotBecomeAnotherIsMadeAnewWhateverTheReason) {
  const std::unique_ptr<Driver> driver = load_driver();
  const std::unique_ptr<Context> context = driver->open(0);
  EXPECT_TRUE(context->update(nullptr, nullptr));
  for (const CUresult code : {CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, CUDA_ERROR_INVALID_VALUE,
                              CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY}) {
    script().failures["cuGraphExecUpdate"] = {code};
    EXPECT_FALSE(context->update(nullptr, nullptr)) << code;
  }
  script().failures["cuGraphExecUpdate"] = {CUDA_ERROR_ILLEGAL_ADDRESS};
  EXPECT_EQ(code_of([&] { context->update(nullptr, nullptr); }), BP_DEVICE_LOST);
}

TEST_F(DriverLibrary, AnEarlyLaunchCarriesItsAttributeAndThePlainOneIsAsEver) {
  const std::unique_ptr<Driver> driver = load_driver();
  const std::unique_ptr<Context> context = driver->open(0);
  const StreamHandle stream = context->create_stream();
  EXPECT_TRUE(context->launch_early(nullptr, {5, 6, 7}, {8, 9, 10}, 11, stream, nullptr));
  EXPECT_EQ(script().early, std::vector<bool>{true});
  const CUlaunchConfig& launched = script().launched;
  EXPECT_EQ((std::vector<unsigned>{launched.gridDimX, launched.gridDimY, launched.gridDimZ,
                                   launched.blockDimX, launched.blockDimY, launched.blockDimZ,
                                   launched.sharedMemBytes}),
            (std::vector<unsigned>{5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(launched.hStream, stream);
  EXPECT_EQ(script().count("cuLaunchKernel"), 0u);
  context->launch(nullptr, {1, 1, 1}, {1, 1, 1}, 0, stream, nullptr);
  EXPECT_EQ(script().count("cuLaunchKernel"), 1u);
  EXPECT_EQ(script().early.size(), 1u);
  context->destroy_stream(stream);
}

TEST_F(DriverLibrary, AKernelGetsTheLocalMemoryThatItNeedsBesideItsText) {
  const std::unique_ptr<Driver> driver = load_driver();
  const std::unique_ptr<Context> context = driver->open(0);
  const ModuleHandle module = context->load("image");
  context->function(module, 0);
  EXPECT_EQ(script().count("cuFuncSetAttribute"), 0u);
  context->function(module, 200000);
  EXPECT_EQ(script().local_bytes, 200000);
  context->unload(module);
}

TEST_F(DriverLibrary, MatricesAreDescribedForCopiesOfBoxes) {
  const std::unique_ptr<Driver> driver = load_driver();
  const std::unique_ptr<Context> context = driver->open(0);
  BoxedMatrices matrices{0x1000, sdk::DataType::BFloat16, 100, 30, 5, 104, 4160, 64};
  EXPECT_EQ(context->describe(matrices).words[0], 77u);
  EXPECT_EQ(script().boxes,
            (std::vector<cuuint64_t>{CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, 0x1000, 100, 30, 5, 208,
                                     8320, 64, 64, 1, 1, 1, 1, CU_TENSOR_MAP_SWIZZLE_128B,
                                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE}));
  matrices.type = sdk::DataType::Float16;
  context->describe(matrices);
  EXPECT_EQ(script().boxes[0], CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
  script().failures["cuTensorMapEncodeTiled"] = {CUDA_ERROR_INVALID_VALUE};
  EXPECT_EQ(code_of([&] { context->describe(matrices); }), BP_INTERNAL);
}

TEST_F(DriverLibrary, PixelsAreDescribedForCopiesOfWindows) {
  const std::unique_ptr<Driver> driver = load_driver();
  const std::unique_ptr<Context> context = driver->open(0);
  const BoxedPixels pixels{
      0x1000, sdk::DataType::Float16, 64, 30, 20, 3, {-1, -2}, {-3, -4}, {2, 3}, 128};
  EXPECT_EQ(context->describe_pixels(pixels).words[0], 78u);
  EXPECT_EQ(script().boxes, (std::vector<cuuint64_t>{CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                                                     4,
                                                     0x1000,
                                                     64,
                                                     30,
                                                     20,
                                                     3,
                                                     128,
                                                     3840,
                                                     76800,
                                                     1,
                                                     2,
                                                     3,
                                                     4,
                                                     64,
                                                     128,
                                                     1,
                                                     2,
                                                     3,
                                                     1,
                                                     CU_TENSOR_MAP_SWIZZLE_128B,
                                                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE}));
  script().failures["cuTensorMapEncodeIm2col"] = {CUDA_ERROR_INVALID_VALUE};
  EXPECT_EQ(code_of([&] { context->describe_pixels(pixels); }), BP_INTERNAL);
}

TEST_F(DriverLibrary, AnEarlyLaunchThatIsRefusedIsNoErrorUnlessThePlainOneWouldMeetItToo) {
  const std::unique_ptr<Driver> driver = load_driver();
  const std::unique_ptr<Context> context = driver->open(0);
  const auto launch = [&] {
    return context->launch_early(nullptr, {1, 1, 1}, {1, 1, 1}, 0, nullptr, nullptr);
  };
  for (const CUresult code : {CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_INVALID_VALUE,
                              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED}) {
    script().failures["cuLaunchKernelEx"] = {code};
    EXPECT_FALSE(launch()) << code;
  }
  for (const auto& [failure, code] : {std::pair(CUDA_ERROR_OUT_OF_MEMORY, BP_OUT_OF_MEMORY),
                                      std::pair(CUDA_ERROR_ILLEGAL_ADDRESS, BP_DEVICE_LOST)}) {
    script().failures["cuLaunchKernelEx"] = {failure};
    EXPECT_EQ(code_of(launch), code);
  }
}

TEST_F(DriverLibrary, EarlyLaunchesAreForDevicesFrom90OnAndDriversWhoseGraphsKnowThem) {
  const auto has = [](int version, int major) {
    script().version = version;
    script().major = major;
    return load_driver()->traits(0).has_early_launches;
  };
  constexpr int kBuilt = CUDA_VERSION / 1000 * 1000, kFirst = 12030;
  EXPECT_TRUE(has(CUDA_VERSION, 9));
  EXPECT_TRUE(has(CUDA_VERSION, 12));
  EXPECT_FALSE(has(CUDA_VERSION, 8));
  // Of an older major version nothing but its version is asked.
  for (const int minor : {0, 20, 30}) EXPECT_EQ(has(kBuilt + minor, 9), kBuilt + minor >= kFirst);
}

/// Everything that is no work on a stream, once.
void do_all_that_is_unsafe(Driver& driver) {
  const std::unique_ptr<Context> context = driver.open(0);
  context->free(context->allocate(64));
  context->trim();
  context->free_pinned(context->allocate_pinned(64));
  const StreamHandle stream = context->create_stream();
  context->synchronize(stream);
  const EventHandle event = context->create_event(), timer = context->create_timer();
  context->is_done(event);
  context->synchronize(event);
  context->nanoseconds_between(timer, timer);
  context->destroy_event(event);
  context->destroy_event(timer);
  const ModuleHandle module = context->load("image");
  context->function(module, 0);
  context->unload(module);
  const GraphExecHandle exec = context->instantiate(nullptr);
  context->update(exec, nullptr);
  context->destroy_exec(exec);
  context->destroy_graph(nullptr);
  context->destroy_stream(stream);
}

TEST_F(DriverLibrary, ACaptureOfAnotherThreadIsNeitherSpoiledNorInTheWay) {
  const std::unique_ptr<Driver> driver = load_driver();
  script().is_captured_elsewhere = true;
  do_all_that_is_unsafe(*driver);
  {
    const std::unique_ptr<Context> context = driver->open(0);
    const EnteredContext entered(*context);
    EXPECT_EQ(script().mode, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) << "for libraries, too";
  }
  EXPECT_EQ(script().spoilers, std::vector<std::string>());
  EXPECT_EQ(script().mode, CU_STREAM_CAPTURE_MODE_GLOBAL) << "the thread is the caller's";
}

TEST_F(DriverLibrary, ACaptureOfThisThreadForbidsWhatItAlwaysForbids) {
  const std::unique_ptr<Driver> driver = load_driver();
  const std::unique_ptr<Context> context = driver->open(0);
  const Address freed_meanwhile = context->allocate(64);
  void* const pinned = context->allocate_pinned(64);
  context->begin_capture(nullptr);
  EXPECT_EQ(code_of([&] { context->allocate_pinned(64); }), BP_UNSUPPORTED);
  EXPECT_EQ(code_of([&] { context->load("image"); }), BP_UNSUPPORTED);
  script().spoilers.clear();
  context->free_pinned(pinned);
  context->free(freed_meanwhile);
  EXPECT_EQ(script().spoilers, std::vector<std::string>())
      << "what is freed is in no graph, and lost if it is not freed";
  context->destroy_graph(context->end_capture(nullptr));
}

TEST_F(DriverLibrary, AProgramThatAllowsItsThreadEverythingIsNotHeldToLess) {
  const std::unique_ptr<Driver> driver = load_driver();
  script().mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  script().is_captured_here = true;
  do_all_that_is_unsafe(*driver);
  {
    const std::unique_ptr<Context> context = driver->open(0);
    const EnteredContext entered(*context);
    EXPECT_EQ(script().mode, CU_STREAM_CAPTURE_MODE_RELAXED);
  }
  EXPECT_EQ(script().spoilers, std::vector<std::string>());
  EXPECT_EQ(script().mode, CU_STREAM_CAPTURE_MODE_RELAXED);
}

TEST_F(DriverLibrary, WorkOnAStreamChangesNothingOfTheThread) {
  const std::unique_ptr<Driver> driver = load_driver();
  const std::unique_ptr<Context> context = driver->open(0);
  const EnteredContext entered(*context);
  script().calls.clear();
  context->launch(nullptr, {1, 1, 1}, {1, 1, 1}, 0, nullptr, nullptr);
  context->launch_early(nullptr, {1, 1, 1}, {1, 1, 1}, 0, nullptr, nullptr);
  context->copy(nullptr, 0, 0, 1);
  context->record(nullptr, nullptr);
  context->wait(nullptr, nullptr);
  EXPECT_EQ(script().count("cuThreadExchangeStreamCaptureMode"), 0u)
      << "it is called for each kernel";
}

}  // namespace
}  // namespace backplane::cuda
