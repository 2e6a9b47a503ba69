#include "plugins/cpu/kernels/regular_expression.hpp"

#include <algorithm>
#include <memory>
#include <string>

#include "backplane/plugin.hpp"
#include "plugins/cpu/kernels/unicode.hpp"

namespace backplane::cpu {
namespace {

using Step = RegularExpression::Step;
using Ranges = RegularExpression::Ranges;
using Instruction = RegularExpression::Instruction;

constexpr char32_t kLast = 0x10FFFF;
constexpr int kMaxCount = 1000;
constexpr int kMaxDepth = 200;

/// A part of a pattern.
struct Expression {
  enum class Kind { Set, Assertion, Sequence, Choice, Repeat } kind = Kind::Sequence;
  Ranges ranges;
  Step assertion = Step::Begin;
  int least = 0, most = 0;  // of Repeat; most -1: no limit
  std::vector<std::unique_ptr<Expression>> parts;
};
using ExpressionPtr = std::unique_ptr<Expression>;

Ranges negate(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end());
  Ranges result;
  char32_t next = 0;
  for (const auto& [first, last] : ranges) {
    if (first > next) result.emplace_back(next, first - 1);
    next = std::max<char32_t>(next, last + 1);
  }
  if (next <= kLast) result.emplace_back(next, kLast);
  return result;
}

/// The class of an escape such as \d, or of [:alpha:]; empty when there is none.
Ranges named_class(std::u32string_view name) {
  static const std::pair<const char32_t*, Ranges> kClasses[] = {
      {U"d", {{'0', '9'}}},
      {U"s", {{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}}},
      {U"w", {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
      {U"alnum", {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}},
      {U"alpha", {{'A', 'Z'}, {'a', 'z'}}},
      {U"ascii", {{0, 0x7F}}},
      {U"blank", {{'\t', '\t'}, {' ', ' '}}},
      {U"cntrl", {{0, 0x1F}, {0x7F, 0x7F}}},
      {U"digit", {{'0', '9'}}},
      {U"graph", {{'!', '~'}}},
      {U"lower", {{'a', 'z'}}},
      {U"print", {{' ', '~'}}},
      {U"punct", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}},
      {U"space", {{'\t', '\r'}, {' ', ' '}}},
      {U"upper", {{'A', 'Z'}}},
      {U"word", {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
      {U"xdigit", {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}},
  };
  for (const auto& [known, ranges] : kClasses) {
    if (name == known) return ranges;
  }
  return {};
}

class Parser {
 public:
  explicit Parser(std::string_view pattern) : shown_(pattern), text_(decode_utf8(pattern)) {
    while (take(U"(?i)") || take(U"(?s)") || take(U"(?is)") || take(U"(?si)")) {
      const std::u32string_view flags(text_.data() + at_ - 4, 4);
      fold_ = fold_ || flags.find(U'i') != std::u32string_view::npos;
      any_line_ = any_line_ || flags.find(U's') != std::u32string_view::npos;
    }
  }

  ExpressionPtr parse() {
    ExpressionPtr result = choice(0);
    if (at_ < text_.size()) fail("a ')' without its '('");
    return result;
  }

 private:
  [[noreturn]] void fail(const char* why) const {
    sdk::invalid("the pattern '", shown_, "' has ", why, " (near character ", at_, ")");
  }
  bool ended() const { return at_ >= text_.size(); }
  bool take(std::u32string_view token) {
    if (text_.compare(at_, token.size(), token) != 0) return false;
    at_ += token.size();
    return true;
  }
  char32_t next(const char* missing) {
    if (ended()) fail(missing);
    return text_[at_++];
  }

  ExpressionPtr choice(int depth) {
    if (depth > kMaxDepth) sdk::unsupported("a pattern nested more than ", kMaxDepth, " deep");
    auto result = std::make_unique<Expression>();
    result->kind = Expression::Kind::Choice;
    do {
      auto sequence = std::make_unique<Expression>();
      while (!ended() && text_[at_] != U'|' && text_[at_] != U')') {
        sequence->parts.push_back(repeats(atom(depth)));
      }
      result->parts.push_back(std::move(sequence));
    } while (take(U"|"));
    return result;
  }

  ExpressionPtr repeats(ExpressionPtr part) {
    while (!ended()) {
      int least = 0, most = -1;
      if (take(U"+")) {
        least = 1;
      } else if (take(U"?")) {
        most = 1;
      } else if (!take(U"*") && !counts(least, most)) {
        return part;
      }
      take(U"?");  // the lazy forms match the same whole texts
      auto repeat = std::make_unique<Expression>();
      repeat->kind = Expression::Kind::Repeat;
      repeat->least = least;
      repeat->most = most;
      repeat->parts.push_back(std::move(part));
      part = std::move(repeat);
    }
    return part;
  }

  // {n}, {n,} or {n,m}; anything else after a brace is plain text.
  bool counts(int& least, int& most) {
    const std::size_t start = at_;
    if (!take(U"{") || !number(least)) return at_ = start, false;
    most = least;
    if (take(U",") && !number(most)) most = -1;
    if (!take(U"}")) return at_ = start, false;
    if (least > kMaxCount || most > kMaxCount || (most >= 0 && most < least))
      fail("a count out of range");
    return true;
  }
  bool number(int& value) {
    const std::size_t start = at_;
    value = 0;
    while (!ended() && text_[at_] >= U'0' && text_[at_] <= U'9' && value <= kMaxCount) {
      value = value * 10 + static_cast<int>(text_[at_++] - U'0');
    }
    return at_ > start;
  }

  ExpressionPtr atom(int depth) {
    const char32_t c = next("no more text");
    switch (c) {
      case U'(':
        return group(depth);
      case U'[':
        return set(bracket());
      case U'.':
        return set(any_line_ ? Ranges{{0, kLast}} : negate({{'\n', '\n'}}));
      case U'^':
        return assertion(Step::Begin);
      case U'$':
        return assertion(Step::End);
      case U'*':
      case U'+':
      case U'?':
        fail("a repetition of nothing");
      case U'\\':
        return escape();
      default:
        return set({{c, c}});
    }
  }

  ExpressionPtr group(int depth) {
    if (take(U"?")) {
      if (take(U"P<") || take(U"<")) {
        while (next("an unfinished name") != U'>') {
        }
      } else if (!take(U":")) {
        sdk::unsupported("the pattern '", shown_, "': a group '(?' near character ", at_);
      }
    }
    ExpressionPtr inner = choice(depth + 1);
    if (!take(U")")) fail("a '(' without its ')'");
    return inner;
  }

  ExpressionPtr escape() {
    if (take(U"b")) return assertion(Step::WordEdge);
    if (take(U"B")) return assertion(Step::NoWordEdge);
    if (take(U"A")) return assertion(Step::Begin);
    if (take(U"z")) return assertion(Step::End);
    return set(escaped());
  }

  // What follows a backslash: a class, or one character.
  Ranges escaped() {
    const char32_t c = next("a backslash at its end");
    const bool negated = c == U'D' || c == U'S' || c == U'W';
    if (negated || c == U'd' || c == U's' || c == U'w') {
      const char32_t name[] = {negated ? c + 32 : c};
      const Ranges ranges = named_class({name, 1});
      return negated ? negate(ranges) : ranges;
    }
    constexpr std::u32string_view kNames = U"aftnrv", kValues = U"\a\f\t\n\r\v";
    const std::size_t known = kNames.find(c);
    if (known != std::u32string_view::npos) return {{kValues[known], kValues[known]}};
    if (c == U'x') return hexadecimal();
    const bool letter = (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z');
    if (letter || (c >= U'0' && c <= U'9')) {
      sdk::unsupported("the pattern '", shown_, "': the escape near character ", at_);
    }
    return {{c, c}};
  }

  Ranges hexadecimal() {
    const bool braces = take(U"{");
    char32_t value = 0;
    for (int digits = 0; braces ? !take(U"}") : digits < 2; ++digits) {
      const char32_t c = to_lower(next("an unfinished \\x"));
      const bool decimal = c >= U'0' && c <= U'9';
      if ((!decimal && (c < U'a' || c > U'f')) || value > kLast) fail("a bad \\x");
      value = value * 16 + (decimal ? c - U'0' : c - U'a' + 10);
    }
    return {{value, value}};
  }

  // After '[': the class, up to ']'.
  Ranges bracket() {
    const bool negated = take(U"^");
    Ranges ranges;
    for (bool first = true; first || text_.compare(at_, 1, U"]") != 0; first = false) {
      if (ended()) fail("a '[' without its ']'");
      if (take(U"[:")) {
        const bool other = take(U"^");
        const std::size_t end = text_.find(U":]", at_);
        const Ranges named =
            end == std::u32string::npos ? Ranges() : named_class({text_.data() + at_, end - at_});
        if (named.empty()) fail("an unknown [: :] class");
        at_ = end + 2;
        const Ranges chosen = other ? negate(named) : named;
        ranges.insert(ranges.end(), chosen.begin(), chosen.end());
        continue;
      }
      Ranges low = bracket_element();
      if (low.size() == 1 && low[0].first == low[0].second && text_.compare(at_, 1, U"-") == 0 &&
          at_ + 1 < text_.size() && text_[at_ + 1] != U']') {
        ++at_;
        const Ranges high = bracket_element();
        if (high.size() != 1 || high[0].first != high[0].second || high[0].first < low[0].first)
          fail("a bad range");
        low[0].second = high[0].first;
      }
      ranges.insert(ranges.end(), low.begin(), low.end());
    }
    ++at_;
    if (fold_) ranges = folded(ranges);
    return negated ? negate(ranges) : ranges;
  }
  Ranges bracket_element() {
    const char32_t c = next("a '[' without its ']'");
    return c == U'\\' ? escaped() : Ranges{{c, c}};
  }

  // With both cases of every letter of a range (of the first 2048 letters of a large one).
  Ranges folded(Ranges ranges) const {
    const std::size_t count = ranges.size();
    for (std::size_t i = 0; i < count; ++i) {
      const auto [first, last] = ranges[i];
      for (char32_t c = first; c <= last && c - first < 2048; ++c) {
        if (to_lower(c) != c) ranges.emplace_back(to_lower(c), to_lower(c));
        if (to_upper(c) != c) ranges.emplace_back(to_upper(c), to_upper(c));
      }
    }
    return ranges;
  }

  ExpressionPtr set(Ranges ranges) const {
    auto result = std::make_unique<Expression>();
    result->kind = Expression::Kind::Set;
    result->ranges = fold_ && ranges.size() == 1 ? folded(std::move(ranges)) : std::move(ranges);
    return result;
  }
  static ExpressionPtr assertion(Step step) {
    auto result = std::make_unique<Expression>();
    result->kind = Expression::Kind::Assertion;
    result->assertion = step;
    return result;
  }

  std::string_view shown_;
  std::u32string text_;
  std::size_t at_ = 0;
  bool fold_ = false, any_line_ = false;
};

/// Appends the program of an expression; what follows it is the instruction after.
class Compiler {
 public:
  explicit Compiler(std::vector<Instruction>& program) : program_(program) {}

  void add(const Expression& expression) {
    switch (expression.kind) {
      case Expression::Kind::Set:
        program_[emit(Step::Set)].ranges = expression.ranges;
        return;
      case Expression::Kind::Assertion:
        emit(expression.assertion);
        return;
      case Expression::Kind::Sequence:
        for (const ExpressionPtr& part : expression.parts) add(*part);
        return;
      case Expression::Kind::Choice:
        return add_choice(expression);
      case Expression::Kind::Repeat:
        return add_repeat(expression);
    }
  }

  std::size_t emit(Step step) {
    if (program_.size() >= RegularExpression::kMaxProgram) {
      sdk::unsupported("a pattern that expands to more than ", RegularExpression::kMaxProgram,
                       " steps");
    }
    program_.emplace_back();
    program_.back().step = step;
    program_.back().next = static_cast<std::int32_t>(program_.size());
    return program_.size() - 1;
  }

 private:
  std::int32_t here() const { return static_cast<std::int32_t>(program_.size()); }

  void add_choice(const Expression& expression) {
    std::vector<std::size_t> jumps;
    for (std::size_t i = 0; i + 1 < expression.parts.size(); ++i) {
      const std::size_t split = emit(Step::Split);
      add(*expression.parts[i]);
      jumps.push_back(emit(Step::Jump));
      program_[split].other = here();
    }
    add(*expression.parts.back());
    for (const std::size_t jump : jumps) program_[jump].next = here();
  }

  void add_repeat(const Expression& expression) {
    const Expression& part = *expression.parts[0];
    for (int i = 0; i < expression.least; ++i) add(part);
    if (expression.most < 0) {
      const std::size_t split = emit(Step::Split);
      add(part);
      program_[emit(Step::Jump)].next = static_cast<std::int32_t>(split);
      program_[split].other = here();
      return;
    }
    std::vector<std::size_t> splits;
    for (int i = expression.least; i < expression.most; ++i) {
      splits.push_back(emit(Step::Split));
      add(part);
    }
    for (const std::size_t split : splits) program_[split].other = here();
  }

  std::vector<Instruction>& program_;
};

bool is_word(char32_t c) {
  return (c >= U'0' && c <= U'9') || (c >= U'A' && c <= U'Z') || c == U'_' ||
         (c >= U'a' && c <= U'z');
}

}  // namespace

RegularExpression::RegularExpression(std::string_view pattern) {
  const ExpressionPtr expression = Parser(pattern).parse();
  Compiler compiler(program_);
  compiler.add(*expression);
  compiler.emit(Step::Match);
}

/// Steps that the automaton is at, each once, and where the match begins that brought it there: the first place that did.
/// They are in the order of these places.
struct RegularExpression::Threads {
  std::int32_t *steps, *starts;
  std::int32_t count = 0;
};

// Adds the steps that take a character, and Match, that can be reached from `step` without one.
void RegularExpression::follow(std::int32_t step, std::int32_t start, const Place& place,
                               Threads& threads, std::int32_t* marks, std::int32_t generation,
                               std::int32_t* stack) const {
  std::int32_t depth = 0;
  const auto push = [&](std::int32_t reached) {
    if (marks[reached] == generation) return;
    marks[reached] = generation;
    stack[depth++] = reached;
  };
  push(step);
  while (depth > 0) {
    const std::int32_t at = stack[--depth];
    const Instruction& instruction = program_[static_cast<std::size_t>(at)];
    bool passes = true;
    switch (instruction.step) {
      case Step::Set:
      case Step::Match:
        threads.steps[threads.count] = at;
        threads.starts[threads.count++] = start;
        continue;
      case Step::Split:
        push(instruction.other);
        break;
      case Step::Begin:
        passes = place.at_begin;
        break;
      case Step::End:
        passes = place.at_end;
        break;
      case Step::WordEdge:
        passes = place.word_before != place.word_after;
        break;
      case Step::NoWordEdge:
        passes = place.word_before == place.word_after;
        break;
      case Step::Jump:
        break;
    }
    if (passes) push(instruction.next);
  }
}

/// Of what ends at `at`, what begins first; empty ones count where the whole is to match.
void RegularExpression::take_matches(const Threads& threads, std::int32_t at, bool may_be_empty,
                                     Match& best) const {
  for (std::int32_t k = 0; k < threads.count; ++k) {
    const std::int32_t start = threads.starts[k];
    if (program_[static_cast<std::size_t>(threads.steps[k])].step != Step::Match) continue;
    if (!may_be_empty && start == at) continue;
    if (best.end < 0 || start <= best.begin) best = {start, at};
  }
}

// All places where a match may begin are tried at once. Of two that lead to the same step at the same point, what follows
// is the same for both: the first is kept.
RegularExpression::Match RegularExpression::search(std::u32string_view points, std::size_t begin,
                                                   bool anchored, std::int32_t* scratch) const {
  const std::size_t size = program_.size();
  Threads current{scratch, scratch + size}, next{scratch + 2 * size, scratch + 3 * size};
  std::int32_t *marks = scratch + 4 * size, *stack = marks + size;
  std::fill(marks, marks + size, -1);
  const auto takes = [](const Instruction& instruction, char32_t point) {
    return instruction.step == Step::Set &&
           std::any_of(
               instruction.ranges.begin(), instruction.ranges.end(),
               [&](const auto& range) { return point >= range.first && point <= range.second; });
  };
  const auto is_word_at = [&](std::size_t i) { return i < points.size() && is_word(points[i]); };
  Place place{begin > 0 && is_word_at(begin - 1), is_word_at(begin), begin == 0,
              begin == points.size()};
  Match best;
  for (std::size_t i = begin;; ++i) {
    const auto at = static_cast<std::int32_t>(i - begin);
    if (i == begin || (!anchored && best.end < 0)) follow(0, at, place, current, marks, at, stack);
    take_matches(current, at, anchored, best);
    const bool ended = current.count == 0 && (anchored || best.end >= 0);
    if (i == points.size() || ended) break;
    place = {place.word_after, is_word_at(i + 1), false, i + 1 == points.size()};
    next.count = 0;
    for (std::int32_t k = 0; k < current.count; ++k) {
      if (best.end >= 0 && current.starts[k] > best.begin) break;
      const Instruction& instruction = program_[static_cast<std::size_t>(current.steps[k])];
      if (takes(instruction, points[i]))
        follow(instruction.next, current.starts[k], place, next, marks, at + 1, stack);
    }
    std::swap(current, next);
  }
  const auto offset = static_cast<std::int64_t>(begin);
  return best.end < 0 ? Match() : Match{best.begin + offset, best.end + offset};
}

bool RegularExpression::full_match(std::string_view text, std::int32_t* scratch) const {
  const std::u32string points = decode_utf8(text);
  return search(points, 0, true, scratch).end == static_cast<std::int64_t>(points.size());
}

}  // namespace backplane::cpu
