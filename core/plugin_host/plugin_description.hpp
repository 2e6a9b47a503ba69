// Checks of what plugins say of themselves. Plugins are trusted with the process, but not to be free
// of mistakes: what is checked here are those that would end in a crash far from their cause.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "backplane/plugin_api.h"
#include "core/base/error.hpp"

namespace backplane::core {

/// The size of a struct up to its last field of ABI 1.0: what every plugin has written.
#define BP_SIZE_V1(type, last_field) (offsetof(type, last_field) + sizeof(type::last_field))

/// More definitions, options or devices than this are a mistake.
inline constexpr std::uint64_t kMaxCount = 100'000;

/// What a message is about. There are thousands of checks while a session is made, and seldom a message: words become a text
/// only in one, and must live as long as the check.
class Subject {
 public:
  Subject(const char* words) : words_(words) {}
  Subject(const std::string& words) : words_(words) {}
  /// "its constraint 3: its types".
  Subject(std::string_view words, std::uint64_t index, std::string_view rest = {})
      : words_(words), index_(index), rest_(rest) {}
  friend std::ostream& operator<<(std::ostream& out, const Subject& subject);

 private:
  std::string_view words_;
  std::optional<std::uint64_t> index_;
  std::string_view rest_;
};

/// Throws when a struct of a plugin is null, misaligned, shorter than `least` bytes, absurdly long,
/// or has a bit set that must be understood. `what` names it in the message.
void check_struct(const void* pointer, std::uint64_t least, const Subject& what);

/// Throws when an array of `count` pointers is null while it should not be, or too long.
void check_array(const void* array, std::uint64_t count, const Subject& what);

/// Checks a plugin's description: versions, names, mandatory functions, providers with their options.
/// Errors: Incompatible with both versions, else InvalidArgument; the message lacks the file.
void check_description(const bp_plugin* plugin);

/// Checks a device's info as `enumerate` shows it. Throws InvalidArgument.
void check_device_info(const bp_device_info* info);

/// Checks an opened device's table: all mandatory functions are there. Throws InvalidArgument naming
/// those that are not.
void check_device_api(const bp_device_api* api, const bp_device_info& info);

/// Checks of a kernel's definition what is the same in a registry and where a device's `compile` gave it: the name, the
/// roles, the mandatory functions (`create` in a registry alone). Throws InvalidArgument.
void check_kernel(const bp_kernel_def& def, bool is_registered);

}  // namespace backplane::core
