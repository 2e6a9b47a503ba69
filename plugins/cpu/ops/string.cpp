// StringConcat, StringSplit, StringNormalizer, RegexFullMatch: https://onnx.ai/onnx/operators/onnx__StringConcat.html
// and the others. Strings are UTF-8.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/common/broadcast.hpp"
#include "plugins/cpu/kernels/dims.hpp"
#include "plugins/cpu/kernels/regular_expression.hpp"
#include "plugins/cpu/kernels/unicode.hpp"

namespace backplane::cpu {
namespace {

/// Joins two strings, with broadcasting.
class StringConcat {
 public:
  struct Prepared {
    common::BroadcastLoops loops;
    std::int64_t count;

    void compute(const sdk::ComputeContext& ctx) const {
      std::string text;
      for (std::int64_t n = 0; n < count; ++n) {
        std::int64_t rest = n, left = 0, right = 0;
        for (std::size_t i = loops.dims.size(); i-- > 0;) {
          const std::int64_t at = rest % loops.dims[i];
          rest /= loops.dims[i];
          left += at * loops.strides[0][i];
          right += at * loops.strides[1][i];
        }
        text.assign(ctx.input_value(0).string_at(static_cast<std::uint64_t>(left)));
        text.append(ctx.input_value(1).string_at(static_cast<std::uint64_t>(right)));
        ctx.output_value(0).set_string(static_cast<std::uint64_t>(n), text);
      }
    }
  };

  StringConcat(const sdk::CreateContext&, const sdk::Node&) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const std::vector<sdk::DimsView> shapes{ctx.input(0).dims(), ctx.input(1).dims()};
    const sdk::Dims dims = common::broadcast_dims(shapes);
    ctx.set_output(0, sdk::DataType::String, dims);
    return {common::plan_broadcast(dims, shapes), sdk::element_count(dims)};
  }
};

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// The parts of a string at a delimiter, or at runs of white space when there is none.
class StringSplit {
 public:
  struct Prepared {
    std::string delimiter;
    std::int64_t max_splits;
    sdk::Dims dims;  // of the output; the last one is set by compute

    void compute(const sdk::ComputeContext& ctx) const {
      const std::int64_t count = ctx.input(0).size();
      auto* parts = ctx.output(1).mutable_data<std::int64_t>();
      std::int64_t most = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        parts[i] = split(ctx.input_value(0).string_at(static_cast<std::uint64_t>(i)),
                         [](std::int64_t, std::string_view) {});
        most = std::max(most, parts[i]);
      }
      auto* sized = ctx.workspace().mutable_data<std::int64_t>();
      std::copy(dims.begin(), dims.end(), sized);
      sized[dims.size() - 1] = most;
      ctx.alloc_output(0, sdk::DimsView(sized, dims.size()));
      for (std::int64_t i = 0; i < count; ++i) {
        const auto write = [&](std::int64_t part, std::string_view text) {
          ctx.output_value(0).set_string(static_cast<std::uint64_t>(i * most + part), text);
        };
        split(ctx.input_value(0).string_at(static_cast<std::uint64_t>(i)), write);
        for (std::int64_t part = parts[i]; part < most; ++part) write(part, "");
      }
    }

   private:
    template <class Write>
    std::int64_t split(std::string_view text, const Write& write) const {
      return delimiter.empty() ? split_at_spaces(text, write) : split_at_delimiter(text, write);
    }

    template <class Write>
    std::int64_t split_at_delimiter(std::string_view text, const Write& write) const {
      std::int64_t parts = 0;
      while (max_splits < 0 || parts < max_splits) {
        const std::size_t at = text.find(delimiter);
        if (at == std::string_view::npos) break;
        write(parts++, text.substr(0, at));
        text.remove_prefix(at + delimiter.size());
      }
      write(parts++, text);
      return parts;
    }

    template <class Write>
    std::int64_t split_at_spaces(std::string_view text, const Write& write) const {
      std::int64_t parts = 0;
      while (true) {
        const auto begin = std::find_if_not(text.begin(), text.end(), is_space);
        text.remove_prefix(static_cast<std::size_t>(begin - text.begin()));
        if (text.empty()) return parts;
        auto end = std::find_if(text.begin(), text.end(), is_space);
        if (max_splits >= 0 && parts == max_splits) {  // the rest, but for the spaces at its end
          end = text.end();
          while (is_space(*(end - 1))) --end;
          write(parts++, text.substr(0, static_cast<std::size_t>(end - text.begin())));
          return parts;
        }
        const auto size = static_cast<std::size_t>(end - text.begin());
        write(parts++, text.substr(0, size));
        text.remove_prefix(size);
      }
    }
  };

  StringSplit(const sdk::CreateContext&, const sdk::Node& node)
      : delimiter_(node.get_string("delimiter", "")), max_splits_(node.get_int("maxsplit", -1)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    sdk::Dims dims = to_dims(ctx.input(0).dims());
    ctx.set_output(1, sdk::DataType::Int64, dims);
    dims.push_back(0);
    ctx.set_output_unknown(0, sdk::DataType::String, static_cast<int>(dims.size()));
    ctx.set_workspace(8 * static_cast<std::uint64_t>(dims.size()));  // for the output's dims
    return {delimiter_, max_splits_, dims};
  }

 private:
  std::string delimiter_;
  std::int64_t max_splits_;
};

std::string lower_case(std::string_view text) {
  std::u32string points = decode_utf8(text);
  for (char32_t& point : points) point = to_lower(point);
  return encode_utf8(points);
}

std::string upper_case(std::string_view text) {
  std::u32string points = decode_utf8(text);
  for (char32_t& point : points) point = to_upper(point);
  return encode_utf8(points);
}

/// Drops stop words, then changes the case. The locale is not used: case mappings are Unicode's.
class StringNormalizer {
 public:
  enum class Change { None, Lower, Upper };

  struct Prepared {
    std::vector<std::string> stop_words;  // sorted; in small letters unless the case counts
    bool case_counts;
    Change change;
    bool matrix;

    void compute(const sdk::ComputeContext& ctx) const {
      const std::int64_t count = ctx.input(0).size();
      std::vector<std::string> kept;
      for (std::int64_t i = 0; i < count; ++i) {
        const std::string_view text = ctx.input_value(0).string_at(static_cast<std::uint64_t>(i));
        if (!stop_words.empty() &&
            std::binary_search(stop_words.begin(), stop_words.end(),
                               case_counts ? std::string(text) : lower_case(text)))
          continue;
        kept.push_back(change == Change::None    ? std::string(text)
                       : change == Change::Lower ? lower_case(text)
                                                 : upper_case(text));
      }
      if (kept.empty()) kept.emplace_back();
      const std::int64_t dims[2] = {1, static_cast<std::int64_t>(kept.size())};
      ctx.alloc_output(0, matrix ? sdk::DimsView(dims, 2) : sdk::DimsView(dims + 1, 1));
      for (std::size_t i = 0; i < kept.size(); ++i) ctx.output_value(0).set_string(i, kept[i]);
    }
  };

  StringNormalizer(const sdk::CreateContext&, const sdk::Node& node)
      : stop_words_(node.get_strings("stopwords")),
        case_counts_(node.get_int("is_case_sensitive", 0) != 0) {
    const std::string change = node.get_string("case_change_action", "NONE");
    if (change != "NONE" && change != "LOWER" && change != "UPPER")
      sdk::invalid("StringNormalizer: case_change_action '", change, "' is not known");
    change_ = change == "LOWER" ? Change::Lower : change == "UPPER" ? Change::Upper : Change::None;
    if (!case_counts_)
      std::transform(stop_words_.begin(), stop_words_.end(), stop_words_.begin(), lower_case);
    std::sort(stop_words_.begin(), stop_words_.end());
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor input = ctx.input(0);
    if (input.rank() != 1 && (input.rank() != 2 || input.dim(0) != 1)) {
      sdk::invalid("StringNormalizer: the input has dims ", sdk::to_string(input.dims()),
                   ", [C] or [1,C] is needed");
    }
    ctx.set_output_unknown(0, sdk::DataType::String, input.rank());
    return {stop_words_, case_counts_, change_, input.rank() == 2};
  }

 private:
  std::vector<std::string> stop_words_;
  bool case_counts_;
  Change change_ = Change::None;
};

class RegexFullMatch {
 public:
  struct Prepared {
    std::shared_ptr<const RegularExpression> pattern;

    void compute(const sdk::ComputeContext& ctx) const {
      bool* matches = ctx.output(0).mutable_data<bool>();
      for (std::int64_t i = 0; i < ctx.input(0).size(); ++i) {
        matches[i] =
            pattern->full_match(ctx.input_value(0).string_at(static_cast<std::uint64_t>(i)),
                                ctx.workspace().mutable_data<std::int32_t>());
      }
    }
  };

  RegexFullMatch(const sdk::CreateContext&, const sdk::Node& node)
      : pattern_(std::make_shared<const RegularExpression>(node.get_string("pattern", ""))) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output(0, sdk::DataType::Bool, ctx.input(0).dims());
    ctx.set_workspace(4 * pattern_->scratch_size());
    return {pattern_};
  }

 private:
  std::shared_ptr<const RegularExpression> pattern_;
};

}  // namespace

sdk::KernelList string_kernels() {
  return {sdk::op("StringConcat").name("cpu:string_concat").kernel<StringConcat>(),
          sdk::op("StringSplit")
              .name("cpu:string_split")
              .flags(BP_KERNEL_DATA_DEPENDENT)
              .kernel<StringSplit>(),
          sdk::op("StringNormalizer")
              .name("cpu:string_normalizer")
              .flags(BP_KERNEL_DATA_DEPENDENT)
              .kernel<StringNormalizer>(),
          sdk::op("RegexFullMatch").name("cpu:regex_full_match").kernel<RegexFullMatch>()};
}

}  // namespace backplane::cpu
