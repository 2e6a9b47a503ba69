// The C host interface: where nodes went and why, without JSON for the caller to read.
#include <nlohmann/json.hpp>

#include "core/runtime/c_objects.hpp"

using namespace backplane::core;  // the functions below are C

/// The structs point into `json`, which stays as it is.
struct backplane_explanation : Handle {
  using Json = nlohmann::ordered_json;

  explicit backplane_explanation(const std::string& text) : json(Json::parse(text)) {
    for (const Json& node : json.at("nodes")) add_node(node);
    for (const Json& copy : json.at("copies")) add_copy(copy);
    for (const auto& arena : json.at("arena_bytes").items())
      memory.push_back({sizeof(backplane_explained_memory), arena.key().c_str(),
                        arena.value().get<std::uint64_t>()});
  }

  Json json;
  std::vector<std::vector<backplane_reason>> reasons;  ///< by node
  std::vector<backplane_explained_node> nodes;
  std::vector<backplane_explained_copy> copies;
  std::vector<backplane_explained_memory> memory;

 private:
  static const char* word(const Json& object, const char* key) {
    const Json& value = object.at(key);
    return value.is_null() ? "" : value.get_ref<const std::string&>().c_str();
  }

  void add_node(const Json& node) {
    std::vector<backplane_reason> list;
    for (const Json& reason : node.at("reasons"))
      list.push_back({word(reason, "provider"), word(reason, "code"), word(reason, "text")});
    reasons.push_back(std::move(list));  // its elements stay where they are
    nodes.push_back({sizeof(backplane_explained_node), word(node, "name"), word(node, "op"),
                     word(node, "domain"), word(node, "provider"), word(node, "kernel"),
                     word(node, "fused_into"), reasons.back().size(), reasons.back().data()});
  }

  void add_copy(const Json& copy) {
    copies.push_back({sizeof(backplane_explained_copy), word(copy, "value"), word(copy, "from"),
                      word(copy, "to"), word(copy, "cause"), word(copy, "route"),
                      copy.at("bytes").get<std::uint64_t>()});
  }
};

backplane_status* backplane_session_explanation(backplane_session* session,
                                                backplane_explanation** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    *out = new backplane_explanation(required(session, "session").session->explain());
  });
}

void backplane_explanation_destroy(backplane_explanation* explanation) { destroy(explanation); }

std::size_t backplane_explanation_node_count(const backplane_explanation* explanation) {
  return usable(explanation) == nullptr ? 0 : explanation->nodes.size();
}

const backplane_explained_node* backplane_explanation_node(const backplane_explanation* explanation,
                                                           std::size_t index) {
  if (index >= backplane_explanation_node_count(explanation)) return nullptr;
  return &explanation->nodes[index];
}

std::size_t backplane_explanation_copy_count(const backplane_explanation* explanation) {
  return usable(explanation) == nullptr ? 0 : explanation->copies.size();
}

const backplane_explained_copy* backplane_explanation_copy(const backplane_explanation* explanation,
                                                           std::size_t index) {
  if (index >= backplane_explanation_copy_count(explanation)) return nullptr;
  return &explanation->copies[index];
}

std::size_t backplane_explanation_memory_count(const backplane_explanation* explanation) {
  return usable(explanation) == nullptr ? 0 : explanation->memory.size();
}

const backplane_explained_memory* backplane_explanation_memory(
    const backplane_explanation* explanation, std::size_t index) {
  if (index >= backplane_explanation_memory_count(explanation)) return nullptr;
  return &explanation->memory[index];
}
