// Files that appear whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "backplane/backplane.hpp"
#include "tools/backplane/sudden_end.hpp"

namespace backplane::cli {

/// Appends bytes to a file; throws Failure (run failed) when the disk is full.
using Append = std::function<void(const void* data, std::size_t bytes)>;

/// Files that one command writes: each into a temporary file of its folder; `commit` renames them all.
///
/// Invariants: without commit nothing is left, not even by a signal. What is no regular file (a pipe, a terminal) is written in place.
/// A file that is replaced hands on its permissions.
class OutputFiles {
 public:
  OutputFiles() = default;
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;
  ~OutputFiles();

  /// Throws Failure (wrong request) for a file that is among them already.
  void add(const std::filesystem::path& path, const std::function<void(const Append&)>& write);
  void add(const std::filesystem::path& path, const std::string& content);
  void commit();

 private:
  struct Pending {
    std::string temporary;
    std::filesystem::path path;  ///< without links
    Removal removal;
  };
  std::vector<Pending> pending_;
};

/// A file of lines that grows while the command works, for whoever waits for it or ends it: a line is there when `append`
/// returns. Unlike OutputFiles, what is there stays whatever becomes of the command.
class GrowingFile {
 public:
  /// Empties it. Throws Failure (run failed).
  explicit GrowingFile(const std::filesystem::path& path);
  ~GrowingFile();
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;
  /// Throws Failure (run failed).
  void append(const std::string& lines);

 private:
  std::filesystem::path path_;
  int file_;
};

/// A file that the command reads, or has a session write.
struct KnownFile {
  std::string what;
  std::filesystem::path path;
};
using KnownFiles = std::vector<KnownFile>;

/// Those of a session: its model, weights, plugins, configuration, and what its options name.
KnownFiles files_of(const Session& session);

/// Throws Failure (wrong request) when `path` is one of the files, by whatever links.
void refuse_known(const std::filesystem::path& path, const std::string& option,
                  const KnownFiles& known);

/// Throws Failure (wrong request) when `path` cannot become a file: its folder is missing or not writable, or it
/// is a folder itself, or one of the files `known`. To be called before the run.
void check_output_path(const std::filesystem::path& path, const std::string& option,
                       const KnownFiles& known = {});

}  // namespace backplane::cli
