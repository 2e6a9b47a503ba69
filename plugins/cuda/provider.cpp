#include "plugins/cuda/provider.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>

#include "plugins/common/device_ops/device_times.hpp"
#include "plugins/common/device_ops/program_cache.hpp"
#include "plugins/common/device_ops/provider.hpp"
#include "plugins/cuda/capture.hpp"
#include "plugins/cuda/device_api.hpp"
#include "plugins/cuda/imported_memory.hpp"
#include "plugins/cuda/stream.hpp"

namespace backplane::device_ops {

const char* provider_name() { return "cuda"; }

}  // namespace backplane::device_ops

namespace backplane::cuda {
namespace {

/// Before any other provider of this repository, on whose devices the same models took longer (GPU_RESULTS.md).
constexpr std::int32_t kScore = 90;

std::uint64_t number_option(const sdk::OpenContext& ctx, const char* name, const char* what) {
  const std::string text = ctx.option(name);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    sdk::invalid("option '", name, "' of provider 'cuda' is '", text, "'; it must be ", what);
  return number;
}

}  // namespace

Provider::Provider(const Libraries& libraries) : libraries_(libraries) {
  options_.emplace_back(
      "cache_dir", BP_OPTION_STRING, "auto", "",
      "The folder that keeps compiled kernels; auto: backplane/cuda in the user's "
      "cache folder; off: none.");
  options_.emplace_back("memory_limit_mb", BP_OPTION_INT, "0", "0..16777216",
                        "The most device memory to hold, in MiB; 0: what the device has.");
  options_.emplace_back("user_stream", BP_OPTION_STRING, "0", "",
                        "A CUstream of the calling program that every stream is, as a decimal "
                        "number; it must outlive the session; 0: streams of its own.");
  options_.emplace_back("fusion", BP_OPTION_BOOL, "true", "", "Whether chains of nodes are fused.");
  options_.emplace_back(
      "precision", BP_OPTION_STRING, "fp32", "fp32|tf32|fp16|bf16",
      "How float32 is computed and kept: exactly; rounded to TF32 in products and convolutions; "
      "or in 16 bits between nodes; sums are float32.");
  options_.emplace_back("precision_of", BP_OPTION_STRING, "", "",
                        "Nodes whose precision is another: NAME_PATTERN=PRECISION or "
                        "op:TYPE=PRECISION, separated by commas; the last that fits counts.");
  options_.emplace_back("layout", BP_OPTION_STRING, "auto", "auto|channels_first|channels_last",
                        "How images lie between convolutions; auto: channels last on tensor "
                        "cores, which is with every precision but fp32.");
  options_.emplace_back("gelu", BP_OPTION_STRING, "exact", "exact|tanh",
                        "How a Gelu behind a product is computed that is defined by erf: exactly, "
                        "or by tanh, which differs by up to 0.0005 and is part of the product.");
  options_.emplace_back("attention_mb", BP_OPTION_INT, "32", "1..65536",
                        "The most MiB of scores that an attention keeps which no kernel of "
                        "cuDNN computes: rows of more are computed one part after another.");
  options_.emplace_back(
      "tuning", BP_OPTION_STRING, "on", "off|on",
      "on: the algorithms that cuBLASLt and cuDNN propose for a product, convolution or attention "
      "are measured once for each shape, and the fastest is kept in cache_dir; off: the first.");
  options_.emplace_back(
      "overlap_launches", BP_OPTION_STRING, "auto", "auto|off",
      "auto: where the device can, a kernel of the provider's is begun while the one before it "
      "ends, "
      "and waits for it itself, which shortens the gap between them; off: it is begun afterwards.");
  for (sdk::Option& option : options_) option_pointers_.push_back(option.raw());
  raw_.name = "cuda";
  raw_.version = "0.1.0";
  raw_.options = option_pointers_.data();
  raw_.option_count = option_pointers_.size();
  raw_.self = this;
  raw_.enumerate = [](void* self, void* sink_ctx, bp_device_sink sink) -> bp_status* {
    auto& provider = *static_cast<Provider*>(self);
    if (bp_status* status = sdk::guarded([&] { provider.find_devices(); })) return status;
    for (const FoundDevice& found : provider.found_) {
      if (bp_status* status = sink(sink_ctx, &found.info)) return status;
    }
    return nullptr;
  };
  raw_.open = [](void* self, const bp_device_info* info, const bp_open_ctx* ctx, bp_device** out,
                 const bp_device_api** api) {
    return sdk::guarded([&] {
      *out = handle_of(static_cast<Provider*>(self)->open(sdk::OpenContext(info, ctx)));
      *api = device_api();
    });
  };
  raw_.get_interface = [](void*, const char* id, std::uint32_t min_version) -> const void* {
    if (min_version > 1) return nullptr;
    if (std::strcmp(id, BP_IMPORT_MEMORY_INTERFACE) == 0) return &imported_memory();
    if (std::strcmp(id, BP_PLAN_CAPTURE_INTERFACE) == 0) return &plan_capture();
    return std::strcmp(id, BP_DEVICE_TIMES_INTERFACE) == 0 ? &device_ops::device_times<Stream>()
                                                           : nullptr;
  };
}

/// Once: what is shown stays valid and the same until shutdown.
void Provider::find_devices() {
  const std::lock_guard lock(mutex_);
  if (is_searched_) return;
  if (driver_ == nullptr) driver_ = libraries_.driver();
  const int count = driver_->device_count();
  if (count == 0) sdk::unsupported("the NVIDIA driver shows no device (CUDA_VISIBLE_DEVICES?)");
  // Opening its libraries takes seconds, and every program comes here, whether or not it asks for a device.
  if (engine_ == nullptr && !libraries_.engine_is_there()) engine_ = libraries_.engine();
  found_.clear();
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    FoundDevice& found = found_.emplace_back();
    found.traits = driver_->traits(ordinal);
    bp_device_info& info = found.info;
    info.name = found.traits.name.c_str();
    info.vendor = "NVIDIA";
    info.driver = found.traits.driver.c_str();
    std::copy(found.traits.uuid.begin(), found.traits.uuid.end(), info.uuid);
    info.memory_bytes = found.traits.memory_bytes;
    info.type = BP_DEVICE_TYPE_GPU;
    info.score = kScore;
  }
  is_searched_ = true;
}

std::unique_ptr<Device> Provider::open(const sdk::OpenContext& ctx) {
  DeviceSettings settings;
  settings.cache_dir = device_ops::cache_folder(ctx.option("cache_dir"));
  settings.memory_limit_bytes =
      number_option(ctx, "memory_limit_mb", "a number of MiB") * 1024 * 1024;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an option is text, so handles come as numbers
  settings.user_stream = reinterpret_cast<StreamHandle>(
      number_option(ctx, "user_stream", "a stream's address as a decimal number"));
  settings.fusion = ctx.option("fusion") == "true";
  settings.precision = PrecisionRules(precision_named(ctx.option("precision"), "precision"),
                                      ctx.option("precision_of"));
  settings.attention_bytes = number_option(ctx, "attention_mb", "a number of MiB") * 1024 * 1024;
  settings.gelu = ctx.option("gelu") == "tanh" ? GeluForm::kTanh : GeluForm::kExact;
  settings.tuning = ctx.option("tuning") == "on";
  settings.trials = libraries_.trials;
  settings.overlap_launches = ctx.option("overlap_launches") == "auto";
  const std::string layout = ctx.option("layout");
  settings.layout = layout == "channels_last"    ? ImageLayout::kChannelsLast
                    : layout == "channels_first" ? ImageLayout::kChannelsFirst
                                                 : ImageLayout::kAuto;
  const auto found = std::find_if(found_.begin(), found_.end(), [&](const FoundDevice& each) {
    return &each.info == ctx.info();
  });
  if (found == found_.end()) sdk::invalid("provider 'cuda' showed no such device");
  {
    const std::lock_guard lock(mutex_);
    if (engine_ == nullptr) engine_ = libraries_.engine();
  }
  return std::make_unique<Device>(*driver_, *engine_, static_cast<int>(found - found_.begin()),
                                  settings);
}

}  // namespace backplane::cuda
