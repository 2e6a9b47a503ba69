// The subcommands. Each adds itself to the program; its callback returns by exit code.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace backplane::cli {

/// What a subcommand does once the command line is parsed: its exit code.
using Action = std::function<int()>;

/// Adds the subcommand; `chosen` is set to what is to be done when it is the one on the command line.
void add_run(CLI::App& program, Action& chosen);
void add_bench(CLI::App& program, Action& chosen);
void add_verify(CLI::App& program, Action& chosen);
void add_inspect(CLI::App& program, Action& chosen);
void add_providers(CLI::App& program, Action& chosen);
void add_check(CLI::App& program, Action& chosen);

}  // namespace backplane::cli
