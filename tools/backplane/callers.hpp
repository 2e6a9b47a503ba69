// Threads that call a session at the same time.
#pragma once

#include <cstddef>
#include <functional>

namespace backplane::cli {

/// Calls body(0) ... body(count - 1), each in a thread of its own, a single one in this, and throws what one threw. None
/// begins before all threads are there; throws Failure, and has called none, where the system gives fewer.
void in_parallel(std::size_t count, const std::function<void(std::size_t)>& body);

}  // namespace backplane::cli
