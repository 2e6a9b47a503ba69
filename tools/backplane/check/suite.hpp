// What the suite consists of: pieces of work, each done in a child process, each giving rows of a report.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/backplane/check/bare_device.hpp"

namespace backplane::cli {
struct Selection;
}

namespace backplane::cli::check {

/// One verdict: a case, and of what it speaks (a kernel, a provider, the plugin).
struct Row {
  std::string name, subject;
  std::string status;  ///< "passed", "failed", "skipped"
  std::string reason;
  std::string id() const { return subject.empty() ? name : name + "/" + subject; }
};
Row passed(const std::string& name, const std::string& subject);
Row failed(const std::string& name, const std::string& subject, const std::string& reason);
Row skipped(const std::string& name, const std::string& subject, const std::string& reason);

/// What is asked for.
struct Request {
  std::string file;    ///< of the plugin, absolute
  std::string folder;  ///< that holds a link to it alone, for plugin paths
  /// Of the same bytes: loaded as a library of its own, which this suite is the host of. The plugin itself may be one that
  /// the runtime loads for the reference, from its default folder, and a library has one host.
  std::string copy;
  std::size_t device = 0;
  std::uint64_t seed = 1;
  std::string only = "*", except;   ///< patterns of cases; "" is none
  std::size_t part = 0, parts = 1;  ///< of the kernels; the first part has everything else, too
  long timeout = 60;                ///< seconds for a call of the plugin
  const Selection* selection = nullptr;  ///< what the command line says of providers
};
/// The options of sessions and environments, and the settings KEY=VALUE among them.
Options options_of(const Request& request);
const std::vector<std::string>& settings_of(const Request& request);

/// What a piece of work is about.
struct Piece {
  std::string
      kind;  ///< "survey", or the name of a case; "kernel" stands for all kernel cases of one kernel
  std::string provider;  ///< whose device; for guests the provider whose guests they are
  bool is_guest = false;
  std::size_t kernel = 0;  ///< its number in the registry
  std::string subject;
};

/// The plugin as a child process sees it; opened at the first use.
class Subject {
 public:
  explicit Subject(const Request& request) : request_(request) {}

  const Request& request() const { return request_; }
  PluginFile& plugin();
  const bp_provider* provider(const std::string& name);
  const bp_device_info* device_info(const std::string& provider);
  /// The device of the request with the options of the command line; for guests host memory.
  std::unique_ptr<OpenDevice> open(const Piece& piece);
  std::vector<const bp_kernel_def*> kernels(const Piece& piece, const OpenDevice& device);
  /// Options of the command line for a provider.
  OptionValues options_of(const std::string& provider) const;

 private:
  const Request& request_;
  std::unique_ptr<PluginFile> plugin_;
};

/// The kernel cases, in the order of the report; `time` and `crashes` are judged by who waits for the child.
const std::vector<std::string>& kernel_case_names();

/// The pieces. They throw Escaped and Broken.
std::vector<Row> check_handshake(Subject& subject);
std::vector<Row> check_registry(Subject& subject, const Piece& piece);
std::vector<Row> check_options(Subject& subject, const Piece& piece);
std::vector<Row> check_buffers(Subject& subject, const Piece& piece);
std::vector<Row> check_copies(Subject& subject, const Piece& piece);
std::vector<Row> check_streams(Subject& subject, const Piece& piece);
std::vector<Row> check_fences(Subject& subject, const Piece& piece);
std::vector<Row> check_device_leaks(Subject& subject, const Piece& piece);
std::vector<Row> check_host_memory(Subject& subject, const Piece& piece);
std::vector<Row> check_import_memory(Subject& subject, const Piece& piece);
std::vector<Row> check_plan_capture(Subject& subject, const Piece& piece);
std::vector<Row> check_kernel(Subject& subject, const Piece& piece);
std::vector<Row> check_claims(Subject& subject, const Piece& piece);
/// Whether the runtime opens it at all, and with it whatever the runtime demands of a device.
std::vector<Row> check_session_opens(Subject& subject, const Piece& piece);
std::vector<Row> check_sessions(Subject& subject, const Piece& piece);

}  // namespace backplane::cli::check
