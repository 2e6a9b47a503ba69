#include "tools/backplane/feeds.hpp"

#include <algorithm>

#include "tools/backplane/elements.hpp"
#include "tools/backplane/failure.hpp"
#include "tools/backplane/fill.hpp"
#include "tools/backplane/value_file.hpp"

namespace backplane::cli {
namespace {

struct NamedFile {
  ValueInfo info;
  std::string file;
};

/// Splits "NAME=FILE" at the '=' that follows a known name: names may hold one, too. Other names are inner values', or
/// nothing's: the session says.
NamedFile parse_argument(const std::string& argument, const std::vector<ValueInfo>& known) {
  const ValueInfo* best = nullptr;
  for (const ValueInfo& info : known) {
    const bool fits = argument.size() > info.name.size() && argument[info.name.size()] == '=' &&
                      argument.compare(0, info.name.size(), info.name) == 0;
    if (fits && (best == nullptr || info.name.size() > best->name.size())) best = &info;
  }
  if (best != nullptr) return {*best, argument.substr(best->name.size() + 1)};
  const std::size_t equals = argument.find('=');
  if (equals == std::string::npos || equals == 0) {
    wrong_request("--input '", argument, "' is not of the form NAME=FILE");
  }
  ValueInfo other;
  other.name = argument.substr(0, equals);
  return {std::move(other), argument.substr(equals + 1)};
}

/// Refuses what cannot fit, so that a large file is not read for nothing; the session checks the rest.
void check_header(const ValueInfo& info, ElementType type, const std::vector<std::int64_t>& dims) {
  const ElementType declared = tensor_element(info.type);
  bool fits = declared == ElementType::None || declared == type;
  if (info.rank >= 0) {
    fits = fits && dims.size() == info.dims.size();
    for (std::size_t axis = 0; fits && axis < dims.size(); ++axis)
      fits = info.dims[axis] < 0 || info.dims[axis] == dims[axis];
  }
  if (fits) return;
  wrong_request("it should be ", describe(info), " but is tensor(", element_name(type), ") ",
                shape_text(dims));
}

}  // namespace

std::string describe(const ValueInfo& info) {
  if (info.rank < 0) return info.type;
  std::string shape = "[";
  for (std::size_t axis = 0; axis < info.dims.size(); ++axis) {
    if (axis > 0) shape += ",";
    if (info.dims[axis] >= 0) {
      shape += std::to_string(info.dims[axis]);
    } else {
      shape += info.symbols[axis].empty() ? "?" : info.symbols[axis];
    }
  }
  return info.type + " " + shape + "]";
}

FeedSet::FeedSet(const Session& session, const std::vector<std::string>& arguments)
    : inputs_(session.inputs()) {
  std::vector<ValueInfo> known = inputs_;
  for (ValueInfo& info : session.overridable_initializers()) known.push_back(std::move(info));
  for (const std::string& argument : arguments) {
    const NamedFile named = parse_argument(argument, known);
    files_.push_back(named.file);
    if (has(named.info.name)) wrong_request("--input: '", named.info.name, "' is given twice");
    try {
      const auto check = [&](ElementType type, const std::vector<std::int64_t>& dims) {
        check_header(named.info, type, dims);
      };
      values_.emplace_back(named.info.name, read_value(named.file, named.info.type, check));
    } catch (const Failure& failure) {
      throw Failure(failure.exit_code(), text("input '", named.info.name, "': ", failure.what()));
    }
  }
  for (const ValueInfo& info : inputs_) {
    if (!has(info.name) && is_optional(info.type))
      values_.emplace_back(info.name, empty_optional());
  }
}

bool FeedSet::has(const std::string& name) const {
  return std::any_of(values_.begin(), values_.end(),
                     [&](const auto& pair) { return pair.first == name; });
}

std::vector<std::int64_t> FeedSet::filled_dims(const ValueInfo& info,
                                               const std::map<std::string, std::int64_t>& sizes,
                                               std::vector<std::string>& assumed) const {
  std::vector<std::int64_t> dims = info.dims;
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    if (dims[axis] >= 0) continue;
    const std::string& symbol = info.symbols[axis];
    if (const auto size = sizes.find(symbol); size != sizes.end() && !symbol.empty()) {
      dims[axis] = size->second;
      continue;
    }
    for (const ValueInfo& other : inputs_) {
      const auto fed = std::find_if(values_.begin(), values_.end(),
                                    [&](const auto& pair) { return pair.first == other.name; });
      if (symbol.empty() || fed == values_.end()) continue;
      const auto place = std::find(other.symbols.begin(), other.symbols.end(), symbol);
      const auto at = static_cast<std::size_t>(place - other.symbols.begin());
      const std::vector<std::int64_t> given = fed->second.dims();
      if (place != other.symbols.end() && at < given.size()) dims[axis] = given[at];
    }
    if (dims[axis] >= 0) continue;
    dims[axis] = 1;
    const std::string name = symbol.empty() ? text(info.name, " axis ", axis) : symbol;
    if (std::find(assumed.begin(), assumed.end(), name) == assumed.end()) assumed.push_back(name);
  }
  return dims;
}

std::vector<std::string> FeedSet::fill_missing(const std::map<std::string, std::int64_t>& sizes) {
  std::vector<std::string> assumed;
  for (const ValueInfo& info : inputs_) {
    if (has(info.name)) continue;
    const ElementType type = tensor_element(info.type);
    if (type == ElementType::None) {
      wrong_request("input '", info.name, "' is a ", info.type,
                    ", which cannot be made up: give it with --input '", info.name, "=FILE.pb'");
    }
    if (info.rank < 0) {
      wrong_request("input '", info.name, "' has no known rank: give it with --input '", info.name,
                    "=FILE'");
    }
    try {
      values_.emplace_back(info.name,
                           filled_tensor(info.name, type, filled_dims(info, sizes, assumed)));
    } catch (const Error& error) {  // a size that no memory has
      throw Failure(exit_code_of_load(error.code()),
                    text("input '", info.name, "': ", error.what()));
    }
  }
  return assumed;
}

Feeds FeedSet::views() const {
  Feeds feeds;
  for (const auto& [name, value] : values_) feeds.emplace_back(name, value);
  return feeds;
}

}  // namespace backplane::cli
