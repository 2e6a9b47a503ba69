#include "core/runtime/work_of_thread.hpp"

#include <string_view>

namespace backplane::core {
namespace {

/// Text that is cut where memory ends, without what would end a line or steer a terminal.
class Line {
 public:
  Line(char* text, std::size_t size) : text_(text), left_(size - 1) { *text_ = '\0'; }

  Line& operator<<(std::string_view words) {
    for (const char c : words) {
      if (left_ == 0) break;
      const auto byte = static_cast<unsigned char>(c);
      *text_++ = byte < 0x20 || byte == 0x7f ? '?' : c;
      --left_;
    }
    *text_ = '\0';
    return *this;
  }

 private:
  char* text_;
  std::size_t left_;
};

}  // namespace

void describe_work(char* text, std::size_t size) noexcept {
  constexpr std::size_t kLongestName = 200;
  if (text == nullptr || size == 0) return;
  Line line(text, size);
  const auto* operation = static_cast<const Operation*>(ThreadPool::work_of_thread());
  if (operation == nullptr || operation->node == nullptr) return;
  const Node& node = *operation->node;
  line << "node '" << std::string_view(node.name).substr(0, kLongestName) << "' (";
  if (!node.domain.empty()) line << node.domain << "::";
  line << node.op_type << ")";
  if (operation->ctx->device != nullptr) line << " on " << operation->ctx->device->label();
}

}  // namespace backplane::core
