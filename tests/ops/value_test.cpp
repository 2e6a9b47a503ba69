// Operators of strings, sequences and optionals: https://onnx.ai/onnx/operators/onnx__SequenceConstruct.html
#include "tests/ops/cases.hpp"

namespace backplane::ops_test {
namespace {

const OpCase kStrings[] = {
    {.name = "ConcatBroadcasts",
     .node = {.op_type = "StringConcat", .opset = 20},
     .inputs = {text({2}, {"a", ""}), text({1}, {"-z"})},
     .outputs = {text({2}, {"a-z", "-z"})}},
    {.name = "FullMatchMatchesTheWholeText",
     .node = {.op_type = "RegexFullMatch", .opset = 20, .attributes = {{"pattern", "[a-z]+[0-9]"}}},
     .inputs = {text({3}, {"abc1", "abc12", "1"})},
     .outputs = {boolean({3}, {1, 0, 0})}},
    {.name = "SplitByADelimiter",
     .node = {.op_type = "StringSplit", .opset = 20, .attributes = {{"delimiter", ","}}},
     .inputs = {text({2}, {"a,b", "c"})},
     .outputs = {text({2, 2}, {"a", "b", "c", ""}), i64({2}, {2, 1})}},
    {.name = "NormalizerLowersAndDropsStopwords",
     .node = {.op_type = "StringNormalizer",
              .opset = 10,
              .attributes = {{"case_change_action", "LOWER"},
                             {"is_case_sensitive", 1},
                             {"stopwords", strings({"Monday"})}}},
     .inputs = {text({3}, {"Monday", "Tuesday", "FRIDAY"})},
     .outputs = {text({2}, {"tuesday", "friday"})}},
};
const Rows kStringRows("String", kStrings);

const GraphCase kSequences[] = {
    {.name = "ElementsCountedFromTheEnd",
     .nodes = {{.op_type = "SequenceConstruct", .inputs = {"a", "b"}, .outputs = {"s"}},
               {.op_type = "SequenceAt", .inputs = {"s", "i"}, .outputs = {"y"}}},
     .constants = {{"i", i64({}, {-2})}},
     .feeds = {{"a", f32({2}, {1, 2})}, {"b", f32({1}, {3})}},
     .outputs = {"y"},
     .expected = {f32({2}, {1, 2})}},
    {.name = "InsertEraseAndLength",
     .nodes = {{.op_type = "SequenceEmpty", .outputs = {"e"}},
               {.op_type = "SequenceInsert", .inputs = {"e", "a"}, .outputs = {"s1"}},
               {.op_type = "SequenceInsert", .inputs = {"s1", "b", "zero"}, .outputs = {"s2"}},
               {.op_type = "SequenceLength", .inputs = {"s2"}, .outputs = {"n"}},
               {.op_type = "SequenceErase", .inputs = {"s2", "zero"}, .outputs = {"s3"}},
               {.op_type = "SequenceAt", .inputs = {"s3", "zero"}, .outputs = {"y"}}},
     .constants = {{"zero", i64({}, {0})}},
     .feeds = {{"a", f32({1}, {1})}, {"b", f32({1}, {2})}},
     .outputs = {"n", "y"},
     .expected = {i64({}, {2}), f32({1}, {1})}},
    {.name = "SplitAndConcatAgain",
     .nodes = {{.op_type = "SplitToSequence", .inputs = {"a", "n"}, .outputs = {"s"}},
               {.op_type = "ConcatFromSequence",
                .attributes = {{"axis", 1}},
                .inputs = {"s"},
                .outputs = {"y"}}},
     .constants = {{"n", i64({}, {1})}},
     .feeds = {{"a", f32({2, 2}, {1, 2, 3, 4})}},
     .outputs = {"y"},
     .expected = {f32({1, 4}, {1, 2, 3, 4})}},
    {.name = "SequencesOfStrings",
     .nodes = {{.op_type = "SequenceConstruct", .inputs = {"a", "b"}, .outputs = {"s"}},
               {.op_type = "ConcatFromSequence",
                .attributes = {{"axis", 0}},
                .inputs = {"s"},
                .outputs = {"y"}}},
     .feeds = {{"a", text({1}, {"x"})}, {"b", text({2}, {"y", "z"})}},
     .outputs = {"y"},
     .expected = {text({3}, {"x", "y", "z"})}},
    {.name = "OptionalAndBack",
     .opset = 18,
     .nodes = {{.op_type = "Optional", .inputs = {"a"}, .outputs = {"o"}},
               {.op_type = "OptionalHasElement", .inputs = {"o"}, .outputs = {"has"}},
               {.op_type = "OptionalGetElement", .inputs = {"o"}, .outputs = {"y"}}},
     .feeds = {{"a", f32({2}, {1, 2})}},
     .outputs = {"has", "y"},
     .expected = {boolean({}, {1}), f32({2}, {1, 2})}},
};
const Rows kSequenceRows("Sequence", kSequences);

}  // namespace
}  // namespace backplane::ops_test
