// The C host interface: what sessions are made from, what they share, saved plans, paths.
#include <iterator>

#include "core/runtime/c_objects.hpp"

using namespace backplane::core;  // the functions below are C

backplane_status* backplane_options_get(const backplane_options* options, const char* key,
                                        backplane_string** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    required(options, "options");
    *out = new backplane_string(copy_of(options).get(&required(key, "key")));
  });
}

backplane_status* backplane_options_add_external_data(backplane_options* options,
                                                      const char* location, const void* data,
                                                      std::uint64_t bytes) {
  return guarded([&] {
    const std::string name = &required(location, "location");
    if (name.empty()) invalid("external data need a location: the one that the model names");
    if (data == nullptr && bytes > 0) invalid("the argument 'data' is null");
    ChangedOptions(options)->session.external_bytes[name] = {static_cast<const std::byte*>(data),
                                                             static_cast<std::size_t>(bytes)};
  });
}

backplane_status* backplane_environment_set_log_level(backplane_environment* environment,
                                                      const char* level) {
  return guarded([&] {
    required(environment, "environment")
        .environment->set_log_level(log_level_named(&required(level, "level")));
  });
}

backplane_status* backplane_environment_register_custom_ops(backplane_environment* environment,
                                                            const char* path) {
  return guarded([&] {
    required(environment, "environment").environment->add_custom_ops(&required(path, "path"));
  });
}

backplane_status* backplane_session_option(const backplane_session* session, const char* key,
                                           backplane_string** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    *out =
        new backplane_string{required(session, "session").session->option(&required(key, "key"))};
  });
}

backplane_status* backplane_session_save_plan(backplane_session* session, const char* path) {
  return guarded([&] { required(session, "session").session->save_plan(&required(path, "path")); });
}

std::size_t backplane_session_path_count(const backplane_session* session) {
  return usable(session) == nullptr ? 0 : session->session->paths().size();
}

const char* backplane_session_path_name(const backplane_session* session, std::size_t index) {
  if (index >= backplane_session_path_count(session)) return nullptr;
  return std::next(session->session->paths().begin(), static_cast<std::ptrdiff_t>(index))
      ->first.c_str();
}

std::size_t backplane_session_path_output_count(const backplane_session* session,
                                                const char* path) {
  if (usable(session) == nullptr || path == nullptr) return 0;
  const auto& paths = session->session->paths();
  const auto found = paths.find(path);
  return found == paths.end() ? 0 : found->second->outputs.size();
}

backplane_status* backplane_session_run_path(backplane_session* session, const char* path,
                                             const char* const* feed_names,
                                             const backplane_value* const* feeds,
                                             std::size_t feed_count, const char* const* fetch_names,
                                             backplane_value** fetches, std::size_t fetch_count) {
  return guarded([&] {
    Session& held = *required(session, "session").session;
    const std::string name = &required(path, "path");
    const std::vector<std::string>& outputs = held.path(name).outputs;
    NamedCall call(feed_names, feeds, feed_count, fetch_names, fetches, fetch_count, outputs);
    held.run_path(name, call.feeds(), call.fetches());
    call.hand_over();
  });
}
