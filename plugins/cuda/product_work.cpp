#include "plugins/cuda/product_work.hpp"

#include <algorithm>
#include <utility>

namespace backplane::cuda {
ProductWork::ProductWork(Device& device, std::string label, ProductPlan plan)
    : device_(device), label_(std::move(label)), plan_(std::move(plan)) {
  aligned_ = prepare(kLibraryAlignment);
  any_ = prepare(static_cast<std::uint32_t>(sdk::element_bytes(plan_.product.type)));
}

std::unique_ptr<const PreparedProduct> ProductWork::prepare(std::uint32_t alignment) {
  const LibraryProduct form = to_library(plan_.product, alignment);
  ProductStore& store = device_.products();
  const ProductAlgorithm algorithm = store.choose(form);
  workspace_bytes_ = std::max(workspace_bytes_, algorithm.workspace_bytes);
  return store.library().prepare(form, algorithm, plan_.product.factor,
                                 plan_.product.has_addend ? plan_.product.addend_factor : 0);
}

void ProductWork::compute(const sdk::ComputeContext& ctx) const {
  const Stream& stream = *reinterpret_cast<Stream*>(ctx.stream());
  ProductAddresses first;
  first.a = address_of(plan_.a, ctx);
  first.b = address_of(plan_.b, ctx);
  first.d = address_of(plan_.y, ctx);
  if (plan_.product.has_addend) first.c = address_of(plan_.c, ctx);
  if (plan_.product.has_bias) first.bias = address_of(plan_.bias, ctx);
  if (workspace_bytes_ > 0) first.workspace = address_of(device_ops::workspace(), ctx);
  try {
    for (const ProductPlan::Call& call : plan_.calls) {
      ProductAddresses at = first;
      // The library computes the transpose, from the operands the other way round.
      at.a = first.b + call.b;
      at.b = first.a + call.a;
      at.d = first.d + call.y;
      at.c = plan_.product.has_addend ? first.c + call.y : at.d;
      const Address bits = at.a | at.b | at.c | at.d | at.bias;
      (bits % kLibraryAlignment == 0 ? aligned_ : any_)->enqueue(stream.handle(), at);
    }
  } catch (const sdk::Error& error) {
    throw sdk::Error(error.code(), sdk::message("node '", label_, "': ", error.what()));
  }
}

}  // namespace backplane::cuda
