#include "tools/backplane/bench_replan.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <system_error>
#include <vector>

#include "tools/backplane/failure.hpp"

namespace backplane::cli {
namespace {

constexpr std::int64_t kSizes = 10;

void resize_inputs(const Session& session, Binding& binding, const FeedSet& feeds,
                   const DimSize& dim) {
  for (const ValueInfo& info : session.inputs()) {
    for (const auto& [name, value] : feeds.values()) {
      if (name != info.name) continue;
      std::vector<std::int64_t> dims = value.dims();
      bool changed = false;
      for (std::size_t axis = 0; axis < info.symbols.size(); ++axis) {
        if (info.symbols[axis] != dim.name) continue;
        dims[axis] = dim.size;
        changed = true;
      }
      if (changed) binding.resize(name, dims);
    }
  }
}

}  // namespace

void require_symbol(const Session& session, const std::string& name, const char* option) {
  std::string known;
  for (const ValueInfo& info : session.inputs()) {
    for (const std::string& symbol : info.symbols) {
      if (symbol == name) return;
      if (symbol.empty() || known.find("'" + symbol + "'") != std::string::npos) continue;
      known += (known.empty() ? "; known: '" : ", '") + symbol + "'";
    }
  }
  wrong_request(option, ": no input has a symbolic dimension '", name, "'",
                known.empty() ? "; none has any" : known);
}

DimSize DimSize::parse(const std::string& argument, const Session& session) {
  const std::size_t equals = argument.rfind('=');
  DimSize dim;
  if (equals != std::string::npos) {
    dim.name = argument.substr(0, equals);
    const char* const end = argument.data() + argument.size();
    const auto [stop, error] = std::from_chars(argument.data() + equals + 1, end, dim.size);
    if (error != std::errc() || stop != end) dim.size = 0;
  }
  if (dim.name.empty() || dim.size < 2) {
    wrong_request("--replan '", argument, "' is not of the form NAME=N, N at least 2");
  }
  require_symbol(session, dim.name, "--replan");
  return dim;
}

double measure_replan(const Session& session, const FeedSet& feeds, const DimSize& dim) {
  using Clock = std::chrono::steady_clock;
  Binding binding(session);
  for (const auto& [name, value] : feeds.values()) binding.bind_input(name, value);
  for (const ValueInfo& output : session.outputs()) binding.bind_output(output.name);
  std::vector<double> times;
  for (std::int64_t size = dim.size - 1; size > 0 && size >= dim.size - kSizes; --size) {
    resize_inputs(session, binding, feeds, {dim.name, size});
    const Clock::time_point start = Clock::now();
    as_run([&] { binding.plan(); });
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace backplane::cli
