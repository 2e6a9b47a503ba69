#include "plugins/cuda/product_work.hpp"

#include <algorithm>
#include <utility>

namespace backplane::cuda {
namespace {

/// What every address is a multiple of, in bytes: an element, but of int8, which the library loads in words.
std::uint32_t least_alignment(sdk::DataType type) {
  return static_cast<std::uint32_t>(type == sdk::DataType::Int8 ? kInt8Word
                                                                : sdk::element_bytes(type));
}

/// Matrices in a call. cuBLASLt multiplies 65,535 at most, the groups of a grid's axis: XLA keeps larger batches from it
/// (GemmIsSupportedByCublasLt), TensorFlow divided them. Half of them and one, so that addresses stay as aligned as they are.
constexpr std::int64_t kMostBatch = 32768;

/// Divides calls of large batches.
std::vector<ProductPlan::Call> divided(const ProductPlan& plan) {
  const Product& product = plan.product;
  if (product.batch <= kMostBatch) return plan.calls;
  const auto bytes = [](std::int64_t elements, sdk::DataType type) {
    return static_cast<std::uint64_t>(elements * sdk::element_bytes(type));
  };
  std::vector<ProductPlan::Call> calls;
  for (const ProductPlan::Call& call : plan.calls) {
    for (std::int64_t first = 0; first < product.batch; first += kMostBatch) {
      ProductPlan::Call part = call;
      part.a += bytes(first * product.a.batch_step, product.type);
      part.b += bytes(first * product.b.batch_step, product.type);
      part.y += bytes(first * product.y_batch_step, product.result);
      part.bias += bytes(first * product.bias_batch_step, product.result);
      part.is_rest = product.batch - first < kMostBatch;
      calls.push_back(part);
    }
  }
  return calls;
}

}  // namespace

ProductWork::ProductWork(Device& device, std::string label, ProductPlan plan, Choosing choosing)
    : device_(device), label_(std::move(label)), plan_(std::move(plan)) {
  plan_.calls = divided(plan_);
  const std::int64_t batch = plan_.product.batch;
  whole_ = prepare(std::min(batch, kMostBatch), choosing);
  if (plan_.calls.back().is_rest) rest_ = prepare(batch % kMostBatch, choosing);
}

std::uint64_t ProductWork::workspace_bytes() const {
  const std::uint64_t bias = bias_bytes(std::min(plan_.product.batch, kMostBatch));
  return bias == 0 ? library_bytes_ : bias_place() + bias;
}

std::string ProductWork::rounding() const {
  const Precision precision = plan_.product.precision;
  if (!own_way_.empty() || precision == Precision::kFp32) return "";
  return sdk::message(", ", precision_name(precision));
}

std::uint64_t ProductWork::bias_place() const {
  constexpr std::uint64_t kAlignment = 256;
  return (library_bytes_ + kAlignment - 1) / kAlignment * kAlignment;
}

std::uint64_t ProductWork::bias_bytes(std::int64_t batch) const {
  const Product& product = plan_.product;
  if (!product.has_bias) return 0;
  return static_cast<std::uint64_t>(((batch - 1) * product.bias_batch_step + product.columns) *
                                    sdk::element_bytes(product.result));
}

ProductWork::Prepared ProductWork::prepare(std::int64_t batch, Choosing choosing) {
  ProductStore& store = device_.products();
  Product product = plan_.product;
  product.batch = batch;
  Prepared prepared;
  const LibraryProduct form = to_library(product, kLibraryAlignment);
  const ProductAlgorithm chosen = store.choose(form, choosing);
  prepared.aligned = prepare(form, chosen);
  if (batch == std::min(plan_.product.batch, kMostBatch))
    own_way_ = store.library().own_way(chosen);
  const LibraryProduct loose = to_library(product, least_alignment(product.type));
  if (const std::optional<ProductAlgorithm> found = store.find(loose, choosing))
    prepared.any = prepare(loose, *found);
  return prepared;
}

std::unique_ptr<const PreparedProduct> ProductWork::prepare(const LibraryProduct& form,
                                                            const ProductAlgorithm& algorithm) {
  library_bytes_ = std::max(library_bytes_, algorithm.workspace_bytes);
  return device_.products().library().prepare(
      form, algorithm, plan_.product.factor,
      plan_.product.has_addend ? plan_.product.addend_factor : 0);
}

void ProductWork::compute(const sdk::ComputeContext& ctx) const {
  Stream& stream = *reinterpret_cast<Stream*>(ctx.stream());
  ProductAddresses first;
  first.a = address_of(plan_.a, ctx);
  first.b = address_of(plan_.b, ctx);
  first.d = address_of(plan_.y, ctx);
  if (plan_.product.has_addend) first.c = address_of(plan_.c, ctx);
  if (plan_.product.has_bias) first.bias = address_of(plan_.bias, ctx);
  if (workspace_bytes() > 0) first.workspace = address_of(plan_.workspace, ctx);
  try {
    if (plan_.spare_bytes > 0 && first.a % least_alignment(plan_.product.type) != 0) {
      const Address spare = address_of(plan_.spare, ctx);
      device_.context().copy(stream.handle(), spare, first.a, plan_.spare_bytes);
      first.a = spare;
    }
    const TimedWork timed(stream, "product");
    first.a_is_constant = plan_.b_is_constant;
    for (const ProductPlan::Call& call : plan_.calls) {
      ProductAddresses at = first;
      // The library computes the transpose, from the operands the other way round.
      at.a = first.b + call.b;
      at.b = first.a + call.a;
      at.d = first.d + call.y;
      at.bias = first.bias + call.bias;
      at.c = plan_.product.has_addend ? first.c + call.y : at.d;
      if (plan_.product.has_bias && at.bias % kLibraryAlignment != 0) {
        // Algorithms that are offered for such a bias have been seen to fault on it all the same: "misaligned address".
        const Address place = first.workspace + bias_place();
        const std::int64_t batch = plan_.product.batch;
        device_.context().copy(
            stream.handle(), place, at.bias,
            bias_bytes(call.is_rest ? batch % kMostBatch : std::min(batch, kMostBatch)));
        at.bias = place;
      }
      const Address bits = at.a | at.b | at.c | at.d | at.bias;
      const Prepared& form = call.is_rest ? rest_ : whole_;
      const PreparedProduct* const prepared =
          bits % kLibraryAlignment == 0 ? form.aligned.get() : form.any.get();
      if (prepared == nullptr)
        sdk::unsupported("an operand's address is no multiple of ", kLibraryAlignment,
                         " bytes, and ", device_.products().library().version(),
                         " has no algorithm for that; give memory that is aligned");
      prepared->enqueue(stream, at);
    }
  } catch (const sdk::Error& error) {
    throw sdk::Error(error.code(), sdk::message("node '", label_, "': ", error.what()));
  }
}

}  // namespace backplane::cuda
