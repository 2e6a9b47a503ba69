#include "tools/backplane/npy_header.hpp"

#include <cstddef>
#include <limits>

#include "tools/backplane/failure.hpp"

namespace backplane::cli {
namespace {

constexpr std::size_t kMaxRank = 32;  // numpy's own

/// The part of Python's literals that headers are written in.
class HeaderParser {
 public:
  HeaderParser(const std::string& text, const std::string& file) : text_(text), file_(file) {}

  NpyHeader parse() {
    NpyHeader header;
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr") {
        if (peek() == '[') wrong_request(file_, " holds records, not a tensor");
        header.descr = string();
        has_descr = true;
      } else if (key == "fortran_order") {
        header.fortran_order = truth();
        has_order = true;
      } else if (key == "shape") {
        header.shape = shape();
        has_shape = true;
      } else {
        fail("an unknown key '" + key + "'");
      }
      if (!accept(',') && peek() != '}') fail("no ',' after a value");
    }
    if (peek() != '\0') fail("something after its end");
    if (!has_descr || !has_order || !has_shape) fail("no descr, fortran_order or shape");
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    wrong_request(file_, " is no valid .npy file: its header has ", one_line(what));
  }

  char peek() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n'))
      ++position_;
    return position_ < text_.size() ? text_[position_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++position_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(std::string("no '") + c + "' where one must be");
  }

  std::string string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail("no string where one must be");
    const std::size_t end = text_.find(quote, ++position_);
    if (end == std::string::npos) fail("a string without an end");
    std::string result = text_.substr(position_, end - position_);
    position_ = end + 1;
    return result;
  }

  bool truth() {
    peek();
    for (const bool value : {true, false}) {
      const std::string word = value ? "True" : "False";
      if (text_.compare(position_, word.size(), word) == 0) {
        position_ += word.size();
        return value;
      }
    }
    fail("a fortran_order that is neither True nor False");
  }

  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> dims;
    expect('(');
    while (!accept(')')) {
      dims.push_back(dim());
      if (dims.size() > kMaxRank) fail("more than 32 dimensions");
      if (!accept(',') && peek() != ')') fail("no ',' between two dimensions");
    }
    return dims;
  }

  std::int64_t dim() {
    std::int64_t value = 0;
    peek();
    const std::size_t begin = position_;
    for (; position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9';
         ++position_) {
      const int digit = text_[position_] - '0';
      if (value > (std::numeric_limits<std::int64_t>::max() - digit) / 10)
        fail("a dimension beyond 64 bits");
      value = value * 10 + digit;
    }
    if (position_ == begin) fail("a dimension that is no number");
    accept('L');  // as Python 2 wrote it
    return value;
  }

  const std::string& text_;
  const std::string& file_;
  std::size_t position_ = 0;
};

}  // namespace

NpyHeader parse_npy_header(const std::string& text, const std::string& file) {
  return HeaderParser(text, file).parse();
}

std::string make_npy_header(const NpyHeader& header) {
  std::string dims;
  for (const std::int64_t dim : header.shape) dims += std::to_string(dim) + ", ";
  if (header.shape.size() > 1) dims.resize(dims.size() - 2);
  if (header.shape.size() == 1) dims.resize(dims.size() - 1);
  std::string dictionary = "{'descr': '" + header.descr +
                           "', 'fortran_order': " + (header.fortran_order ? "True" : "False") +
                           ", 'shape': (" + dims + "), }";
  constexpr std::size_t kAlignment = 64;
  constexpr std::size_t kPreamble = 10;
  dictionary.append(kAlignment - 1 - (kPreamble + dictionary.size()) % kAlignment, ' ');
  dictionary += '\n';
  std::string result("\x93NUMPY\x01\x00", 8);
  result += static_cast<char>(dictionary.size() & 0xFF);
  result += static_cast<char>(dictionary.size() >> 8);
  return result + dictionary;
}

}  // namespace backplane::cli
