// Products by tiles on warpgroups: what the text computes on the processor (warpgroups.hpp), in all forms, and when it is proposed.
#include "plugins/cuda/tile_products.hpp"
#include "tests/cuda/host_kernels.hpp"
#include "tests/cuda/node_on_device.hpp"
#include "tests/cuda/product_case.hpp"
#include "tests/cuda/warpgroups.hpp"

namespace backplane::cuda {
namespace {

LibraryProduct library_form(const ProductCase& each) { return to_library(each.product(), 16); }

std::optional<TileProduct> tiled(const ProductCase& each) {
  return TileProduct::of(library_form(each), stand_in_device());
}

class CudaTileProduct : public CudaProcessTest {
 protected:
  /// By four forms each time, so that after some cases all have had their turn.
  void expect_right(Device& device, const ProductCase& each) {
    constexpr std::array<TileForm, 9> kWhole{{{64, 1, 1, 3},
                                              {192, 2, 1, 1},
                                              {64, 2, 1, 2},
                                              {128, 2, 2, 1},
                                              {64, 1, 1, 1},
                                              {256, 2, 1, 1},
                                              {128, 1, 1, 1},
                                              {64, 2, 1, 1},
                                              {128, 2, 1, 1}}};
    constexpr std::array<TileForm, 7> kInParts{{{64, 1, 1, 1, 8},
                                                {128, 2, 2, 1, 8},
                                                {192, 2, 1, 1, 2},
                                                {64, 2, 1, 1, 4},
                                                {256, 2, 1, 1, 4},
                                                {64, 1, 1, 3, 2},
                                                {128, 1, 1, 1, 8}}};
    ASSERT_TRUE(tiled(each)) << each.text();
    for (int i = 0; i < 2; ++i) {
      const TileForm form = kWhole[whole_++ % kWhole.size()];
      expect_product(device, each, to_algorithm(form), way_of(form), true);
    }
    TileForm form = kInParts[in_parts_++ % kInParts.size()];
    constexpr std::int64_t kStep = 64, kCut = 24;
    ProductCase deep = each;
    deep.depth = std::max(deep.depth, 2 * form.parts * kStep - kCut);
    ASSERT_TRUE(form.takes(tiled(deep)->sizes));
    for (form.direct = 0; form.direct < 2; ++form.direct)
      expect_product(device, deep, to_algorithm(form), way_of(form), true);
  }

 private:
  std::size_t whole_ = 0, in_parts_ = 0;
};

TEST_F(CudaTileProduct, EveryTypeOrderAndSizeIsRight) {
  run_kernels_on_host();
  const std::unique_ptr<Device> device = new_process();
  struct Size {
    std::int64_t rows, depth, columns, more;
  };
  for (const DataType type : {DataType::Float16, DataType::BFloat16}) {
    for (const bool is_apart : {false, true}) {
      for (const Size& size : {Size{1, 8, 8, 0}, Size{70, 72, 72, 0}, Size{131, 16, 64, 8}}) {
        ProductCase each;
        each.type = type;
        each.is_apart = is_apart;
        each.rows = size.rows;
        each.depth = size.depth;
        each.columns = size.columns;
        each.more = size.more;
        expect_right(*device, each);
      }
    }
  }
}

TEST_F(CudaTileProduct, GroupsGoOnFromTileToTileAndFromStageToStage) {
  run_kernels_on_host();
  const std::unique_ptr<Device> device = new_process();
  ProductCase each;
  each.rows = 260;
  each.columns = 200;
  each.depth = 136;
  each.has_addend = true;
  each.has_bias = true;
  for (const bool is_apart : {false, true}) {
    each.is_apart = is_apart;
    // Of 20 and of 6 tiles, on four multiprocessors.
    for (const TileForm form : {TileForm{64, 1, 1, 1}, TileForm{128, 2, 1, 1}})
      expect_product(*device, each, to_algorithm(form), way_of(form), true);
    each.has_addend = false;
  }
  each.rows = 100;
  each.columns = 24;
  each.depth = 1096;  // 18 steps, of which there is room for eight at most
  for (const TileForm form : {TileForm{64, 1, 1, 1}, TileForm{128, 2, 2, 1}})
    expect_product(*device, each, to_algorithm(form), way_of(form), true);
}

TEST_F(CudaTileProduct, WhatComesAfterTheSumIsDoneOfEveryMatrix) {
  run_kernels_on_host();
  const std::unique_ptr<Device> device = new_process();
  for (const Epilogue epilogue : {Epilogue::kNone, Epilogue::kRelu, Epilogue::kGelu}) {
    for (const bool has_bias : {false, true}) {
      for (const bool has_addend : {false, true}) {
        ProductCase each;
        each.type = has_bias ? DataType::BFloat16 : DataType::Float16;
        each.epilogue = epilogue;
        each.has_bias = has_bias;
        each.has_addend = has_addend;
        each.adds_in_place = has_addend && has_bias;
        each.factor = -0.5;
        each.addend_factor = 3;
        each.rows = 66;
        each.columns = 8;
        each.depth = 16;
        each.matrices = has_bias ? 1 : 3;
        expect_right(*device, each);
      }
    }
  }
}

TEST_F(CudaTileProduct, WhatIsStoredDirectlyEndsWithEveryMatrix) {
  run_kernels_on_host();
  const std::unique_ptr<Device> device = new_process();
  constexpr std::array<TileForm, 6> kDirect{{{64, 1, 1, 1, 8, 1},
                                             {128, 2, 2, 1, 2, 1},
                                             {192, 2, 1, 1, 4, 1},
                                             {64, 2, 1, 2, 2, 1},
                                             {256, 2, 1, 1, 8, 1},
                                             {64, 1, 1, 3, 4, 1}}};
  constexpr std::array<std::int64_t, 3> kColumns{66, 76, 134}, kRows{70, 131, 64};
  constexpr std::array<Epilogue, 3> kEpilogues{Epilogue::kGelu, Epilogue::kRelu, Epilogue::kNone};
  for (std::size_t i = 0; i < 2 * kDirect.size(); ++i) {
    const TileForm& form = kDirect[i % kDirect.size()];
    constexpr std::int64_t kTogether = 8, kStep = 64;
    ProductCase each;
    each.type = i % 4 < 2 ? DataType::Float16 : DataType::BFloat16;
    each.rows = kRows[i % kRows.size()];
    each.columns = kColumns[i / 2 % kColumns.size()];
    // Lines begin at multiples of 16 bytes and end at none.
    each.more = kTogether + (kTogether - each.columns % kTogether) % kTogether;
    each.bias_more = each.more;
    each.depth = 2 * form.parts * kStep - each.more;
    each.matrices = i % 2 == 0 ? 3 : 1;
    each.has_bias = i % 3 != 1;
    each.has_addend = i % 4 != 3;
    each.adds_in_place = i % 4 == 2 || i % 4 == 1;
    each.epilogue = kEpilogues[i / 2 % kEpilogues.size()];
    each.factor = -0.5;
    each.addend_factor = 3;
    ASSERT_TRUE(tiled(each)) << each.text();
    ASSERT_TRUE(form.takes(tiled(each)->sizes)) << each.text();
    expect_product(*device, each, to_algorithm(form), way_of(form), true);
  }
}

TEST_F(CudaTileProduct, WhatTheUnitsDoNotTakeIsTheLibrarys) {
  const ProductCase right;
  EXPECT_TRUE(tiled(right));
  const auto refused = [&](const std::function<void(ProductCase&)>& change) {
    ProductCase each = right;
    change(each);
    return !tiled(each);
  };
  EXPECT_TRUE(refused([](auto& p) { p.type = DataType::Float; }));
  EXPECT_TRUE(refused([](auto& p) { p.a_is_transposed = true; }));
  EXPECT_TRUE(refused([](auto& p) { p.depth = 63; }));
  EXPECT_TRUE(refused([](auto& p) { p.columns = 63; }));
  EXPECT_TRUE(refused([](auto& p) { p.more = 4; }));
  EXPECT_FALSE(TileProduct::of(to_library(right.product(), 2), stand_in_device()));
  for (const auto& [major, minor] : {std::pair(8, 0), std::pair(10, 0), std::pair(9, 1)})
    EXPECT_FALSE(TileProduct::of(library_form(right), stand_in_device(major, minor)));
  DeviceTraits old_driver = stand_in_device();
  old_driver.has_boxes = false;
  EXPECT_FALSE(TileProduct::of(library_form(right), old_driver));
}

TEST_F(CudaTileProduct, OnlyConstantWeightsComeBeforeTheTurn) {
  const std::unique_ptr<Device> device = new_process();
  const ProductCase each{.rows = 64, .depth = 128, .columns = 128};
  const std::unique_ptr<const PreparedProduct> prepared = device->products().library().prepare(
      to_library(each.product(), kLibraryAlignment), to_algorithm({64, 1, 1, 1}), 1, 0);
  std::vector<std::int32_t> told;
  stand_in().kernel = [&told](const std::string&, const Extent&, const Extent&, void** arguments) {
    // Behind four matrices, the bias and its place, twelve numbers, two factors and eleven numbers.
    constexpr std::size_t kPlace = 4 + 2 + 12 + 2 + 11;
    told.push_back(*static_cast<const std::int32_t*>(arguments[kPlace]));
  };
  const Elements a(each.type, 64 * 128, 0, 1), b(each.type, 128 * 128, 0, 2),
      y(each.type, 64 * 128, 0, 3);
  const StreamHandle stream = device->context().create_stream();
  PlainQueue queue(device->context(), stream);
  for (const bool is_constant : {true, false}) {
    ProductAddresses at{b.address(), a.address(), y.address(), y.address()};
    at.a_is_constant = is_constant;
    prepared->enqueue(queue, at);
  }
  device->context().destroy_stream(stream);
  EXPECT_EQ(told, (std::vector<std::int32_t>{1, 0}));
}

TEST_F(CudaTileProduct, BeforeTheTurnConstantWeightsAloneAreRead) {
  run_kernels_on_host();
  const std::unique_ptr<Device> device = new_process();
  const ProductCase each{.rows = 130, .depth = 1000, .columns = 72};
  const Elements a(each.type, 130 * 1000, 0, 1), b(each.type, 1000 * 72, 0, 2),
      y(each.type, 130 * 72, 0, 3);
  const StreamHandle stream = device->context().create_stream();
  PlainQueue queue(device->context(), stream);
  for (const TileForm form :
       {TileForm{64, 1, 1, 1}, TileForm{64, 1, 1, 1, 8}, TileForm{64, 1, 1, 1, 8, 1}}) {
    for (const bool is_constant : {true, false}) {
      GroupMemory::before_turn().clear();
      ProductAddresses at{b.address(), a.address(), y.address(), y.address()};
      at.a_is_constant = is_constant;
      device->products()
          .library()
          .prepare(library_form(each), to_algorithm(form), 1, 0)
          ->enqueue(queue, at);
      EXPECT_EQ(GroupMemory::before_turn(),
                is_constant ? std::set<Address>{b.address()} : std::set<Address>{});
      for (const std::int64_t i : {std::int64_t{0}, y.count() - 1}) {
        double sum = 0;
        for (std::int64_t k = 0; k < each.depth; ++k)
          sum += a.made(i / 72 * each.depth + k) * b.made(k * 72 + i % 72);
        EXPECT_NEAR(y.now(i), sum, 0.02) << way_of(form);
      }
    }
  }
  device->context().destroy_stream(stream);
}

TEST_F(CudaTileProduct, PartsOfTheDepthAreWholeStepsAndOneAtLeast) {
  const TileSizes sizes{128, 768, 15 * 64 + 8, 1};
  for (const TileForm& form : tile_forms(sizes, 132, 100)) EXPECT_LE(form.parts, 8);
  EXPECT_TRUE((TileForm{64, 1, 1, 1, 8}.takes(sizes)));
  EXPECT_FALSE((TileForm{64, 1, 1, 1, 8}.takes({128, 768, 15 * 64, 1})));
  EXPECT_TRUE((TileForm{64, 1, 1, 1, 1}.takes({128, 768, 8, 1})));
}

TEST_F(CudaTileProduct, TilesFillTheDevice) {
  const auto first = [](const TileSizes& sizes) { return tile_forms(sizes, 132, 1).front(); };
  // Those of an encoder: as few turns as can be, and as much as possible of what is read used often.
  EXPECT_EQ(first({1024, 3072, 768}), (TileForm{192, 2, 1, 1}));
  EXPECT_EQ(first({128, 3072, 768}), (TileForm{64, 1, 1, 1}));
  // Few tiles of a great depth: several multiprocessors have one together.
  EXPECT_GE(first({128, 768, 3072}).parts, 4);
  EXPECT_GE(first({1024, 768, 3072}).parts, 2);
  for (const TileForm& form : tile_forms({128, 768, 3072}, 3, 100)) EXPECT_LE(form.parts, 2);
  EXPECT_EQ(tile_forms({128, 768, 3072}, 1, 100).size(), 9u);
  const std::vector<TileForm> all = tile_forms({1024, 3072, 4096}, 132, 100);
  EXPECT_EQ(all.size(), 38u) << "nine forms in 1, 2, 4 and 8 parts, two of them also directly";
  for (const TileForm& form : all) {
    EXPECT_GE(form.stages(), 3) << way_of(form);
    EXPECT_LE((form.needs().local_bytes + 1024) * form.resident, 227u * 1024) << way_of(form);
    EXPECT_TRUE(form.needs().of_generation);
    EXPECT_EQ(TileForm::of(form.word()), form);
    EXPECT_EQ(form.result_rows() % 8, 0) << "lines of a swizzled box: " << way_of(form);
    // Where the stages were, the sums of a part have to have room, each line with the bytes that keep banks apart.
    EXPECT_GE(form.stages() * (form.rows() + form.columns) * 128,
              form.parts == 1 ? 0 : form.rows() * (form.columns * 4 + 32))
        << way_of(form);
  }
}

TEST_F(CudaTileProduct, FormsThatStoreDirectlyComeBehindTheSameThatDoNot) {
  // Few tiles of a great depth, whose likeliest forms are in parts: in the place of the two least likely ones.
  const std::vector<TileForm> deep = tile_forms({128, 768, 3072}, 132, kMostTileForms);
  ASSERT_EQ(deep.size(), kMostTileForms);
  for (const std::size_t i : {0, 1, 2, 3, 4}) EXPECT_EQ(deep[i].direct, i % 2) << i;
  for (const std::size_t i : {0, 2}) {
    TileForm twin = deep[i];
    twin.direct = 1;
    EXPECT_EQ(deep[i + 1], twin);
    EXPECT_NE(twin, deep[i]);
    EXPECT_NE(way_of(twin), way_of(deep[i]));
    EXPECT_NE(twin.word(), deep[i].word());
    EXPECT_EQ(TileForm::of(twin.word()), twin);
    // Nothing has to have room beside the stages.
    EXPECT_GE(twin.stages(), deep[i].stages());
    EXPECT_EQ(twin.needs().local_bytes, twin.stages() * (twin.rows() + twin.columns) * 128 + 1024);
  }
  // What is computed where nothing is compared is none of them, and whole tiles have no such form.
  for (const std::int64_t rows : {64, 128, 1024, 4096}) {
    for (const std::int64_t depth : {64, 768, 3072}) {
      const std::vector<TileForm> forms = tile_forms({rows, 768, depth}, 132, 100);
      for (std::size_t i = 0; i < forms.size(); ++i) {
        if (forms[i].direct == 0) continue;
        ASSERT_GT(i, 0u) << rows << " rows, " << depth;
        EXPECT_GT(forms[i].parts, 1);
        EXPECT_EQ(forms[i - 1].direct, 0);
      }
      EXPECT_LE(std::count_if(forms.begin(), forms.end(), [](auto& form) { return form.direct; }),
                2);
    }
  }
}

TEST_F(CudaTileProduct, TheLibrarysBestComesFirstWhereItHasOne) {
  const std::unique_ptr<Device> device = new_process();
  ProductLibrary& library = device->products().library();
  ProductCase each;
  each.rows = 1024;
  each.columns = each.depth = 768;
  const auto own_ways = [&] {
    std::vector<bool> found;
    for (const ProductAlgorithm& algorithm : library.propose(library_form(each), 1 << 20)) {
      ProductAlgorithm kept = algorithm;
      EXPECT_TRUE(library.serves(library_form(each), kept));
      found.push_back(library.own_way(algorithm).rfind("warpgroups, ", 0) == 0);
    }
    return found;
  };
  const std::vector<bool> beside = own_ways();
  ASSERT_GT(beside.size(), kMostTileForms);
  EXPECT_FALSE(beside[0]);
  EXPECT_EQ(std::count(beside.begin(), beside.end(), true), kMostTileForms);
  EXPECT_TRUE(beside[1]);
  stand_in().proposals.clear();
  EXPECT_EQ(own_ways(), std::vector<bool>(kMostTileForms, true));
  each.rows = 32;  // most of the device has nothing to do
  EXPECT_TRUE(own_ways().empty());
}

}  // namespace
}  // namespace backplane::cuda
