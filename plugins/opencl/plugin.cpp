// The OpenCL provider's plugin: one device for every device of every platform that the system's ICD
// loader finds.
#include <atomic>
#include <charconv>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <sys/resource.h>
#include <vector>

#include "backplane/plugin_api/optional/device_state.h"
#include "backplane/plugin_api/optional/first_look.h"
#include "plugins/common/device_ops/device_times.hpp"
#include "plugins/common/device_ops/provider.hpp"
#include "plugins/opencl/device.hpp"
#include "plugins/opencl/device_api.hpp"
#include "plugins/opencl/first_look.hpp"
#include "plugins/opencl/host_views.hpp"
#include "plugins/opencl/imported_memory.hpp"
#include "plugins/opencl/kept_signals.hpp"
#include "plugins/opencl/stream.hpp"

namespace backplane::opencl {
namespace {

/// An OpenCL device with what the host is shown of it.
struct FoundDevice {
  cl_device_id id = nullptr;
  DeviceTraits traits;
  bp_device_info info = sdk::abi_struct<bp_device_info>();
  std::shared_ptr<std::atomic<std::uint64_t>> used_bytes =
      std::make_shared<std::atomic<std::uint64_t>>(0);
  /// Of a processor, from the first session on: PoCL has the functions that kernels call in memory while there is a context, and
  /// reads them anew for the first kernel after that, which takes half a second.
  Context kept;
  /// Built in `kept`, which sessions without a folder for programs work in: one need not build what another has built.
  std::shared_ptr<ProgramStore> kept_programs;
};

/// "cl" and a hash of what tells devices apart: the same device has the same one in every process.
void make_uuid(const DeviceTraits& traits, std::size_t index, std::uint8_t (&uuid)[16]) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char byte : sdk::message(traits.platform, '\n', traits.name, '\n', index))
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
  std::memcpy(uuid, "opencl", 6);
  std::memcpy(uuid + 8, &hash, sizeof(hash));
}

std::int32_t type_of(cl_device_id id) {
  const auto type = device_value<cl_device_type>(id, CL_DEVICE_TYPE);
  if ((type & CL_DEVICE_TYPE_GPU) != 0) return BP_DEVICE_TYPE_GPU;
  return (type & CL_DEVICE_TYPE_CPU) != 0 ? BP_DEVICE_TYPE_CPU : BP_DEVICE_TYPE_ACCELERATOR;
}

std::vector<cl_device_id> devices_of(cl_platform_id platform) {
  cl_uint count = 0;
  const cl_int code = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count);
  if (code != CL_SUCCESS || count == 0) return {};
  std::vector<cl_device_id> ids(count);
  check_cl(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, ids.data(), nullptr),
           "clGetDeviceIDs");
  return ids;
}

/// For messages.
std::string described(cl_platform_id platform, bool is_without_devices) {
  std::string words = platform_text(platform, CL_PLATFORM_NAME);
  if (!is_without_devices) return words;
  const bool is_pocl = words == "Portable Computing Language";
  words += " (without a device";
  if (is_pocl) words += ", as where it cannot write its cache folder, POCL_CACHE_DIR";
  return words + ")";
}

/// PoCL aborts the process when its devices are asked for and have less memory than it wants of one, which RLIMIT_DATA limits.
void check_data_limit() {
  constexpr rlim_t kLeastBytes = rlim_t{128} << 20;
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_DATA, &limit) != 0 || limit.rlim_cur >= kLeastBytes) return;
  sdk::unsupported("OpenCL drivers are not asked for devices in a process that may have ",
                   limit.rlim_cur, " bytes of data, since PoCL ends one that may have less than ",
                   kLeastBytes, "; raise the limit (ulimit -d) to use provider 'opencl'");
}

std::vector<cl_platform_id> platforms() {
  cl_uint count = 0;
  const cl_int code = clGetPlatformIDs(0, nullptr, &count);
  if (code != CL_SUCCESS || count == 0) {
    sdk::unsupported(
        "no OpenCL platform (clGetPlatformIDs: ", code == CL_SUCCESS ? "none" : error_name(code),
        "): install the OpenCL driver of the device, or PoCL for the processor "
        "(Debian: pocl-opencl-icd); drivers are listed in /etc/OpenCL/vendors");
  }
  std::vector<cl_platform_id> ids(count);
  check_cl(clGetPlatformIDs(count, ids.data(), nullptr), "clGetPlatformIDs");
  return ids;
}

/// An address given as a decimal number: a handle of the program that this library is part of.
template <class Handle>
Handle handle_option(const sdk::OpenContext& ctx, const char* name) {
  const std::string text = ctx.option(name);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    sdk::invalid("option '", name, "' of provider 'opencl' is '", text,
                 "'; it must be a handle's address as a decimal number");
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an option is text, so handles come as numbers
  return reinterpret_cast<Handle>(number);
}

/// The provider; made by the first query, never destroyed.
class Provider {
 public:
  Provider() {
    options_.emplace_back("cache_dir", BP_OPTION_STRING, "auto", "",
                          "The folder that keeps built programs; auto: backplane/opencl in the "
                          "user's cache folder; off: none.");
    options_.emplace_back("user_context", BP_OPTION_STRING, "0", "",
                          "A cl_context of the calling program to work in, as a decimal number; 0: "
                          "one of its own.");
    options_.emplace_back("user_queue", BP_OPTION_STRING, "0", "",
                          "An in-order cl_command_queue of user_context that every stream is, as a "
                          "decimal number; 0: queues of its own.");
    options_.emplace_back(
        "queue", BP_OPTION_STRING, "in_order", "in_order|out_of_order",
        "What streams are: queues in order, or queues whose commands wait only for those that "
        "touch the same memory.");
    options_.emplace_back(
        "tiles", BP_OPTION_STRING, "auto", "auto|vector|local",
        "How products and convolutions are tiled: in vectors of one work item, in "
        "local memory of a group, or as suits the device. Rows of reductions, running sums, TopK, "
        "softmax and normalization are one item's, or shared by a group, likewise.");
    options_.emplace_back("fusion", BP_OPTION_BOOL, "true", "",
                          "Whether chains of nodes are fused.");
    options_.emplace_back(
        "tuning", BP_OPTION_STRING, "off", "off|on",
        "on: the ways to do a matrix product or convolution are measured once for each shape "
        "when a session is made, and the choice is kept in cache_dir; off: chosen by rule.");
    for (sdk::Option& option : options_) option_pointers_.push_back(option.raw());
    raw_.name = "opencl";
    raw_.version = "0.1.0";
    raw_.options = option_pointers_.data();
    raw_.option_count = option_pointers_.size();
    raw_.self = this;
    raw_.enumerate = [](void* self, void* sink_ctx, bp_device_sink sink) {
      bp_status* status = nullptr;
      bp_status* caught =
          sdk::guarded([&] { status = static_cast<Provider*>(self)->enumerate(sink_ctx, sink); });
      return caught != nullptr ? caught : status;
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
      if (std::strcmp(id, BP_DEVICE_STATES_INTERFACE) == 0) return &device_states();
      if (std::strcmp(id, BP_FIRST_LOOK_INTERFACE) == 0) return &first_look();
      if (std::strcmp(id, BP_HOST_MEMORY_INTERFACE) == 0) return &host_views();
      if (std::strcmp(id, BP_IMPORT_MEMORY_INTERFACE) == 0) return &imported_memory();
      return std::strcmp(id, BP_DEVICE_TIMES_INTERFACE) == 0 ? &device_ops::device_times<Stream>()
                                                             : nullptr;
    };
  }
  const bp_provider* raw() const { return &raw_; }

 private:
  static const bp_device_states& device_states() {
    static const bp_device_states kStates = [] {
      bp_device_states states = sdk::abi_struct<bp_device_states>();
      states.query = [](void* self, const bp_device_info* info, bp_device_state* out) {
        return sdk::guarded([&] {
          if (!BP_HAS(bp_device_state, out, power_mw)) sdk::invalid("bp_device_state is too small");
          const FoundDevice& found = static_cast<Provider*>(self)->found(info);
          out->free_bytes = free_bytes(found.id, found.traits, *found.used_bytes);
          out->power_mw = 0;  // OpenCL does not say
        });
      };
      return states;
    }();
    return kStates;
  }

  /// Processors score 0.
  static const bp_first_look& first_look() {
    static const bp_first_look kLook = [] {
      bp_first_look look = sdk::abi_struct<bp_first_look>();
      look.pass_over = [](void*, const char** reason) {
        return sdk::guarded([&] {
          static const std::string kWhy = why_only_processors();
          *reason = kWhy.empty() ? nullptr : kWhy.c_str();
        });
      };
      return look;
    }();
    return kLook;
  }

  FoundDevice& found(const bp_device_info* info) {
    for (FoundDevice& each : found_) {
      if (&each.info == info) return each;
    }
    sdk::invalid("provider 'opencl' showed no such device");
  }

  bp_status* enumerate(void* sink_ctx, bp_device_sink sink) {
    find_devices();
    for (const FoundDevice& found : found_) {
      if (bp_status* status = sink(sink_ctx, &found.info)) return status;
    }
    return nullptr;
  }

  /// Once: what is shown stays valid and the same until shutdown.
  void find_devices() {
    const std::lock_guard lock(mutex_);
    if (is_searched_) return;
    check_data_limit();
    const KeptSignals kept;
    std::string names;
    for (const cl_platform_id platform : platforms()) {
      const std::vector<cl_device_id> ids = devices_of(platform);
      names += (names.empty() ? "" : ", ") + described(platform, ids.empty());
      for (const cl_device_id id : ids) {
        if (device_value<cl_bool>(id, CL_DEVICE_AVAILABLE) == 0 ||
            device_value<cl_bool>(id, CL_DEVICE_COMPILER_AVAILABLE) == 0)
          continue;
        add(id);
      }
    }
    if (found_.empty())
      sdk::unsupported("no OpenCL device that can compile kernels; platforms: ", names);
    is_searched_ = true;
  }

  void add(cl_device_id id) {
    FoundDevice& found = found_.emplace_back();
    found.id = id;
    found.traits = read_traits(id);
    bp_device_info& info = found.info;
    info.name = found.traits.name.c_str();
    info.vendor = found.traits.vendor.c_str();
    info.driver = found.traits.driver.c_str();
    make_uuid(found.traits, found_.size(), info.uuid);
    info.memory_bytes = found.traits.memory_bytes;
    info.type = type_of(id);
    // A processor is served better by the provider that is written for it: only who asks gets this one.
    info.score = info.type == BP_DEVICE_TYPE_CPU ? 0 : 60;
  }

  std::unique_ptr<Device> open(const sdk::OpenContext& ctx) {
    DeviceSettings settings;
    settings.cache_dir = device_ops::cache_folder(ctx.option("cache_dir"));
    settings.user_context = handle_option<cl_context>(ctx, "user_context");
    settings.user_queue = handle_option<cl_command_queue>(ctx, "user_queue");
    settings.out_of_order = ctx.option("queue") == "out_of_order";
    settings.tiles = ctx.option("tiles");
    settings.fusion = ctx.option("fusion") == "true";
    settings.tuning = ctx.option("tuning") == "on";
    FoundDevice& device = found(ctx.info());
    const KeptSignals kept;
    settings.used_bytes = device.used_bytes;
    if (device.traits.is_cpu) {
      const std::lock_guard lock(mutex_);
      if (!device.kept) {
        device.kept = make_context(device.id);
        device.kept_programs = make_programs(device.kept.get(), device.id, device.traits, "");
      }
      if (settings.cache_dir.empty() && settings.user_context == nullptr) {
        settings.kept_context = device.kept.get();
        settings.kept_programs = device.kept_programs;
      }
    }
    return std::make_unique<Device>(device.id, settings);
  }

  std::mutex mutex_;
  bool is_searched_ = false;
  std::deque<FoundDevice> found_;
  std::vector<sdk::Option> options_;
  std::vector<const bp_option*> option_pointers_;
  bp_provider raw_ = sdk::abi_struct<bp_provider>();
};

}  // namespace
}  // namespace backplane::opencl

const char* backplane::device_ops::provider_name() { return "opencl"; }

BP_PLUGIN("opencl", "0.1.0", [](backplane::sdk::Plugin& plugin) {
  static auto* const provider = new backplane::opencl::Provider;
  plugin.vendor("Backplane");
  plugin.provider(provider->raw());
});
