// The C host interface: runs, their options, saved values.
#include <algorithm>

#include "core/base/quote.hpp"
#include "core/runtime/c_objects.hpp"

namespace backplane::core {
namespace {

/// Shows nodes to a caller's functions.
class NodeCallbacks {
 public:
  explicit NodeCallbacks(const backplane_node_callbacks& callbacks) : callbacks_(callbacks) {}

  bool operator()(const NodeView& view) {
    const backplane_node_fn call = view.done ? callbacks_.after : callbacks_.before;
    if (call == nullptr) return true;
    const std::string name(view.name), op_type(view.op_type), domain(view.domain),
        provider(view.provider);
    std::vector<std::unique_ptr<backplane_value>> handles;
    const std::vector<const backplane_value*> inputs = wrap(view.inputs, handles);
    const std::vector<const backplane_value*> outputs = wrap(view.outputs, handles);
    const backplane_node node{
        sizeof(backplane_node), name.c_str(),     op_type.c_str(),
        domain.c_str(),         provider.c_str(), inputs.size(),
        inputs.data(),          outputs.size(),   view.done ? outputs.data() : nullptr};
    return call(callbacks_.context, &node) == 0;
  }

 private:
  static std::vector<const backplane_value*> wrap(
      std::span<RuntimeValue* const> values,
      std::vector<std::unique_ptr<backplane_value>>& handles) {
    std::vector<const backplane_value*> wrapped;
    for (RuntimeValue* value : values) {
      wrapped.push_back(nullptr);
      if (value == nullptr) continue;
      handles.push_back(std::make_unique<backplane_value>());
      handles.back()->value = RuntimeValuePtr(RuntimeValuePtr(), value);  // borrowed
      wrapped.back() = handles.back().get();
    }
    return wrapped;
  }

  backplane_node_callbacks callbacks_;
};

using Changing = UseGate::Changing;

void run_by_name(backplane_session& session, const RunOptions* options,
                 const char* const* feed_names, const backplane_value* const* feeds,
                 std::size_t feed_count, const char* const* fetch_names, backplane_value** fetches,
                 std::size_t fetch_count) {
  const Session& held = *session.session;
  std::vector<std::string> outputs;
  for (const ValueId id : held.outputs()) outputs.push_back(held.model().graph.value(id).name);
  NamedCall call(feed_names, feeds, feed_count, fetch_names, fetches, fetch_count, outputs);
  session.session->run(call.feeds(), call.fetches(), options);
  call.hand_over();
}

}  // namespace

NamedCall::NamedCall(const char* const* feed_names, const backplane_value* const* feeds,
                     std::size_t feed_count, const char* const* fetch_names,
                     backplane_value** fetches, std::size_t fetch_count,
                     const std::vector<std::string>& outputs)
    : places_(fetches) {
  if (fetch_names == nullptr && fetch_count != outputs.size())
    invalid("fetch_count is ", fetch_count, "; without fetch_names it is ", outputs.size(),
            ", the number of outputs");
  if (feed_count > 0) {
    required(feed_names, "feed_names");
    required(feeds, "feeds");
  }
  for (std::size_t i = 0; i < feed_count; ++i) {
    const char& name = required(feed_names[i], "feed_names");
    if (feeds[i] == nullptr) {
      invalid("the input ", quoted(&name),
              " is given no value: a null one, or in C++ one that is empty or was moved from");
    }
    feeds_.push_back({&name, feeds[i]->value.get(), feeds[i]->device});
  }
  if (fetch_count > 0) required(fetches, "fetches");
  made_.resize(fetch_count);
  for (std::size_t i = 0; i < fetch_count; ++i) {
    if (fetches[i] == nullptr) made_[i] = std::make_unique<backplane_value>();
    const std::string name =
        fetch_names != nullptr ? &required(fetch_names[i], "fetch_names") : outputs[i];
    const backplane_value& to = made_[i] != nullptr ? *made_[i] : required(fetches[i], "fetches");
    fetches_.push_back({name, to.value.get(), to.device});
  }
}

void NamedCall::hand_over() {
  for (std::size_t i = 0; i < made_.size(); ++i) {
    if (made_[i] != nullptr) places_[i] = made_[i].release();
  }
}

}  // namespace backplane::core

using namespace backplane::core;  // the functions below are C

backplane_status* backplane_cancel_create(backplane_cancel** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    *out = new backplane_cancel;
  });
}

void backplane_cancel_destroy(backplane_cancel* cancel) { destroy(cancel); }

backplane_status* backplane_cancel_request(backplane_cancel* cancel) {
  return guarded([&] { required(cancel, "cancel").flag->requested = true; });
}

backplane_status* backplane_cancel_reset(backplane_cancel* cancel) {
  return guarded([&] { required(cancel, "cancel").flag->requested = false; });
}

std::int32_t backplane_cancel_is_requested(const backplane_cancel* cancel) {
  return usable(cancel) != nullptr && cancel->flag->requested ? 1 : 0;
}

backplane_status* backplane_run_options_create(backplane_run_options** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    *out = new backplane_run_options;
  });
}

void backplane_run_options_destroy(backplane_run_options* options) { destroy(options); }

backplane_status* backplane_run_options_set(backplane_run_options* options, const char* key,
                                            const char* value) {
  return guarded([&] {
    backplane_run_options& to = required(options, "options");
    const Changing changing(to.gate, kRunOptions);
    to.options.set(&required(key, "key"), &required(value, "value"));
  });
}

backplane_status* backplane_run_options_get(backplane_run_options* options, const char* key,
                                            backplane_string** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    const backplane_run_options& from = required(options, "options");
    const UseGate::Reading reading(from.gate, kRunOptions);
    *out = new backplane_string(from.options.get(&required(key, "key")));
  });
}

backplane_status* backplane_run_options_set_cancel(backplane_run_options* options,
                                                   backplane_cancel* cancel) {
  return guarded([&] {
    backplane_run_options& to = required(options, "options");
    const Changing changing(to.gate, kRunOptions);
    to.options.cancel = cancel != nullptr ? required(cancel, "cancel").flag : nullptr;
  });
}

backplane_status* backplane_run_options_set_callbacks(backplane_run_options* options,
                                                      const backplane_node_callbacks* callbacks) {
  return guarded([&] {
    backplane_run_options& to = required(options, "options");
    const Changing changing(to.gate, kRunOptions);
    if (callbacks == nullptr) {
      to.options.observer = nullptr;
      return;
    }
    if (callbacks->struct_size < sizeof(backplane_node_callbacks))
      invalid("backplane_node_callbacks::struct_size is ", callbacks->struct_size,
              "; set it to sizeof(backplane_node_callbacks), which is ",
              sizeof(backplane_node_callbacks));
    to.options.observer = NodeCallbacks(*callbacks);
  });
}

backplane_status* backplane_session_run(backplane_session* session, const char* const* feed_names,
                                        const backplane_value* const* feeds, std::size_t feed_count,
                                        const char* const* fetch_names, backplane_value** fetches,
                                        std::size_t fetch_count) {
  return guarded([&] {
    run_by_name(required(session, "session"), nullptr, feed_names, feeds, feed_count, fetch_names,
                fetches, fetch_count);
  });
}

backplane_status* backplane_session_run_with(backplane_session* session,
                                             const backplane_run_options* options,
                                             const char* const* feed_names,
                                             const backplane_value* const* feeds,
                                             std::size_t feed_count, const char* const* fetch_names,
                                             backplane_value** fetches, std::size_t fetch_count) {
  if (options == nullptr) {
    return backplane_session_run(session, feed_names, feeds, feed_count, fetch_names, fetches,
                                 fetch_count);
  }
  return guarded([&] {
    const backplane_run_options& with = required(options, "options");
    const UseGate::Reading reading(with.gate, kRunOptions);
    run_by_name(required(session, "session"), &with.options, feed_names, feeds, feed_count,
                fetch_names, fetches, fetch_count);
  });
}

backplane_status* backplane_session_synchronize(backplane_session* session) {
  return guarded([&] { required(session, "session").session->synchronize(); });
}

backplane_status* backplane_session_save(backplane_session* session, const char* const* names,
                                         std::size_t count) {
  return guarded([&] {
    Session& held = *required(session, "session").session;
    if (count > 0) required(names, "names");
    std::vector<std::string> words;
    for (std::size_t i = 0; i < count; ++i) words.emplace_back(&required(names[i], "names"));
    held.save(words);
  });
}

backplane_status* backplane_session_saved(backplane_session* session, const char* name,
                                          backplane_value** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    const PlacedValue saved = required(session, "session").session->saved(&required(name, "name"));
    if (saved.value == nullptr) return;
    auto made = std::make_unique<backplane_value>();
    made->value = saved.value;
    made->device = saved.device;
    *out = made.release();
  });
}

backplane_status* backplane_session_memory(backplane_session* session, backplane_string** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    *out = new backplane_string(required(session, "session").session->memory());
  });
}
