#include "core/plugin_host/status.hpp"

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/plugin_host/plugin_text.hpp"

/// A status is one block of the host's heap: this head, then the text. Those of kFixed are static
/// and serve when there is no memory for one.
struct bp_status {
  bp_code code;
  std::uint32_t fixed;
  const char* text;
  std::uint64_t size;
};

namespace backplane::core {
namespace {

constexpr std::uint64_t kMaxMessageBytes = 16 * 1024;
constexpr bp_code kLastCode = BP_TIMEOUT;
constexpr std::string_view kLostText = "the message was lost, since host memory is exhausted";
constexpr std::string_view kOutOfMemoryText = "host memory is exhausted";

using FixedStatuses = std::array<bp_status, static_cast<std::size_t>(kLastCode) + 1>;

constexpr FixedStatuses make_fixed() {
  FixedStatuses all{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto code = static_cast<bp_code>(i);
    const std::string_view text = code == BP_OUT_OF_MEMORY ? kOutOfMemoryText : kLostText;
    all[i] = {code, 1, text.data(), text.size()};
  }
  return all;
}

constinit FixedStatuses fixed_statuses = make_fixed();

bp_status* fixed_status(bp_code code) {
  const bool known = code >= 0 && code <= kLastCode;
  return &fixed_statuses[static_cast<std::size_t>(known ? code : BP_INTERNAL)];
}

/// At most `limit` bytes, never ending within a UTF-8 sequence.
std::uint64_t cut(const char* text, std::uint64_t size, std::uint64_t limit) {
  if (size <= limit) return size;
  std::uint64_t end = limit;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return end;
}

struct StatusFree {
  void operator()(bp_status* status) const { status_free(status); }
};

}  // namespace

bp_status* status_new(bp_code code, const char* message, std::uint64_t size) noexcept {
  const std::uint64_t kept = message == nullptr ? 0 : cut(message, size, kMaxMessageBytes);
  void* memory = std::malloc(sizeof(bp_status) + kept + 1);
  if (memory == nullptr) return fixed_status(code);
  char* text = static_cast<char*>(memory) + sizeof(bp_status);
  if (kept > 0) std::memcpy(text, message, kept);
  text[kept] = '\0';
  clean_text(text, kept);
  return new (memory) bp_status{code, 0, text, kept};
}

bp_status* make_status(Code code, std::string_view message) noexcept {
  return status_new(static_cast<bp_code>(code), message.data(), message.size());
}

bp_code status_code(const bp_status* status) noexcept {
  return status == nullptr ? BP_OK : status->code;
}

void status_message(const bp_status* status, bp_str* out) noexcept {
  if (out == nullptr) return;
  *out = status == nullptr ? bp_str{"", 0} : bp_str{status->text, status->size};
}

void status_free(bp_status* status) noexcept {
  if (status != nullptr && status->fixed == 0) std::free(status);
}

Error take_error(bp_status* status) {
  const std::unique_ptr<bp_status, StatusFree> owned(status);
  if (status == nullptr) return {Code::Internal, "a status was expected and none was there"};
  std::string message(status->text, status->size);
  if (message.empty()) message = "no reason was given";
  if (status->code == BP_OK)
    return {Code::Internal,
            text("a status of code BP_OK was returned, and success is NULL: ", message)};
  if (status->code < BP_OK || status->code > kLastCode) {
    return {Code::Internal, text(message, " (status code ", status->code, ")")};
  }
  return {static_cast<Code>(status->code), std::move(message)};
}

}  // namespace backplane::core
