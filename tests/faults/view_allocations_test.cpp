// A binding whose feeds and fetches a device works on where they lie: its runs allocate nothing. The fake device allocates
// for each piece of work; the OpenCL provider does not, and so it is what the core is looked at beside.
#include <algorithm>
#include <cstring>

#include <nlohmann/json.hpp>

#include "core/plugin_host/device.hpp"
#include "core/runtime/binding.hpp"
#include "tests/control_flow/counted_new.hpp"
#include "tests/faults/fault_test.hpp"

namespace backplane::core::faults {
namespace {

using Json = nlohmann::json;

class ViewAllocations : public FaultTest {
 protected:
  static bool has_opencl() {
    const std::vector<PluginRow> rows = environment()->plugins().rows();
    return std::any_of(rows.begin(), rows.end(), [](const PluginRow& row) {
      return row.provider == "opencl" && !row.devices.empty();
    });
  }
};

TEST_F(ViewAllocations, ABindingThatKeepsItsViewsAllocatesNothing) {
  if (!has_opencl()) GTEST_SKIP() << "no OpenCL device is there";
  const Dims dims{64, 256};
  ModelMaker maker;
  maker.input("x", dims).node("neg", "Neg", {"x"}, "a").node("tanh", "Tanh", {"a"}, "y");
  const std::string model = maker.output("y").bytes();
  SessionOptions options;
  options.providers = {{"opencl", {}}, {"cpu", {}}};
  const auto session =
      std::make_shared<Session>(environment(), "", std::as_bytes(std::span(model)), options);
  const Tensor x = random_tensor(dims, 3);
  Binding binding(session);
  std::memcpy(binding.input("x")->description.host_ptr, x.elements.data(),
              x.elements.size() * sizeof(float));
  for (int i = 0; i < 3; ++i) binding.run(nullptr);
  if (Json::parse(session->statistics())["views"] != 2)
    GTEST_SKIP() << "the OpenCL device has memory of its own";
  const std::uint64_t before = flow::allocation_count(), buffers = device_allocation_count();
  for (int i = 0; i < 100; ++i) binding.run(nullptr);
  EXPECT_EQ(flow::allocation_count() - before, 0u);
  EXPECT_EQ(device_allocation_count() - buffers, 0u);
  const auto* first = static_cast<const float*>(binding.output("y")->description.host_ptr);
  EXPECT_EQ(difference({{"y", {dims, {first, first + x.elements.size()}}}},
                       run_on_cpu(model, {{"x", x}})),
            "");
}

}  // namespace
}  // namespace backplane::core::faults
