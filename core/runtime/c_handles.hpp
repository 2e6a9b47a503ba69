// Handles of the C host interface: which are alive, and who uses them.
#pragma once

#include <atomic>

#include "core/base/error.hpp"

namespace backplane::core {

/// The base of objects behind handles. In builds with assertions it is known which are alive, so that one that was
/// destroyed is an error and no crash; in other builds this costs nothing and finds nothing.
class Handle {
 public:
#ifdef NDEBUG
  Handle() = default;
  ~Handle() = default;
#else
  Handle();
  ~Handle();
#endif
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
};

#ifdef NDEBUG
inline bool is_alive(const Handle* /*handle*/) { return true; }
#else
bool is_alive(const Handle* handle);
#endif

/// Finds objects that are used from several threads where one at a time is allowed: that is an error, not a wait.
class UseGate {
 public:
  /// While it lives, nobody else may read or change the object.
  class Changing {
   public:
    Changing(UseGate& gate, const char* what) : gate_(gate) {
      int nobody = 0;
      if (!gate_.users_.compare_exchange_strong(nobody, -1))
        invalid("the ", what, " is in use; wait until the call that uses it has returned");
    }
    ~Changing() { gate_.users_ = 0; }
    Changing(const Changing&) = delete;
    Changing& operator=(const Changing&) = delete;

   private:
    UseGate& gate_;
  };

  /// While it lives, nobody may change the object.
  class Reading {
   public:
    Reading(UseGate& gate, const char* what) : gate_(gate) {
      int users = gate_.users_;
      do {
        if (users < 0)
          invalid("the ", what,
                  " is being changed; wait until the call that changes it has returned");
      } while (!gate_.users_.compare_exchange_weak(users, users + 1));
    }
    ~Reading() { --gate_.users_; }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

   private:
    UseGate& gate_;
  };

 private:
  std::atomic<int> users_{0};  ///< -1: one that changes it; else those who read it
};

}  // namespace backplane::core
