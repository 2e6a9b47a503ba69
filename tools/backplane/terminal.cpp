#include "tools/backplane/terminal.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <unistd.h>
#include <utility>

namespace backplane::cli {
namespace {

/// Characters on a terminal: bytes that start one.
std::size_t width_of(const std::string& cell) {
  return static_cast<std::size_t>(std::count_if(cell.begin(), cell.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string formatted(const char* format, double value) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

}  // namespace

Table::Table(std::vector<std::string> head) { rows_.push_back(std::move(head)); }

void Table::add(std::vector<std::string> row) {
  for (std::string& cell : row) {
    for (char& c : cell) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';  // names come from strangers
    }
  }
  rows_.push_back(std::move(row));
}

std::string Table::text(const std::string& indent) const {
  std::vector<std::size_t> widths(rows_[0].size());
  std::vector<bool> used(rows_[0].size());
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    for (std::size_t c = 0; c < rows_[r].size(); ++c) {
      widths[c] = std::max(widths[c], width_of(rows_[r][c]));
      if (r > 0 && !rows_[r][c].empty()) used[c] = true;
    }
  }
  std::string result;
  for (const std::vector<std::string>& row : rows_) {
    std::string line = indent;
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (!used[c]) continue;
      line += row[c];
      line.append(widths[c] - width_of(row[c]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    result += line + "\n";
  }
  return result;
}

Progress::Progress()
    : is_terminal_(::isatty(STDERR_FILENO) == 1), next_(std::chrono::steady_clock::now()) {}

Progress::~Progress() { clear(); }

void Progress::show(const std::string& line) {
  if (!is_terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + std::chrono::milliseconds(200);
  std::fprintf(stderr, "\r\033[K%.100s", line.c_str());
  std::fflush(stderr);
  is_shown_ = true;
}

void Progress::clear() {
  if (!is_shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  is_shown_ = false;
}

std::string duration_text(double milliseconds) {
  if (milliseconds >= 1000) return formatted("%.4g s", milliseconds / 1000);
  if (milliseconds >= 1) return formatted("%.4g ms", milliseconds);
  return formatted("%.4g us", milliseconds * 1000);
}

std::string bytes_text(double bytes) {
  if (bytes >= 1 << 20) return formatted("%.1f MiB", bytes / (1 << 20));
  if (bytes >= 1 << 10) return formatted("%.1f KiB", bytes / (1 << 10));
  return formatted("%.0f B", bytes);
}

}  // namespace backplane::cli
