#include "core/base/nearest_name.hpp"

#include <gtest/gtest.h>

namespace backplane::core {
namespace {

using Names = std::vector<std::string>;

TEST(EditDistance, CountsEditsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("conv", "covn"), 1u);
  EXPECT_EQ(edit_distance("abc", "abc"), 0u);
}

TEST(NearestNames, AreNearestFirst) {
  EXPECT_EQ(nearest_names("Relux", {"PRelu", "Relu", "Softmax"}), (Names{"Relu", "PRelu"}));
  EXPECT_EQ(nearest_names("conv", {"Conv", "ConvInteger"}), (Names{"Conv", "ConvInteger"}));
  EXPECT_EQ(nearest_names("batch", {"height", "width"}), Names{});
  EXPECT_EQ(nearest_names("", {"a"}), Names{});
}

TEST(NearestNames, SkipsWhatIsTooLongToBeATypingError) {
  EXPECT_EQ(nearest_names(std::string(5000, 'a'), {std::string(5000, 'a')}), Names{});
}

TEST(DidYouMean, ReadsAsASentence) {
  EXPECT_EQ(did_you_mean("bach", {"batch"}), "; did you mean 'batch'?");
  EXPECT_EQ(did_you_mean("xyz", {"batch"}), "");
}

}  // namespace
}  // namespace backplane::core
