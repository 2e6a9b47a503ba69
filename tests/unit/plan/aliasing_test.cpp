// Which values share memory, on plans made by hand: in place, views, inputs inside outputs, and what is denied.
#include <algorithm>
#include <gtest/gtest.h>
#include <optional>
#include <utility>
#include <vector>

#include "tests/unit/plan/hand_made_plan.hpp"

namespace backplane::core {
namespace {

// In place

/// y = f(x) with the wish to be in place.
struct Unary {
  Plan plan;
  int x, y;
  explicit Unary(const Dims& in = {4, 4}, const Dims& out = {4, 4})
      : x(plan.make(in)), y(plan.make(out, {x})) {
    plan.last().outputs[0].in_place_of = 0;
  }
};

TEST(InPlace, OverAnInputThatNobodyNeedsAnyMore) {
  Unary unary;
  unary.plan.read(unary.y);
  EXPECT_TRUE(unary.plan.find().share(unary.x, unary.y));
  EXPECT_EQ(unary.plan.storage(unary.y).first, 0);
  EXPECT_EQ(unary.plan.storage(unary.y).last, 2);
}

TEST(InPlace, AChainIsOneStorage) {
  Unary unary;
  const int z = unary.plan.make({4, 4}, {unary.y});
  unary.plan.last().outputs[0].in_place_of = 0;
  EXPECT_TRUE(unary.plan.find().share(unary.x, z));
}

// Otherwise a chain would take memory by the square of its length.
TEST(InPlace, AWriterWaitsForTheReadersOfWhatTheLastOneMade) {
  Plan plan;
  int last = plan.make({4});
  std::vector<std::pair<int, int>> wanted;
  for (int i = 0; i < 3; ++i) {
    plan.read(last);
    last = plan.make({4}, {last});
    plan.last().outputs[0].in_place_of = 0;
    wanted.emplace_back(2 * i + 1, 2 * i + 2);
  }
  EXPECT_EQ(plan.find().aliases().orders, wanted);
}

TEST(InPlace, AWriterWaitsForTheReadersOfWhatLiesInItsInput) {
  Plan plan;
  const int a = plan.make({4});
  plan.read(a);
  const int b = plan.make({4}, {a});
  plan.last().outputs[0].in_place_of = 0;
  plan.read(b);
  const int joined = plan.make({8}, {b});
  plan.last().insides.push_back({0, 0, 16, std::nullopt});
  plan.make({8}, {joined});
  plan.last().outputs[0].in_place_of = 0;
  const std::vector<std::pair<int, int>>& orders = plan.find().aliases().orders;
  ASSERT_TRUE(plan.is_inside(4, 0));
  EXPECT_EQ(std::count(orders.begin(), orders.end(), std::pair(3, 5)), 1);
}

TEST(InPlace, DeniedWhereTheInputIsReadLater) {
  Unary unary;
  unary.plan.read(unary.x);
  EXPECT_FALSE(unary.plan.find().share(unary.x, unary.y));
}

TEST(InPlace, DeniedWhereTheInputOutlivesTheSegment) {
  Unary unary;
  unary.plan.keep(unary.x);
  EXPECT_FALSE(unary.plan.find().share(unary.x, unary.y));
}

TEST(InPlace, DeniedForOtherSizes) {
  Unary unary({4, 4}, {4, 1});
  EXPECT_FALSE(unary.plan.find().share(unary.x, unary.y));
}

TEST(InPlace, DeniedForWhatIsNotTheSegments) {
  for (const Place place : {Place::Incoming, Place::Weight, Place::Fetch}) {
    Plan plan;
    const int x = plan.slot({4}, place);
    const int y = plan.make({4}, {x});
    plan.last().outputs[0].in_place_of = 0;
    EXPECT_FALSE(plan.find().share(x, y)) << static_cast<int>(place);
  }
}

TEST(InPlace, DeniedWhereAnotherInputLiesInTheSameMemory) {
  Plan plan;
  const int x = plan.make({4, 4});
  const int view = plan.make({16}, {x});
  plan.last().outputs[0].view_of = 0;
  const int y = plan.make({4, 4}, {x, view});
  plan.last().outputs[0].in_place_of = 0;
  plan.find();
  EXPECT_TRUE(plan.share(x, view));
  EXPECT_FALSE(plan.share(x, y));
}

TEST(InPlace, TwoOutputsDoNotTakeOneInput) {
  Plan plan;
  const int x = plan.make({4});
  const int a = plan.slot({4}), b = plan.slot({4});
  plan.step({x}, {a, b});
  plan.last().outputs[0].in_place_of = 0;
  plan.last().outputs[1].in_place_of = 0;
  plan.find();
  EXPECT_FALSE(plan.share(a, b));
  EXPECT_TRUE(plan.share(a, x) != plan.share(b, x));
}

// Views

struct View {
  Plan plan;
  int x, y, step = 1;
  explicit View(const Dims& dims = {2, 8}, Place place = Place::Arena)
      : x(place == Place::Arena ? plan.make({4, 4}) : plan.slot({4, 4}, place)),
        y(plan.make(dims, {x})) {
    step = place == Place::Arena ? 1 : 0;
    plan.last().outputs[0].view_of = 0;
  }
};

TEST(Views, ADenseOneTakesNoMemoryAndIsNotComputed) {
  View view;
  view.plan.read(view.y);
  view.plan.find();
  EXPECT_TRUE(view.plan.share(view.x, view.y));
  EXPECT_TRUE(view.plan.dropped(view.step));
  EXPECT_FALSE(view.plan[view.y].strides);
  EXPECT_EQ(view.plan.storage(view.x).last, 2) << "a reader of the view keeps the memory";
}

TEST(Views, BeginWhereTheySay) {
  View view({4});
  view.plan.last().outputs[0].view_offset = 32;
  view.plan.find();
  EXPECT_EQ(view.plan[view.y].offset, 32u);
  EXPECT_EQ(view.plan[view.x].offset, 0u);
}

TEST(Views, OfWhatComesFromOutsideOrIsConstant) {
  for (const Place place : {Place::Incoming, Place::Weight}) {
    View view({16}, place);
    EXPECT_TRUE(view.plan.find().dropped(view.step)) << static_cast<int>(place);
    EXPECT_EQ(view.plan[view.y].place, place);
  }
}

TEST(Views, DeniedWhereTheViewOutlivesWhatIsOutside) {
  View view({16}, Place::Incoming);
  view.plan.keep(view.y);
  EXPECT_FALSE(view.plan.find().dropped(view.step));
}

/// Who takes it afterwards knows of no strides.
TEST(Views, StridedOnesAreDeniedWhereTheyOutliveTheSegment) {
  for (const bool is_strided : {false, true}) {
    View view({4, 2});
    view.plan.last().outputs[0].view_strides = is_strided ? Dims{4, 1} : Dims{2, 1};
    view.plan.keep(view.y);
    view.plan.find();
    EXPECT_EQ(view.plan.dropped(view.step), !is_strided);
    EXPECT_FALSE(view.plan[view.y].strides);
  }
}

TEST(Views, StridedOnesNeedReadersThatTakeStrides) {
  for (const bool takes : {false, true}) {
    View view({4, 2});
    view.plan.last().outputs[0].view_strides = Dims{4, 1};
    view.plan.read(view.y);
    view.plan.last().inputs[0].may_be_strided = takes;
    view.plan.find();
    EXPECT_EQ(view.plan.dropped(view.step), takes);
    EXPECT_EQ(view.plan[view.y].strides.has_value(), takes);
  }
}

TEST(Views, StridesThatAreDenseAreNone) {
  View view({4, 4});
  view.plan.last().outputs[0].view_strides = Dims{4, 1};
  view.plan.read(view.y);
  view.plan.find();
  EXPECT_TRUE(view.plan.dropped(view.step));
  EXPECT_FALSE(view.plan[view.y].strides);
}

TEST(Views, DeniedOfPrivateFormats) {
  View view;
  ValueState formatted = *view.plan[view.x].state;
  formatted.format = 3;
  view.plan[view.x].state = formatted;
  EXPECT_FALSE(view.plan.find().dropped(view.step));
}

TEST(Views, AStepWithOneOutputThatIsNoneIsComputed) {
  Plan plan;
  const int x = plan.make({4});
  const int a = plan.slot({4}), b = plan.slot({4});
  const int step = plan.step({x}, {a, b});
  plan.last().outputs[0].view_of = 0;
  plan.find();
  EXPECT_FALSE(plan.dropped(step));
  EXPECT_FALSE(plan.share(x, a));
}

// Inside

/// y = Concat(a, b) along an axis, with the wishes a Concat has.
struct Concat {
  Plan plan;
  int a, b, y, step;
  Concat(const Dims& a_dims, const Dims& b_dims, std::size_t axis, bool strided_makers = false) {
    a = plan.make(a_dims);
    plan.last().outputs[0].may_be_strided = strided_makers;
    b = plan.make(b_dims);
    plan.last().outputs[0].may_be_strided = strided_makers;
    Dims dims = a_dims;
    dims[axis] += b_dims[axis];
    y = plan.make(dims, {a, b});
    step = 2;
    wish(plan, {a, b}, y, axis);
  }
  static void wish(Plan& plan, const std::vector<int>& inputs, int output, std::size_t axis) {
    const Dims dims = plan[output].state->dims;
    Dims strides(dims.size(), 1);
    for (std::size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
    std::uint64_t offset = 0;
    for (std::uint32_t i = 0; i < inputs.size(); ++i) {
      plan.last().insides.push_back({i, 0, offset, strides});
      offset += static_cast<std::uint64_t>(plan[inputs[i]].state->dims[axis] * strides[axis]) *
                sizeof(float);
    }
  }
  bool granted(std::size_t input) {
    return plan.is_inside(step, input) && plan.share(input == 0 ? a : b, y);
  }
};

TEST(Inside, DenseBlocksAreMadeInTheOutput) {
  Concat concat({2, 4}, {3, 4}, 0);
  concat.plan.read(concat.y);
  concat.plan.find();
  EXPECT_TRUE(concat.granted(0) && concat.granted(1));
  EXPECT_EQ(concat.plan[concat.a].offset, 0u);
  EXPECT_EQ(concat.plan[concat.b].offset, 32u);
  EXPECT_FALSE(concat.plan[concat.b].strides);
  EXPECT_EQ(concat.plan.storage(concat.y).first, 0) << "alive from the first input on";
}

TEST(Inside, ColumnsNeedMakersOfStridedTensors) {
  Concat dense({2, 4}, {2, 3}, 1);
  dense.plan.find();
  EXPECT_FALSE(dense.granted(0) || dense.granted(1));

  Concat strided({2, 4}, {2, 3}, 1, true);
  strided.plan.find();
  ASSERT_TRUE(strided.granted(0) && strided.granted(1));
  EXPECT_EQ(strided.plan[strided.a].strides, (Dims{7, 1}));
  EXPECT_EQ(strided.plan[strided.b].offset, 16u);
}

TEST(Inside, StridedDeniedWhereAnotherReaderWantsItDense) {
  for (const bool takes : {false, true}) {
    Concat concat({2, 4}, {2, 3}, 1, true);
    concat.plan.read(concat.a);
    concat.plan.last().inputs[0].may_be_strided = takes;
    concat.plan.find();
    EXPECT_EQ(concat.granted(0), takes);
    EXPECT_TRUE(concat.granted(1));
  }
}

TEST(Inside, DeniedForTheSameInputTwice) {
  Plan plan;
  const int a = plan.make({2, 4});
  const int y = plan.make({4, 4}, {a, a});
  Concat::wish(plan, {a, a}, y, 0);
  EXPECT_FALSE(plan.find().share(a, y));
}

TEST(Inside, DeniedForWhatOutlivesOrIsNotTheSegments) {
  Concat outlives({2, 4}, {3, 4}, 0);
  outlives.plan.keep(outlives.a);
  outlives.plan.find();
  EXPECT_FALSE(outlives.granted(0));
  EXPECT_TRUE(outlives.granted(1));

  Plan plan;
  const int fed = plan.slot({2, 4}, Place::Incoming);
  const int y = plan.make({2, 4}, {fed});
  Concat::wish(plan, {fed}, y, 0);
  EXPECT_FALSE(plan.find().share(fed, y));
}

TEST(Inside, DeniedForWhatHasViews) {
  Concat concat({2, 4}, {3, 4}, 0);
  Plan plan;
  const int a = plan.make({2, 4});
  const int view = plan.make({8}, {a});
  plan.last().outputs[0].view_of = 0;
  const int y = plan.make({2, 4}, {a});
  Concat::wish(plan, {a}, y, 0);
  plan.read(view);
  plan.find();
  EXPECT_TRUE(plan.share(a, view));
  EXPECT_FALSE(plan.share(a, y));
}

TEST(Inside, DeniedWhereTheInputDoesNotFit) {
  Plan plan;
  const int a = plan.make({2, 4});
  const int y = plan.make({2, 4}, {a});
  plan.last().insides.push_back({0, 0, 4, std::nullopt});
  EXPECT_FALSE(plan.find().share(a, y));
}

TEST(Inside, NestedColumnsKeepTheirPlaces) {
  // inner = [a b] along axis 1, y = [c inner] along axis 1.
  Plan plan;
  std::vector<int> parts;
  for (const std::int64_t columns : {2, 3, 4}) {
    parts.push_back(plan.make({2, columns}));
    plan.last().outputs[0].may_be_strided = true;
  }
  const int inner = plan.make({2, 5}, {parts[0], parts[1]});
  plan.last().outputs[0].may_be_strided = true;
  Concat::wish(plan, {parts[0], parts[1]}, inner, 1);
  const int y = plan.make({2, 9}, {parts[2], inner});
  Concat::wish(plan, {parts[2], inner}, y, 1);
  plan.find();
  for (const int slot : {parts[0], parts[1], parts[2], inner})
    EXPECT_TRUE(plan.share(slot, y)) << slot;
  EXPECT_EQ(plan[parts[2]].offset, 0u);
  EXPECT_EQ(plan[inner].offset, 4 * 4u);
  EXPECT_EQ(plan[parts[0]].offset, 4 * 4u);
  EXPECT_EQ(plan[parts[1]].offset, 6 * 4u);
  for (const int slot : {parts[0], parts[1], parts[2], inner})
    EXPECT_EQ(plan[slot].strides, (Dims{9, 1})) << slot;
}

TEST(Inside, NestedRowsInColumns) {
  // inner = rows [a; b], y = columns [c inner].
  Plan plan;
  const int a = plan.make({1, 3}), b = plan.make({2, 3}), c = plan.make({3, 2});
  for (const int step : {0, 1, 2}) plan.wishes(step).outputs[0].may_be_strided = true;
  const int inner = plan.make({3, 3}, {a, b});
  plan.last().outputs[0].may_be_strided = true;
  Concat::wish(plan, {a, b}, inner, 0);
  const int y = plan.make({3, 5}, {c, inner});
  Concat::wish(plan, {c, inner}, y, 1);
  plan.find();
  ASSERT_TRUE(plan.share(b, y));
  EXPECT_EQ(plan[a].offset, 2 * 4u);
  EXPECT_EQ(plan[b].offset, (5 + 2) * 4u) << "the second row";
  EXPECT_EQ(plan[b].strides, (Dims{5, 1}));
}

/// A value that was written in place over one of other dims keeps those: no strides of another rank.
TEST(Inside, StridedDeniedWhereTheMemoryHasOtherDimsToo) {
  Plan plan;
  const int flat = plan.make({8});
  plan.last().outputs[0].may_be_strided = true;
  const int a = plan.make({2, 4}, {flat});
  plan.last().outputs[0].may_be_strided = true;
  plan.last().outputs[0].in_place_of = 0;
  plan.last().inputs[0].may_be_strided = true;
  const int b = plan.make({2, 1});
  plan.last().outputs[0].may_be_strided = true;
  const int y = plan.make({2, 5}, {a, b});
  Concat::wish(plan, {a, b}, y, 1);
  plan.find();
  ASSERT_TRUE(plan.share(flat, a));
  if (plan[flat].strides) {
    EXPECT_EQ(plan[flat].strides->size(), 1u);
  }
  EXPECT_FALSE(plan.share(a, y)) << "the flat value cannot lie in two rows that are 5 apart";
}

TEST(Inside, TheFetchesMemoryServesToo) {
  Concat concat({2, 4}, {3, 4}, 0);
  concat.plan[concat.y].place = Place::Fetch;
  concat.plan[concat.y].number = 0;
  concat.plan.segment().fetches.emplace_back(0, concat.y);
  concat.plan.find();
  EXPECT_TRUE(concat.granted(0) && concat.granted(1));
  EXPECT_EQ(concat.plan[concat.b].place, Place::Fetch);
  EXPECT_EQ(concat.plan[concat.b].offset, 32u);
}

TEST(Inside, AlignmentOfTheStorageIsTheLargest) {
  Unary unary;
  ValueState aligned = *unary.plan[unary.y].state;
  aligned.alignment = 256;
  unary.plan[unary.y].state = aligned;
  unary.plan.find();
  ASSERT_TRUE(unary.plan.share(unary.x, unary.y));
  EXPECT_EQ(unary.plan.storage(unary.y).alignment, 256u)
      << "an output in place has the alignment that its kernel asked for";
}

}  // namespace
}  // namespace backplane::core
