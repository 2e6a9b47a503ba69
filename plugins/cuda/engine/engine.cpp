// The engine's one exported name.
#include "plugins/cuda/engine.hpp"

#include "plugins/cuda/engine/cublas_lt.hpp"
#ifdef BACKPLANE_HAS_CUDNN
#include "plugins/cuda/engine/cudnn.hpp"
#include "plugins/cuda/engine/cudnn_attention.hpp"
#endif
#include "plugins/cuda/engine/nvrtc.hpp"

namespace backplane::cuda {
namespace {

class LinkedEngine final : public Engine {
 public:
  Compiler& compiler() override { return *compiler_; }
  std::unique_ptr<ProductLibrary> open_products(Context& context) override {
    return open_cublas_lt(context);
  }
#ifdef BACKPLANE_HAS_CUDNN
  std::unique_ptr<ConvolutionLibrary> open_convolutions(Context& context) override {
    return open_cudnn(context);
  }
  std::unique_ptr<AttentionLibrary> open_attentions(Context& context) override {
    return open_cudnn_attention(context);
  }
#else
  std::unique_ptr<ConvolutionLibrary> open_convolutions(Context&) override { return nullptr; }
  std::unique_ptr<AttentionLibrary> open_attentions(Context&) override { return nullptr; }
#endif

 private:
  std::unique_ptr<Compiler> compiler_ = open_nvrtc();
};

std::unique_ptr<Engine> open_engine() { return std::make_unique<LinkedEngine>(); }

}  // namespace
}  // namespace backplane::cuda

extern "C" {
// NOLINTBEGIN(readability-identifier-naming): a symbol that is exported
[[gnu::visibility("default")]] extern const backplane::cuda::EngineEntry backplane_cuda_engine;
const backplane::cuda::EngineEntry backplane_cuda_engine{backplane::cuda::kEngineBuild,
                                                         backplane::cuda::open_engine};
// NOLINTEND(readability-identifier-naming)
}
