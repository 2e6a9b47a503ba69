// The objects behind the C host interface, and the guard around each of its functions.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "backplane/backplane.h"
#include "core/base/error.hpp"
#include "core/config/options.hpp"
#include "core/plugin_host/runtime_value.hpp"
#include "core/runtime/c_handles.hpp"
#include "core/runtime/session.hpp"

struct backplane_status : backplane::core::Handle {
  backplane_status(std::int32_t its_code, std::string its_message)
      : code(its_code), message(std::move(its_message)) {}
  std::int32_t code;
  std::string message;
};

struct backplane_string : backplane::core::Handle {
  explicit backplane_string(std::string its_text) : text(std::move(its_text)) {}
  std::string text;
};

struct backplane_options : backplane::core::Handle {
  backplane::core::Options options;
  mutable backplane::core::UseGate gate;
};

struct backplane_environment : backplane::core::Handle {
  std::shared_ptr<backplane::core::Environment> environment;
};

struct backplane_value : backplane::core::Handle {
  backplane::core::RuntimeValuePtr value = std::make_shared<backplane::core::RuntimeValue>();
  backplane::core::DevicePtr device;  ///< in whose memory it is; null: the host's
  mutable std::string type;           ///< of the last backplane_value_type
};

/// What the C interface tells of an input or output.
struct ValueDescription {
  std::string name, type;
  std::int32_t rank = -1;
  std::vector<std::int64_t> dims;
  std::vector<std::string> symbols;
};

struct backplane_session : backplane::core::Handle {
  std::shared_ptr<backplane::core::Session> session;
  std::vector<ValueDescription> lists[4];  ///< by BACKPLANE_INPUTS and the others
};

struct backplane_cancel : backplane::core::Handle {
  std::shared_ptr<backplane::core::CancelFlag> flag =
      std::make_shared<backplane::core::CancelFlag>();
};

struct backplane_run_options : backplane::core::Handle {
  backplane::core::RunOptions options;
  mutable backplane::core::UseGate gate;
};

namespace backplane::core {

/// What UseGate calls them.
inline constexpr const char* kRunOptions = "run options object";

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
  } catch (const std::filesystem::filesystem_error& error) {  // a path that no file can have
    return new_status(Code::InvalidArgument, error.what());
  } catch (const std::exception& error) {
    return new_status(Code::Internal, error.what());
  } catch (...) {  // what a callback threw
    return new_status(Code::Internal, "an exception not derived from std::exception");
  }
}

/// Throws for a null argument, and (in builds with assertions) for an object that was destroyed; names the argument.
template <class T>
T& required(T* pointer, const char* name) {
  if (pointer == nullptr) invalid("the argument '", name, "' is null");
  if constexpr (std::is_base_of_v<Handle, T>) {
    if (!is_alive(pointer)) invalid("the argument '", name, "' was destroyed, or never was one");
  }
  return *pointer;
}

/// For functions without a status: the object, or null where required() would throw.
template <class T>
T* usable(T* pointer) {
  return pointer != nullptr && is_alive(pointer) ? pointer : nullptr;
}

/// Ends an object; does nothing for null, and (in builds with assertions) for one that was destroyed.
template <class T>
void destroy(T* pointer) {
  if (usable(pointer) != nullptr) delete pointer;
}

/// A copy of them; the default ones for null.
Options copy_of(const backplane_options* options);

/// Options of the caller's, while they are changed.
class ChangedOptions {
 public:
  explicit ChangedOptions(backplane_options* options)
      : options_(required(options, "options")), changing_(options_.gate, "options object") {}
  Options* operator->() { return &options_.options; }

 private:
  backplane_options& options_;
  UseGate::Changing changing_;
};

/// Makes a value a dense tensor over the caller's memory, which `tensor` describes; throws where it cannot be one.
void lay_over_host(RuntimeValue& value, const backplane_tensor& tensor);

/// The feeds and fetches of a call that runs by name; the values that it makes for the caller.
class NamedCall {
 public:
  /// `fetch_names` null: all `outputs`. Throws for what is null or destroyed.
  NamedCall(const char* const* feed_names, const backplane_value* const* feeds,
            std::size_t feed_count, const char* const* fetch_names, backplane_value** fetches,
            std::size_t fetch_count, const std::vector<std::string>& outputs);
  const std::vector<NamedValue>& feeds() const { return feeds_; }
  const std::vector<NamedValue>& fetches() const { return fetches_; }
  /// After a run that succeeded: gives the caller what was made.
  void hand_over();

 private:
  std::vector<NamedValue> feeds_, fetches_;
  std::vector<std::unique_ptr<backplane_value>> made_;
  backplane_value** places_;
};

/// What the C interface tells of these values.
std::vector<ValueDescription> describe(const Graph& graph, const std::vector<ValueId>& values);

/// A session of a file, of bytes, or of a graph that was built.
backplane_status* create_session(backplane_environment* environment, const char* path,
                                 std::span<const std::byte> bytes, const Model* built,
                                 const backplane_options* options, backplane_session** out);

}  // namespace backplane::core
