// What a plugin says of itself: the handshake, its registries, its options.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/backplane/check/suite.hpp"
#include "tools/backplane/failure.hpp"

namespace backplane::cli::check {
namespace {

std::string missing(const char* text, const char* what) {
  return text == nullptr || *text == '\0' ? std::string(what) + " is missing" : "";
}

/// The first that is not "".
std::string first_of(std::initializer_list<std::string> complaints) {
  for (const std::string& complaint : complaints) {
    if (!complaint.empty()) return complaint;
  }
  return "";
}

Row verdict(const std::string& name, const std::string& subject, const std::string& complaint) {
  return complaint.empty() ? passed(name, subject) : failed(name, subject, complaint);
}

std::string complaint_about(const bp_plugin& plugin) {
  std::string unsaid = first_of(
      {missing(plugin.name, "the plugin's name"), missing(plugin.version, "the plugin's version")});
  if (!unsaid.empty()) return unsaid;
  if (plugin.init == nullptr || plugin.shutdown == nullptr) return "init or shutdown is NULL";
  if (plugin.abi_minor_required > plugin.abi_minor_built)
    return "it requires a newer ABI than it was built with";
  if (plugin.struct_size < offsetof(bp_plugin, init) || plugin.struct_size % 4 != 0)
    return text("the plugin's struct_size is ", plugin.struct_size);
  if ((plugin.struct_flags & BP_MUST_UNDERSTAND_MASK) != 0) return "unknown must-understand bits";
  return "";
}

std::string complaint_about_query(const PluginFile& file) {
  const bp_plugin* again = nullptr;
  Grown<bp_query_args> args;
  args.base.host_major = BP_ABI_MAJOR;
  enter("a second query");
  if (across([&] { return file.query()(&args.base, &again); }) != BP_OK || again == nullptr)
    return "the second query fails";
  args.base.host_major = BP_ABI_MAJOR + 1;
  enter("query by a host of the next major version");
  again = nullptr;
  if (across([&] { return file.query()(&args.base, &again); }) == BP_OK)
    return text("it serves a host of major version ", BP_ABI_MAJOR + 1,
                ", whose tables it cannot know");
  return "";
}

std::string complaint_about(const bp_kernel_def& def) {
  std::string unsaid =
      first_of({missing(def.name, "a kernel's name"), missing(def.op_type, "a kernel's op_type")});
  if (!unsaid.empty()) return unsaid;
  const std::string name = std::string("kernel '") + def.name + "'";
  if (def.domain == nullptr) return name + " has no domain";
  if (def.create == nullptr || def.destroy == nullptr || def.prepare == nullptr ||
      def.release == nullptr || def.compute == nullptr)
    return name + " lacks create, destroy, prepare, release or compute";
  if (def.since_min < 1 || def.since_max < def.since_min)
    return text(name, " is for versions ", def.since_min, "..", def.since_max);
  for (std::uint32_t i = 0; i < def.constraint_count; ++i) {
    if (def.constraints[i]->type_count == 0) return name + " constrains a parameter to no type";
  }
  return "";
}

/// Text in a page of its own that starts without access; the first touch shows and opens it.
class WatchedText {
 public:
  explicit WatchedText(const std::string& text) : size_(text.size()) {
    bytes_ = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    bytes_ *= text.size() / bytes_ + 1;
    page_ = static_cast<char*>(
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (page_ == MAP_FAILED) run_failed("no memory for a watched page");
    std::memcpy(page_, text.data(), text.size());
    ::mprotect(page_, bytes_, PROT_NONE);
    watched_count = watched_count + 1;
    watched[watched_count - 1] = this;
  }
  ~WatchedText() {
    watched_count = watched_count - 1;  // they end in the reverse order
    ::munmap(page_, bytes_);
  }
  WatchedText(const WatchedText&) = delete;
  WatchedText& operator=(const WatchedText&) = delete;

  bp_str raw() const { return {page_, size_}; }
  bool was_read() const { return was_read_ != 0; }

  /// While it lives, a fault in a watched page is a mark and no end.
  class Handler {
   public:
    Handler() {
      struct sigaction action {};
      action.sa_sigaction = on_fault;
      action.sa_flags = SA_SIGINFO | SA_NODEFER;
      ::sigaction(SIGSEGV, &action, &before_);
    }
    ~Handler() { ::sigaction(SIGSEGV, &before_, nullptr); }
    Handler(const Handler&) = delete;
    Handler& operator=(const Handler&) = delete;

   private:
    struct sigaction before_ {};
  };

 private:
  static constexpr int kMost = 128;
  static WatchedText* watched[kMost];
  static volatile std::sig_atomic_t watched_count;

  static void on_fault(int, siginfo_t* info, void*) {
    const char* address = static_cast<const char*>(info->si_addr);
    for (int i = 0; i < watched_count; ++i) {
      WatchedText& text = *watched[i];
      if (address < text.page_ || address >= text.page_ + text.bytes_) continue;
      text.was_read_ = 1;
      ::mprotect(text.page_, text.bytes_, PROT_READ);
      return;
    }
    std::signal(SIGSEGV, SIG_DFL);  // somebody else's fault: it comes again, and ends the process
  }

  char* page_ = nullptr;
  std::size_t size_, bytes_ = 0;
  volatile std::sig_atomic_t was_read_ = 0;

 public:
  static constexpr int most() { return kMost; }
};

WatchedText* WatchedText::watched[WatchedText::kMost] = {};
volatile std::sig_atomic_t WatchedText::watched_count = 0;

/// Other values that the option's declaration allows.
std::vector<std::string> other_values(const bp_option& option) {
  std::vector<std::string> values;
  const std::string range = option.range == nullptr ? "" : option.range;
  if (option.type == BP_OPTION_BOOL) return {"true", "false"};
  if (option.type == BP_OPTION_STRING) {
    for (std::size_t start = 0; start < range.size();) {
      const std::size_t end = std::min(range.find('|', start), range.size());
      values.push_back(range.substr(start, end - start));
      start = end + 1;
    }
    return values;
  }
  const std::size_t dots = range.find("..");
  if (dots == std::string::npos) return {"1"};
  if (dots > 0) values = {range.substr(0, dots), std::to_string(std::atoll(range.c_str()) + 1)};
  return values;
}

/// Opens with these values and notes which ones were read. A refusal is no matter: reading comes before it.
void note_reads(const bp_provider* provider, const bp_device_info* info, const OptionValues& values,
                std::set<std::string>& read) {
  std::vector<std::unique_ptr<WatchedText>> texts;
  std::vector<bp_key_value> pairs;
  for (const auto& [name, value] : values) {
    texts.push_back(std::make_unique<WatchedText>(value + " "));
    bp_str text = texts.back()->raw();
    --text.size;  // the blank makes sure that an empty value can be read, too
    pairs.push_back({{name.data(), name.size()}, text});
  }
  Grown<bp_open_ctx> ctx;
  ctx.base.options = pairs.data();
  ctx.base.option_count = pairs.size();
  ctx.base.threads = host_threads();
  bp_device* device = nullptr;
  const bp_device_api* api = nullptr;
  enter("open with watched options");
  {
    const WatchedText::Handler handler;
    const Outcome outcome =
        ask([&] { return provider->open(provider->self, info, &ctx.base, &device, &api); });
    if (outcome.is_ok() && device != nullptr) api->close(device);
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts[i]->was_read() || values[i].second.empty()) read.insert(values[i].first);
  }
  while (!texts.empty()) texts.pop_back();
}

std::string complaint_about(const bp_option& option) {
  std::string unsaid =
      first_of({missing(option.name, "an option's name"), missing(option.doc, "an option's doc")});
  if (!unsaid.empty()) return unsaid;
  const std::string name = std::string("option '") + option.name + "'";
  if (option.default_value == nullptr) return name + " has no default";
  if (option.type < BP_OPTION_STRING || option.type > BP_OPTION_BOOL)
    return text(name, " has type ", option.type, ", which there is not");
  const std::vector<std::string> listed = other_values(option);
  const bool is_choice = option.type == BP_OPTION_STRING || option.type == BP_OPTION_BOOL;
  if (is_choice && !listed.empty() &&
      std::find(listed.begin(), listed.end(), option.default_value) == listed.end())
    return name + "'s default '" + option.default_value + "' is none of its choices";
  return "";
}

}  // namespace

std::vector<Row> check_handshake(Subject& subject) {
  PluginFile file(subject.request().file);
  const std::string plugin = file->name == nullptr ? "" : file->name;
  std::vector<Row> rows;
  rows.push_back(verdict("handshake.description", "", complaint_about(*file.operator->())));
  rows.push_back(verdict("handshake.query", "", complaint_about_query(file)));
  if (rows[0].status == "failed") return rows;
  const std::int64_t statuses = live_statuses(), blocks = live_host_blocks();
  file.start();
  file.stop();
  file.start();  // again only after a shutdown, but then it must work
  file.stop();
  std::string left;
  if (live_statuses() != statuses) left = "statuses of the host are left after shutdown";
  if (live_host_blocks() != blocks) left = "memory of the host's alloc is left after shutdown";
  rows.push_back(verdict("handshake.init", "", left));
  return rows;
}

std::vector<Row> check_registry(Subject& subject, const Piece& piece) {
  std::vector<Row> rows;
  const auto device = subject.open(piece);
  const auto kernels = subject.kernels(piece, *device);
  std::string complaint;
  std::set<const bp_kernel_def*> seen;
  for (const bp_kernel_def* def : kernels) {
    if (complaint.empty()) complaint = complaint_about(*def);
    if (!seen.insert(def).second && complaint.empty()) complaint = "an entry is shown twice";
  }
  if (complaint.empty() && subject.kernels(piece, *device) != kernels)
    complaint = "asked again, it shows other entries";
  rows.push_back(verdict("registry.entries", piece.subject, complaint));
  if (piece.is_guest) return rows;

  std::string info;
  for (const bp_device_info* found : PluginFile::devices(subject.provider(piece.provider))) {
    info = first_of(
        {info, missing(found->name, "a device's name"),
         found->score < 0 || found->score > 100 ? text("a device's score is ", found->score) : ""});
  }
  if (PluginFile::devices(subject.provider(piece.provider)) !=
      PluginFile::devices(subject.provider(piece.provider)))
    info = "asked again, it shows other devices";
  rows.push_back(verdict("registry.devices", piece.subject, info));
  const auto twin = subject.open(piece);  // the same one may be opened several times
  rows.push_back(verdict("registry.open", piece.subject,
                         twin->kernels().size() == kernels.size()
                             ? ""
                             : "opened twice, the device shows other kernels"));
  return rows;
}

std::vector<Row> check_options(Subject& subject, const Piece& piece) {
  const bp_provider* provider = subject.provider(piece.provider);
  const bp_device_info* info = subject.device_info(piece.provider);
  std::vector<Row> rows;
  std::string complaint;
  for (std::uint64_t i = 0; i < provider->option_count; ++i)
    complaint = first_of({complaint, complaint_about(*provider->options[i])});
  rows.push_back(verdict("options.declared", piece.subject, complaint));
  if (!complaint.empty()) return rows;
  if (provider->option_count == 0) {
    rows.push_back(skipped("options.read", piece.subject, "the provider has no options"));
    return rows;
  }
  if (provider->option_count > static_cast<std::uint64_t>(WatchedText::most())) {
    rows.push_back(skipped("options.read", piece.subject, "more options than the suite watches"));
    return rows;
  }
  const OptionValues given = subject.options_of(piece.provider);
  std::set<std::string> read;
  note_reads(provider, info, all_options(provider, given), read);
  for (std::uint64_t i = 0; i < provider->option_count; ++i) {  // some are read only beside others
    const bp_option& option = *provider->options[i];
    for (const std::string& value : other_values(option)) {
      if (read.size() == provider->option_count) break;
      OptionValues values = given;
      values.emplace_back(option.name, value);
      note_reads(provider, info, all_options(provider, values), read);
    }
  }
  for (std::uint64_t i = 0; i < provider->option_count; ++i) {
    const std::string name = provider->options[i]->name;
    if (complaint.empty() && read.count(name) == 0)
      complaint = text("option '", name, "' is accepted, and its value is never read");
  }
  rows.push_back(verdict("options.read", piece.subject, complaint));
  return rows;
}

}  // namespace backplane::cli::check
