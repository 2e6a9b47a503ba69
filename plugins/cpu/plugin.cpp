// The CPU provider's plugin: one device, the processor that the process runs on.
#include "backplane/plugin.hpp"

#include "plugins/cpu/device.hpp"

BP_PLUGIN("cpu", "0.1.0", [](backplane::sdk::Plugin& plugin) {
  using backplane::cpu::CpuDevice;
  using backplane::sdk::HostProvider;
  using backplane::sdk::Option;
  static const std::string name = backplane::cpu::processor_name();
  // The score 1 makes it the last resort among devices; somebody has to take what no other one takes.
  static HostProvider<CpuDevice> provider(
      {.name = "cpu",
       .version = "0.1.0",
       .device_name = name.c_str(),
       .score = 1,
       .extra_flags = BP_DEVICE_HOST_EVALUATOR},
      {Option("isa", BP_OPTION_STRING, "auto", "auto|avx512|avx2|baseline",
              "The highest instruction set that kernels may use; auto is the best one of the "
              "processor.")});
  plugin.vendor("Backplane");
  plugin.provider(provider.raw());
});
