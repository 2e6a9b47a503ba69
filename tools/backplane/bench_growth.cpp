#include "tools/backplane/bench_growth.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <system_error>

#include "tools/backplane/bench_replan.hpp"
#include "tools/backplane/failure.hpp"
#include "tools/backplane/selection.hpp"

namespace backplane::cli {
namespace {

/// The number at the start of `text`, and where it ends; 0 for none.
std::int64_t read_size(const char*& text, const char* end) {
  std::int64_t size = 0;
  const auto [stop, error] = std::from_chars(text, end, size);
  if (error != std::errc()) return 0;
  text = stop;
  return size;
}

DimGrowth parse_growth(const std::string& argument) {
  const std::size_t equals = argument.rfind('=');
  DimGrowth growth;
  bool whole = false;
  if (equals != std::string::npos) {
    growth.name = argument.substr(0, equals);
    const char* place = argument.data() + equals + 1;
    const char* const end = argument.data() + argument.size();
    growth.from = read_size(place, end);
    if (place != end && *place == ':') {
      growth.to = read_size(++place, end);
      whole = place == end;
    }
  }
  if (growth.name.empty() || !whole || growth.from < 1 || growth.to < growth.from)
    wrong_request("--grow '", argument, "' is not of the form NAME=FROM:TO, sizes of at least 1");
  return growth;
}

/// A feed's first elements, with the sizes of a run.
Value with_sizes(const ValueInfo& info, const Value& feed, const std::vector<DimGrowth>& growths,
                 std::int64_t run) {
  std::vector<std::int64_t> dims = feed.dims();
  for (std::size_t axis = 0; axis < std::min(dims.size(), info.symbols.size()); ++axis) {
    for (const DimGrowth& growth : growths) {
      if (info.symbols[axis] == growth.name) dims[axis] = growth.from + run;
    }
  }
  Value sized = Value::tensor(feed.element_type(), dims);
  if (feed.bytes() == nullptr) return sized;  // strings
  return Value::borrow(feed.element_type(), dims, const_cast<void*>(feed.bytes()),
                       sized.byte_count());
}

bool grows(const ValueInfo& info, const std::vector<DimGrowth>& growths) {
  return std::any_of(growths.begin(), growths.end(), [&](const DimGrowth& growth) {
    return std::find(info.symbols.begin(), info.symbols.end(), growth.name) != info.symbols.end();
  });
}

/// `results` become the run's; those before are freed in its time, as a decoder frees keys and values that it handed on.
double run_once(const Session& session, const FeedSet& feeds, const std::vector<DimGrowth>& growths,
                std::int64_t run, std::vector<Value>& results) {
  using Clock = std::chrono::steady_clock;
  std::vector<Value> resized;
  Feeds given = feeds.views();
  for (const ValueInfo& info : session.inputs()) {
    if (!grows(info, growths)) continue;
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (given[i].first != info.name) continue;
      resized.push_back(with_sizes(info, feeds.values()[i].second, growths, run));
      given[i].second = ValueView(resized.back().get());
    }
  }
  const Clock::time_point start = Clock::now();
  as_run([&] { results = session.run(given); });
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

std::vector<DimGrowth> DimGrowth::parse(const std::vector<std::string>& arguments,
                                        const Session& session) {
  std::vector<DimGrowth> growths;
  GivenOnce symbols("--grow");
  for (const std::string& argument : arguments) {
    growths.push_back(parse_growth(argument));
    symbols.add(growths.back().name);
    const DimGrowth &made = growths.back(), &first = growths.front();
    require_symbol(session, made.name, "--grow");
    if (made.to - made.from != first.to - first.from) {
      wrong_request("--grow '", argument, "' has another number of sizes than '", first.name, "=",
                    first.from, ":", first.to, "'; they grow together");
    }
  }
  return growths;
}

GrowthTimes measure_growth(const Session& session, const FeedSet& feeds,
                           const std::vector<DimGrowth>& growths) {
  std::vector<double> times;
  std::vector<Value> results;
  for (std::int64_t run = 0; run <= growths.at(0).to - growths.at(0).from; ++run)
    times.push_back(run_once(session, feeds, growths, run, results));
  std::sort(times.begin(), times.end());
  return {times.size(), times[times.size() / 2], times[times.size() * 9 / 10]};
}

}  // namespace backplane::cli
