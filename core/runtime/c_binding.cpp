// The C host interface: bindings.
#include <map>
#include <string>
#include <vector>

#include "core/base/nearest_name.hpp"
#include "core/runtime/binding.hpp"
#include "core/runtime/c_objects.hpp"

struct backplane_binding : backplane::core::Handle {
  explicit backplane_binding(std::shared_ptr<backplane::core::Session> session)
      : binding(std::move(session)) {}

  /// The handle of a value, made when first asked for.
  backplane_value* handle(const char* kind, const std::string& name,
                          const backplane::core::RuntimeValuePtr& value,
                          const backplane::core::DevicePtr& device = nullptr) const {
    std::unique_ptr<backplane_value>& made = handles[kind + name];
    if (made == nullptr) made = std::make_unique<backplane_value>();
    made->value = value;
    made->device = device;
    return made.get();
  }

  /// Ends the handles of values of one kind.
  void drop_handles(const std::string& kind) const {
    std::erase_if(handles, [&](const auto& entry) { return entry.first.starts_with(kind); });
  }

  backplane::core::Binding binding;
  mutable backplane::core::UseGate gate;
  mutable std::map<std::string, std::unique_ptr<backplane_value>> handles;
};

namespace backplane::core {
namespace {

/// A binding while one thread uses it.
class HeldBinding {
 public:
  explicit HeldBinding(backplane_binding* binding)
      : handle_(required(binding, "binding")), changing_(handle_.gate, "binding") {}
  Binding* operator->() { return &handle_.binding; }

 private:
  backplane_binding& handle_;
  UseGate::Changing changing_;
};

}  // namespace
}  // namespace backplane::core

using namespace backplane::core;  // the functions below are C

backplane_status* backplane_binding_create(backplane_session* session, backplane_binding** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    *out = new backplane_binding(required(session, "session").session);
  });
}

void backplane_binding_destroy(backplane_binding* binding) { destroy(binding); }

backplane_status* backplane_binding_bind_input(backplane_binding* binding, const char* name,
                                               const backplane_value* value) {
  return guarded([&] {
    const backplane_value& bound = required(value, "value");
    HeldBinding(binding)->bind_input(&required(name, "name"), bound.value, bound.device);
  });
}

backplane_status* backplane_binding_bind_output(backplane_binding* binding, const char* name,
                                                backplane_value* value) {
  return guarded([&] {
    const backplane_value* given = value != nullptr ? &required(value, "value") : nullptr;
    HeldBinding(binding)->bind_output(&required(name, "name"),
                                      given != nullptr ? given->value : nullptr,
                                      given != nullptr ? given->device : nullptr);
  });
}

backplane_status* backplane_binding_bind_output_to(backplane_binding* binding, const char* name,
                                                   const char* device) {
  return guarded([&] {
    HeldBinding(binding)->bind_output_to(&required(name, "name"), &required(device, "device"));
  });
}

backplane_status* backplane_binding_run(backplane_binding* binding) {
  return guarded([&] { HeldBinding(binding)->run(nullptr); });
}

backplane_status* backplane_binding_run_with(backplane_binding* binding,
                                             const backplane_run_options* options) {
  if (options == nullptr) return backplane_binding_run(binding);
  return guarded([&] {
    const backplane_run_options& with = required(options, "options");
    const UseGate::Reading reading(with.gate, "run options object");
    HeldBinding(binding)->run(&with.options);
  });
}

const backplane_value* backplane_binding_output(const backplane_binding* binding,
                                                const char* name) {
  if (usable(binding) == nullptr || name == nullptr) return nullptr;
  try {
    const RuntimeValuePtr value = binding->binding.output(name);
    return value != nullptr
               ? binding->handle("output ", name, value, binding->binding.output_device(name))
               : nullptr;
  } catch (const std::exception&) {  // out of memory
    return nullptr;
  }
}

backplane_status* backplane_binding_take_output(backplane_binding* binding, const char* name,
                                                backplane_value** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    HeldBinding held(binding);
    const std::string word = &required(name, "name");
    auto taken = std::make_unique<backplane_value>();
    const PlacedValue value = held->take_output(word);
    if (value.value == nullptr) return;
    taken->value = value.value;
    taken->device = value.device;
    binding->handle("output ", word, held->output(word), value.device);
    *out = taken.release();
  });
}

backplane_status* backplane_binding_clear_inputs(backplane_binding* binding) {
  return guarded([&] {
    HeldBinding held(binding);
    held->clear_inputs();
    binding->drop_handles("input ");
  });
}

backplane_status* backplane_binding_clear_outputs(backplane_binding* binding) {
  return guarded([&] {
    HeldBinding held(binding);
    held->clear_outputs();
    binding->drop_handles("output ");
  });
}

backplane_status* backplane_binding_resize(backplane_binding* binding, const char* name,
                                           const std::int64_t* dims, std::size_t rank) {
  return guarded([&] {
    HeldBinding held(binding);
    const std::string word = &required(name, "name");
    if (rank > 0) required(dims, "dims");
    if (rank > 1024) invalid("a tensor of rank ", rank, " is not supported");
    held->resize(word, std::vector<std::int64_t>(dims, dims + rank));
  });
}

backplane_status* backplane_binding_plan(backplane_binding* binding) {
  return guarded([&] { HeldBinding(binding)->plan(); });
}

backplane_status* backplane_binding_input(backplane_binding* binding, const char* name,
                                          backplane_value** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    HeldBinding held(binding);
    const std::string word = &required(name, "name");
    *out = binding->handle("input ", word, held->input(word));
  });
}

backplane_status* backplane_binding_saved(const backplane_binding* binding, const char* name,
                                          const backplane_value** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    const backplane_binding& from = required(binding, "binding");
    const std::string word = &required(name, "name");
    const PlacedValue saved = from.binding.saved(word);
    if (saved.value == nullptr)
      invalid("no run of the binding saved '", word, "'; see backplane_session_save");
    *out = from.handle("saved ", word, saved.value, saved.device);
  });
}
