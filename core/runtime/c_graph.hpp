// A graph behind the C host interface.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/graph/graph_draft.hpp"
#include "core/runtime/c_objects.hpp"

struct backplane_type : backplane::core::Handle {
  backplane::core::Type type;
};

struct backplane_graph : backplane::core::Handle {
  std::shared_ptr<backplane::core::Environment> environment;  ///< null: ONNX's operators alone
  backplane::core::SessionOptions options;
  backplane::core::GraphDraft draft;
  backplane::core::Model model;  ///< all but its graph; that is the last resolve's
  bool resolved = false;         ///< nothing has changed since the last resolve
  std::vector<ValueDescription> lists[5];

  backplane_graph();

  /// Call before any change.
  backplane::core::GraphDraft& edit() {
    resolved = false;
    return draft;
  }
  /// Resolves unless nothing has changed.
  void resolve();
  /// As JSON; see backplane_graph_describe.
  std::string describe();
  /// Those of the environment's plugins and the options' libraries.
  void add_schemas(backplane::core::SchemaRegistry& schemas) const;
};

namespace backplane::core {

/// The string that one of BACKPLANE_TEXT_* stands for; null: there is no such number.
std::string* text_of(Model& model, std::int32_t which);

}  // namespace backplane::core
