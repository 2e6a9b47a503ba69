// The CPU provider's plugin: one device, the processor that the process runs on.
#include "backplane/plugin.hpp"

#include "plugins/cpu/dense/isa.hpp"
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
      {Option("isa", BP_OPTION_STRING, "auto", "auto|amx|avx512|avx2|baseline",
              "The highest instruction set that kernels may use; auto is the best one of the "
              "processor."),
       Option(
           "precision", BP_OPTION_STRING, "fp32", "fp32|bf16",
           "How MatMul, Gemm, convolutions and recurrent nodes of constant weights compute. bf16 "
           "rounds their operands to bfloat16 and sums in float where the processor has "
           "AVX512_BF16, in tiles where it has AMX; elsewhere it rounds weights alone, and not "
           "those of convolutions.")});
  // Part of what packed weights and saved plans are good for.
  provider.info().driver = backplane::cpu::isa_name(backplane::cpu::best_isa());
  plugin.vendor("Backplane");
  plugin.provider(provider.raw());
});
