#include "core/onnx/tensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "core/graph/type.hpp"
#include "proto_models.hpp"

namespace backplane::core {
namespace {

using ::onnx::TensorProto;
using ::testing::HasSubstr;

TensorReader reader() { return {{}, nullptr, ExternalData({}, false)}; }

ConstantPtr read(const TensorProto& tensor) { return reader().read(tensor, "tensor"); }

std::string error_of(const TensorProto& tensor) {
  try {
    (void)read(tensor);
  } catch (const Error& error) {
    return error.message();
  }
  return "no error";
}

TensorProto tensor_of(int type, const std::vector<std::int64_t>& dims) {
  TensorProto tensor;
  tensor.set_data_type(type);
  for (const std::int64_t dim : dims) tensor.add_dims(dim);
  return tensor;
}

TEST(Tensors, AllTypesGoThereAndBackAsRawData) {
  for (int type = 1; type <= 26; ++type) {
    if (type == TensorProto::STRING) continue;
    for (const std::int64_t count : {0, 1, 5}) {
      std::vector<std::byte> bytes(
          *storage_bytes(static_cast<DataType>(type), static_cast<std::uint64_t>(count)));
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i % 2);
      const ConstantPtr constant = Constant::copy_of(static_cast<DataType>(type), {count}, bytes);
      const ConstantPtr again = read(to_proto(*constant, "t"));
      EXPECT_EQ(again->hash(), constant->hash()) << type << " x " << count;
      EXPECT_EQ(to_proto(*constant, "t").name(), "t");
    }
  }
}

TEST(Tensors, StringsGoThereAndBack) {
  const Constant constant({2, 1}, {std::string("one\0zero", 8), std::string("\0", 1)});
  EXPECT_EQ(read(to_proto(constant, ""))->strings(), constant.strings());
  TensorProto raw = tensor_of(TensorProto::STRING, {2});
  raw.set_raw_data("ab");
  EXPECT_THAT(error_of(raw), HasSubstr("string_data"));
}

TEST(Tensors, TypedFieldsHoldWhatOnnxSays) {
  TensorProto tensor = tensor_of(TensorProto::FLOAT, {2});
  tensor.add_float_data(1.5f);
  tensor.add_float_data(-2);
  EXPECT_EQ(elements_of<float>(*read(tensor)), (std::vector<float>{1.5f, -2}));
  tensor = tensor_of(TensorProto::COMPLEX64, {1});
  tensor.add_float_data(1);
  tensor.add_float_data(2);
  EXPECT_EQ(elements_of<float>(*read(tensor)), (std::vector<float>{1, 2}));
  tensor = tensor_of(TensorProto::COMPLEX128, {1});
  tensor.add_double_data(1);
  tensor.add_double_data(2);
  EXPECT_EQ(elements_of<double>(*read(tensor)), (std::vector<double>{1, 2}));
  tensor = tensor_of(TensorProto::UINT32, {1});
  tensor.add_uint64_data(0xffffffffu);
  EXPECT_EQ(elements_of<std::uint32_t>(*read(tensor)), (std::vector<std::uint32_t>{0xffffffffu}));
  tensor = tensor_of(TensorProto::UINT64, {1});
  tensor.add_uint64_data(~std::uint64_t{0});
  EXPECT_EQ(elements_of<std::uint64_t>(*read(tensor)),
            (std::vector<std::uint64_t>{~std::uint64_t{0}}));
  tensor = tensor_of(TensorProto::INT64, {1});
  tensor.add_int64_data(std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(elements_of<std::int64_t>(*read(tensor)),
            (std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min()}));
}

TEST(Tensors, Int32FieldHoldsTheSmallTypes) {
  TensorProto tensor = tensor_of(TensorProto::INT8, {2});
  tensor.add_int32_data(-1);
  tensor.add_int32_data(127);
  EXPECT_EQ(elements_of<std::int8_t>(*read(tensor)), (std::vector<std::int8_t>{-1, 127}));
  for (const int type :
       {TensorProto::FLOAT16, TensorProto::BFLOAT16, TensorProto::UINT16, TensorProto::INT16}) {
    tensor = tensor_of(type, {1});
    tensor.add_int32_data(0xbc00);
    EXPECT_EQ(elements_of<std::uint16_t>(*read(tensor)), (std::vector<std::uint16_t>{0xbc00}))
        << type;
  }
  for (const int type :
       {TensorProto::FLOAT8E4M3FN, TensorProto::FLOAT8E4M3FNUZ, TensorProto::FLOAT8E5M2,
        TensorProto::FLOAT8E5M2FNUZ, TensorProto::FLOAT8E8M0, TensorProto::UINT8}) {
    tensor = tensor_of(type, {1});
    tensor.add_int32_data(0xfe);
    EXPECT_EQ(elements_of<std::uint8_t>(*read(tensor)), (std::vector<std::uint8_t>{0xfe})) << type;
  }
  for (const int type : {TensorProto::UINT4, TensorProto::INT4, TensorProto::FLOAT4E2M1}) {
    tensor = tensor_of(type, {3});  // two in a value, the first in the low bits
    tensor.add_int32_data(0x21);
    tensor.add_int32_data(0x03);
    EXPECT_EQ(elements_of<std::uint8_t>(*read(tensor)), (std::vector<std::uint8_t>{0x21, 0x03}))
        << type;
  }
  for (const int type : {TensorProto::UINT2, TensorProto::INT2}) {
    tensor = tensor_of(type, {5});
    tensor.add_int32_data(0xe4);
    tensor.add_int32_data(0x01);
    EXPECT_EQ(elements_of<std::uint8_t>(*read(tensor)), (std::vector<std::uint8_t>{0xe4, 0x01}))
        << type;
  }
}

TEST(Tensors, BooleansAreZeroOrOne) {
  TensorProto tensor = tensor_of(TensorProto::BOOL, {3});
  tensor.set_raw_data(std::string("\0\x7f\x01", 3));
  EXPECT_EQ(elements_of<std::uint8_t>(*read(tensor)), (std::vector<std::uint8_t>{0, 1, 1}));
  tensor.clear_raw_data();
  for (const int value : {0, 2, 1}) tensor.add_int32_data(value);
  EXPECT_EQ(elements_of<std::uint8_t>(*read(tensor)), (std::vector<std::uint8_t>{0, 1, 1}));
}

TEST(Tensors, ContentsMustFit) {
  TensorProto tensor = tensor_of(TensorProto::FLOAT, {2, 3});
  EXPECT_THAT(error_of(tensor), HasSubstr("6 values"));
  tensor.set_raw_data(std::string(20, '\0'));
  EXPECT_THAT(error_of(tensor),
              ::testing::AllOf(HasSubstr("float[2,3]"), HasSubstr("24"), HasSubstr("20")));
  tensor.add_float_data(1);
  EXPECT_THAT(error_of(tensor), HasSubstr("more than one way"));
  EXPECT_THAT(error_of(tensor_of(0, {1})), HasSubstr("undefined"));
  EXPECT_THAT(error_of(tensor_of(27, {1})), HasSubstr("27"));
  EXPECT_THAT(error_of(tensor_of(1, {-1})), HasSubstr("negative"));
  EXPECT_THAT(error_of(tensor_of(1, {1ll << 40, 1ll << 40})), HasSubstr("63 bits"));
}

TEST(Tensors, EmptyOnesNeedNoContents) {
  EXPECT_EQ(read(tensor_of(TensorProto::FLOAT, {0, 3}))->element_count(), 0);
  TensorProto raw = tensor_of(TensorProto::INT4, {0});
  raw.set_raw_data("");
  EXPECT_EQ(read(raw)->bytes().size(), 0u);
}

::onnx::SparseTensorProto sparse(const std::vector<std::int64_t>& dims,
                                 const std::vector<std::int64_t>& index_dims,
                                 const std::vector<std::int64_t>& indices,
                                 const std::vector<float>& values) {
  ::onnx::SparseTensorProto proto;
  for (const std::int64_t dim : dims) proto.add_dims(dim);
  *proto.mutable_values() =
      raw_tensor<float>("s", 1, {static_cast<std::int64_t>(values.size())}, values);
  *proto.mutable_indices() = raw_tensor<std::int64_t>("", 7, index_dims, indices);
  return proto;
}

TEST(Tensors, SparseOnesBecomeDense) {
  const std::vector<float> expected = {0, 0, 5, 7, 0, 0};
  EXPECT_EQ(elements_of<float>(*reader().read(sparse({2, 3}, {2}, {2, 3}, {5, 7}), "s")), expected);
  EXPECT_EQ(elements_of<float>(*reader().read(sparse({2, 3}, {2, 2}, {0, 2, 1, 0}, {5, 7}), "s")),
            expected);
  EXPECT_THROW(reader().read(sparse({2, 3}, {2}, {2, 6}, {5, 7}), "s"), Error);
  EXPECT_THROW(reader().read(sparse({2, 3}, {2}, {-1, 0}, {5, 7}), "s"), Error);
  EXPECT_THROW(reader().read(sparse({2, 3}, {2, 2}, {0, 3, 1, 0}, {5, 7}), "s"), Error);
  EXPECT_THROW(reader().read(sparse({2, 3}, {1}, {0}, {5, 7}), "s"), Error);
  EXPECT_THROW(reader().read(sparse({1ll << 30, 1ll << 30}, {1}, {0}, {5}), "s"), Error);
  EXPECT_THROW(reader().read(sparse({1ll << 28}, {1}, {0}, {5}), "s"),
               Error);  // a gibibyte of zeros
}

}  // namespace
}  // namespace backplane::core
