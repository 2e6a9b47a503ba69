#include "plugins/opencl/device.hpp"

#include <algorithm>
#include <fstream>
#include <locale>
#include <string>
#include <utility>

#include "plugins/opencl/launch.hpp"

namespace backplane::opencl {
namespace {

bool has_extension(cl_device_id id, const char* name) {
  const std::string all = sdk::message(' ', device_text(id, CL_DEVICE_EXTENSIONS), ' ');
  return all.find(sdk::message(' ', name, ' ')) != std::string::npos;
}

Context context_of(cl_device_id id, const DeviceSettings& settings) {
  const cl_context users = settings.user_context;
  if (users == nullptr && settings.kept_context == nullptr) return make_context(id);
  if (users == nullptr) {
    check_cl(clRetainContext(settings.kept_context), "clRetainContext");
    return Context(settings.kept_context);
  }
  std::size_t size = 0;
  cl_int code = clGetContextInfo(users, CL_CONTEXT_DEVICES, 0, nullptr, &size);
  std::vector<cl_device_id> devices(size / sizeof(cl_device_id));
  if (code == CL_SUCCESS)
    code = clGetContextInfo(users, CL_CONTEXT_DEVICES, size, devices.data(), nullptr);
  if (code != CL_SUCCESS)
    sdk::invalid("option 'user_context' of provider 'opencl' is no cl_context: ", error_name(code));
  if (std::find(devices.begin(), devices.end(), id) == devices.end())
    sdk::invalid("option 'user_context' of provider 'opencl': that context does not hold ",
                 device_text(id, CL_DEVICE_NAME));
  check_cl(clRetainContext(users), "clRetainContext");
  return Context(users);
}

void check_user_queue(cl_command_queue queue, cl_device_id id, cl_context context) {
  cl_device_id queue_device = nullptr;
  cl_context queue_context = nullptr;
  cl_int code =
      clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof(queue_device), &queue_device, nullptr);
  if (code == CL_SUCCESS)
    code = clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof(queue_context), &queue_context,
                                 nullptr);
  if (code != CL_SUCCESS)
    sdk::invalid("option 'user_queue' of provider 'opencl' is no cl_command_queue: ",
                 error_name(code));
  cl_command_queue_properties properties = 0;
  check_cl(
      clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof(properties), &properties, nullptr),
      "clGetCommandQueueInfo");
  if ((properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0)
    sdk::invalid(
        "option 'user_queue' of provider 'opencl': that queue runs out of order; give an "
        "in-order one");
  if (queue_device != id || queue_context != context)
    sdk::invalid("option 'user_queue' of provider 'opencl': that queue is not of ",
                 device_text(id, CL_DEVICE_NAME),
                 " and of the context in use; give its context as "
                 "user_context");
}

bool uses_vectors(const DeviceTraits& traits, const DeviceSettings& settings) {
  return settings.tiles == "auto" ? traits.is_cpu : settings.tiles == "vector";
}

device_ops::DeviceLimits limits_of(const DeviceTraits& traits, const DeviceSettings& settings) {
  return {traits.name,
          traits.has_double ? "" : " (cl_khr_fp64)",
          traits.max_group_items,
          traits.alignment,
          uses_vectors(traits, settings),
          traits.vector_width};
}

std::string device_key(const DeviceTraits& traits) {
  return traits.platform + '\n' + traits.vendor + '\n' + traits.name + '\n' + traits.driver;
}

}  // namespace

DeviceTraits read_traits(cl_device_id id) {
  DeviceTraits traits;
  const auto platform = device_value<cl_platform_id>(id, CL_DEVICE_PLATFORM);
  traits.name = device_text(id, CL_DEVICE_NAME);
  traits.vendor = device_text(id, CL_DEVICE_VENDOR);
  traits.platform = platform_text(platform, CL_PLATFORM_VERSION);
  traits.driver = traits.platform + ", driver " + device_text(id, CL_DRIVER_VERSION);
  traits.is_cpu = (device_value<cl_device_type>(id, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0;
  traits.shares_host_memory = device_value<cl_bool>(id, CL_DEVICE_HOST_UNIFIED_MEMORY) != 0;
  traits.has_double = has_extension(id, "cl_khr_fp64");
  traits.runs_out_of_order =
      (device_value<cl_command_queue_properties>(id, CL_DEVICE_QUEUE_PROPERTIES) &
       CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0;
  traits.compute_units = device_value<cl_uint>(id, CL_DEVICE_MAX_COMPUTE_UNITS);
  traits.vector_width =
      std::clamp<cl_uint>(device_value<cl_uint>(id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT), 4, 16);
  traits.max_group_items = device_value<std::size_t>(id, CL_DEVICE_MAX_WORK_GROUP_SIZE);
  traits.memory_bytes = device_value<cl_ulong>(id, CL_DEVICE_GLOBAL_MEM_SIZE);
  traits.max_buffer_bytes = device_value<cl_ulong>(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  traits.alignment =
      std::max<std::uint64_t>(128, device_value<cl_uint>(id, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8);
  return traits;
}

Context make_context(cl_device_id id) {
  cl_int code = CL_SUCCESS;
  Context context(clCreateContext(nullptr, 1, &id, nullptr, nullptr, &code));
  if (code != CL_SUCCESS) throw_cl(code, "clCreateContext", device_text(id, CL_DEVICE_NAME));
  return context;
}

std::shared_ptr<ProgramStore> make_programs(cl_context context, cl_device_id id,
                                            const DeviceTraits& traits,
                                            const std::string& cache_dir) {
  return std::make_shared<ProgramStore>(context, id, device_key(traits), cache_dir);
}

std::uint64_t free_bytes(cl_device_id id, const DeviceTraits& traits, std::uint64_t used) {
  // CL_DEVICE_GLOBAL_FREE_MEMORY_AMD: KiB that are free, and the largest piece.
  constexpr cl_device_info kFreeMemoryAmd = 0x4039;
  std::size_t kibibytes[2] = {};
  if (has_extension(id, "cl_amd_device_attribute_query") &&
      clGetDeviceInfo(id, kFreeMemoryAmd, sizeof(kibibytes), kibibytes, nullptr) == CL_SUCCESS)
    return std::uint64_t{kibibytes[0]} << 10;
  if (traits.shares_host_memory) {
    std::ifstream file("/proc/meminfo");
    file.imbue(std::locale::classic());
    for (std::string name; file >> name; file.ignore(256, '\n')) {
      std::uint64_t kib = 0;
      if (name == "MemAvailable:" && file >> kib) return std::min(kib << 10, traits.memory_bytes);
    }
  }
  return traits.memory_bytes > used ? traits.memory_bytes - used : 0;
}

Buffer::~Buffer() {
  if (used_bytes != nullptr) *used_bytes -= bytes;
  if (host == nullptr) return;
  clEnqueueUnmapMemObject(mapping_queue.get(), memory.get(), host, 0, nullptr, nullptr);
  clFinish(mapping_queue.get());
}

Device::Device(cl_device_id id, const DeviceSettings& settings)
    : device_ops::Device(limits_of(read_traits(id), settings)),
      id_(id),
      traits_(read_traits(id)),
      settings_(settings),
      context_(context_of(id, settings)),
      side_queue_(make_queue(0)),
      programs_(settings.kept_programs != nullptr
                    ? settings.kept_programs
                    : make_programs(context_.get(), id, traits_, settings.cache_dir)),
      tuner_(*this, device_key(traits_), settings.cache_dir, settings.tuning) {
  if (settings_.user_queue != nullptr) check_user_queue(settings_.user_queue, id_, context());
  if (!settings_.out_of_order) return;
  if (settings_.user_queue != nullptr)
    sdk::invalid(
        "options 'queue' and 'user_queue' of provider 'opencl': every stream is the user's queue, "
        "which is in order; leave one of them out");
  if (!traits_.runs_out_of_order)
    sdk::unsupported("option 'queue' of provider 'opencl' is out_of_order, and ", traits_.name,
                     " has no such queues; leave it at in_order");
}

bool Device::vector_tiles() const { return limits().is_processor; }

Queue Device::make_stream_queue(bool takes_times) const {
  return make_queue((takes_times ? CL_QUEUE_PROFILING_ENABLE : 0) |
                    (settings_.out_of_order ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0));
}

Queue Device::make_queue(cl_command_queue_properties properties) const {
  cl_int code = CL_SUCCESS;
  Queue queue(clCreateCommandQueue(context_.get(), id_, properties, &code));
  if (code != CL_SUCCESS) throw_cl(code, "clCreateCommandQueue", traits_.name);
  return queue;
}

std::unique_ptr<Buffer> Device::allocate(bp_memory_kind kind, std::uint64_t bytes) {
  auto buffer = std::make_unique<Buffer>();
  buffer->bytes = bytes;
  const bool is_pinned = kind == BP_MEMORY_PINNED;
  if (!is_pinned && kind != BP_MEMORY_DEVICE)
    sdk::invalid("provider 'opencl' has no heap of memory kind ", kind);
  cl_int code = CL_SUCCESS;
  buffer->memory =
      Memory(clCreateBuffer(context(), CL_MEM_READ_WRITE | (is_pinned ? CL_MEM_ALLOC_HOST_PTR : 0),
                            bytes, nullptr, &code));
  if (code == CL_INVALID_BUFFER_SIZE) code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
  if (code != CL_SUCCESS) {
    throw_cl(code, "clCreateBuffer",
             sdk::message(bytes, " bytes on ", traits_.name, ", which has ", traits_.memory_bytes,
                          " and gives at most ", traits_.max_buffer_bytes, " at a time"));
  }
  if (!is_pinned) {
    buffer->used_bytes = settings_.used_bytes;
    if (buffer->used_bytes != nullptr) *buffer->used_bytes += bytes;
    return buffer;
  }
  clRetainCommandQueue(side_queue_.get());
  buffer->mapping_queue = Queue(side_queue_.get());
  buffer->host =
      clEnqueueMapBuffer(side_queue_.get(), buffer->memory.get(), CL_TRUE,
                         CL_MAP_READ | CL_MAP_WRITE, 0, bytes, 0, nullptr, nullptr, &code);
  if (code != CL_SUCCESS) {
    buffer->host = nullptr;
    throw_cl(code, "clEnqueueMapBuffer", traits_.name);
  }
  return buffer;
}

std::unique_ptr<Stream> Device::create_stream() {
  if (settings_.user_queue == nullptr) return create_side_stream();
  check_cl(clRetainCommandQueue(settings_.user_queue), "clRetainCommandQueue");
  return make_stream(Queue(settings_.user_queue));
}

std::unique_ptr<Stream> Device::create_side_stream() { return make_stream(make_stream_queue()); }

std::unique_ptr<Stream> Device::make_stream(Queue queue) {
  cl_int none = 0, code = CL_SUCCESS;
  Memory word(clCreateBuffer(context(), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof(none),
                             &none, &code));
  check_cl(code, "clCreateBuffer");
  return std::make_unique<Stream>(*this, std::move(queue), std::move(word));
}

Access access_of(const bp_tensor& tensor, std::uint64_t offset, std::uint64_t bytes, bool writes) {
  const auto* const buffer = reinterpret_cast<const Buffer*>(tensor.buffer);
  const void* const host = tensor.host_ptr != nullptr ? tensor.host_ptr
                           : buffer != nullptr        ? buffer->host
                                                      : nullptr;
  if (host == nullptr)
    return {buffer == nullptr ? nullptr : buffer->memory.get(), tensor.offset + offset,
            tensor.offset + offset + bytes, writes};
  // What the process can see goes by its address, by whichever way a command reaches it.
  const std::uint64_t begin = reinterpret_cast<std::uint64_t>(host) + offset +
                              (tensor.host_ptr != nullptr ? 0 : tensor.offset);
  return {nullptr, begin, begin + bytes, writes};
}

std::int32_t Device::copy_mode(bp_memory_kind from, bp_memory_kind to, Device* peer) const {
  // Most opened devices have contexts of their own, and memory belongs to a context.
  if (peer != nullptr && peer != this) return BP_COPY_NONE;
  if (from != BP_MEMORY_DEVICE && to != BP_MEMORY_DEVICE) return BP_COPY_NONE;
  // A device with memory of its own copies faster from pinned memory, so plain one is staged there.
  const bool is_plain = from == BP_MEMORY_HOST || to == BP_MEMORY_HOST;
  return is_plain && !traits_.shares_host_memory ? BP_COPY_NONE : BP_COPY_ASYNC;
}

void Device::copy(Stream& stream, const bp_tensor& from, const bp_tensor& to) {
  if (from.bytes != to.bytes)
    sdk::invalid("a copy of ", from.bytes, " bytes to ", to.bytes, " bytes");
  if (from.bytes == 0) return;
  const auto* const source = reinterpret_cast<const Buffer*>(from.buffer);
  const auto* const target = reinterpret_cast<const Buffer*>(to.buffer);
  const bool from_device = source != nullptr && source->host == nullptr;
  const bool to_device = target != nullptr && target->host == nullptr;
  const auto host_side = [](const bp_tensor& tensor, const Buffer* buffer) -> void* {
    if (tensor.host_ptr != nullptr || buffer == nullptr) return tensor.host_ptr;
    return static_cast<char*>(buffer->host) + tensor.offset;
  };
  Command command(stream);
  command.uses(access_of(from, 0, from.bytes, false));
  command.uses(access_of(to, 0, to.bytes, true));
  if (from_device && to_device) {
    check_cl(clEnqueueCopyBuffer(stream.queue(), source->memory.get(), target->memory.get(),
                                 from.offset, to.offset, from.bytes, command.wait_count(),
                                 command.wait_list(), command.event()),
             "clEnqueueCopyBuffer");
    command.done("copy on the device");
  } else if (to_device) {
    check_cl(clEnqueueWriteBuffer(stream.queue(), target->memory.get(), CL_FALSE, to.offset,
                                  to.bytes, host_side(from, source), command.wait_count(),
                                  command.wait_list(), command.event()),
             "clEnqueueWriteBuffer");
    command.done("copy to the device");
  } else if (from_device) {
    check_cl(clEnqueueReadBuffer(stream.queue(), source->memory.get(), CL_FALSE, from.offset,
                                 from.bytes, host_side(to, target), command.wait_count(),
                                 command.wait_list(), command.event()),
             "clEnqueueReadBuffer");
    command.done("copy to the host");
  } else {
    sdk::invalid("neither end of a copy is in memory of an OpenCL device");
  }
}

std::uint64_t Device::native(std::int32_t kind, Stream* stream, Buffer* buffer) const {
  switch (kind) {
    case BP_NATIVE_DEVICE:
      return reinterpret_cast<std::uint64_t>(context());
    case BP_NATIVE_STREAM:
      return reinterpret_cast<std::uint64_t>(stream->lend());
    case BP_NATIVE_BUFFER:
      return buffer == nullptr ? 0 : reinterpret_cast<std::uint64_t>(buffer->memory.get());
    default:
      sdk::unsupported("provider 'opencl' has no native handle of kind ", kind);
  }
}

std::unique_ptr<const device_ops::PreparedWork> Device::make_ready(const device_ops::Work& work) {
  return std::make_unique<Launches>(*this, work);
}

}  // namespace backplane::opencl
