/* A client of backplane.h in C99. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs LeakyRelu(x + w) for one row; two results. 0, or the line that failed. */
int run_c_client(const char* path, float* result, char* message, size_t message_size);

/* Runs the WindowedMean of a library over (1, 3, -9), by a binding that writes the two results in their place. Returns likewise. */
int run_c_client_with_library(const char* library, float* result, char* message,
                              size_t message_size);

#ifdef __cplusplus
}
#endif
