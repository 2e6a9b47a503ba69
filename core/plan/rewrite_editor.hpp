// The editor that a provider rewrites a graph with: collects what it says, then applies it or not.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "backplane/plugin_api.h"
#include "core/graph/graph.hpp"
#include "core/plan/weight_store.hpp"
#include "core/plugin_host/graph_view.hpp"

/// The ABI's opaque editor: edits as they were said, checked for names alone.
struct bp_rewrite {
  struct Draft {
    backplane::core::Node node;
    std::vector<std::string> inputs, outputs;
    std::vector<backplane::core::NodeId> replaces;
  };
  struct Constant {
    std::string name;
    backplane::core::ConstantPtr known;
    std::shared_ptr<backplane::core::LazyConstant> lazy;
    std::vector<std::string> sources;
  };

  const backplane::core::Graph* graph = nullptr;
  const backplane::core::GraphView* offered = nullptr;  ///< what may be replaced and noted
  backplane::core::PluginPtr plugin;
  std::string identity;
  std::vector<Draft> drafts;
  std::vector<Constant> constants;
  std::set<std::string> new_names;
  std::set<backplane::core::NodeId> replaced;
  std::map<std::string, std::uint32_t> formats;
  std::map<std::string, std::string> notes;
};

namespace backplane::core {

/// The table of the editor.
const bp_rewrite_api& rewrite_api();

}  // namespace backplane::core
