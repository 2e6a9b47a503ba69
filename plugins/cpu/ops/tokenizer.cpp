// com.microsoft::Tokenizer: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
// Converters of text vectorizers write it. Strings are UTF-8.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/cpu/kernels/dims.hpp"
#include "plugins/cpu/kernels/regular_expression.hpp"
#include "plugins/cpu/kernels/unicode.hpp"

namespace backplane::cpu {
namespace {

using Points = std::u32string_view;

/// A regular expression, and calling something for what lies between its matches, or for these.
class Splitter {
 public:
  explicit Splitter(const std::string& pattern) : expression_(pattern) {}

  std::size_t scratch_size() const { return expression_.scratch_size(); }

  /// body(begin, end) of each match from the left, the longest ones; empty ones are skipped.
  template <class Body>
  void each_match(Points text, std::int32_t* scratch, const Body& body) const {
    RegularExpression::Match match = expression_.find(text, 0, scratch);
    while (match.end >= 0) {
      const auto end = static_cast<std::size_t>(match.end);
      body(static_cast<std::size_t>(match.begin), end);
      match = expression_.find(text, end, scratch);
    }
  }

 private:
  RegularExpression expression_;
};

class Tokenizer {
 public:
  struct Prepared {
    const Tokenizer* kernel;
    sdk::Dims dims;  // of the output; the last one is set by compute

    void compute(const sdk::ComputeContext& ctx) const {
      const std::int64_t count = ctx.input(0).size();
      auto* sized = ctx.workspace().mutable_data<std::int64_t>();
      auto* scratch = reinterpret_cast<std::int32_t*>(sized + dims.size());
      std::vector<std::vector<std::u32string>> rows(static_cast<std::size_t>(count));
      std::size_t most = 0;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        rows[i] = kernel->tokens_of(decode_utf8(ctx.input_value(0).string_at(i)), scratch);
        most = std::max(most, rows[i].size());
      }
      const std::size_t marks = kernel->mark_ && most > 0 ? 2 : 0;
      std::copy(dims.begin(), dims.end(), sized);
      sized[dims.size() - 1] = static_cast<std::int64_t>(most + marks);
      ctx.alloc_output(0, sdk::DimsView(sized, dims.size()));
      std::uint64_t at = 0;
      const auto write = [&](std::string_view text) { ctx.output_value(0).set_string(at++, text); };
      for (const auto& row : rows) {
        if (marks > 0) write("\x02");
        for (const std::u32string& token : row) write(encode_utf8(token));
        if (marks > 0) write("\x03");
        for (std::size_t i = row.size(); i < most; ++i) write(kernel->pad_);
      }
    }
  };

  Tokenizer(const sdk::CreateContext&, const sdk::Node& node)
      : mark_(node.get_int("mark", 0) != 0),
        pad_(node.get_string("pad_value", "")),
        least_(static_cast<std::size_t>(std::max<std::int64_t>(1, node.get_int("mincharnum", 1)))) {
    const std::string token = node.get_string("tokenexp", "");
    const std::vector<std::string> separators = node.get_strings("separators");
    if (token.empty() == separators.empty()) {
      sdk::invalid(
          "Tokenizer: one of the attributes 'tokenexp' and 'separators' is needed, not both");
    }
    if (!token.empty()) tokens_.emplace(token);
    if (separators.size() == 1 && separators[0].empty()) return;  // every character is a token
    for (const std::string& separator : separators) {
      if (separator.empty()) sdk::invalid("Tokenizer: a separator among several is empty");
      separators_.push_back(std::make_unique<const Splitter>(separator));
    }
  }
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    if (x.rank() != 1 && x.rank() != 2) {
      sdk::invalid("Tokenizer: the input has dims ", sdk::to_string(x.dims()),
                   ", [C] or [N,C] is needed");
    }
    sdk::Dims dims = to_dims(x.dims());
    dims.push_back(0);
    ctx.set_output_unknown(0, sdk::DataType::String, static_cast<int>(dims.size()));
    std::size_t scratch = tokens_ ? tokens_->scratch_size() : 0;
    for (const auto& separator : separators_)
      scratch = std::max(scratch, separator->scratch_size());
    ctx.set_workspace(8 * dims.size() + 4 * scratch);
    return {this, std::move(dims)};
  }

 private:
  std::vector<std::u32string> tokens_of(const std::u32string& text, std::int32_t* scratch) const {
    std::vector<std::u32string> tokens;
    const auto keep = [&](std::u32string token) {
      if (token.size() >= least_) tokens.push_back(std::move(token));
    };
    if (tokens_) {
      tokens_->each_match(text, scratch, [&](std::size_t begin, std::size_t end) {
        keep(text.substr(begin, end - begin));
      });
    } else if (separators_.empty()) {
      for (const char32_t point : text) keep(std::u32string(1, point));
    } else {
      for (std::u32string& part : parts_of(text, scratch)) keep(std::move(part));
    }
    return tokens;
  }

  /// What is left between the matches of all separators, one separator after the other.
  std::vector<std::u32string> parts_of(const std::u32string& text, std::int32_t* scratch) const {
    std::vector<std::u32string> parts{text}, next;
    for (const auto& separator : separators_) {
      for (const std::u32string& part : parts) {
        std::size_t at = 0;
        separator->each_match(part, scratch, [&](std::size_t begin, std::size_t end) {
          next.push_back(part.substr(at, begin - at));
          at = end;
        });
        next.push_back(part.substr(at));
      }
      parts.swap(next);
      next.clear();
    }
    return parts;
  }

  bool mark_;
  std::string pad_;
  std::size_t least_;  // characters of a token
  std::optional<Splitter> tokens_;
  std::vector<std::unique_ptr<const Splitter>> separators_;
};

}  // namespace

sdk::KernelList tokenizer_kernels() {
  return {sdk::op("Tokenizer", "com.microsoft")
              .name("cpu:tokenizer")
              .flags(BP_KERNEL_DATA_DEPENDENT)
              .kernel<Tokenizer>()};
}

}  // namespace backplane::cpu
