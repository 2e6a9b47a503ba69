#include "tools/backplane/inspect_text.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "tools/backplane/failure.hpp"
#include "tools/backplane/terminal.hpp"

namespace backplane::cli {
namespace {

/// A member as text: strings as they are, null and absent as "".
std::string word(const Json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end() || at->is_null()) return "";
  return at->is_string() ? at->get<std::string>() : at->dump();
}

/// A member that is a list or an object; an empty list when it is neither.
const Json& list(const Json& object, const char* key) {
  static const Json kEmpty = Json::array();
  const auto at = object.find(key);
  return at != object.end() && at->is_structured() ? *at : kEmpty;
}

std::string shape_of(const Json& value) {
  if (!value.contains("shape") || !value["shape"].is_array()) return "any rank";
  std::string shape = "[";
  for (const Json& dim : value["shape"]) {
    if (shape.size() > 1) shape += ",";
    shape += dim.is_string() ? dim.get<std::string>() : dim.dump();
  }
  return shape + "]";
}

/// The provider of a node; "removed" for one that no longer exists.
std::string provider_of(const Json& node) {
  const std::string provider = word(node, "provider");
  return provider.empty() ? "removed" : provider;
}

/// What a model brings along of its own: who made it, how its inputs are to be prepared.
std::string metadata_text(const Json& explanation) {
  constexpr std::size_t kShown = 100;
  Table table({"metadata", "value"});
  for (const auto& [key, value] : list(explanation, "metadata").items()) {
    const std::string line = one_line(value.is_string() ? value.get<std::string>() : value.dump());
    std::size_t end = std::min(line.size(), kShown);
    while (end < line.size() && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;
    table.add({key, line.substr(0, end) + (end < line.size() ? " ..." : "")});
  }
  return table.empty() ? "" : "\n" + table.text();
}

std::string model_text(const Json& explanation) {
  std::string result = "IR version " + word(explanation, "ir_version") + ", opsets:";
  for (const auto& [domain, version] : list(explanation, "opsets").items()) {
    result += " " + (domain.empty() ? "ai.onnx" : domain) + " " + version.dump();
  }
  const Json& producer = list(explanation, "producer");
  if (!word(producer, "name").empty()) {
    result += "; made by " + one_line(word(producer, "name") + " " + word(producer, "version"));
  }
  result += "\n\n";
  Table table({"", "name", "type", "shape"});
  for (const auto& [key, label] : std::vector<std::pair<const char*, const char*>>{
           {"inputs", "input"},
           {"outputs", "output"},
           {"overridable_initializers", "overridable"}}) {
    for (const Json& value : list(explanation, key)) {
      table.add({label, word(value, "name"), word(value, "type"), shape_of(value)});
    }
  }
  return result + table.text() + metadata_text(explanation) + "\n";
}

/// "12 Conv, 3 Relu, ..."
std::string operators_text(const std::map<std::string, std::size_t>& operators) {
  std::vector<std::pair<std::string, std::size_t>> sorted(operators.begin(), operators.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string result;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (i == 8) return result + text(", ", sorted.size() - i, " other operators");
    result += text(i == 0 ? "" : ", ", sorted[i].second, " ", sorted[i].first);
  }
  return result;
}

std::string placement_text(const Json& explanation) {
  std::vector<std::string> providers;
  std::map<std::string, std::map<std::string, std::size_t>> operators;
  for (const Json& node : list(explanation, "nodes")) {
    const std::string provider = provider_of(node);
    if (operators.find(provider) == operators.end()) providers.push_back(provider);
    ++operators[provider][word(node, "op")];
  }
  Table table({"provider", "nodes", "operators"});
  for (const std::string& provider : providers) {
    std::size_t count = 0;
    for (const auto& [op, number] : operators[provider]) count += number;
    table.add({provider, std::to_string(count), operators_text(operators[provider])});
  }
  return table.empty() ? "The model has no nodes.\n" : table.text();
}

std::string arenas_text(const Json& explanation) {
  std::uint64_t bytes = 0;
  for (const Json& copy : list(explanation, "copies"))
    bytes += copy.value("bytes", std::uint64_t{0});
  const std::size_t copies = list(explanation, "copies").size();
  std::string result = text("\nCopies between devices: ", copies);
  if (copies > 0) result += ", " + bytes_text(static_cast<double>(bytes));
  result += "\n";
  for (const auto& [device, size] : list(explanation, "arena_bytes").items()) {
    if (size.is_number())
      result += "Arena on " + device + ": " + bytes_text(size.get<double>()) + "\n";
  }
  if (!explanation.value("planned", true)) {
    result += "Not planned yet: shapes are unknown; --dim NAME=N gives sizes to symbols.\n";
  }
  return result;
}

/// What devices record and do again as one.
std::string capture_text(const Json& explanation) {
  const auto found = explanation.find("capture");
  if (found == explanation.end()) return "";
  std::string result;
  for (const Json& range : list(*found, "ranges")) {
    const std::string reason = word(range, "reason");
    result += text("Recorded as one on ", word(range, "device"), ": ",
                   range.value("steps", std::uint64_t{0}), " steps from ", word(range, "first"),
                   " to ", word(range, "last"), ", ", word(range, "state"),
                   reason.empty() ? "" : ": " + one_line(reason), "\n");
  }
  for (const Json& left : list(*found, "outside")) {
    const auto steps = left.value("steps", std::uint64_t{0});
    result += text("Not recorded: ", word(left, "first"),
                   steps > 1 ? text(" and ", steps - 1, " more") : "", ": ",
                   one_line(word(left, "reason")), "\n");
  }
  return result;
}

std::string reasons_text(const Json& node) {
  std::string result;
  for (const Json& reason : list(node, "reasons")) {
    const std::string code = word(reason, "code");
    result += "      " + word(reason, "provider") + (code.empty() ? "" : " (" + code + ")") + ": " +
              one_line(word(reason, "text")) + "\n";
  }
  return result;
}

/// The nodes in the order in which they run; one that does not run by itself follows what it is a part of, or else the
/// node before it in the file.
std::vector<const Json*> nodes_in_order(const Json& explanation) {
  std::map<std::string, std::size_t> places;
  for (const Json& name : list(explanation, "order")) {
    if (name.is_string()) places.emplace(name.get<std::string>(), places.size());
  }
  std::vector<std::pair<std::size_t, const Json*>> nodes;
  std::size_t before = 0;
  for (const Json& node : list(explanation, "nodes")) {
    auto place = places.find(word(node, "name"));
    if (place == places.end()) place = places.find(word(node, "fused_into"));
    if (place != places.end()) before = place->second;
    nodes.emplace_back(before, &node);
  }
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const Json*> sorted;
  for (const auto& [place, node] : nodes) sorted.push_back(node);
  return sorted;
}

/// Every node, its reasons below it.
std::string nodes_text(const Json& explanation) {
  std::string result;
  Table table({"node", "op", "provider", "kernel", "fused into"});
  std::vector<std::string> reasons;
  for (const Json* const each : nodes_in_order(explanation)) {
    const Json& node = *each;
    const std::string domain = word(node, "domain");
    const bool is_onnx = domain.empty() || domain == "ai.onnx";
    table.add({word(node, "name"), (is_onnx ? "" : domain + "::") + word(node, "op"),
               provider_of(node), word(node, "kernel"), word(node, "fused_into")});
    reasons.push_back(reasons_text(node));
  }
  if (table.empty()) return result;
  const std::string lines = table.text("  ");
  std::size_t begin = lines.find('\n') + 1;
  result = "\nNodes, in order\n" + lines.substr(0, begin);
  for (const std::string& reason : reasons) {
    const std::size_t end = lines.find('\n', begin) + 1;
    result += lines.substr(begin, end - begin) + reason;
    begin = end;
  }
  return result;
}

std::string subgraphs_text(const Json& explanation) {
  Table table({"#", "provider", "nodes", "from", "to"});
  std::size_t number = 0;
  for (const Json& part : list(explanation, "subgraphs")) {
    const Json& nodes = list(part, "nodes");
    if (nodes.empty()) continue;
    table.add({std::to_string(++number), word(part, "provider"), std::to_string(nodes.size()),
               nodes.front().get<std::string>(), nodes.back().get<std::string>()});
  }
  return table.empty() ? "" : "\nSubgraphs, in order\n" + table.text("  ");
}

std::string copies_text(const Json& explanation) {
  Table table({"value", "from", "to", "size", "cause"});
  for (const Json& copy : list(explanation, "copies")) {
    std::string size = bytes_text(copy.value("bytes", 0.0));
    if (const int pieces = copy.value("pieces", 1); pieces > 1)
      size += " in " + std::to_string(pieces) + " pieces";
    table.add(
        {word(copy, "value"), word(copy, "from"), word(copy, "to"), size, word(copy, "cause")});
  }
  return table.empty() ? "" : "\nCopies\n" + table.text("  ");
}

/// The lines as a string of the DOT language.
std::string dot_quoted(const std::vector<std::string>& lines) {
  std::string result = "\"";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result += "\\n";
    for (const char c : one_line(lines[i])) {
      if (c == '"' || c == '\\') result += '\\';
      result += c;
    }
  }
  return result + "\"";
}
std::string dot_quoted(const std::string& line) {
  return dot_quoted(std::vector<std::string>{line});
}

/// A colour for each provider, in the order they are met; light, so that black text stays readable.
class Colours {
 public:
  std::string of(const std::string& provider) {
    if (provider == "removed") return "#ffffff";
    if (provider == "host") return "#e8e8e8";
    static const std::vector<std::string> kPalette = {"#a6cee3", "#b2df8a", "#fdbf6f", "#cab2d6",
                                                      "#fb9a99", "#ffff99", "#8dd3c7", "#d9b38c"};
    const auto at = std::find(providers_.begin(), providers_.end(), provider);
    const auto place = static_cast<std::size_t>(at - providers_.begin());
    if (at == providers_.end()) providers_.push_back(provider);
    return kPalette[place % kPalette.size()];
  }

 private:
  std::vector<std::string> providers_;
};

/// Writes the nodes and the edges between those who make values and those who read them.
class DotWriter {
 public:
  explicit DotWriter(const Json& explanation) : explanation_(explanation) {
    for (const Json& copy : list(explanation, "copies")) {
      copies_[word(copy, "value")].push_back(
          text("copy ", word(copy, "from"), " to ", word(copy, "to")));
    }
  }

  std::string write() {
    result_ = "digraph model {\n  node [shape=box, style=filled, fontname=\"sans-serif\"];\n";
    for (const char* key : {"inputs", "outputs", "overridable_initializers"}) {
      for (const Json& value : list(explanation_, key)) add_border(key, value);
    }
    const Json& nodes = list(explanation_, "nodes");
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].contains("inputs")) add_node(nodes[i], i);  // others were optimized away
    }
    for (std::size_t i = 0; i < nodes.size(); ++i) add_edges(nodes[i], text("node", i));
    for (const Json& value : list(explanation_, "outputs")) {
      add_edge(word(value, "name"), dot_quoted("outputs " + word(value, "name")));
    }
    return result_ + "}\n";
  }

 private:
  void add_border(const std::string& key, const Json& value) {
    const std::string name = word(value, "name");
    const std::string id = dot_quoted(key + " " + name);
    result_ += "  " + id + " [shape=ellipse, fillcolor=\"#f4f4f4\", label=" +
               dot_quoted(name + " " + word(value, "type") + " " + shape_of(value)) + "];\n";
    if (key != "outputs") makers_[name] = id;
  }

  void add_node(const Json& node, std::size_t number) {
    const std::string provider = provider_of(node);
    result_ +=
        text("  node", number, " [fillcolor=\"", colours_.of(provider),
             "\", tooltip=", dot_quoted(word(node, "kernel")),
             ", label=", dot_quoted({word(node, "op"), word(node, "name"), provider}), "];\n");
    for (const Json& output : list(node, "outputs")) {
      if (output.is_string() && output != "")
        makers_[output.get<std::string>()] = text("node", number);
    }
  }

  void add_edges(const Json& node, const std::string& id) {
    for (const Json& input : list(node, "inputs")) {
      if (input.is_string()) add_edge(input.get<std::string>(), id);
    }
  }

  void add_edge(const std::string& value, const std::string& reader) {
    const auto maker = makers_.find(value);
    if (maker == makers_.end()) return;  // a weight
    const auto copy = copies_.find(value);
    result_ += "  " + maker->second + " -> " + reader;
    if (copy != copies_.end()) result_ += " [color=red, label=" + dot_quoted(copy->second) + "]";
    result_ += ";\n";
  }

  const Json& explanation_;
  std::string result_;
  Colours colours_;
  std::map<std::string, std::string> makers_;  ///< of values: an id in the drawing
  std::map<std::string, std::vector<std::string>> copies_;
};

}  // namespace

std::string explanation_text(const Json& explanation, bool all) {
  std::string result = model_text(explanation) + placement_text(explanation);
  if (all)
    result += nodes_text(explanation) + subgraphs_text(explanation) + copies_text(explanation) +
              capture_text(explanation);
  result += arenas_text(explanation);
  for (const Json& remark : list(explanation, "remarks")) {
    if (all && remark.is_string())
      result += "Remark: " + one_line(remark.get<std::string>()) + "\n";
  }
  if (!all)
    result += "--explain shows every node with its kernel and the reasons of every refusal.\n";
  return result;
}

std::string explanation_dot(const Json& explanation) { return DotWriter(explanation).write(); }

}  // namespace backplane::cli
