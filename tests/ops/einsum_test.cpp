// Einsum: https://onnx.ai/onnx/operators/onnx__Einsum.html
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/ops/cases.hpp"
#include "tests/ops/runner.hpp"

namespace backplane::ops_test {
namespace {

Node einsum(const char* equation) {
  return {.op_type = "Einsum", .opset = 12, .attributes = {{"equation", equation}}};
}

const OpCase kRows[] = {
    {.name = "Trace",
     .node = einsum("ii->"),
     .inputs = {f32({2, 2}, {1, 2, 3, 4})},
     .outputs = {f32({}, {5})}},
    {.name = "AScalarTimesAVector",
     .node = einsum(",i->i"),
     .inputs = {f32({}, {2}), f32({2}, {3, 5})},
     .outputs = {f32({2}, {6, 10})}},
    {.name = "SumsOfNothingAreZero",
     .node = einsum("ij,jk->ik"),
     .inputs = {f32({1, 0}, {}), f32({0, 2}, {})},
     .outputs = {f32({1, 2}, {0, 0})}},
    {.name = "IntegersWrap",
     .node = einsum("i,i->"),
     .inputs = {i32({2}, {2147483647, 2}), i32({2}, {1, 1})},
     .outputs = {i32({}, {-2147483647.0})}},
};
const Rows kEinsumRows("Einsum", kRows);

OpCase any_form(Random& random) {
  struct Form {
    const char* equation;
    std::vector<std::string> terms;
  };
  static const std::vector<Form> forms = {{"ij,jk->ik", {"ij", "jk"}},
                                          {"bij,bjk->bik", {"bij", "bjk"}},
                                          {"ij->ji", {"ij"}},
                                          {"ij->i", {"ij"}},
                                          {"i,j->ij", {"i", "j"}},
                                          {"bhid,bhjd->bhij", {"bhid", "bhjd"}},
                                          {"bij,bkj->bik", {"bij", "bkj"}},
                                          {"ij,ij->", {"ij", "ij"}},
                                          {"bihd,bjhd->bhij", {"bihd", "bjhd"}},
                                          {"bhij,bjhd->bihd", {"bhij", "bjhd"}},
                                          {"bsd,dhk->bhsk", {"bsd", "dhk"}},
                                          {"bhwc,hkc->bhwk", {"bhwc", "hkc"}},
                                          {"ki,jk", {"ki", "jk"}},
                                          {"kib,bkj->jib", {"kib", "bkj"}},
                                          {"nkctv,kvw->nctw", {"nkctv", "kvw"}},
                                          {"acik,bkj->aj", {"acik", "bkj"}},
                                          {"iki,jkk->ij", {"iki", "jkk"}},
                                          {"...ij, ...kj -> i...k", {"abij", "abkj"}},
                                          {"j...,k...j->k...", {"jbc", "kbcj"}},
                                          {"ii->i", {"ii"}},
                                          {"ij,jk,kl->il", {"ij", "jk", "kl"}}};
  const Form& form = random.pick(forms);
  std::vector<std::int64_t> size(128);
  const ElementType type = random.pick({ElementType::Float, ElementType::Float, ElementType::Float,
                                        ElementType::Double, ElementType::Int32});
  // Some that plain loops compute, and some that matrix kernels do.
  const bool small = form.terms[0].size() > 4 || type != ElementType::Float || random.one_in(3);
  const std::int64_t most = small ? 6 : 20;
  for (std::int64_t& s : size) s = random.integer(1, most);
  if (random.one_in(12)) size[static_cast<std::size_t>(random.integer('i', 'k'))] = 0;
  OpCase row;
  row.node = {.op_type = "Einsum", .opset = 12, .attributes = {{"equation", form.equation}}};
  for (const std::string& term : form.terms) {
    Dims dims;
    // A letter broadcasts from one element.
    for (const char letter : term)
      dims.push_back(random.one_in(16) && size[static_cast<std::size_t>(letter)] > 0
                         ? 1
                         : size[static_cast<std::size_t>(letter)]);
    row.inputs.push_back(random.tensor(type, dims));
  }
  row.tolerance = {64, 512};
  return row;
}
const Sweep kAnyForm("Einsum", "AnyForm", 60, any_form);

/// Forms that devices do in different ways. `constant`: the input that is one; `by_groups`: also by the kernels for GPUs, where a
/// processor has others.
struct DeviceForm {
  const char* equation;
  std::vector<Dims> dims;
  ElementType type = ElementType::Float;
  int constant = -1;
  bool by_groups = false;
};

const std::vector<DeviceForm>& device_forms() {
  constexpr auto kFloat = ElementType::Float, kHalf = ElementType::Float16,
                 kBrain = ElementType::BFloat16, kDouble = ElementType::Double,
                 kInt = ElementType::Int32, kLong = ElementType::Int64;
  static const std::vector<DeviceForm> forms = {
      // Attention: read where they lie, turned, with heads between rows.
      {"bhid,bhjd->bhij", {{2, 3, 17, 8}, {2, 3, 20, 8}}, kFloat, -1, true},
      {"bhij,bhjd->bhid", {{2, 3, 5, 20}, {2, 3, 20, 17}}},
      {"bnhd,bmhd->bnhm", {{2, 17, 3, 8}, {2, 20, 3, 8}}, kHalf},
      {"bnhm,bmhd->bnhd", {{2, 9, 3, 20}, {2, 20, 3, 17}}, kFloat, -1, true},
      {"bhid,bhjd->bhij", {{2, 3, 1, 8}, {2, 3, 20, 8}}},
      // Projections, of constants that are packed and of others; the first operand gives the columns.
      {"btd,dhk->bthk", {{2, 5, 12}, {12, 3, 7}}, kFloat, 1},
      {"btd,dhk->bthk", {{2, 9, 12}, {12, 3, 7}}, kBrain},
      {"oi,bi->bo", {{33, 12}, {5, 12}}, kFloat, 0},
      {"bsd,dhk->bhsk", {{2, 17, 12}, {12, 3, 18}}, kFloat, 1},
      {"bs..., ...->bs", {{2, 3, 4, 5}, {4, 5}}, kDouble},
      // No sums, and sums alone.
      {"i,j->ij", {{5}, {7}}, kHalf},
      {"bi,bj,bk->bijk", {{2, 3}, {2, 4}, {2, 5}}, kLong},
      {"ii->i", {{5, 5}}, kInt},
      {"ij->ji", {{5, 7}}, kBrain},
      {"bij->b", {{3, 5, 7}}, kHalf, -1, true},
      {"iji->j", {{5, 7, 5}}, kInt},
      {"...->", {{3, 70, 90}}, kFloat, -1, true},
      // Vectors: the matrix's rows or columns lie together, or the result's batch.
      {"bij,bj->bi", {{3, 40, 9}, {3, 9}}},
      {"j,bji->bi", {{9}, {3, 9, 40}}},
      {"bij,bj->ib", {{3, 40, 9}, {3, 9}}},
      {"bij,bij->b", {{3, 4, 5}, {3, 4, 5}}, kLong},
      {"i,i", {{300}, {300}}, kDouble},
      // The result is turned, or an operand is copied: a batch lies last, depths of two orders, rows apart, elements of a diagonal.
      {"bih,bjh->bijh", {{2, 9, 3}, {2, 18, 3}}},
      {"bcik,kic->b", {{3, 4, 2, 5}, {5, 2, 4}}},
      {"akb,kc->abc", {{30, 6, 10}, {6, 18}}, kFloat, -1, true},
      {"akb,kc->bac", {{3, 6, 20}, {6, 18}}, kInt},
      {"iij,jk->ik", {{5, 5, 6}, {6, 18}}},
      // More batches than are launched one after the other, and than are one launch.
      {"abik,bajk->abij", {{9, 10, 2, 3}, {10, 9, 4, 3}}},
      {"abcik,cbajk->abcij", {{9, 10, 11, 2, 3}, {11, 10, 9, 4, 3}}, kInt},
      {"abcik,cbajk->abcij", {{2, 2, 2, 3, 3}, {2, 2, 2, 18, 3}}},
      {"...ik,...jk->...ij", {{9, 1, 2, 3}, {1, 10, 4, 3}}},
      // Sums of one operand, and more operands than two: of 16 bits they are rounded once.
      {"bij,bjk->bk", {{2, 20, 9}, {2, 9, 18}}},
      {"bij,bkjl->bik", {{2, 3, 50}, {2, 18, 50, 40}}, kHalf, -1, true},
      {"acik,bkj->aj", {{3, 2, 5, 7}, {4, 7, 6}}, kBrain},
      {"ij,kl->", {{3, 4}, {5, 6}}},
      {"ij,jk,kl->il", {{5, 6}, {6, 7}, {7, 18}}, kHalf},
      {"bi,bij,bj->b", {{3, 6}, {3, 6, 7}, {3, 7}}, kFloat, 1},
      {"ij, ,jk -> k i", {{5, 6}, {}, {6, 18}}},
      {"kji,ki,jl,a->li", {{4, 5, 6}, {4, 6}, {5, 3}, {2}}, ElementType::UInt32},
  };
  return forms;
}

OpCase written(Random& random, const DeviceForm& form) {
  OpCase row;
  row.node = einsum(form.equation);
  if (form.type == ElementType::BFloat16) row.node.opset = 28;
  const bool is_unsigned = form.type == ElementType::UInt32;
  for (const Dims& dims : form.dims)
    row.inputs.push_back(random.tensor(form.type, dims, is_unsigned ? 0 : -2, 2));
  if (form.constant >= 0) row.inputs[static_cast<std::size_t>(form.constant)].is_constant = true;
  const bool is_half = form.type == ElementType::Float16 || form.type == ElementType::BFloat16;
  row.tolerance = {64, is_half ? 1024.0 : 512.0};
  return row;
}

TEST(Einsum, FormsOfDevicesAreRight) {
  const std::vector<Target> targets = form_targets();
  Random random(1);
  for (const DeviceForm& form : device_forms()) {
    const GraphCase graph = to_graph(written(random, form));
    for (const Target& target : targets) {
      if (!form.by_groups && target.name.ends_with(kByGroups)) continue;
      const Form dims = form.constant >= 0 ? Form::Fixed : Form::Open;
      const Outcome outcome = run_case(graph, expected_of(graph), target, dims, "all");
      EXPECT_EQ(outcome.kind, Outcome::Kind::Passed)
          << target.name << ": " << form.equation << ": " << outcome.text;
    }
  }
}

}  // namespace
}  // namespace backplane::ops_test
