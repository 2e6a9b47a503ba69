#include "core/runtime/dynamic_fetch.hpp"

#include <cstring>

#include "core/base/data_type.hpp"
#include "core/base/error.hpp"
#include "core/runtime/value_memory.hpp"

namespace backplane::core {

void refuse_fetch(const RuntimeValue& given, const RuntimeValue& made, const std::string& output,
                  const char* where) {
  invalid("the value given for output '", output, "' is tensor(", name(given.element()), ") ",
          to_string(given.dims), "; the run makes ",
          made.is_tensor() ? text("tensor(", name(made.element()), ") ", to_string(made.dims))
                           : made.type.to_string(),
          where);
}

void take_contents(RuntimeValue& from, RuntimeValue& to, const DynamicFetch& fetch) {
  if (!from.is_tensor()) {
    if (fetch.is_spare) return move_value(from, to);
    if (from.kind == BP_VALUE_ABSENT) return to.set_absent();
    to.set_type(from.type);
    to.elements = from.elements;
    return;
  }
  const bool on_device = from.description.memory == BP_MEMORY_DEVICE;
  const bool owned = to.memory != nullptr || to.element() == DataType::String;
  const bool placed =
      !owned && (to.description.host_ptr != nullptr || to.description.buffer != nullptr);
  const bool given = to.is_tensor() && (fetch.is_body ? placed : !(fetch.resize && owned));
  if (given && (to.element() != from.element() || to.dims != from.dims || on_device))
    refuse_fetch(to, from, fetch.output, on_device ? " in memory of its own" : "");
  if (!given && fetch.is_spare && from.memory != nullptr) return move_value(from, to);
  if (on_device) {
    to.set_tensor(from.element(), from.dims);
    to.memory = from.memory;
    point_into(to, from.description, 0);
    return;
  }
  if (!given) to.set_owned_tensor(from.element(), from.dims);
  to.strings = from.strings;
  if (from.description.bytes > 0 && from.description.host_ptr != nullptr)
    std::memcpy(to.description.host_ptr, from.description.host_ptr, from.description.bytes);
}

}  // namespace backplane::core
