#include "plugins/cuda/whole_products.hpp"

#include <algorithm>
#include <utility>

#include "plugins/common/kernels/product.hpp"
#include "plugins/common/kernels/scalar_functions.hpp"

namespace backplane::cuda {

common::TypeList whole_types() {
  return {DataType::Int32, DataType::Int64, DataType::UInt32, DataType::UInt64};
}

bool is_whole(DataType type) {
  const common::TypeList types = whole_types();
  return std::find(types.begin(), types.end(), type) != types.end();
}

void add_product(device_ops::Work& work, const WholeProduct& p) {
  constexpr std::size_t kTile = 64, kGroup = 16;
  device_ops::LaunchPlan plan;
  const bool is_signed = p.type == DataType::Int32 || p.type == DataType::Int64;
  const char* const type = device_ops::type_code(p.type);
  device_ops::KernelText text;
  text.define("T", type).define("TY", type).define("BT", type);
  text.define("ACC", is_signed ? "i64" : "u64").define("REAL", "float");
  text.define("LIT(x)", "JOIN(x, f)").define("TAPS", 1).define("ACTIVATE(s)", "s");
  for (const char* const name : {"INTEGER", "HAS_SCALES", "HAS_BIAS", "BIAS_ALONG", "HAS_RESIDUAL",
                                 "HAS_FACTOR", "ROWED", "DEEP"})
    text.define(name, 0);
  text.add(common::kScalarFunctions).add(common::kProductArguments).add(common::kLocalProduct);
  plan.source = text.str();
  plan.name = "product of integers";
  plan.arg(p.a, p.type).arg(p.b, p.type).arg(p.y, p.type);
  const std::int64_t none = 0, one = 1;
  for (const std::int64_t number :
       {p.rows,       p.columns,    p.depth,      p.a_row,      p.a_step,     p.b_row,
        p.b_step,     p.y_row,      p.inner,      p.a_batch[0], p.a_batch[1], p.b_batch[0],
        p.b_batch[1], p.y_batch[0], p.y_batch[1], none,         none,         one,
        one,          one,          one})
    plan.scalar(number);
  plan.scalar(1.0f);
  const auto tiles = [](std::int64_t size) {
    return (static_cast<std::size_t>(size) + kTile - 1) / kTile * kGroup;
  };
  plan.items = {tiles(p.columns), tiles(p.rows), static_cast<std::size_t>(p.outer * p.inner)};
  plan.group = {kGroup, kGroup, 1};
  work.add(std::move(plan));
}

}  // namespace backplane::cuda
