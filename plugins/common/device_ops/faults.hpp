// Numbers by which kernels report that they met values they cannot compute with.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "backplane/plugin.hpp"

namespace backplane::device_ops {

/// Threads: any.
class FaultTable {
 public:
  /// A number for what it means.
  int add(std::string text) {
    const std::lock_guard lock(mutex_);
    texts_[next_] = std::move(text);
    return next_++;
  }
  void remove(int number) {
    const std::lock_guard lock(mutex_);
    texts_.erase(number);
  }
  std::string text(int number) const {
    const std::lock_guard lock(mutex_);
    const auto found = texts_.find(number);
    return found != texts_.end() ? found->second
                                 : sdk::message("a kernel reported fault ", number, " of no node");
  }

 private:
  mutable std::mutex mutex_;
  std::map<int, std::string> texts_;
  int next_ = 1;
};

}  // namespace backplane::device_ops
