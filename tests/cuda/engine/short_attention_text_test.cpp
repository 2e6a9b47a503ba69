// NVRTC compiles the kernel for attention of few positions in each of its forms, which keep what they compute in registers and write whole
// rows: by default one text of each for one generation, and of one for three; with BACKPLANE_TEST_FULL all of them for three.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "plugins/cuda/engine/nvrtc.hpp"
#include "plugins/cuda/short_attention.hpp"
#include "tests/cuda/cuda_test.hpp"
#include "tests/cuda/engine/machine_code.hpp"

namespace backplane::cuda {
namespace {

struct ShortForm {
  std::int64_t width, columns;
  std::vector<std::int64_t> parts;  ///< of the first forms
};

/// 12 heads of 100 positions for a device that they do not fill.
std::vector<ShortAttention> forms_of(const ShortForm& each, sdk::DataType type, bool has_mask,
                                     bool is_causal) {
  Attention form;
  form.type = type;
  form.heads = form.groups = 12;
  form.rows = 100;
  form.columns = each.columns;
  form.width = form.value_width = each.width;
  form.q = form.k = form.v = form.y = {12 * 128 * each.width, each.width, 12 * each.width};
  form.has_mask = has_mask;
  form.is_causal = is_causal;
  DeviceTraits traits = stand_in_device();
  traits.multiprocessors = 132;
  return ShortAttention::forms(form, traits);
}

std::string text_of(const ShortAttention& how) {
  constexpr char kHead[] = "KERNEL run(";
  std::string source = how.source();
  source.insert(source.find(") {", source.find(kHead)) + 3, " IN_TURN;");  // as ModuleStore does
  return source;
}

void expect_good(const std::string& image, const ShortAttention& how) {
  constexpr std::int64_t kDepth = 16, kEights = 8;
  const std::vector<Instruction> code = instructions_of(image);
  ASSERT_FALSE(code.empty());
  const auto count = [&](const auto& is) { return std::count_if(code.begin(), code.end(), is); };
  EXPECT_EQ(count([](const Instruction& each) { return each.is_spilled(); }), 0);
  // Of scores, and of sums, by a warp's own keys.
  const std::int64_t keys = how.keys / how.parts;
  EXPECT_EQ(count([](const Instruction& each) { return each.multiplies_halves(); }),
            2 * (keys / kDepth) * (how.form.width / kEights));
  // 16 bytes at a time, where warps have put a row together.
  EXPECT_EQ(count([](const Instruction& each) { return each.stores_16(); }) > 0, how.parts > 1);
  const auto first = [&](const auto& is) { return std::find_if(code.begin(), code.end(), is); };
  const auto waits = first([](const Instruction& each) { return each.waits(); });
  EXPECT_TRUE(waits == code.end() ||
              waits < first([](const Instruction& each) { return each.is_global(); }));
}

/// Those that the compiler knows, or 9.0 alone.
std::vector<int> generations_of(Compiler& nvrtc, bool are_all) {
  const std::vector<int> known = nvrtc.architectures();
  std::vector<int> generations;
  for (const int each : {80, 90, 100}) {
    const bool is_known = std::count(known.begin(), known.end(), each) > 0;
    if (is_known && (are_all || each == 90)) generations.push_back(each);
  }
  return generations;
}

TEST(CudaShortAttentionText, EveryFormKeepsItsSumsInRegisters) {
  const std::unique_ptr<Compiler> nvrtc = open_nvrtc();
  const bool is_full = std::getenv("BACKPLANE_TEST_FULL") != nullptr;
  std::size_t number = 0;
  for (const ShortForm& each :
       {ShortForm{64, 128, {4, 2, 1}}, ShortForm{128, 100, {2, 1}}, ShortForm{16, 40, {2}}}) {
    for (std::size_t i = 0; i < each.parts.size(); ++i) {
      for (const unsigned kind : {0u, 1u, 2u, 3u}) {
        if (!is_full && kind != (number + i) % 4) continue;
        const std::vector<ShortAttention> forms =
            forms_of(each, kind % 2 == 0 ? sdk::DataType::Float16 : sdk::DataType::BFloat16,
                     kind % 3 == 0, kind > 1);
        ASSERT_GT(forms.size(), i);
        ASSERT_EQ(forms[i].parts, each.parts[i]);
        for (const int generation : generations_of(*nvrtc, is_full || (number == 0 && i == 0))) {
          SCOPED_TRACE(sdk::message("heads of ", each.width, forms[i].words(), ", sm_", generation,
                                    ", kind ", kind));
          expect_good(nvrtc->compile(text_of(forms[i]), sdk::message("sm_", generation)), forms[i]);
        }
      }
    }
    ++number;
  }
}

}  // namespace
}  // namespace backplane::cuda
