// Regular expressions of RE2's syntax, matched in time linear in the text.
// https://github.com/google/re2/wiki/Syntax; the method: https://swtch.com/~rsc/regexp/regexp2.html
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace backplane::cpu {

/// A pattern compiled to a program of a nondeterministic automaton over code points.
///
/// Not handled, and refused: flags other than a leading (?i) and (?s), Unicode classes (\p), \Q, \C, and
/// sub-patterns whose counts expand to more than kMaxProgram steps.
/// Threads: immutable; may be used by several at a time, each with memory of its own.
class RegularExpression {
 public:
  /// Errors: BP_INVALID_ARGUMENT for what RE2 would not take either, BP_UNSUPPORTED for the above.
  explicit RegularExpression(std::string_view pattern);

  /// int32 places of scratch memory that a match needs.
  std::size_t scratch_size() const { return program_.size() * 6; }

  /// Whether the whole of `text` (UTF-8) matches.
  bool full_match(std::string_view text, std::int32_t* scratch) const;

  /// The points [begin, end) that match; none: end is -1.
  struct Match {
    std::int64_t begin = 0, end = -1;
  };
  /// Of the matches in `points` from `begin` on that are not empty, those that begin first, and the longest of them.
  Match find(std::u32string_view points, std::size_t begin, std::int32_t* scratch) const {
    return search(points, begin, false, scratch);
  }

  enum class Step : std::uint8_t { Set, Split, Jump, Begin, End, WordEdge, NoWordEdge, Match };
  using Ranges = std::vector<std::pair<char32_t, char32_t>>;

  /// One step of the program; `next` and `other` are steps that follow.
  struct Instruction {
    Step step = Step::Match;
    std::int32_t next = 0, other = 0;
    Ranges ranges;  // of Set: the code points that it takes
  };
  static constexpr std::size_t kMaxProgram = 20000;

 private:
  /// What lies around a place between two points.
  struct Place {
    bool word_before, word_after, at_begin, at_end;
  };
  struct Threads;

  Match search(std::u32string_view points, std::size_t begin, bool anchored,
               std::int32_t* scratch) const;
  void follow(std::int32_t step, std::int32_t start, const Place& place, Threads& threads,
              std::int32_t* marks, std::int32_t generation, std::int32_t* stack) const;
  void take_matches(const Threads& threads, std::int32_t at, bool may_be_empty, Match& best) const;

  std::vector<Instruction> program_;
};

}  // namespace backplane::cpu
