#include "tools/backplane/check/bare_host.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <malloc.h>

#include "tools/backplane/check/bare_graph.hpp"

struct bp_status {
  bp_code code;
  std::string message;
};

/// Of the sanitizers' run time, where there is one: malloc is theirs then.
// NOLINTNEXTLINE(readability-identifier-naming): the name is theirs too
extern "C" __attribute__((weak)) std::size_t __sanitizer_get_current_allocated_bytes();

namespace backplane::cli::check {
namespace {

std::atomic<std::int64_t> live_status_count{0};
std::atomic<std::int64_t> host_blocks{0};
std::atomic<bool> memory_fails{false};
std::string step;
StepRecord* step_copy = nullptr;

/// As many as a small machine has; parts get different numbers though they run one after another.
constexpr std::uint32_t kThreads = 3;

bp_status* status_new(bp_code code, const char* message, std::uint64_t size) {
  live_status_count.fetch_add(1);
  return new bp_status{code, message == nullptr ? std::string() : std::string(message, size)};
}

void status_free(bp_status* status) {
  if (status == nullptr) return;
  live_status_count.fetch_sub(1);
  delete status;
}

void* alloc(std::uint64_t bytes, std::uint64_t alignment) {
  if (memory_fails) return nullptr;
  const std::uint64_t unit = std::max<std::uint64_t>(alignment, sizeof(void*));
  void* memory =
      std::aligned_alloc(unit, (std::max<std::uint64_t>(bytes, 1) + unit - 1) / unit * unit);
  if (memory != nullptr) host_blocks.fetch_add(1);
  return memory;
}

void dealloc(void* memory) {
  if (memory == nullptr) return;
  host_blocks.fetch_sub(1);
  std::free(memory);
}

/// The last part first, each as a worker of its own: a loop whose parts lean on each other shows.
void parallel_for(bp_threads*, std::uint64_t n, std::uint64_t grain, bp_range_fn fn,
                  void* argument) {
  const std::uint64_t parts =
      std::clamp<std::uint64_t>(n / std::max<std::uint64_t>(grain, 1), 1, kThreads);
  for (std::uint64_t part = parts; part-- > 0;) {
    const std::uint64_t begin = n * part / parts, end = n * (part + 1) / parts;
    if (begin < end) fn(argument, begin, end, static_cast<std::uint32_t>(part));
  }
}

bp_status* tensors_only() {
  return refuse(BP_UNSUPPORTED, "the suite's own host has dense tensors and nothing else");
}

bp_value_api value_api() {
  bp_value_api api{};
  api.string_get = [](const bp_value*, std::uint64_t, bp_str*) { return tensors_only(); };
  api.string_set = [](const bp_value*, std::uint64_t, bp_str) { return tensors_only(); };
  api.sequence_size = [](const bp_value*, std::uint64_t*) { return tensors_only(); };
  api.sequence_at = [](const bp_value*, std::uint64_t, const bp_value**) { return tensors_only(); };
  api.sequence_append = [](const bp_value*, bp_dtype, std::int32_t, const std::int64_t*,
                           const bp_value**) { return tensors_only(); };
  api.sequence_append_value = [](const bp_value*, const bp_value*) { return tensors_only(); };
  api.map_parts = [](const bp_value*, const bp_value**, const bp_value**) {
    return tensors_only();
  };
  api.map_set = [](const bp_value*, const bp_value*, const bp_value*) { return tensors_only(); };
  api.tensor_new = [](bp_dtype, std::int32_t, const std::int64_t*, const bp_value**) {
    return tensors_only();
  };
  api.value_new = [](const char*, const bp_value**) { return tensors_only(); };
  api.value_free = [](const bp_value*) {};
  return api;
}

/// Copies the table's functions; the head stays that of a newer host.
template <class Table>
void fill(Grown<Table>& grown, Table table) {
  table.struct_size = grown.base.struct_size;
  grown.base = table;
}

struct Tables {
  Grown<bp_graph_api> graph;
  Grown<bp_value_api> value;
  Grown<bp_host_api> host;

  Tables() {
    fill(graph, graph_api());
    fill(value, value_api());
    bp_host_api& api = host.base;
    api.abi_major = BP_ABI_MAJOR;
    api.abi_minor = BP_ABI_MINOR;
    api.status_new = status_new;
    api.status_code = [](const bp_status* status) {
      return status == nullptr ? BP_OK : status->code;
    };
    api.status_message = [](const bp_status* status, bp_str* out) {
      *out = status == nullptr ? bp_str{"", 0}
                               : bp_str{status->message.data(), status->message.size()};
    };
    api.status_free = status_free;
    api.log = [](std::int32_t, const char*, std::uint64_t) {};
    api.alloc = alloc;
    api.dealloc = dealloc;
    api.thread_count = [](const bp_threads*) { return kThreads; };
    api.parallel_for = parallel_for;
    api.graph = &graph.base;
    api.value = &value.base;
    api.get_interface = [](const char*, std::uint32_t) -> const void* { return nullptr; };
  }
};

const char* code_name(bp_code code) {
  static const char* const kNames[] = {"BP_OK",
                                       "BP_INVALID_ARGUMENT",
                                       "BP_UNSUPPORTED",
                                       "BP_NOT_FOUND",
                                       "BP_OUT_OF_MEMORY",
                                       "BP_DEVICE_LOST",
                                       "BP_CANCELLED",
                                       "BP_FAILED",
                                       "BP_INTERNAL",
                                       "BP_UNIMPLEMENTED",
                                       "BP_INCOMPATIBLE",
                                       "BP_TIMEOUT"};
  return code >= BP_OK && code <= BP_TIMEOUT ? kNames[code] : "an unknown code";
}

}  // namespace

std::string described(const Outcome& outcome) {
  return std::string(code_name(outcome.code)) +
         (outcome.message.empty() ? " without a message" : ": " + outcome.message);
}

const bp_host_api* host_api() {
  static const Tables tables;
  return &tables.host.base;
}

bp_threads* host_threads() {
  static int pool = 0;
  return reinterpret_cast<bp_threads*>(&pool);
}

Outcome take(bp_status* status) {
  if (status == nullptr) return {};
  Outcome outcome{status->code, status->message};
  status_free(status);
  return outcome;
}

bp_status* refuse(bp_code code, const std::string& message) {
  return status_new(code, message.data(), message.size());
}

std::int64_t live_statuses() { return live_status_count.load(); }
std::int64_t live_host_blocks() { return host_blocks.load(); }
void fail_host_memory(bool fails) { memory_fails = fails; }

std::uint64_t heap_bytes() {
  if (__sanitizer_get_current_allocated_bytes != nullptr)
    return __sanitizer_get_current_allocated_bytes();
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
#else
  return 0;
#endif
}

void keep_step_in(StepRecord& record) { step_copy = &record; }

void enter(const std::string& text) {
  step = text;
  if (step_copy == nullptr) return;
  const std::size_t size = std::min(text.size(), sizeof step_copy->text - 1);
  std::memcpy(step_copy->text, text.data(), size);
  step_copy->text[size] = '\0';
  ++step_copy->count;
}

const std::string& current_step() { return step; }

}  // namespace backplane::cli::check
