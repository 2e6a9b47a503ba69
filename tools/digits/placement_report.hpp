// Where each node of a model ran, and why.
#pragma once

#include <string>

namespace backplane::digits {

/// A table of the nodes in Session::explain()'s JSON: operator, provider, kernel, and the reasons given.
std::string placement_report(const std::string& explanation);

}  // namespace backplane::digits
