// An explanation as a page to look at.
#pragma once

#include <string>

#include "tools/backplane/json.hpp"

namespace backplane::cli {

extern const char kPage[];    ///< the text of graph_page/page.html
extern const char kScript[];  ///< and of graph_page/page.js

/// One self-contained HTML page that draws the placed graph of an explanation; nothing is fetched. `profile` is a trace
/// that `run --profile` wrote, or null: its times are shown with the nodes.
std::string explanation_page(const std::string& title, Json explanation, const Json& profile);

}  // namespace backplane::cli
