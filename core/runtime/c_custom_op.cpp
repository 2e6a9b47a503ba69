// The C host interface: custom operators of the caller's process, and libraries that are let go.
#include <utility>

#include "core/runtime/c_objects.hpp"

using namespace backplane::core;  // the functions below are C

backplane_status* backplane_options_add_custom_ops(backplane_options* options,
                                                   const bp_plugin* plugin) {
  return guarded([&] {
    backplane_options& changed = required(options, "options");
    PluginPtr started = start_plugin(required(plugin, "plugin"));
    const UseGate::Changing changing(changed.gate, "options object");
    changed.options.session.domains.push_back(std::move(started));
  });
}

backplane_status* backplane_environment_unload_custom_ops(backplane_environment* environment,
                                                          const char* path) {
  return guarded([&] {
    backplane_environment& from = required(environment, "environment");
    from.environment->unload_custom_ops(&required(path, "path"));
  });
}
