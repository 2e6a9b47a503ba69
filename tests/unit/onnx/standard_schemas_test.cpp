// The table of ONNX's schemas, against the registry that ONNX makes of all of them.
#include "core/onnx/standard_schemas.hpp"

#include <gtest/gtest.h>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/onnx/schema_registry.hpp"

namespace backplane::core {
namespace {

TEST(StandardSchemas, AreThoseOfTheRegistry) {
  const auto all = ::onnx::OpSchemaRegistry::get_all_schemas_with_history();
  std::size_t in_table = 0;
  for (const auto& [domain, name] : standard_operators())
    in_table += standard_versions(domain, name).size();
  EXPECT_EQ(in_table, all.size());
  for (const ::onnx::OpSchema& expected : all) {
    const std::string what = expected.domain() + "::" + expected.Name();
    const ::onnx::OpSchema* const found =
        standard_schema(expected.domain(), expected.Name(), expected.since_version());
    ASSERT_NE(found, nullptr) << what;
    EXPECT_EQ(found->since_version(), expected.since_version()) << what;
    EXPECT_EQ(found->domain(), expected.domain()) << what;
    EXPECT_EQ(found->inputs().size(), expected.inputs().size()) << what;
    EXPECT_EQ(found->min_input(), expected.min_input()) << what;  // Finalize works it out
    EXPECT_EQ(found->typeConstraintMap().size(), expected.typeConstraintMap().size()) << what;
  }
}

TEST(StandardSchemas, AVersionSelectsTheNewestUpToIt) {
  for (const auto& [domain, name] : standard_operators()) {
    EXPECT_EQ(standard_schema(domain, name, 0), nullptr) << name;
    for (const int version : {1, 6, 9, 13, 18, 22, kNewestVersion}) {
      const auto* const expected = ::onnx::OpSchemaRegistry::Schema(name, version, domain);
      const auto* const found = standard_schema(domain, name, version);
      ASSERT_EQ(found == nullptr, expected == nullptr) << name << " " << version;
      if (found == nullptr) continue;
      EXPECT_EQ(found->since_version(), expected->since_version()) << name << " " << version;
    }
  }
}

TEST(StandardSchemas, OtherDomainsAndNamesHaveNone) {
  EXPECT_EQ(standard_schema("ai.onnx.ml", "Relu", kNewestVersion), nullptr);
  EXPECT_EQ(standard_schema("", "LabelEncoder", kNewestVersion), nullptr);
  EXPECT_EQ(standard_schema("", "relu", kNewestVersion), nullptr);
  EXPECT_EQ(standard_schema("", "", kNewestVersion), nullptr);
  EXPECT_TRUE(standard_versions("com.example", "Relu").empty());
}

TEST(StandardSchemas, WhatIsRandomIsSoInFunctionsToo) {
  const SchemaRegistry schemas;
  using Determinism = ::onnx::OpSchema::NodeDeterminism;
  std::set<std::string> random;
  for (const ::onnx::OpSchema& expected :
       ::onnx::OpSchemaRegistry::get_all_schemas_with_history()) {
    const auto info = schemas.find(expected.domain(), expected.Name(), expected.since_version());
    ASSERT_TRUE(info.has_value()) << expected.Name();
    EXPECT_EQ(info->deterministic, expected.GetNodeDeterminism() != Determinism::NonDeterministic)
        << expected.Name() << " " << expected.since_version();
    if (!info->deterministic) random.insert(expected.Name());
  }
  EXPECT_TRUE(random.contains("RandomNormal") && random.contains("Bernoulli")) << random.size();
}

TEST(StandardSchemas, ThreadsGetTheSame) {
  std::vector<std::vector<const ::onnx::OpSchema*>> found(4);
  std::vector<std::thread> threads;
  for (auto& mine : found) {
    threads.emplace_back([&mine] {
      for (const auto& [domain, name] : standard_operators())
        mine.push_back(standard_schema(domain, name, kNewestVersion));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(found.front().empty());
  for (const auto& mine : found) EXPECT_EQ(mine, found.front());
}

}  // namespace
}  // namespace backplane::core
