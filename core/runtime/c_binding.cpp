// The C host interface: bindings, which keep feeds and fetches between runs.
#include <algorithm>
#include <string>
#include <vector>

#include "core/base/nearest_name.hpp"
#include "core/runtime/c_objects.hpp"

struct backplane_binding {
  /// A bound input or output.
  struct Bound {
    std::string name;
    backplane_value* value =
        nullptr;          ///< the caller's; null for an output that the session allocates
    backplane_value own;  ///< of such an output
  };

  std::shared_ptr<backplane::core::Session> session;
  std::vector<std::unique_ptr<Bound>> inputs, outputs;
  backplane::core::Session::Route route;
  bool routed = false;
  bool checked = false;  ///< the inputs bound now fit the model
  backplane::core::RunValues feeds, fetches;
  backplane::core::PlanMemo memo;

  /// Looks names up and collects values; done again when something is bound.
  void make_route();
};

namespace backplane::core {
namespace {

backplane_binding::Bound& find_or_add(std::vector<std::unique_ptr<backplane_binding::Bound>>& list,
                                      const std::string& name, bool* added) {
  for (const auto& bound : list) {
    if (bound->name == name) return *bound;
  }
  list.push_back(std::make_unique<backplane_binding::Bound>());
  list.back()->name = name;
  *added = true;
  return *list.back();
}

}  // namespace
}  // namespace backplane::core

using namespace backplane::core;  // NOLINT(google-build-using-namespace): the functions below are C

void backplane_binding::make_route() {
  if (!routed) {
    std::vector<std::string> feed_names, fetch_names;
    for (const auto& input : inputs) feed_names.push_back(input->name);
    if (outputs.empty()) {
      for (const ValueId id : session->outputs()) {
        bool added = false;
        find_or_add(outputs, session->model().graph.value(id).name, &added);
      }
    }
    for (const auto& output : outputs) fetch_names.push_back(output->name);
    route = session->route(feed_names, fetch_names);
    routed = true;
  }
  feeds.clear();
  fetches.clear();
  std::vector<NamedValue> named;
  for (const auto& input : inputs) named.push_back({input->name, input->value->value.get()});
  for (const std::size_t i : route.feeds) {
    session->check_feed(named[i].name, *named[i].value);
    feeds.push_back(named[i].value);
  }
  session->check_symbols(route, named);
  for (const std::size_t i : route.fetches)
    fetches.push_back(
        (outputs[i]->value != nullptr ? outputs[i]->value : &outputs[i]->own)->value.get());
  checked = true;
}

backplane_status* backplane_binding_create(backplane_session* session, backplane_binding** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    auto made = std::make_unique<backplane_binding>();
    made->session = required(session, "session").session;
    *out = made.release();
  });
}

void backplane_binding_destroy(backplane_binding* binding) { delete binding; }

backplane_status* backplane_binding_bind_input(backplane_binding* binding, const char* name,
                                               const backplane_value* value) {
  return guarded([&] {
    backplane_binding& to = required(binding, "binding");
    const std::string word = &required(name, "name");
    required(value, "value");
    if (to.session->model().graph.find_value(word) == kNone)
      to.session->route({word}, {});  // throws, with the known names
    bool added = false;
    find_or_add(to.inputs, word, &added).value = const_cast<backplane_value*>(value);
    to.checked = false;
    if (added) to.routed = false;
  });
}

backplane_status* backplane_binding_bind_output(backplane_binding* binding, const char* name,
                                                backplane_value* value) {
  return guarded([&] {
    backplane_binding& to = required(binding, "binding");
    const std::string word = &required(name, "name");
    if (to.session->model().graph.find_value(word) == kNone) {
      std::vector<std::string> known;
      for (const ValueId id : to.session->outputs())
        known.push_back(to.session->model().graph.value(id).name);
      invalid("the model has no output '", word, "'", did_you_mean(word, known));
    }
    bool added = false;
    find_or_add(to.outputs, word, &added).value = value;
    to.checked = false;
    if (added) to.routed = false;
  });
}

backplane_status* backplane_binding_run(backplane_binding* binding) {
  return guarded([&] {
    backplane_binding& bound = required(binding, "binding");
    if (!bound.checked) bound.make_route();
    bound.session->run(bound.route, bound.feeds, bound.fetches, &bound.memo, true);
  });
}

const backplane_value* backplane_binding_output(const backplane_binding* binding,
                                                const char* name) {
  if (binding == nullptr || name == nullptr) return nullptr;
  for (const auto& output : binding->outputs) {
    if (output->name == name) return output->value != nullptr ? output->value : &output->own;
  }
  return nullptr;
}
