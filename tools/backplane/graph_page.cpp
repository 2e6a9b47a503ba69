#include "tools/backplane/graph_page.hpp"

namespace backplane::cli {
namespace {

void fill(std::string& page, const std::string& mark, const std::string& content) {
  page.replace(page.find(mark), mark.size(), content);
}

/// JSON that may stand inside a script element: no text in it can end the element.
std::string script_safe(const std::string& json) {
  std::string safe;
  for (const char c : json) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace

std::string explanation_page(const std::string& title, Json explanation, const Json& profile) {
  explanation["title"] = title;
  explanation["profile"] = profile;
  std::string page = kPage;
  fill(page, "BACKPLANE_SCRIPT", kScript);
  fill(page, "BACKPLANE_EXPLANATION", script_safe(dump(explanation)));
  return page;
}

}  // namespace backplane::cli
