// L5: a cl_mem of the program's own is fed, and given as an output, in the order of the program's own queue.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/session/run/models.hpp"

namespace backplane::session_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Floats = std::vector<float>;
const std::vector<std::int64_t> kDims{64, 64};
constexpr std::size_t kBytes = 64 * 64 * sizeof(float);

/// The program's side: a context, a queue in order, memory.
class SessionMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    cl_platform_id platform = nullptr;
    cl_device_id device = nullptr;
    if (clGetPlatformIDs(1, &platform, nullptr) != CL_SUCCESS ||
        clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr) != CL_SUCCESS)
      GTEST_SKIP() << "no OpenCL device is there";
    context_ = clCreateContext(nullptr, 1, &device, nullptr, nullptr, nullptr);
    queue_ = clCreateCommandQueue(context_, device, 0, nullptr);
  }
  void TearDown() override {
    for (const cl_mem memory : memory_) clReleaseMemObject(memory);
    if (queue_ != nullptr) clReleaseCommandQueue(queue_);
    if (context_ != nullptr) clReleaseContext(context_);
  }

  cl_mem make_memory(std::size_t bytes = kBytes) {
    memory_.push_back(clCreateBuffer(context_, CL_MEM_READ_WRITE, bytes, nullptr, nullptr));
    return memory_.back();
  }
  /// Nobody waits for it: `elements` stay until it is done.
  void write(cl_mem memory, const Floats& elements, std::size_t offset = 0) {
    clEnqueueWriteBuffer(queue_, memory, CL_FALSE, offset, elements.size() * sizeof(float),
                         elements.data(), 0, nullptr, nullptr);
  }
  Floats read(cl_mem memory, std::size_t count = 64 * 64, std::size_t offset = 0) {
    Floats elements(count);
    clEnqueueReadBuffer(queue_, memory, CL_TRUE, offset, count * sizeof(float), elements.data(), 0,
                        nullptr, nullptr);
    return elements;
  }
  Options options(bool with_queue = true) const {
    const auto number = [](const void* handle) {
      return std::to_string(reinterpret_cast<std::uintptr_t>(handle));
    };
    Options options;
    options.AppendExecutionProvider("opencl:0",
                                    {{"cache_dir", "off"},
                                     {"user_context", number(context_)},
                                     {"user_queue", with_queue ? number(queue_) : "0"}});
    options.AppendExecutionProvider("cpu");
    return options;
  }
  static ModelMaker sum_and_product() {
    return ModelMaker()
        .input("a", {"n", 64})
        .input("b", {"n", 64})
        .output("y")
        .node("Add", {"a", "b"}, {"sum"})
        .node("MatMul", {"sum", "b"}, {"y"});
  }

  cl_context context_ = nullptr;
  cl_command_queue queue_ = nullptr;
  std::vector<cl_mem> memory_;
};

TEST_F(SessionMemory, L5TheQueueOrdersWhatTheProgramAndRunsDo) {
  TestSession session(sum_and_product(), options());
  const cl_mem a = make_memory(), b = make_memory(), y = make_memory(2 * kBytes);
  Value out = session->borrow_on("opencl", ElementType::Float, kDims, y, kBytes, kBytes);
  EXPECT_EQ(out.device(), "opencl:0");
  Binding binding(*session);
  binding.bind_input("a", session->borrow_on("opencl:0", ElementType::Float, kDims, a, 0, kBytes));
  binding.bind_input("b", session->borrow_on("opencl:0", ElementType::Float, kDims, b, 0, kBytes));
  binding.bind_output("y", out);
  RunOptions going_on;
  going_on.set("synchronize", "false");
  Floats identity(64 * 64);
  for (std::size_t i = 0; i < 64; ++i) identity[i * 65] = 1;
  write(b, identity);
  for (float i = 0; i < 10; ++i) {
    const Floats elements(64 * 64, i);
    write(a, elements);
    binding.run(going_on);
    const Floats got = read(y, 64 * 64, kBytes);  // the program's queue, and no other wait
    EXPECT_EQ(got[0], i + 1);
    EXPECT_EQ(got[1], i);
  }
  session->synchronize();
  EXPECT_THAT(session->statistics(), ContainsRegex("\"copies\": *0[^0-9]"));
  EXPECT_EQ(out.to_host().numbers()[65], 10);
}

TEST_F(SessionMemory, L5WithoutAQueueTheProgramWaitsAndRunsAreDoneWhenTheyReturn) {
  TestSession session(sum_and_product(), options(false));
  const cl_mem a = make_memory(), b = make_memory(), y = make_memory();
  Floats identity(64 * 64);
  for (std::size_t i = 0; i < 64; ++i) identity[i * 65] = 1;
  const Floats fives(64 * 64, 5);
  write(b, identity);
  write(a, fives);
  clFinish(queue_);
  std::vector<Value> results;
  results.push_back(session->borrow_on("opencl", ElementType::Float, kDims, y, 0, kBytes));
  const Value from = session->borrow_on("opencl", ElementType::Float, kDims, a, 0, kBytes);
  const Value by = session->borrow_on("opencl", ElementType::Float, kDims, b, 0, kBytes);
  session->run({{"a", from}, {"b", by}}, {"y"}, results);
  EXPECT_EQ(read(y)[0], 6);
  EXPECT_EQ(read(y)[1], 5);
}

TEST_F(SessionMemory, L5MemoryOfAnotherContextIsRefused) {
  TestSession session(sum_and_product(),
                      Options().AppendExecutionProvider("opencl", {{"cache_dir", "off"}}));
  const auto [code, message] = failure_of(
      [&] { session->borrow_on("opencl", ElementType::Float, kDims, make_memory(), 0, kBytes); });
  EXPECT_EQ(code, BACKPLANE_INVALID_ARGUMENT);
  EXPECT_THAT(message, HasSubstr("user_context"));
}

}  // namespace
}  // namespace backplane::session_test
