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
    options.external_data = (root_ / "model").string();
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

/// Caches of downloads: what has names are links to files side by side that have none.
class LinkedModels : public ExternalDataTest {
 protected:
  void SetUp() override {
    ExternalDataTest::SetUp();
    fs::create_directories(root_ / "cache" / "blobs" / "deep");
    fs::create_directories(root_ / "cache" / "snapshots" / "1" / "onnx");
    fs::create_directories(root_ / "secrets");
    write(root_ / "cache" / "blobs" / "d4", {1, 2, 3});
    write(root_ / "cache" / "blobs" / "deep" / "d5", {4, 5, 6});
    write(root_ / "secrets" / "key", {9, 9, 9});
    const std::string text = model({{"location", "model.onnx_data"}}).SerializeAsString();
    std::ofstream(root_ / "cache" / "blobs" / "m1", std::ios::binary) << text;
    fs::create_symlink("../../../blobs/m1", path());
  }
  fs::path folder() const { return root_ / "cache" / "snapshots" / "1" / "onnx"; }
  fs::path path() const { return folder() / "model.onnx"; }
  void data_link(const fs::path& target) const {
    fs::remove(folder() / "model.onnx_data");
    fs::create_symlink(target, folder() / "model.onnx_data");
  }
  static std::vector<float> loaded(const fs::path& path) {
    return elements_of<float>(
        *value_of(import_file(path.string(), SchemaRegistry(), {}).graph, "w").constant);
  }
  static std::string error_of(const fs::path& path) {
    try {
      (void)loaded(path);
    } catch (const Error& error) {
      return error.message();
    }
    return "no error";
  }
  std::string error_of_bytes(const fs::path& place) const {
    ImportOptions options;
    options.external_data = place.string();
    return import_error(model({{"location", "model.onnx_data"}}), options);
  }
};

TEST_F(LinkedModels, DataMayLieWhereTheModelItselfLies) {
  data_link("../../../blobs/d4");
  EXPECT_EQ(loaded(path()), (std::vector<float>{1, 2, 3}));
  data_link("../../../blobs/deep/d5");
  EXPECT_EQ(loaded(path()), (std::vector<float>{4, 5, 6}));
  fs::create_directory_symlink("snapshots/1", root_ / "cache" / "latest");
  EXPECT_EQ(loaded(root_ / "cache" / "latest" / "onnx" / "model.onnx"),
            (std::vector<float>{4, 5, 6}));
}

TEST_F(LinkedModels, DataMayLieInTheFolderOfTheLinkToo) {
  write(folder() / "model.onnx_data", {7, 8, 9});
  EXPECT_EQ(loaded(path()), (std::vector<float>{7, 8, 9}));
}

TEST_F(LinkedModels, ALinkToAModelFindsWhatLiesBesideTheModel) {
  data_link("../../../blobs/d4");
  fs::create_symlink(path(), root_ / "mine.onnx");
  EXPECT_EQ(loaded(root_ / "mine.onnx"), (std::vector<float>{1, 2, 3}));
  fs::remove(folder() / "model.onnx_data");
  EXPECT_THAT(error_of(root_ / "mine.onnx"), HasSubstr("put the file beside the model"));
}

TEST_F(LinkedModels, DataElsewhereAreRefused) {
  for (const fs::path& target :
       {root_ / "secrets" / "key", fs::path("../../../../secrets/key"), fs::path("/etc/passwd"),
        fs::path("/dev/zero"), fs::path("../../../blobs/../../secrets/key")}) {
    data_link(target);
    const std::string error = error_of(path());
    EXPECT_THAT(error, HasSubstr("initializer 'w'")) << target;
    EXPECT_THAT(error, HasSubstr("'model.onnx_data', a link that leads out")) << target;
    EXPECT_THAT(error, HasSubstr("put the file there in place of the link")) << target;
  }
  data_link("../../../blobs/gone");
  EXPECT_THAT(error_of(path()), HasSubstr("a link to '../../../blobs/gone', cannot be opened"));
  fs::create_symlink(root_ / "secrets", root_ / "cache" / "blobs" / "up");
  data_link("../../../blobs/up/key");
  EXPECT_THAT(error_of(path()), HasSubstr("leads out of the folder"));
}

TEST_F(LinkedModels, AModelThatIsNoLinkHasNoOtherFolder) {
  data_link("../../../blobs/d4");
  fs::copy_file(root_ / "cache" / "blobs" / "m1", folder() / "copy.onnx");
  EXPECT_THAT(error_of(folder() / "copy.onnx"), HasSubstr("initializer 'w'"));
  EXPECT_THAT(error_of(folder() / "copy.onnx"), HasSubstr("leads out of the folder"));
}

TEST_F(LinkedModels, BytesAreAsTheFileTheyWereReadFrom) {
  data_link("../../../blobs/d4");
  EXPECT_EQ(error_of_bytes(path()), "no error");
  EXPECT_THAT(error_of_bytes(folder()), HasSubstr("leads out of the folder"));
  EXPECT_THAT(error_of_bytes(root_ / "none"), HasSubstr("none"));
  data_link(root_ / "secrets" / "key");
  EXPECT_THAT(error_of_bytes(path()), HasSubstr("leads out of the folder"));
}

TEST_F(ExternalDataTest, OffsetAndLengthMustFit) {
  for (const auto& [offset, length] :
       std::vector<std::pair<std::string, std::string>>{{"16", "12"},
                                                        {"8", "12"},
                                                        {"0", "8"},
                                                        {"0", "16"},
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
