// Row G1 of core/SESSION.md from C99, and wrong arguments of the C functions.
#include "c_client.h"

#include "session_test.hpp"

namespace backplane::session_test {
namespace {

using ::testing::HasSubstr;

TEST(GraphBuilding, G1FromC99) {
  const Folder folder;
  float result[2] = {0, 0};
  char message[200] = "";
  ASSERT_EQ(run_c_client(folder.file("c.onnx").c_str(), result, message, sizeof message), 0)
      << message;
  EXPECT_EQ(result[0], 4);
  EXPECT_EQ(result[1], -1);
  EXPECT_EQ(Session(environment(), folder.file("c.onnx")).inputs()[0].name, "x");
}

TEST(GraphBuilding, L5FromC99WithALibraryOfCustomOperators) {
  float result[2] = {0, 0};
  char message[200] = "";
  ASSERT_EQ(run_c_client_with_library(BACKPLANE_TEST_CUSTOM_OPS_DIR "/windowed_mean.so", result,
                                      message, sizeof message),
            0)
      << message;
  EXPECT_EQ(result[0], 2);
  EXPECT_EQ(result[1], -3);
}

std::string message_of(backplane_status* status) {
  return error_of([&] { detail::check(status); });
}

TEST(GraphBuilding, G1NullArgumentsAreErrors) {
  Graph graph;
  backplane_graph* g = graph.get();
  EXPECT_THAT(message_of(backplane_graph_create(nullptr, nullptr, nullptr)),
              HasSubstr("'out' is null"));
  EXPECT_THAT(message_of(backplane_graph_resolve(nullptr)), HasSubstr("'graph' is null"));
  EXPECT_THAT(message_of(backplane_graph_add_value(g, nullptr, nullptr)), HasSubstr("is null"));
  EXPECT_THAT(message_of(backplane_graph_add_value(g, "x", nullptr)), HasSubstr("'type' is null"));
  EXPECT_THAT(message_of(backplane_graph_add_initializer(g, "x", nullptr)),
              HasSubstr("'value' is null"));
  EXPECT_THAT(
      message_of(backplane_graph_add_node(g, nullptr, "", "", nullptr, 0, nullptr, 0, nullptr)),
      HasSubstr("'op_type' is null"));
  EXPECT_THAT(
      message_of(backplane_graph_add_node(g, "Neg", "", "", nullptr, 1, nullptr, 0, nullptr)),
      HasSubstr("'inputs' is null"));
  EXPECT_THAT(message_of(backplane_graph_set_ints(g, 0, "axes", nullptr, 3)),
              HasSubstr("'values' is null"));
  EXPECT_THAT(message_of(backplane_graph_set_body(g, 0, "body", nullptr)),
              HasSubstr("'bodies' is null"));
  EXPECT_THAT(message_of(backplane_graph_set_int(g, -5, "axis", 1)), HasSubstr("no node -5"));
  EXPECT_THAT(message_of(backplane_graph_set_int(g, std::int64_t{1} << 40, "axis", 1)),
              HasSubstr("no node"));
  EXPECT_THAT(message_of(backplane_graph_set_inputs(g, nullptr, 2)), HasSubstr("'names' is null"));
  EXPECT_THAT(message_of(backplane_graph_save(g, nullptr, 0)), HasSubstr("'path' is null"));
  EXPECT_THAT(message_of(backplane_graph_save(g, "m.onnx", 7)), HasSubstr("'external' is 7"));
  EXPECT_THAT(message_of(backplane_type_create("tensor(float)", -2, nullptr, nullptr, nullptr)),
              HasSubstr("is null"));
  backplane_session* session = nullptr;
  EXPECT_THAT(message_of(backplane_session_create_from_graph(nullptr, g, nullptr, &session)),
              HasSubstr("'environment' is null"));
  EXPECT_EQ(session, nullptr);
  EXPECT_EQ(backplane_graph_count(nullptr, 0), 0u);
  EXPECT_EQ(backplane_graph_name(g, 99, 0), nullptr);
  EXPECT_EQ(backplane_graph_symbol(g, 0, 5, 0), nullptr);
  EXPECT_EQ(backplane_session_text(nullptr, 0), nullptr);
  EXPECT_EQ(backplane_session_metadata(nullptr, "k"), nullptr);
  backplane_graph_destroy(nullptr);
  backplane_type_destroy(nullptr);
}

}  // namespace
}  // namespace backplane::session_test
