// backplane: run, measure, verify and look at ONNX models.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <exception>
#include <fcntl.h>
#include <iostream>
#include <new>
#include <string>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>

#include "backplane/backplane.hpp"
#include "tools/backplane/commands.hpp"
#include "tools/backplane/failure.hpp"
#include "tools/backplane/nearest.hpp"
#include "tools/backplane/sudden_end.hpp"

namespace backplane::cli {
namespace {

/// Suggests what an argument that nobody expected may have meant.
[[noreturn]] void unexpected_argument(const CLI::App& program,
                                      const std::vector<std::string>& extras) {
  const std::vector<CLI::App*> chosen = program.get_subcommands();
  const CLI::App& command = chosen.empty() ? program : *chosen.front();
  const std::string argument = extras.empty() ? "" : extras.front();
  if (argument.size() > 1 && argument[0] == '-') {
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    const std::string name = argument.substr(0, argument.find('='));
    wrong_request("unknown option '", name, "'", did_you_mean(name, names), "; `backplane ",
                  chosen.empty() ? "" : command.get_name() + " ", "--help` lists all");
  }
  if (!chosen.empty())
    wrong_request("unexpected argument '", argument, "' for `backplane ", command.get_name(), "`");
  std::vector<std::string> names;
  for (const CLI::App* known : program.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(known->get_name());
  }
  std::string list;
  for (const std::string& name : names) list += " " + name;
  wrong_request("unknown command '", argument, "'", did_you_mean(argument, names), "; known are",
                list);
}

/// "--option=" of a variable that is empty: it would take the next argument for its value.
void refuse_empty_values(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--", 0) == 0 && argument.find('=') == argument.size() - 1)
      wrong_request("'", argument, "' has no value");
  }
}

int parse_and_run(int argc, char** argv) {
  CLI::App program("Runs, measures, verifies and inspects ONNX models. Every device is a plugin.",
                   "backplane");
  program.set_version_flag("--version", version());
  program.footer("Exit codes: 0 done, 1 a comparison failed, 2 wrong request, 3 the run failed.");
  Action chosen;
  add_run(program, chosen);
  add_bench(program, chosen);
  add_verify(program, chosen);
  add_inspect(program, chosen);
  add_providers(program, chosen);
  add_check(program, chosen);
  refuse_empty_values(argc, argv);
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    program.exit(success);
    return kDone;
  } catch (const CLI::ExtrasError&) {
    unexpected_argument(program, program.remaining(true));
  } catch (const CLI::ArgumentMismatch& error) {
    for (const CLI::App* command : program.get_subcommands()) {
      for (const CLI::Option* option : command->get_options()) {
        const int most = std::max(1, option->get_items_expected_max());  // 0 of flags
        if (option->count() > static_cast<std::size_t>(most))
          wrong_request(option->get_name(), " is given twice");
      }
    }
    wrong_request(one_line(error.what()));
  } catch (const CLI::ParseError& error) {
    wrong_request(one_line(error.what()));
  }
  if (!chosen)
    wrong_request(
        "no command: give run, bench, verify, inspect, providers or check; `backplane --help` says "
        "more");
  return chosen();
}

/// What is opened later must not take the place of a standard stream that the caller closed. Writing to such a one fails
/// still; where messages are lost, there is nobody to tell.
void fill_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    if (::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) != fd) return;
  }
}

int report(int exit_code, const std::string& message) {
  std::cerr << "backplane: " << one_line(message) << "\n";
  return exit_code;
}

int guarded_main(int argc, char** argv) {
  try {
    const int exit_code = parse_and_run(argc, argv);
    std::cout.flush();
    if (!std::cout) run_failed("cannot write to standard output");
    return exit_code;
  } catch (const Failure& failure) {
    return report(failure.exit_code(), failure.what());
  } catch (const Error& error) {
    return report(exit_code_of_load(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return report(kRunFailed, "out of memory");
  } catch (const std::exception& error) {
    return report(kRunFailed, error.what());
  }
}

}  // namespace
}  // namespace backplane::cli

int main(int argc, char** argv) {
  backplane::cli::fill_standard_descriptors();
  // A closed pipe and a file-size limit are errors of the write, not deaths.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  backplane::cli::end_as_failed_run_at_signals();
  return backplane::cli::guarded_main(argc, argv);
}
