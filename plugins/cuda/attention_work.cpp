#include "plugins/cuda/attention_work.hpp"

namespace backplane::cuda {
namespace {

bool is_aligned(Address address) { return address % kLibraryAlignment == 0; }

}  // namespace

void AttentionWork::compute(const sdk::ComputeContext& ctx) const {
  Stream& stream = *reinterpret_cast<Stream*>(ctx.stream());
  try {
    AttentionAddresses at;
    at.q = read(plan_.q, ctx, stream);
    at.k = read(plan_.k, ctx, stream);
    at.v = read(plan_.v, ctx, stream);
    if (plan_.has_mask) at.mask = read(plan_.mask, ctx, stream);
    const Address y = address_of(plan_.y.memory, ctx);
    at.y = is_aligned(y) ? y : address_of(plan_.y.spare, ctx);
    if (plan_.prepared->workspace_bytes() > 0) at.workspace = address_of(plan_.workspace, ctx);
    const TimedWork timed(stream, "attention");
    plan_.prepared->enqueue(stream, at, plan_.scale);
    if (at.y != y) device_.context().copy(stream.handle(), y, at.y, plan_.y.bytes);
  } catch (const sdk::Error& error) {
    throw sdk::Error(error.code(), sdk::message("node '", label_, "': ", error.what()));
  }
}

Address AttentionWork::read(const PlacedOperand& operand, const sdk::ComputeContext& ctx,
                            Stream& stream) const {
  const Address from = address_of(operand.memory, ctx);
  if (is_aligned(from)) return from;
  const Address spare = address_of(operand.spare, ctx);
  device_.context().copy(stream.handle(), spare, from, operand.bytes);
  return spare;
}

}  // namespace backplane::cuda
