#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "core/plugin_host/device.hpp"

namespace backplane::core {
namespace {

/// A definition of a kernel for Relu, sound as it stands.
struct Definition {
  explicit Definition(const char* name = "test:relu", std::int32_t priority = 0) {
    constraint.struct_size = sizeof(constraint);
    constraint.param = "T";
    constraint.types = types;
    constraint.type_count = 1;
    raw.struct_size = sizeof(raw);
    raw.domain = "";
    raw.op_type = "Relu";
    raw.name = name;
    raw.since_min = 6;
    raw.since_max = 14;
    raw.priority = priority;
    raw.constraints = &constraints;
    raw.constraint_count = 1;
    raw.create = [](void*, const bp_create_ctx*, const bp_node*, bp_kernel**) -> bp_status* {
      return nullptr;
    };
    raw.destroy = [](bp_kernel*) {};
    raw.prepare = [](bp_kernel*, bp_prepare_ctx*, bp_prepared**) -> bp_status* { return nullptr; };
    raw.release = [](bp_prepared*) {};
    raw.compute = [](const bp_prepared*, const bp_kctx*) -> bp_status* { return nullptr; };
  }
  Definition(const Definition&) = delete;
  Definition& operator=(const Definition&) = delete;
  const char* types[1] = {"tensor(float)"};
  bp_type_constraint constraint{};
  const bp_type_constraint* constraints = &constraint;
  bp_kernel_def raw{};
};

class KernelRegistryTest : public testing::Test {
 protected:
  void add(const Definition& definition, bool first = false) {
    registry_.add({&definition.raw, nullptr, false, false, 0}, schemas_, first);
  }
  std::vector<std::string> found(const std::string& op = "Relu", const std::string& domain = "") {
    std::vector<std::string> names;
    for (const RegisteredKernel& kernel : registry_.find(domain, op))
      names.emplace_back(kernel.def->name);
    return names;
  }
  SchemaRegistry schemas_;
  KernelRegistry registry_;
};

using Names = std::vector<std::string>;

TEST_F(KernelRegistryTest, BestKernelComesFirst) {
  const Definition low("low", -5), early("early"), late("late"), high("high", 9),
      guest("guest", -50);
  add(low);
  add(early);
  add(high);
  add(guest, true);
  add(late);
  EXPECT_EQ(found(), (Names{"guest", "high", "late", "early", "low"}));
  EXPECT_EQ(registry_.size(), 5U);
  EXPECT_TRUE(registry_.refused().empty());
  EXPECT_EQ(found("Sin"), Names{});
}

TEST_F(KernelRegistryTest, SpellingsOfOnnxDomainAreOne) {
  Definition spelled("spelled");
  spelled.raw.domain = "ai.onnx";
  add(spelled);
  EXPECT_EQ(found(), Names{"spelled"});
  EXPECT_EQ(found("Relu", "ai.onnx"), Names{"spelled"});
}

TEST_F(KernelRegistryTest, PrivateDomainsNeedNoSchema) {
  Definition fused("fused");
  fused.raw.domain = "backplane.test";
  fused.raw.op_type = "FusedAnything";
  fused.constraint.param = "Q";
  add(fused);
  EXPECT_EQ(found("FusedAnything", "backplane.test"), Names{"fused"});
}

TEST_F(KernelRegistryTest, BrokenDefinitionsAreRefusedWithTheReason) {
  const std::vector<std::pair<std::function<void(Definition&)>, std::string>> faults{
      {[](Definition& d) { d.raw.struct_size = 12; }, "struct_size"},
      {[](Definition& d) { d.raw.struct_flags = 1u << 20; }, "struct_flags"},
      {[](Definition& d) { d.raw.name = nullptr; }, "name"},
      {[](Definition& d) { d.raw.domain = nullptr; }, "domain"},
      {[](Definition& d) { d.raw.op_type = ""; }, "op_type"},
      {[](Definition& d) { d.raw.op_type = "Rellu"; }, "no schema"},
      {[](Definition& d) { d.raw.domain = "nobody"; }, "nobody::Relu"},
      {[](Definition& d) { d.raw.create = nullptr; }, "create"},
      {[](Definition& d) { d.raw.compute = nullptr; },
       "kernel 'test:relu' lacks mandatory functions: compute"},
      {[](Definition& d) { d.raw.since_min = 0; }, "0..14"},
      {[](Definition& d) { d.raw.since_max = 5; }, "6..5"},
      {[](Definition& d) { d.raw.since_min = 7, d.raw.since_max = 12; }, "there are: 1, 6, 13, 14"},
      {[](Definition& d) { d.constraints = nullptr; }, "constraint 0 is NULL"},
      {[](Definition& d) { d.raw.constraints = nullptr; }, "constraints"},
      {[](Definition& d) { d.raw.constraint_count = 1'000'000; }, "1000000"},
      {[](Definition& d) { d.constraint.param = "Q"; }, "'Q'; it has: T"},
      {[](Definition& d) { d.constraint.type_count = 0; }, "no type"},
      {[](Definition& d) { d.constraint.types = nullptr; }, "NULL"},
      {[](Definition& d) { d.constraint.param = nullptr, d.constraint.input = 1; }, "input 1"},
      {[](Definition& d) {
         d.constraint.param = nullptr, d.constraint.input = -1, d.constraint.output = 3;
       },
       "output 3"},
      {[](Definition& d) {
         d.constraint.param = nullptr, d.constraint.input = -1, d.constraint.output = -1;
       },
       "names no type parameter"},
      {[](Definition& d) { d.raw.input_role_count = 1; }, "roles"},
  };
  for (const auto& [spoil, words] : faults) {
    Definition definition;
    spoil(definition);
    const std::size_t before = registry_.refused().size();
    add(definition);
    ASSERT_EQ(registry_.refused().size(), before + 1) << words;
    EXPECT_NE(registry_.refused().back().find(words), std::string::npos)
        << registry_.refused().back();
  }
  EXPECT_EQ(registry_.size(), 0U);
  registry_.add({nullptr, nullptr, false, false, 0}, schemas_, false);
  EXPECT_NE(registry_.refused().back().find("NULL"), std::string::npos);
}

/// Of a later day, or mistyped: the kernel serves for its other types, and somebody is told.
TEST_F(KernelRegistryTest, TypesThatNobodyKnowsAreTold) {
  const char* types[] = {"tensor(float)", "tensor(flaot16)"};
  Definition definition("test:types"), later("test:later", 9);
  for (Definition* const made : {&definition, &later}) {
    made->constraint.types = types;
    made->constraint.type_count = 2;
  }
  add(definition);
  EXPECT_EQ(found(), Names{"test:types"});
  ASSERT_EQ(registry_.refused().size(), 1U);
  EXPECT_NE(
      registry_.refused()[0].find("kernel 'test:types' for Relu: the type 'tensor(flaot16)' of its "
                                  "constraint 0 is not known to this host; did you mean "
                                  "'tensor(float16)'"),
      std::string::npos)
      << registry_.refused()[0];
  std::vector<std::string> warnings;
  KernelRegistry provisional;
  provisional.check_later_against(schemas_,
                                  [&](const std::string& told) { warnings.push_back(told); });
  RegisteredKernel kernel;
  kernel.def = &later.raw;
  provisional.add_provisionally(kernel);
  EXPECT_EQ(provisional.find("", "Relu").size(), 1U);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("'test:later' for Relu: the type"), std::string::npos) << warnings[0];
}

TEST_F(KernelRegistryTest, RefusalsNameTheKernel) {
  Definition definition("test:special");
  definition.constraint.param = "Q";
  add(definition);
  EXPECT_NE(registry_.refused().back().find("'test:special' for Relu"), std::string::npos)
      << registry_.refused().back();
}

TEST_F(KernelRegistryTest, ProvisionalKernelsAreCheckedWhenTheirOperatorIsLookedFor) {
  std::vector<std::string> warnings;
  registry_.check_later_against(schemas_,
                                [&](const std::string& refused) { warnings.push_back(refused); });
  Definition sound("test:sound"), wrong("test:wrong", 9);
  Definition unknown("test:unknown"), broken("test:broken");
  wrong.constraint.param = "V";
  unknown.raw.op_type = "Rleu";
  broken.raw.prepare = nullptr;
  for (bp_kernel_def* const def : {&sound.raw, &wrong.raw, &unknown.raw, &broken.raw}) {
    RegisteredKernel kernel;
    kernel.def = def;
    registry_.add_provisionally(kernel);
  }
  ASSERT_EQ(registry_.refused().size(), 1U) << "what is wrong by itself waits for nothing";
  EXPECT_NE(registry_.refused()[0].find("'test:broken'"), std::string::npos);
  EXPECT_TRUE(warnings.empty());

  EXPECT_EQ(found(), Names{"test:sound"});
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("'test:wrong' for Relu"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("no type parameter 'V'"), std::string::npos) << warnings[0];
  EXPECT_EQ(found(), Names{"test:sound"});
  EXPECT_EQ(warnings.size(), 1U) << "told once";
  EXPECT_EQ(found("Rleu"), Names{});
  ASSERT_EQ(warnings.size(), 2U);
  EXPECT_NE(warnings[1].find("near names: Relu"), std::string::npos) << warnings[1];
}

TEST_F(KernelRegistryTest, RolesAreChecked) {
  const std::int32_t roles[2] = {BP_INPUT_DATA, BP_INPUT_HOST_VALUE};
  const std::int32_t unknown[1] = {17};
  Definition good("good"), many("many"), odd("odd");
  good.raw.input_roles = roles;
  good.raw.input_role_count = 1;
  many.raw.input_roles = roles;
  many.raw.input_role_count = 2;
  odd.raw.output_roles = unknown;
  odd.raw.output_role_count = 1;
  add(good);
  add(many);
  add(odd);
  EXPECT_EQ(found(), Names{"good"});
  ASSERT_EQ(registry_.refused().size(), 2U);
  EXPECT_NE(registry_.refused()[0].find("2 inputs"), std::string::npos) << registry_.refused()[0];
  EXPECT_NE(registry_.refused()[1].find("17"), std::string::npos) << registry_.refused()[1];
}

TEST_F(KernelRegistryTest, ParametersThatWereRenamedAreThoseOfTheVersionsThatHaveThem) {
  // Resize calls its type T in version 10, T1 and T2 from 11 on.
  Definition both("both"), older("older"), neither("neither");
  for (Definition* resize : {&both, &older, &neither}) {
    resize->raw.op_type = "Resize";
    resize->raw.since_min = 10;
    resize->raw.since_max = 19;
  }
  both.constraint.param = "T1";
  older.constraint.param = "T";
  neither.constraint.param = "T3";
  add(older);
  add(both);
  add(neither);
  EXPECT_EQ(found("Resize"), (Names{"both", "older"}));
  ASSERT_EQ(registry_.refused().size(), 1U);
  EXPECT_NE(registry_.refused()[0].find("'neither' for Resize"), std::string::npos);
  EXPECT_NE(registry_.refused()[0].find("'T3'; it has: T, T1, T2"), std::string::npos)
      << registry_.refused()[0];
}

TEST_F(KernelRegistryTest, ParametersOfLaterInputsDoNotSplitTheRange) {
  // Pad has had a type Tind, of the input axes, since version 18; before it had T alone.
  Definition pad("pad");
  pad.raw.op_type = "Pad";
  pad.constraint.param = "Tind";
  pad.raw.since_min = 11;
  pad.raw.since_max = 25;
  add(pad);
  EXPECT_EQ(found("Pad"), Names{"pad"})
      << (registry_.refused().empty() ? "" : registry_.refused()[0]);
}

}  // namespace
}  // namespace backplane::core
