#include "tools/backplane/failure.hpp"

namespace backplane::cli {

int exit_code_of_load(int code) {
  return code == BACKPLANE_OUT_OF_MEMORY || code == BACKPLANE_DEVICE_LOST ||
                 code == BACKPLANE_FILE_FAILED
             ? kRunFailed
             : kWrongRequest;
}

int exit_code_of_run(int code) {
  switch (code) {
    case BACKPLANE_INVALID_ARGUMENT:
    case BACKPLANE_UNSUPPORTED:
    case BACKPLANE_NOT_FOUND:
    case BACKPLANE_UNIMPLEMENTED:
    case BACKPLANE_INCOMPATIBLE:
      return kWrongRequest;
    default:
      return kRunFailed;
  }
}

std::string one_line(const std::string& message) {
  std::string line;
  for (const char c : message) {
    const bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
    if (!is_control) {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

}  // namespace backplane::cli
