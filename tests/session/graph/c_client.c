/* A client in C99: builds graphs, resolves, saves and runs them, with a library of custom operators and a binding too.
 * Rows G1 and L5 of core/SESSION.md. */
#include "c_client.h"

#include <stdio.h>
#include <string.h>

#include "backplane/backplane.h"

/* Ends the function with the line of the call that failed; its message goes to `message`. */
#define CHECK(call)                                                             \
  do {                                                                          \
    backplane_status* status_ = (call);                                         \
    if (status_ != NULL) {                                                      \
      snprintf(message, message_size, "%s", backplane_status_message(status_)); \
      backplane_status_free(status_);                                           \
      failed = __LINE__;                                                        \
      goto end;                                                                 \
    }                                                                           \
  } while (0)

int run_c_client(const char* path, float* result, char* message, size_t message_size) {
  int failed = 0;
  backplane_environment* environment = NULL;
  backplane_graph* graph = NULL;
  backplane_type* type = NULL;
  backplane_session* session = NULL;
  backplane_value* x = NULL;
  backplane_value* y = NULL;
  backplane_value* w = NULL;
  int64_t node = -1;
  const int64_t dims[] = {-1, 2};
  const char* const symbols[] = {"rows", NULL};
  const char* const inputs[] = {"x", "w"};
  const char* const sum[] = {"sum"};
  const char* const outputs[] = {"y"};
  const int64_t one_row[] = {1, 2};
  const int64_t two[] = {2};
  const char* const feed_names[] = {"x"};
  const backplane_value* feeds[1];

  CHECK(backplane_environment_create(NULL, NULL, NULL, &environment));
  CHECK(backplane_graph_create(environment, NULL, &graph));
  CHECK(backplane_type_create("tensor(float)", 2, dims, symbols, &type));
  CHECK(backplane_graph_add_value(graph, "x", type));
  CHECK(backplane_value_create(1, two, 1, &w));
  ((float*)backplane_value_data(w))[0] = 1;
  ((float*)backplane_value_data(w))[1] = 2;
  CHECK(backplane_graph_add_initializer(graph, "w", w));
  CHECK(backplane_graph_add_node(graph, "Add", NULL, NULL, inputs, 2, sum, 1, NULL));
  CHECK(backplane_graph_add_node(graph, "LeakyRelu", "", "leak", sum, 1, outputs, 1, &node));
  CHECK(backplane_graph_set_float(graph, node, "alpha", 0.25f));
  CHECK(backplane_graph_resolve(graph));
  if (backplane_graph_count(graph, BACKPLANE_INPUTS) != 1 ||
      strcmp(backplane_graph_symbol(graph, BACKPLANE_OUTPUTS, 0, 0), "rows") != 0) {
    failed = __LINE__;
    goto end;
  }
  CHECK(backplane_graph_save(graph, path, BACKPLANE_EXTERNAL_AUTO));
  CHECK(backplane_session_create_from_graph(environment, graph, NULL, &session));
  CHECK(backplane_value_create(1, one_row, 2, &x));
  ((float*)backplane_value_data(x))[0] = 3;
  ((float*)backplane_value_data(x))[1] = -6;
  feeds[0] = x;
  CHECK(backplane_session_run(session, feed_names, feeds, 1, NULL, &y, 1));
  result[0] = ((float*)backplane_value_data(y))[0];
  result[1] = ((float*)backplane_value_data(y))[1];

end:
  backplane_value_destroy(w);
  backplane_value_destroy(x);
  backplane_value_destroy(y);
  backplane_session_destroy(session);
  backplane_type_destroy(type);
  backplane_graph_destroy(graph);
  backplane_environment_destroy(environment);
  return failed;
}

int run_c_client_with_library(const char* library, float* result, char* message,
                              size_t message_size) {
  int failed = 0;
  backplane_environment* environment = NULL;
  backplane_options* options = NULL;
  backplane_graph* graph = NULL;
  backplane_type* type = NULL;
  backplane_session* session = NULL;
  backplane_binding* binding = NULL;
  backplane_value* x = NULL;
  backplane_value* y = NULL;
  int64_t node = -1;
  const int64_t row[] = {1, 3};
  const int64_t means[] = {1, 2};
  const char* const inputs[] = {"x"};
  const char* const outputs[] = {"y"};
  float elements[] = {1, 3, -9};

  CHECK(backplane_environment_create(NULL, NULL, NULL, &environment));
  CHECK(backplane_options_create(&options));
  CHECK(backplane_options_register_custom_ops(options, library));
  CHECK(backplane_graph_create(environment, options, &graph));
  CHECK(backplane_graph_set_opset(graph, "backplane.examples", 1));
  CHECK(backplane_type_create("tensor(float)", 2, row, NULL, &type));
  CHECK(backplane_graph_add_value(graph, "x", type));
  CHECK(backplane_graph_add_node(graph, "WindowedMean", "backplane.examples", "means", inputs, 1,
                                 outputs, 1, &node));
  CHECK(backplane_graph_set_int(graph, node, "window", 2));
  CHECK(backplane_graph_resolve(graph));
  CHECK(backplane_session_create_from_graph(environment, graph, options, &session));
  CHECK(backplane_binding_create(session, &binding));
  CHECK(backplane_value_borrow(1, row, 2, elements, sizeof elements, &x));
  CHECK(backplane_value_borrow(1, means, 2, result, 2 * sizeof *result, &y));
  CHECK(backplane_binding_bind_input(binding, "x", x));
  CHECK(backplane_binding_bind_output(binding, "y", y));
  CHECK(backplane_binding_run(binding));

end:
  backplane_binding_destroy(binding);
  backplane_value_destroy(x);
  backplane_value_destroy(y);
  backplane_session_destroy(session);
  backplane_type_destroy(type);
  backplane_graph_destroy(graph);
  backplane_options_destroy(options);
  backplane_environment_destroy(environment);
  return failed;
}
