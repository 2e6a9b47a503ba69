#include "plugins/cuda/convolution_work.hpp"

#include <algorithm>
#include <utility>

namespace backplane::cuda {

std::unique_ptr<ConvolutionWork> ConvolutionWork::find(Device& device, const std::string& label,
                                                       Convolution form,
                                                       const ConvolutionPlaces& places,
                                                       Choosing choosing, std::string& why) {
  ConvolutionStore& store = device.convolutions();
  form.alignment = kLibraryAlignment;
  const ConvolutionStore::Found aligned = store.find(form, choosing);
  form.alignment = static_cast<std::uint32_t>(sdk::element_bytes(form.type));
  // Memory that is not aligned is rare: the first plan will do, which costs none of the time that running them takes.
  const ConvolutionStore::Found any =
      aligned.plan == nullptr ? aligned : store.find(form, Choosing::kUnseen);
  if (any.plan == nullptr) {
    why = any.why;
    return nullptr;
  }
  return std::make_unique<ConvolutionWork>(label, form, places, aligned.plan, any.plan);
}

ConvolutionWork::ConvolutionWork(std::string label, const Convolution& form,
                                 const ConvolutionPlaces& places, Plan aligned, Plan any)
    : label_(std::move(label)),
      has_bias_(form.has_bias),
      has_addend_(form.has_addend),
      places_(places),
      aligned_(std::move(aligned)),
      any_(std::move(any)) {}

std::uint64_t ConvolutionWork::workspace_bytes() const {
  return std::max(aligned_->workspace_bytes(), any_->workspace_bytes());
}

void ConvolutionWork::compute(const sdk::ComputeContext& ctx) const {
  Stream& stream = *reinterpret_cast<Stream*>(ctx.stream());
  ConvolutionAddresses at;
  at.x = address_of(places_.x, ctx);
  at.w = address_of(places_.w, ctx);
  at.w_is_constant = places_.w_is_constant;
  if (has_bias_) at.bias = address_of(places_.bias, ctx);
  if (has_addend_) at.addend = address_of(places_.addend, ctx);
  at.y = address_of(places_.y, ctx);
  if (workspace_bytes() > 0) at.workspace = address_of(places_.workspace, ctx);
  const Address bits = at.x | at.w | at.bias | at.addend | at.y;
  try {
    const TimedWork timed(stream, "convolution");
    (bits % kLibraryAlignment == 0 ? aligned_ : any_)->enqueue(stream, at);
  } catch (const sdk::Error& error) {
    throw sdk::Error(error.code(), sdk::message("node '", label_, "': ", error.what()));
  }
}

}  // namespace backplane::cuda
