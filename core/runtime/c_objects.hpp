// The objects behind the C host interface, and the guard around each of its functions.
#pragma once

#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backplane/backplane.h"
#include "core/base/error.hpp"
#include "core/config/options.hpp"
#include "core/plugin_host/runtime_value.hpp"
#include "core/runtime/session.hpp"

struct backplane_status {
  std::int32_t code;
  std::string message;
};

struct backplane_string {
  std::string text;
};

struct backplane_options {
  backplane::core::Options options;
};

struct backplane_environment {
  std::shared_ptr<backplane::core::Environment> environment;
};

struct backplane_value {
  backplane::core::RuntimeValuePtr value = std::make_shared<backplane::core::RuntimeValue>();
  mutable std::string type;  ///< of the last backplane_value_type
};

/// What the C interface tells of an input or output.
struct ValueDescription {
  std::string name, type;
  std::int32_t rank = -1;
  std::vector<std::int64_t> dims;
  std::vector<std::string> symbols;
};

struct backplane_session {
  std::shared_ptr<backplane::core::Session> session;
  std::vector<ValueDescription> lists[4];  ///< by BACKPLANE_INPUTS and the others
};

namespace backplane::core {

backplane_status* new_status(Code code, const std::string& message) noexcept;

/// Runs the body of a C function: what it throws becomes a status.
template <class Body>
backplane_status* guarded(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return nullptr;
  } catch (const Error& error) {
    return new_status(error.code(), error.message());
  } catch (const std::bad_alloc&) {
    return new_status(Code::OutOfMemory, "host memory is exhausted");
  } catch (const std::exception& error) {
    return new_status(Code::Internal, error.what());
  }
}

/// What the C interface tells of these values.
std::vector<ValueDescription> describe(const Graph& graph, const std::vector<ValueId>& values);

/// A session of a file, of bytes, or of a graph that was built.
backplane_status* create_session(backplane_environment* environment, const char* path,
                                 std::span<const std::byte> bytes, const Model* built,
                                 const backplane_options* options, backplane_session** out);

/// Throws for a null argument, naming it.
template <class T>
T& required(T* pointer, const char* name) {
  if (pointer == nullptr) invalid("the argument '", name, "' is null");
  return *pointer;
}

}  // namespace backplane::core
