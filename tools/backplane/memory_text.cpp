#include "tools/backplane/memory_text.hpp"

#include "tools/backplane/failure.hpp"
#include "tools/backplane/terminal.hpp"

namespace backplane::cli {
namespace {

std::string bytes_of(const Json& row, const char* key = "bytes") {
  return bytes_text(row.value(key, 0.0));
}

std::string plan_text(const Json& plan) {
  Table arenas({"arena", "size", "most in use", "at step"});
  for (const auto& [memory, arena] : plan["arenas"].items()) {
    const auto step = arena.value("peak_step", std::size_t{0});
    const Json& steps = plan["steps"];
    arenas.add({memory, bytes_of(arena), bytes_of(arena, "peak_bytes"),
                step < steps.size() ? one_line(steps[step].get<std::string>()) : text(step)});
  }
  Table values({"value", "memory", "place", "size", "offset", "steps"});
  for (const Json& value : plan["values"]) {
    const bool in_arena = value.contains("offset");
    const auto buffer = value.value("buffer", std::size_t{0});
    const std::string before = buffer > 0 ? text("buffer ", buffer, ": ") : "";
    values.add({one_line(value["value"].get<std::string>()), value["memory"].get<std::string>(),
                value["place"].get<std::string>(), bytes_of(value),
                in_arena ? before + value["offset"].dump() : "",
                in_arena ? text(value["first_step"].dump(), "..", value["last_step"].dump()) : ""});
  }
  return arenas.text() + values.text();
}

}  // namespace

std::string memory_text(const Json& memory) {
  Table totals({"memory", "size"});
  totals.add({"arenas of runs, now", bytes_of(memory["arenas"])});
  totals.add({"arenas of runs, at most", bytes_of(memory["arenas"], "peak_bytes")});
  for (const auto& [where, bytes] : memory["weights"]["bytes"].items())
    totals.add({"weights, " + where, bytes_text(bytes.get<double>())});
  std::string result = totals.text();
  for (const Json& plan : memory["plans"]) result += plan_text(plan);
  return result;
}

}  // namespace backplane::cli
