#include "core/plugin_host/provider_options.hpp"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <system_error>

#include "core/base/error.hpp"
#include "core/base/nearest_name.hpp"
#include "core/base/quote.hpp"

namespace backplane::core {
namespace {

template <class Number>
std::optional<Number> parse(std::string_view word) {
  Number number{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return number;
}

/// A number in "low..high", where either end may be missing.
template <class Number>
std::optional<std::string> wrong_number(std::string_view value, std::string_view range,
                                        std::string_view what) {
  const std::optional<Number> number = parse<Number>(value);
  if (!number || number != number) return text(quoted(value), " is not ", what);
  if (range.empty()) return std::nullopt;
  const std::size_t dots = range.find("..");
  const std::optional<Number> low = parse<Number>(range.substr(0, dots));
  const std::optional<Number> high = parse<Number>(range.substr(dots + 2));
  if ((low && *number < *low) || (high && *number > *high)) {
    return text(quoted(value), " is not in ", range);
  }
  return std::nullopt;
}

/// Why a range of numbers is none.
template <class Number>
std::optional<std::string> wrong_range_of(std::string_view range) {
  if (range.empty()) return std::nullopt;
  const std::size_t dots = range.find("..");
  const auto end_of = [](std::string_view word, bool& is_wrong) {
    const std::optional<Number> number = parse<Number>(word);
    is_wrong = is_wrong || (!word.empty() && (!number || number != number));
    return number;
  };
  bool is_wrong = dots == std::string_view::npos;
  if (!is_wrong) {
    const std::optional<Number> low = end_of(range.substr(0, dots), is_wrong);
    const std::optional<Number> high = end_of(range.substr(dots + 2), is_wrong);
    is_wrong = is_wrong || (low && high && *low > *high);
  }
  if (!is_wrong) return std::nullopt;
  return text(quoted(range), " is no range \"low..high\", where either end may be missing");
}

std::optional<std::string> wrong_choice(std::string_view value, std::string_view choices) {
  if (choices.empty()) return std::nullopt;
  std::vector<std::string> words;
  for (std::string_view rest = choices;;) {
    const std::size_t bar = rest.find('|');
    words.emplace_back(rest.substr(0, bar));
    if (words.back() == value) return std::nullopt;
    if (bar == std::string_view::npos) break;
    rest.remove_prefix(bar + 1);
  }
  return text(quoted(value), " is not one of ", choices, did_you_mean(value, words));
}

const bp_option* find_option(const bp_provider& provider, std::string_view name) {
  for (std::uint64_t i = 0; i < provider.option_count; ++i) {
    if (provider.options[i]->name == name) return provider.options[i];
  }
  return nullptr;
}

[[noreturn]] void throw_unknown(const bp_provider& provider, const std::string& name) {
  std::vector<std::string> known;
  std::string list;
  for (std::uint64_t i = 0; i < provider.option_count; ++i) {
    known.emplace_back(provider.options[i]->name);
    list += (i == 0 ? "" : ", ") + known.back();
  }
  invalid("provider '", provider.name, "' has no option ", quoted(name), did_you_mean(name, known),
          known.empty() ? "; it has none at all" : "; known: ", list);
}

}  // namespace

std::optional<std::string> wrong_range(const bp_option& option) {
  const std::string_view range = option.range == nullptr ? "" : option.range;
  switch (option.type) {
    case BP_OPTION_INT:
      return wrong_range_of<std::int64_t>(range);
    case BP_OPTION_FLOAT:
      return wrong_range_of<double>(range);
    default:
      return std::nullopt;
  }
}

std::optional<std::string> wrong_value(const bp_option& option, std::string_view value) {
  const std::string_view range = option.range == nullptr ? "" : option.range;
  switch (option.type) {
    case BP_OPTION_STRING:
      return wrong_choice(value, range);
    case BP_OPTION_INT:
      return wrong_number<std::int64_t>(value, range, "a whole number");
    case BP_OPTION_FLOAT:
      return wrong_number<double>(value, range, "a number");
    case BP_OPTION_BOOL:
      if (value == "true" || value == "false") return std::nullopt;
      return text(quoted(value), " is neither true nor false");
    default:
      return std::nullopt;
  }
}

OptionList complete_options(const bp_provider& provider, const OptionList& given) {
  OptionList complete;
  for (std::uint64_t i = 0; i < provider.option_count; ++i) {
    complete.emplace_back(provider.options[i]->name, provider.options[i]->default_value);
  }
  for (const auto& [name, value] : given) {
    const bp_option* option = find_option(provider, name);
    if (option == nullptr) throw_unknown(provider, name);
    if (const auto why = wrong_value(*option, value)) {
      invalid("option ", quoted(name), " of provider '", provider.name, "': ", *why);
    }
    for (auto& [known, current] : complete) {
      if (known == name) current = value;
    }
  }
  return complete;
}

}  // namespace backplane::core
