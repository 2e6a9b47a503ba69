// A binding whose feeds and fetches a device works on where they lie: its runs allocate nothing. The fake device allocates
// for each piece of work; the OpenCL provider does not, and so it is what the core is looked at beside.
#include <algorithm>
#include <cstring>

#include <nlohmann/json.hpp>

#include "core/plugin_host/device.hpp"
#include "core/plugin_host/imported_memory.hpp"
#include "core/runtime/binding.hpp"
#include "core/runtime/download.hpp"
#include "tests/control_flow/counted_new.hpp"
#include "tests/faults/fault_test.hpp"

namespace backplane::core::faults {
namespace {

using Json = nlohmann::json;

class ViewAllocations : public FaultTest {};

/// y = tanh(-x) on the OpenCL device.
struct OnOpenCl {
  OnOpenCl() {
    ModelMaker maker;
    maker.input("x", dims).node("neg", "Neg", {"x"}, "a").node("tanh", "Tanh", {"a"}, "y");
    model = maker.output("y").bytes();
    SessionOptions options;
    options.providers = {{"opencl", {}}, {"cpu", {}}};
    session =
        std::make_shared<Session>(environment(), "", std::as_bytes(std::span(model)), options);
  }
  std::uint64_t bytes() const { return x.elements.size() * sizeof(float); }
  void write_x(Binding& binding) const {
    std::memcpy(binding.input("x")->description.host_ptr, x.elements.data(), bytes());
  }
  /// What is wrong with y, which lies on the host.
  std::string wrong(const RuntimeValue& y) const {
    const auto* first = static_cast<const float*>(y.description.host_ptr);
    return difference({{"y", {dims, {first, first + x.elements.size()}}}},
                      run_on_cpu(model, {{"x", x}}));
  }

  const Dims dims{64, 256};
  const Tensor x = random_tensor(dims, 3);
  std::string model;
  std::shared_ptr<Session> session;
};

TEST_F(ViewAllocations, ABindingThatKeepsItsViewsAllocatesNothing) {
  if (!has_device("opencl")) GTEST_SKIP() << "no OpenCL device is there";
  const OnOpenCl neg_tanh;
  Binding binding(neg_tanh.session);
  neg_tanh.write_x(binding);
  for (int i = 0; i < 3; ++i) binding.run(nullptr);
  if (Json::parse(neg_tanh.session->statistics())["views"] != 2)
    GTEST_SKIP() << "the OpenCL device has memory of its own";
  const std::uint64_t before = flow::allocation_count(), buffers = device_allocation_count();
  for (int i = 0; i < 100; ++i) binding.run(nullptr);
  EXPECT_EQ(flow::allocation_count() - before, 0u);
  EXPECT_EQ(device_allocation_count() - buffers, 0u);
  EXPECT_EQ(neg_tanh.wrong(*binding.output("y")), "");
}

/// A tensor over memory of the device that somebody else made: here the core, who does not know that it is its own.
RuntimeValuePtr lent(const DevicePtr& device, const DeviceBuffer& memory, const Dims& dims) {
  std::uint64_t number = 0;
  device->check(
      device->api().native(device->raw(), BP_NATIVE_BUFFER, nullptr, memory.raw(), &number),
      "its native handle");
  auto value = std::make_shared<RuntimeValue>();
  value->set_tensor(DataType::Float, dims);
  lay_over(*value, std::make_shared<ImportedMemory>(
                       device, ImportedMemory::Extent{number, 0, memory.bytes()}, nullptr));
  return value;
}

TEST_F(ViewAllocations, ABindingOverMemoryOfTheProgramsAllocatesNothing) {
  if (!has_device("opencl")) GTEST_SKIP() << "no OpenCL device is there";
  const OnOpenCl neg_tanh;
  const DevicePtr device = neg_tanh.session->devices().devices.front().device;
  const std::uint64_t bytes = neg_tanh.bytes();
  const DeviceBuffer from(device, BP_MEMORY_DEVICE, bytes, 1);
  const DeviceBuffer to[] = {{device, BP_MEMORY_DEVICE, bytes, 1},
                             {device, BP_MEMORY_DEVICE, bytes, 1}};
  {  // the program's own work: it makes x there
    Binding maker_of_x(neg_tanh.session);
    const RuntimeValuePtr there = lent(device, from, neg_tanh.dims);
    neg_tanh.write_x(maker_of_x);
    maker_of_x.bind_output("x", there, device);
    maker_of_x.run(nullptr);
  }
  const RuntimeValuePtr results[] = {lent(device, to[0], neg_tanh.dims),
                                     lent(device, to[1], neg_tanh.dims)};
  Binding binding(neg_tanh.session);
  binding.bind_input("x", lent(device, from, neg_tanh.dims), device);
  const auto run_over = [&](int runs) {
    for (int i = 0; i < runs; ++i) {
      if (i % 10 == 0) binding.bind_output("y", results[i / 10 % 2], device);
      binding.run(nullptr);
    }
  };
  run_over(30);
  EXPECT_EQ(Json::parse(neg_tanh.session->statistics())["copies"], 0);
  const std::uint64_t before = flow::allocation_count(), buffers = device_allocation_count();
  run_over(100);
  EXPECT_EQ(flow::allocation_count() - before, 0u);
  EXPECT_EQ(device_allocation_count() - buffers, 0u);
  EXPECT_EQ(neg_tanh.wrong(*download(*device, *results[1])), "");
}

}  // namespace
}  // namespace backplane::core::faults
