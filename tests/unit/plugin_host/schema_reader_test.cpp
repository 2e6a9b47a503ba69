#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plugin_host/graph_view.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

/// A schema "test::Scale" with its parts, all of which a test may spoil.
struct Schema {
  Schema() {
    x.struct_size = sizeof(x);
    x.name = "x";
    x.type = "T";
    y = x;
    y.name = "y";
    factor.struct_size = sizeof(factor);
    factor.name = "factor";
    factor.type = BP_ATTRIBUTE_FLOAT;
    factor.required = 1;
    t.struct_size = sizeof(t);
    t.name = "T";
    t.types = types;
    t.type_count = 2;
    raw.struct_size = sizeof(raw);
    raw.domain = "test";
    raw.name = "Scale";
    raw.since_version = 2;
    raw.inputs = &inputs;
    raw.input_count = 1;
    raw.outputs = &outputs;
    raw.output_count = 1;
    raw.attributes = &attributes;
    raw.attribute_count = 1;
    raw.type_params = &type_params;
    raw.type_param_count = 1;
  }
  const char* types[2] = {"tensor(float)", "tensor(double)"};
  bp_param x{}, y{};
  bp_attribute_def factor{};
  bp_type_param t{};
  const bp_param* inputs = &x;
  const bp_param* outputs = &y;
  const bp_attribute_def* attributes = &factor;
  const bp_type_param* type_params = &t;
  bp_op_schema raw{};
};

TEST(ReadSchema, TakesOverEverything) {
  Schema schema;
  schema.x.kind = BP_PARAM_VARIADIC;
  schema.x.heterogeneous = 1;
  schema.x.min_count = 2;
  schema.y.type = "seq(tensor(float))";
  const CustomSchema read = read_schema(schema.raw, "lib.so");
  EXPECT_EQ(read.domain, "test");
  EXPECT_EQ(read.name, "Scale");
  EXPECT_EQ(read.library, "lib.so");
  EXPECT_EQ(read.since_version, 2);
  ASSERT_EQ(read.inputs.size(), 1U);
  EXPECT_EQ(read.inputs[0].kind, FormalParam::Kind::Variadic);
  EXPECT_EQ(read.inputs[0].type, "T");
  EXPECT_TRUE(read.inputs[0].heterogeneous);
  EXPECT_EQ(read.inputs[0].min_count, 2U);
  EXPECT_EQ(read.outputs.at(0).type, "seq(tensor(float))");
  EXPECT_EQ(read.attributes.at(0).name, "factor");
  EXPECT_TRUE(read.attributes.at(0).required);
  EXPECT_EQ(read.type_params.at(0).types,
            (std::vector<std::string>{"tensor(float)", "tensor(double)"}));
  EXPECT_FALSE(read.infer);
}

TEST(ReadSchema, OnnxDomainHasOneSpelling) {
  Schema schema;
  schema.raw.domain = "ai.onnx";
  EXPECT_EQ(read_schema(schema.raw, "lib.so").domain, "");
}

TEST(ReadSchema, RefusesWhatBreaksTheRules) {
  const std::vector<std::pair<std::function<void(Schema&)>, std::string>> faults{
      {[](Schema& s) { s.raw.struct_size = 16; }, "struct_size"},
      {[](Schema& s) { s.raw.name = nullptr; }, "name"},
      {[](Schema& s) { s.raw.domain = nullptr; }, "domain"},
      {[](Schema& s) { s.raw.since_version = 0; }, "since_version"},
      {[](Schema& s) { s.raw.inputs = nullptr; }, "inputs"},
      {[](Schema& s) { s.raw.output_count = 200'000; }, "200000"},
      {[](Schema& s) { s.inputs = nullptr; }, "input 0 is NULL"},
      {[](Schema& s) { s.x.type = "U"; }, "'U'"},
      {[](Schema& s) { s.x.type = "tensor(flot)"; }, "tensor(flot)"},
      {[](Schema& s) { s.x.kind = 9; }, "9"},
      {[](Schema& s) { s.x.name = ""; }, "name"},
      {[](Schema& s) { s.factor.type = 12; }, "12"},
      {[](Schema& s) { s.t.type_count = 0; }, "no type"},
      {[](Schema& s) { s.types[1] = nullptr; }, "type"},
      {[](Schema& s) { s.types[0] = "float"; }, "'float'"},
      {[](Schema& s) { s.raw.struct_flags = 0x10000; }, "struct_flags"},
  };
  for (const auto& [spoil, words] : faults) {
    Schema schema;
    spoil(schema);
    try {
      read_schema(schema.raw, "lib.so");
      ADD_FAILURE() << "accepted; expected: " << words;
    } catch (const Error& error) {
      EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
    }
  }
}

TEST(ReadSchema, DefaultsAreValuesOfTheirAttribute) {
  const float half = 0.5f;
  bp_attribute value{};
  value.struct_size = sizeof(value);
  value.name = "factor";
  value.type = BP_ATTRIBUTE_FLOAT;
  value.count = 1;
  value.floats = &half;
  Schema schema;
  schema.factor.default_value = &value;
  EXPECT_NO_THROW(read_schema(schema.raw, "lib.so"));
  const std::vector<std::pair<std::function<void(bp_attribute&)>, std::string>> faults{
      {[](bp_attribute& a) { a.name = "facto"; }, "its name is 'facto'"},
      {[](bp_attribute& a) { a.name = nullptr; }, "no name"},
      {[](bp_attribute& a) { a.floats = nullptr; }, "NULL"},
      {[](bp_attribute& a) { a.count = 2; }, "count of 1, not 2"},
      {[](bp_attribute& a) { a.type = BP_ATTRIBUTE_FLOATS; },
       "its type is 6, and the attribute's 1"},
      {[](bp_attribute& a) { a.struct_size = 8; }, "struct_size"}};
  for (const auto& [spoil, words] : faults) {
    bp_attribute wrong = value;
    spoil(wrong);
    schema.factor.default_value = &wrong;
    try {
      read_schema(schema.raw, "lib.so");
      ADD_FAILURE() << "accepted; expected: " << words;
    } catch (const Error& error) {
      EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
      EXPECT_NE(error.message().find("'factor': its default value"), std::string::npos)
          << error.message();
    }
  }
}

TEST(ReadSchema, VariadicStandsLast) {
  Schema schema;
  bp_param second = schema.x;
  second.name = "second";
  schema.x.kind = BP_PARAM_VARIADIC;
  const bp_param* both[2] = {&schema.x, &second};
  schema.raw.inputs = both;
  schema.raw.input_count = 2;
  EXPECT_THROW(read_schema(schema.raw, "lib.so"), Error);
}

/// A graph of one node Scale(x [batch, 4]) -> y, and what the schema's inference says of y.
class Inference : public testing::Test {
 protected:
  Inference() {
    Node node;
    node.op_type = "Scale";
    node.domain = "test";
    const ValueId x = graph_.value_named("x");
    graph_.value(x).type = Type::tensor(DataType::Float, Shape{{-1, "batch"}, {4, ""}});
    node.inputs = {x};
    node.outputs = {graph_.value_named("y")};
    id_ = graph_.add_node(std::move(node));
  }
  std::vector<Type> infer(bp_status* (*function)(void*, const bp_infer_ctx*)) {
    schema_.raw.infer = function;
    return read_schema(schema_.raw, "lib.so").infer(graph_, graph_.node(id_));
  }
  std::string failure(bp_status* (*function)(void*, const bp_infer_ctx*)) {
    try {
      infer(function);
    } catch (const Error& error) {
      return error.message();
    }
    return "";
  }
  Graph graph_;
  NodeId id_;
  Schema schema_;
};

TEST_F(Inference, SeesTheNodeAndSaysTheOutputs) {
  const std::vector<Type> types = infer([](void*, const bp_infer_ctx* ctx) -> bp_status* {
    const bp_graph_api& api = graph_api();
    const bp_value_info* x = api.node_input(ctx->node, 0);
    const std::int64_t dims[3] = {-1, api.value_dims(x)[1] * 2, -1};
    const char* symbols[3] = {api.value_symbol(x, 0), "ignored", nullptr};
    return ctx->api->set_output(ctx, 0, BP_DOUBLE, 3, dims, symbols);
  });
  ASSERT_EQ(types.size(), 1U);
  EXPECT_EQ(types[0].element, DataType::Double);
  EXPECT_EQ(*types[0].shape, (Shape{{-1, "batch"}, {8, ""}, {-1, ""}}));
}

TEST_F(Inference, MaySayNothingOrTheTypeAlone) {
  EXPECT_EQ(infer([](void*, const bp_infer_ctx*) -> bp_status* { return nullptr; })[0].kind,
            Type::Kind::Unknown);
  std::vector<Type> types = infer([](void*, const bp_infer_ctx* ctx) {
    return ctx->api->set_output(ctx, 0, BP_FLOAT, -1, nullptr, nullptr);
  });
  EXPECT_TRUE(types[0].is_tensor());
  EXPECT_FALSE(types[0].shape);
  types = infer([](void*, const bp_infer_ctx* ctx) {
    return ctx->api->set_output_type(ctx, 0, "seq(tensor(string))");
  });
  EXPECT_EQ(types[0].to_string(), "seq(tensor(string))");
}

TEST_F(Inference, ErrorsNameTheOperator) {
  const std::string message = failure([](void*, const bp_infer_ctx*) {
    return make_status(Code::InvalidArgument, "factor may not be 0");
  });
  EXPECT_NE(message.find("test::Scale"), std::string::npos) << message;
  EXPECT_NE(message.find("factor may not be 0"), std::string::npos) << message;
  EXPECT_NE(failure([](void*, const bp_infer_ctx*) -> bp_status* {
              throw std::runtime_error("across the border");
            }).find("across the border"),
            std::string::npos);
}

TEST_F(Inference, WrongArgumentsAreRefused) {
  EXPECT_NE(failure([](void*, const bp_infer_ctx* ctx) {
              return ctx->api->set_output(ctx, 1, BP_FLOAT, -1, nullptr, nullptr);
            }).find("output 1"),
            std::string::npos);
  EXPECT_NE(failure([](void*, const bp_infer_ctx* ctx) {
              return ctx->api->set_output(ctx, 0, BP_FLOAT, 2, nullptr, nullptr);
            }).find("NULL"),
            std::string::npos);
  EXPECT_NE(failure([](void*, const bp_infer_ctx* ctx) {
              const std::int64_t dims[1] = {-2};
              return ctx->api->set_output(ctx, 0, BP_FLOAT, 1, dims, nullptr);
            }).find("-2"),
            std::string::npos);
  EXPECT_NE(failure([](void*, const bp_infer_ctx* ctx) {
              return ctx->api->set_output(ctx, 0, 123, 0, nullptr, nullptr);
            }).find("123"),
            std::string::npos);
  EXPECT_NE(failure([](void*, const bp_infer_ctx* ctx) {
              return ctx->api->set_output_type(ctx, 0, nullptr);
            }).find("type"),
            std::string::npos);
}

}  // namespace
}  // namespace backplane::core
