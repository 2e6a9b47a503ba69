/* A client of backplane.h in C99. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs LeakyRelu(x + w) for one row; two results. 0, or the line that failed. */
int run_c_client(const char* path, float* result, char* message, size_t message_size);

#ifdef __cplusplus
}
#endif
