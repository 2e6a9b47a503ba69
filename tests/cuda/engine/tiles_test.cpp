// NVRTC compiles the products by tiles for compute capability 9.0, whose instructions they are made of: by default every form without parts
// and with the most, each of one kind of matrices; with BACKPLANE_TEST_FULL all forms of all.
#include <algorithm>
#include <cstdlib>

#include "plugins/cuda/engine/nvrtc.hpp"
#include "plugins/cuda/tile_form.hpp"
#include "tests/cuda/cuda_test.hpp"
#include "tests/cuda/engine/machine_code.hpp"

namespace backplane::cuda {
namespace {

TEST(CudaTileText, EveryFormKeepsItsSumsInRegistersAndWaitsForItsTurn) {
  const std::unique_ptr<Compiler> nvrtc = open_nvrtc();
  constexpr std::size_t kAll = 100;
  std::vector<TileForm> forms = tile_forms({4096, 4096, 4096, 1}, 132, kAll);
  std::erase_if(forms, [](const TileForm& form) { return form.direct > 0; });
  for (std::size_t i = 0, count = forms.size(); i < count; ++i) {
    TileForm direct = forms[i];
    direct.direct = 1;
    if (direct.parts > 1) forms.push_back(direct);
  }
  const sdk::DataType half = sdk::DataType::Float16, bfloat = sdk::DataType::BFloat16;
  const std::vector<TileText> texts{{half, false, false, Epilogue::kGelu},
                                    {half, true, true, Epilogue::kRelu, true},
                                    {bfloat, true, false, Epilogue::kGelu}};
  for (std::size_t i = 0; i < forms.size(); ++i) {
    for (std::size_t j = 0; j < texts.size(); ++j) {
      constexpr std::int64_t kMostParts = 8;
      const bool is_some =
          i % texts.size() == j && (forms[i].parts == 1 || forms[i].parts == kMostParts);
      if (std::getenv("BACKPLANE_TEST_FULL") == nullptr && !is_some) continue;
      const std::string which = sdk::message(way_of(forms[i]), ", text ", j);
      std::string source = forms[i].source(texts[j]);
      const std::string head = ") {\n  AT(bias);";
      const std::size_t begin = source.find(head);
      ASSERT_NE(begin, std::string::npos) << which;
      source.insert(begin + 3, " IN_TURN;");  // as ModuleStore does
      const std::vector<Instruction> code = instructions_of(nvrtc->compile(source, "sm_90a"));
      ASSERT_FALSE(code.empty()) << which;
      EXPECT_EQ(std::count_if(code.begin(), code.end(),
                              [](const Instruction& each) { return each.is_spilled(); }),
                0)
          << which;
      const auto waits = std::find_if(code.begin(), code.end(),
                                      [](const Instruction& each) { return each.waits(); });
      const auto comes = std::find_if(code.begin(), code.end(),
                                      [](const Instruction& each) { return each.is_global(); });
      EXPECT_LT(waits, comes) << which;
    }
  }
}

}  // namespace
}  // namespace backplane::cuda
