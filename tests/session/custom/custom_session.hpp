// What the tests of custom operators share: an environment with the cpu and fake devices, one-node graphs.
#pragma once

#include <string>
#include <vector>

#include "backplane/host/custom_op.hpp"
#include "tests/session/fake_device_books.hpp"
#include "tests/session/graph/session_test.hpp"

namespace backplane::session_test {

inline constexpr const char* kDomain = "test.ops";
inline const std::string kTally = BACKPLANE_TEST_BUILD_DIR "/tests/session/session_tally.so";
inline const std::string kOtherTally =
    BACKPLANE_TEST_BUILD_DIR "/tests/session/session_other_tally.so";

/// The fake devices' provider is known to it; two threads.
inline Environment device_environment(Environment::LogSink sink = {}, const char* level = "error") {
  return Environment(
      Options()
          .set("environment.threads", "2")
          .set("environment.log_level", level)
          .set("environment.plugin_path", BACKPLANE_TEST_BUILD_DIR "/tests/fixtures"),
      std::move(sink));
}

/// A graph that knows the options' operators and imports the test domain.
inline Graph graph_with(const Options& options, const Environment& where = environment(),
                        const std::string& domain = kDomain) {
  Graph graph(where, options);
  graph.set_opset(domain, 1);
  return graph;
}

/// The provider that each node is placed on, by the explanation.
inline std::string provider_of(const Session& session, const std::string& node) {
  const json all = json::parse(session.explain());
  for (const json& row : all["nodes"]) {
    if (row["name"] == node) return row["provider"].is_null() ? "none" : row["provider"];
  }
  return "no such node";
}
inline std::string kernel_of(const Session& session, const std::string& node) {
  const json all = json::parse(session.explain());
  for (const json& row : all["nodes"]) {
    if (row["name"] == node) return row["kernel"].is_null() ? "none" : row["kernel"];
  }
  return "no such node";
}

}  // namespace backplane::session_test
