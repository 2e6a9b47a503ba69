#include "tools/digits/placement_report.hpp"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include <nlohmann/json.hpp>

namespace backplane::digits {
namespace {

using Json = nlohmann::ordered_json;

std::string word(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

std::string why(const Json& node) {
  std::string result;
  if (!word(node, "fused_into").empty()) result = "part of " + word(node, "fused_into");
  const auto reasons = node.find("reasons");
  if (reasons == node.end()) return result;
  for (const Json& reason : *reasons) {
    // Of the provider that took the node, only remarks: why its other kernels did not fit is for experts.
    if (word(reason, "provider") == word(node, "provider") && word(reason, "code") != "note")
      continue;
    if (!result.empty()) result += "; ";
    result += word(reason, "provider") + ": " + word(reason, "text");
  }
  return result;
}

}  // namespace

std::string placement_report(const std::string& explanation) {
  const Json json = Json::parse(explanation);
  std::ostringstream report;
  report << std::left << "  " << std::setw(16) << "node" << std::setw(14) << "op" << std::setw(10)
         << "ran on" << std::setw(28) << "kernel"
         << "why\n";
  for (const Json& node : json.at("nodes")) {
    const std::string provider = word(node, "provider");
    std::string reason = why(node);
    if (reason.empty() && !provider.empty() && provider != "host") {
      reason = "first in the order of preference, and it has a kernel";
    }
    report << "  " << std::setw(15) << word(node, "name") << ' ' << std::setw(13)
           << word(node, "op") << ' ' << std::setw(9) << (provider.empty() ? "nowhere" : provider)
           << ' ' << std::setw(27) << word(node, "kernel") << ' ' << reason << '\n';
  }
  return report.str();
}

}  // namespace backplane::digits
