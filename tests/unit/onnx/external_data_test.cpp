#include "core/onnx/external_data.hpp"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "proto_models.hpp"

namespace backplane::core {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ExternalDataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ =
        fs::path(::testing::TempDir()) / ("backplane_external_data_" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_ / "model" / "inner");
    write(root_ / "outside.bin", {9, 9, 9});
    write(root_ / "model" / "data.bin", {1, 2, 3, 4});
    write(root_ / "model" / "inner" / "data.bin", {5, 6, 7});
  }
  void TearDown() override { fs::remove_all(root_); }

  static void write(const fs::path& path, const std::vector<float>& values) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
  }

  static ::onnx::ModelProto model(const std::map<std::string, std::string>& entries) {
    auto model = model_of({node("Add", {"x", "w"}, {"y"})});
    auto& tensor = *model.mutable_graph()->add_initializer();
    tensor.set_name("w");
    tensor.set_data_type(1);
    tensor.add_dims(3);
    tensor.set_data_location(::onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] : entries) {
      auto* entry = tensor.add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
    return model;
  }

  ImportOptions options() const {
    ImportOptions options;
    options.external_data_folder = (root_ / "model").string();
    return options;
  }

  std::vector<float> weights(const std::map<std::string, std::string>& entries) const {
    const std::string text = model(entries).SerializeAsString();
    return elements_of<float>(*value_of(import_text(text, options()).graph, "w").constant);
  }

  std::string error(const std::map<std::string, std::string>& entries) const {
    return import_error(model(entries), options());
  }

  fs::path root_;
};

TEST_F(ExternalDataTest, IsMapped) {
  EXPECT_EQ(weights({{"location", "data.bin"}, {"offset", "4"}, {"length", "12"}}),
            (std::vector<float>{2, 3, 4}));
  EXPECT_EQ(weights({{"location", "data.bin"}}), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(weights({{"location", "inner/data.bin"}}), (std::vector<float>{5, 6, 7}));
  EXPECT_EQ(weights({{"location", "./inner/../data.bin"}}), (std::vector<float>{1, 2, 3}));
}

TEST_F(ExternalDataTest, BoolsAreZeroOrOne) {
  const unsigned char bytes[] = {0, 1, 255};
  std::ofstream(root_ / "model" / "bools.bin", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes), sizeof bytes);
  auto with_bools = model({{"location", "bools.bin"}});
  *with_bools.mutable_graph()->mutable_node(0) = node("Where", {"w", "x", "x"}, {"y"});
  with_bools.mutable_graph()->mutable_initializer(0)->set_data_type(::onnx::TensorProto::BOOL);
  const std::string text = with_bools.SerializeAsString();
  EXPECT_EQ(elements_of<char>(*value_of(import_text(text, options()).graph, "w").constant),
            (std::vector<char>{0, 1, 1}));
}

TEST_F(ExternalDataTest, LinksInsideTheFolderAreFollowed) {
  fs::create_symlink("inner/data.bin", root_ / "model" / "link.bin");
  EXPECT_EQ(weights({{"location", "link.bin"}}), (std::vector<float>{5, 6, 7}));
}

TEST_F(ExternalDataTest, CannotLeaveTheFolder) {
  fs::create_symlink(root_ / "outside.bin", root_ / "model" / "link.bin");
  fs::create_symlink(root_, root_ / "model" / "up");
  fs::create_directories(root_ / "model_too");
  write(root_ / "model_too" / "data.bin", {9, 9, 9});
  for (const std::string& location :
       {std::string("../outside.bin"), std::string("inner/../../outside.bin"),
        (root_ / "outside.bin").string(), (root_ / "model" / "data.bin").string(),
        std::string("link.bin"), std::string("up/outside.bin"),
        std::string("../model_too/data.bin"), std::string(), std::string("data.bin\0", 9)}) {
    EXPECT_THAT(error({{"location", location}}), HasSubstr("initializer 'w'")) << location;
  }
}

TEST_F(ExternalDataTest, OffsetAndLengthMustFit) {
  for (const auto& [offset, length] :
       std::vector<std::pair<std::string, std::string>>{{"16", "12"},
                                                        {"8", "12"},
                                                        {"0", "8"},
                                                        {"-4", "12"},
                                                        {"four", "12"},
                                                        {"18446744073709551612", "12"},
                                                        {"4", "18446744073709551612"},
                                                        {"", "12"}}) {
    EXPECT_THAT(error({{"location", "data.bin"}, {"offset", offset}, {"length", length}}),
                HasSubstr("initializer 'w'"))
        << offset << " " << length;
  }
}

TEST_F(ExternalDataTest, NeedsAFolder) {
  EXPECT_THAT(import_error(model({{"location", "data.bin"}})), HasSubstr("set external_data"));
}

TEST_F(ExternalDataTest, SmallOnesServeShapeInference) {
  const std::int64_t shape[] = {3, 2};
  std::ofstream(root_ / "model" / "shape.bin", std::ios::binary)
      .write(reinterpret_cast<const char*>(shape), sizeof shape);
  auto reshape = model({{"location", "shape.bin"}});
  auto& tensor = *reshape.mutable_graph()->mutable_initializer(0);
  tensor.set_data_type(::onnx::TensorProto::INT64);
  tensor.set_dims(0, 2);
  *reshape.mutable_graph()->mutable_node(0) = node("Reshape", {"x", "w"}, {"y"});
  const std::string text = reshape.SerializeAsString();
  EXPECT_EQ(shape_of(import_text(text, options()).graph, "y"), "tensor(float)[3,2]");
}

}  // namespace
}  // namespace backplane::core
