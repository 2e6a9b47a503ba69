// The plugin files that are found, what became of each, and what the command line says of them.
#pragma once

#include "tools/backplane/json.hpp"
#include "tools/backplane/selection.hpp"

namespace backplane::cli {

/// What became of each file, found out in a child process. One that ends the process, or never answers within `timeout`
/// seconds, costs another try without it.
Json provider_rows(const Selection& selection, unsigned timeout);

/// Refuses providers that the command line names and that no row has: for commands that open none by name. A row that was
/// refused may be the one that is meant.
void require_known_providers(const Selection& selection, const Json& rows);

}  // namespace backplane::cli
