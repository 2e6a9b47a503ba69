// The C interface where C++ does not lead: null arguments, wrong indices, values of every kind.
#include <onnx/onnx-data.pb.h>

#include "tests/unit/runtime/session_test.hpp"

namespace backplane::runtime_test {
namespace {

/// The code of a status that must be an error of one line; frees it.
std::int32_t code_of(backplane_status* status, const char* mentioned) {
  if (status == nullptr) return BACKPLANE_OK;
  const detail::OwnedStatus owned(status);
  const std::string message = backplane_status_message(status);
  EXPECT_THAT(message, ::testing::HasSubstr(mentioned));
  EXPECT_EQ(message.find('\n'), std::string::npos);
  return backplane_status_code(status);
}

class CInterface : public SessionTest {
 protected:
  template <class Object>
  static Object* garbage() {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address at which nothing lies
    return reinterpret_cast<Object*>(std::uintptr_t{0x55555550});
  }
  static constexpr std::int32_t kInvalid = BACKPLANE_INVALID_ARGUMENT;
};

TEST_F(CInterface, NullArgumentsAreNamed) {
  EXPECT_EQ(code_of(backplane_options_create(nullptr), "'out'"), kInvalid);
  EXPECT_EQ(code_of(backplane_options_set(nullptr, "threads", "1"), "'options'"), kInvalid);
  const Options options;
  EXPECT_EQ(code_of(backplane_options_set(options.get(), nullptr, "1"), "'key'"), kInvalid);
  EXPECT_EQ(code_of(backplane_options_set(options.get(), "threads", nullptr), "'value'"), kInvalid);
  EXPECT_EQ(code_of(backplane_options_append_provider(options.get(), "cpu", nullptr, nullptr, 1),
                    "'keys'"),
            kInvalid);
  EXPECT_EQ(code_of(backplane_environment_create(nullptr, nullptr, nullptr, nullptr), "'out'"),
            kInvalid);
  EXPECT_EQ(code_of(backplane_session_run(nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0),
                    "'session'"),
            kInvalid);
  EXPECT_EQ(code_of(backplane_binding_run(nullptr), "'binding'"), kInvalid);
}

TEST_F(CInterface, NullObjectsEndAndAnswerWithNothing) {
  backplane_options_destroy(nullptr);
  backplane_environment_destroy(nullptr);
  backplane_session_destroy(nullptr);
  backplane_binding_destroy(nullptr);
  backplane_value_destroy(nullptr);
  backplane_string_destroy(nullptr);
  backplane_status_free(nullptr);
  EXPECT_EQ(backplane_status_code(nullptr), BACKPLANE_OK);
  EXPECT_STREQ(backplane_status_message(nullptr), "");
  EXPECT_EQ(backplane_session_count(nullptr, BACKPLANE_INPUTS), 0u);
  EXPECT_EQ(backplane_session_name(nullptr, BACKPLANE_INPUTS, 0), nullptr);
  EXPECT_EQ(backplane_value_rank(nullptr), 0u);
  EXPECT_EQ(backplane_value_data(nullptr), nullptr);
  EXPECT_EQ(backplane_binding_output(nullptr, "y"), nullptr);
}

TEST_F(CInterface, AFailureLeavesNullInWhatItShouldHaveMade) {
  backplane_session* session = garbage<backplane_session>();
  const std::int32_t code = code_of(
      backplane_session_create(environment().get(), "/nowhere/model.onnx", nullptr, &session),
      "/nowhere/model.onnx");
  EXPECT_EQ(code, BACKPLANE_NOT_FOUND);
  EXPECT_EQ(session, nullptr);
  for (const char* path : {"", static_cast<const char*>(nullptr)}) {
    session = garbage<backplane_session>();
    EXPECT_EQ(
        code_of(backplane_session_create(environment().get(), path, nullptr, &session), "path"),
        kInvalid);
    EXPECT_EQ(session, nullptr);
  }
  session = garbage<backplane_session>();
  EXPECT_EQ(code_of(backplane_session_create_from_memory(environment().get(), nullptr, 4, nullptr,
                                                         &session),
                    "'data'"),
            kInvalid);
  EXPECT_EQ(session, nullptr);
  backplane_value* value = garbage<backplane_value>();
  EXPECT_EQ(code_of(backplane_value_create(99, nullptr, 0, &value), "99"), kInvalid);
  EXPECT_EQ(value, nullptr);
}

TEST_F(CInterface, IndicesBeyondTheEndGiveNothing) {
  ModelMaker maker;
  maker.input("x", {"n"}).node("Relu", {"x"}, "y").output("y");
  const Session session = open(maker);
  EXPECT_STREQ(backplane_session_name(session.get(), BACKPLANE_INPUTS, 0), "x");
  EXPECT_STREQ(backplane_session_symbol(session.get(), BACKPLANE_INPUTS, 0, 0), "n");
  EXPECT_EQ(backplane_session_dims(session.get(), BACKPLANE_INPUTS, 0)[0], -1);
  EXPECT_EQ(backplane_session_symbol(session.get(), BACKPLANE_INPUTS, 0, 1), nullptr);
  EXPECT_EQ(backplane_session_symbol(session.get(), BACKPLANE_INPUTS, 0, -1), nullptr);
  for (const std::int32_t list : {-1, 4, BACKPLANE_INPUTS})
    EXPECT_EQ(backplane_session_name(session.get(), list, 1), nullptr);
  EXPECT_EQ(backplane_session_count(session.get(), 4), 0u);
}

class CValues : public CInterface {};

TEST_F(CValues, MadeOnesAreZeroed) {
  const Value value = Value::tensor<double>({2, 3});
  EXPECT_EQ(value.type(), "tensor(double)");
  EXPECT_EQ(value.byte_count(), 48u);
  EXPECT_EQ(elements<double>(value), std::vector<double>(6));
  expect_words(failure([&] { value.data<float>(); }), {"tensor(double)"});
  expect_words(failure([] { Value::tensor<float>({-1, 2}); }), {"-1"});
  expect_words(failure([] {
                 Value::tensor<float>({std::int64_t{1} << 62, 4});
               }),
               {"[4611686018427387904,4]"});
}

TEST_F(CValues, BorrowedMemoryMustHoldThem) {
  std::vector<float> memory(6);
  expect_words(failure([&] {
                 Value::borrow<float>({2, 4}, memory.data(), 6);
               }),
               {"24 bytes", "[2,4]", "32"});
  expect_words(failure([&] {
                 Value::borrow(ElementType::Float, {1}, reinterpret_cast<char*>(memory.data()) + 1,
                               4);
               }),
               {"not aligned", "float"});
  expect_words(failure([&] { Value::borrow(ElementType::String, {1}, memory.data(), 24); }),
               {"string"});
  EXPECT_EQ(Value::borrow(ElementType::Float, {0, 3}, nullptr, 0).size(), 0u);
}

TEST_F(CValues, HoldStrings) {
  Value value = Value::tensor(ElementType::String, {2});
  value.set_string(1, std::string("a\0b", 3));
  EXPECT_EQ(value.string(0), "");
  EXPECT_EQ(value.string(1), std::string("a\0b", 3));
  EXPECT_EQ(value.bytes(), nullptr);
  expect_words(failure([&] { value.set_string(2, "c"); }), {"no string 2", "2"});
  const std::string bytes = value.serialize();
  const Value again = Value::parse("tensor", bytes.data(), bytes.size());
  EXPECT_EQ(again.string(1), value.string(1));
}

TEST_F(CValues, ComeFromProtosAndGoBack) {
  ::onnx::SequenceProto proto;
  proto.set_elem_type(::onnx::SequenceProto::TENSOR);
  for (const std::int64_t number : {7, 8}) {
    ::onnx::TensorProto* tensor = proto.add_tensor_values();
    tensor->set_data_type(::onnx::TensorProto::INT64);
    tensor->add_dims(1);
    tensor->add_int64_data(number);
  }
  const std::string bytes = proto.SerializeAsString();
  Value element;
  {
    const Value sequence = Value::parse("sequence", bytes.data(), bytes.size());
    EXPECT_EQ(sequence.type(), "seq(tensor(int64))");
    EXPECT_EQ(sequence.element_count(), 2u);
    EXPECT_EQ(sequence.element_type(), ElementType::None);
    element = sequence.element(1);
    expect_words(failure([&] { sequence.element(2); }), {"no element 2"});
    const std::string written = sequence.serialize();
    EXPECT_EQ(Value::parse("sequence", written.data(), written.size()).element_count(), 2u);
  }
  EXPECT_EQ(elements<std::int64_t>(element), std::vector<std::int64_t>{8}) << "shared, not lent";
  expect_words(failure([&] { Value::parse("map", bytes.data(), bytes.size()); }), {"map", "float"});
  EXPECT_NE(failure([&] { Value::parse("tensor", "\xff\xff\xff", 3); }), "");
}

}  // namespace
}  // namespace backplane::runtime_test
