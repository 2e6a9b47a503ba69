#include "tests/ops/explained.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace backplane::ops_test {

Explained explained(const Session& session) {
  Explained made;
  made.text = session.explain();
  const nlohmann::json said = nlohmann::json::parse(made.text),
                       memory = nlohmann::json::parse(session.memory());
  for (const nlohmann::json& row : said.at("nodes")) {
    std::string& text = made.said[row.at("name").get<std::string>()];
    for (const nlohmann::json& reason : row.at("reasons"))
      text += reason.at("text").get<std::string>() + '\n';
    if (!row.at("fused_into").is_null())
      made.fused[row.at("fused_into").get<std::string>()].push_back(row.at("name"));
  }
  for (const nlohmann::json& remark : said.at("remarks"))
    made.remarks.push_back(remark.is_string() ? remark.get<std::string>() : remark.dump());
  // Copies are steps, too, whose labels are no node's name.
  const nlohmann::json& order = said.at("order");
  for (const nlohmann::json& step : memory.at("plans").back().at("steps"))
    made.steps += std::count(order.begin(), order.end(), step) > 0 ? 1 : 0;
  for (const auto& [place, bytes] : memory.at("weights").at("bytes").items())
    made.device_weight_bytes += place == "model" ? 0 : bytes.get<std::int64_t>();
  return made;
}

}  // namespace backplane::ops_test
