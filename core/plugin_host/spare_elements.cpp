#include "core/plugin_host/spare_elements.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "core/plugin_host/spare_memory.hpp"

namespace backplane::core {
namespace {

using Kept = std::vector<std::unique_ptr<RuntimeValue>>;

// Values may end after the thread's other variables: no destructor, so that it can be read then.
thread_local bool thread_is_ending = false;

struct KeptOfThread {
  Kept values;
  KeptOfThread() = default;
  KeptOfThread(const KeptOfThread&) = delete;
  KeptOfThread& operator=(const KeptOfThread&) = delete;
  ~KeptOfThread() { thread_is_ending = true; }
};

Kept& kept() {
  thread_local KeptOfThread of_thread;
  return of_thread.values;
}

/// Makes it as good as new. False: it holds too much to be kept.
bool clear(RuntimeValue& value) {
  value.set_absent();  // elements that nobody else has are kept before it is
  value.type = Type();
  value.strides.clear();
  value.imported.reset();
  value.is_element = false;
  if (!value.has_own_memory(SpareElements::kMostBytes)) value.memory.reset();
  return value.strings.capacity() <= SpareElements::kMostParts &&
         value.elements.capacity() <= SpareElements::kMostParts;
}

struct KeepElement {
  void operator()(RuntimeValue* value) const {
    std::unique_ptr<RuntimeValue> owned(value);
    if (thread_is_ending || !SpareMemory::is_on() || !clear(*value)) return;
    Kept& values = kept();
    if (values.size() >= SpareElements::kMostKept) return;
    try {
      values.push_back(std::move(owned));
    } catch (...) {  // no memory to keep memory
    }
  }
};

}  // namespace

RuntimeValuePtr SpareElements::take() {
  Kept& values = kept();
  std::unique_ptr<RuntimeValue> value;
  if (values.empty()) {
    value = std::make_unique<RuntimeValue>();
  } else {
    value = std::move(values.back());
    values.pop_back();
  }
  value->is_element = true;
  return RuntimeValuePtr(value.release(), KeepElement());
}

std::size_t SpareElements::kept_count() { return kept().size(); }

}  // namespace backplane::core
