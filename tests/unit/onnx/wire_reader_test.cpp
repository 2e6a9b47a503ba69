#include "core/onnx/wire_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

#include "core/onnx/foreign_file.hpp"
#include "proto_models.hpp"

namespace backplane::core {
namespace {

using ::testing::HasSubstr;

std::vector<float> numbers(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

::onnx::ModelProto reduced(const std::string& text) {
  ::onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(reduce_model(bytes_of(text))));
  return model;
}

std::string error_of(const std::string& text) {
  try {
    (void)reduce_model(bytes_of(text));
  } catch (const Error& error) {
    return error.message();
  }
  return "no error";
}

/// The bytes that a reduced tensor stands for.
std::string piece_of(const std::string& text, const ::onnx::TensorProto& tensor) {
  const auto begin = static_cast<std::size_t>(tensor.segment().begin());
  return text.substr(begin, static_cast<std::size_t>(tensor.segment().end()) - begin);
}

TEST(WireReader, LeavesSmallModelsAsTheyAre) {
  auto model = model_of({node("Add", {"x", "w"}, {"y"})});
  *model.mutable_graph()->add_initializer() = raw_tensor("w", 1, {3}, numbers(3));
  const std::string text = model.SerializeAsString();
  EXPECT_EQ(reduce_model(bytes_of(text)), text);
}

TEST(WireReader, TakesLargeContentsOut) {
  const std::vector<float> values = numbers(1000);
  auto model = model_of({node("Relu", {"x"}, {"y"})});
  *model.mutable_graph()->add_initializer() = raw_tensor("raw", 1, {1000}, values);
  auto& typed = *model.mutable_graph()->add_initializer();
  typed.set_name("typed");
  typed.set_data_type(1);
  typed.add_dims(1000);
  for (const float value : values) typed.add_float_data(value);
  auto* attribute = model.mutable_graph()->mutable_node(0)->add_attribute();
  attribute->set_name("t");
  attribute->set_type(::onnx::AttributeProto::TENSOR);
  *attribute->mutable_t() = raw_tensor("", 1, {1000}, values);
  const std::string text = model.SerializeAsString();
  const ::onnx::ModelProto result = reduced(text);
  const std::string expected(reinterpret_cast<const char*>(values.data()), 4000);
  EXPECT_LT(result.ByteSizeLong(), 300u);
  for (const auto& tensor : {result.graph().initializer(0), result.graph().initializer(1),
                             result.graph().node(0).attribute(0).t()}) {
    EXPECT_FALSE(tensor.has_raw_data());
    EXPECT_EQ(tensor.float_data_size(), 0);
    EXPECT_EQ(piece_of(text, tensor), expected);
  }
}

TEST(WireReader, GoesIntoBodiesAndFunctions) {
  ::onnx::GraphProto body;
  *body.add_initializer() = raw_tensor("w", 1, {1000}, numbers(1000));
  auto branch = node("If", {"c"}, {"y"});
  set_graph(branch, "then_branch", body);
  auto model = model_of({branch});
  auto& function = *model.add_functions();
  *function.add_node() = node("Constant", {}, {"c"});
  auto* attribute = function.mutable_node(0)->add_attribute();
  attribute->set_type(::onnx::AttributeProto::TENSOR);
  *attribute->mutable_t() = raw_tensor("", 1, {1000}, numbers(1000));
  const ::onnx::ModelProto result = reduced(model.SerializeAsString());
  EXPECT_TRUE(result.graph().node(0).attribute(0).g().initializer(0).has_segment());
  EXPECT_TRUE(result.functions(0).node(0).attribute(0).t().has_segment());
}

TEST(WireReader, LeavesContentsThatAreToBeConverted) {
  auto model = model_of({node("Relu", {"x"}, {"y"})});
  auto& tensor = *model.mutable_graph()->add_initializer();
  tensor.set_data_type(
      ::onnx::TensorProto::FLOAT16);  // float_data is the wrong field; who reads the tensor says so
  for (int i = 0; i < 1000; ++i) tensor.add_float_data(1);
  const std::string text = model.SerializeAsString();
  EXPECT_EQ(reduced(text).graph().initializer(0).float_data_size(), 1000);
}

/// Which of them counts is for the tensor's reader to say.
TEST(WireReader, LeavesContentsInTwoFields) {
  auto model = model_of({node("Relu", {"x"}, {"y"})});
  auto& tensor = *model.mutable_graph()->add_initializer();
  tensor = raw_tensor("w", 1, {1000}, numbers(1000));
  tensor.add_float_data(1);
  const ::onnx::TensorProto left = reduced(model.SerializeAsString()).graph().initializer(0);
  EXPECT_FALSE(left.has_segment());
  EXPECT_EQ(left.raw_data().size(), 4000u);
  EXPECT_EQ(left.float_data_size(), 1);
}

TEST(WireReader, RefusesSegmentsOfTheFile) {
  auto model = model_of({});
  auto& tensor = *model.mutable_graph()->add_initializer();
  tensor.mutable_segment()->set_begin(0);
  tensor.mutable_segment()->set_end(10);
  EXPECT_THAT(error_of(model.SerializeAsString()), HasSubstr("segment"));
}

TEST(WireReader, LeavesTrainingInformationOut) {
  auto model = model_of({});
  model.add_training_info()->mutable_algorithm()->set_name("training");
  EXPECT_EQ(reduced(model.SerializeAsString()).training_info_size(), 0);
}

TEST(WireReader, BoundsNesting) {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    // From inside: an attribute's graph (6), the node's attribute (5), the graph's node (1).
    const char tag = i % 3 == 0 ? 0x32 : i % 3 == 1 ? 0x2a : 0x0a;
    std::string wrapped(1, tag);
    for (std::size_t size = text.size();; size >>= 7) {
      wrapped += static_cast<char>(size < 128 ? size : (size & 127) | 128);
      if (size < 128) break;
    }
    text.insert(0, wrapped);
  }
  std::string model = "\x3a";
  model += static_cast<char>((text.size() & 127) | 128);
  model += static_cast<char>(text.size() >> 7);
  model += text;
  EXPECT_THAT(error_of(model), HasSubstr("nested"));
}

// Each body takes three messages, and the types of its outputs five more than it.
TEST(WireReader, ModelsLoadUpToTheBoundOnNesting) {
  const auto error_of_bodies = [](int depth) {
    ::onnx::GraphProto leaf;
    *leaf.add_node() = node("Neg", {"x"}, {"y"});
    *leaf.add_output() = value_info("y", {"2", "3"});
    const auto around = [&](const ::onnx::GraphProto& body) {
      auto branch = node("If", {"c"}, {"y"});
      set_graph(branch, "then_branch", body);
      set_graph(branch, "else_branch", leaf);
      return branch;
    };
    ::onnx::GraphProto body = leaf;
    for (int i = 1; i < depth; ++i) *body.mutable_node(0) = around(body);
    auto model = model_of({around(body)});
    *model.mutable_graph()->add_input() = value_info("c", {}, ::onnx::TensorProto::BOOL);
    return import_error(model);
  };
  EXPECT_EQ(error_of_bodies(31), "no error");
  EXPECT_EQ(error_of_bodies(32), "no error");
  EXPECT_THAT(error_of_bodies(33), HasSubstr("nested too deep: at byte"));
}

TEST(WireReader, BoundsMemory) {
  std::string graph;
  for (int i = 0; i < 4'000'000; ++i)
    graph += std::string("\x0a\x00", 2);  // nodes without anything
  std::string model = "\x3a";
  for (std::size_t size = graph.size();; size >>= 7) {
    model += static_cast<char>(size < 128 ? size : (size & 127) | 128);
    if (size < 128) break;
  }
  EXPECT_THAT(error_of(model + graph), HasSubstr("MiB"));
}

TEST(WireReader, RefusesWhatIsNoProtobuf) {
  EXPECT_THAT(error_of("This is a letter."), HasSubstr("no ONNX model"));
  EXPECT_THAT(error_of(std::string(100, '\0')), HasSubstr("no ONNX model"));
  EXPECT_THAT(error_of(std::string(20, '\xff')), HasSubstr("no ONNX model"));
  EXPECT_THAT(error_of("\x3a\x7f"), HasSubstr("ends after 0"));
  // The model's version, 1 bit and 8 bits longer than the longest number.
  EXPECT_EQ(error_of("\x08" + std::string(9, '\xff') + "\x01"), "no error");
  for (const std::string end : {"\x02", "\xff\x01"})
    EXPECT_THAT(error_of("\x08" + std::string(9, '\xff') + end), HasSubstr("more than 64 bits"));
}

TEST(ForeignFiles, AreCalledByWhatTheyAre) {
  const auto bytes = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  EXPECT_THAT(describe_foreign(bytes("version https://git-lfs.github.com/spec/v1\n")),
              HasSubstr("git lfs pull"));
  EXPECT_THAT(describe_foreign(bytes("<!DOCTYPE html><html>")), HasSubstr("web page"));
  EXPECT_THAT(describe_foreign(bytes(std::string("\x20\0\0\0ORTM", 8))), HasSubstr(".ort"));
  EXPECT_THAT(describe_foreign(bytes("BPPLAN1\n")), HasSubstr("saved_plan"));
  EXPECT_THAT(describe_foreign(bytes(std::string("\x08\0\0\0\0\0\0\0{\"a\":1}", 15))),
              HasSubstr("safetensors"));
  EXPECT_EQ(describe_foreign(bytes("\x80")), "");
  EXPECT_EQ(describe_foreign(bytes("\x08\x08\x12\x04")), "");
  EXPECT_EQ(describe_foreign({}), "");
}

TEST(ForeignFiles, AreNamedInTheErrorOfTheImporter) {
  const auto error_of_import = [](const std::string& text) {
    try {
      (void)import_text(text, {});
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("no error");
  };
  EXPECT_THAT(error_of_import("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n"),
              HasSubstr("no ONNX model: it is a pointer of Git LFS"));
  EXPECT_THAT(error_of_import("PK\3\4" + std::string(40, '\0')), HasSubstr("zip archive"));
  EXPECT_THAT(error_of_import("This is a letter."), HasSubstr("at byte 0"));
}

}  // namespace
}  // namespace backplane::core
