// Text for people: tables, and progress of long work.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace backplane::cli {

/// Rows in columns that are as wide as they must be. The last column is open.
class Table {
 public:
  explicit Table(std::vector<std::string> head);
  void add(std::vector<std::string> row);
  bool empty() const { return rows_.size() < 2; }
  /// Each line begins with `indent`. Columns that are empty in every row are left out.
  std::string text(const std::string& indent = "") const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// A line on standard error that is rewritten; nothing where that is no terminal.
class Progress {
 public:
  Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  /// Shows the line, at most some times a second.
  void show(const std::string& line);
  /// Takes the line away, before other output.
  void clear();

 private:
  bool is_terminal_;
  bool is_shown_ = false;
  std::chrono::steady_clock::time_point next_;
};

/// "1.23 ms", "45.6 us"
std::string duration_text(double milliseconds);
/// "1.5 MiB"
std::string bytes_text(double bytes);

}  // namespace backplane::cli
