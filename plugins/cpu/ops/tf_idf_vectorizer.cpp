// TfIdfVectorizer: https://onnx.ai/onnx/operators/onnx__TfIdfVectorizer.html
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/common/checked.hpp"

namespace backplane::cpu {
namespace {

/// The n-grams of a pool as a tree: a step for each item. Looking one up allocates nothing.
template <class Item>
struct Tree {
  struct Node {
    std::map<Item, std::size_t, std::less<>> next;
    std::int64_t column = -1;  // of the n-gram that ends here; -1: none
  };
  std::vector<Node> nodes{1};

  /// `items` of an n-gram that counts in `column`.
  template <class Given>
  void add(const Given* items, std::int64_t count, std::int64_t column) {
    std::size_t at = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto found = nodes[at].next.find(items[i]);
      if (found != nodes[at].next.end()) {
        at = found->second;
        continue;
      }
      nodes[at].next.emplace(items[i], nodes.size());
      at = nodes.size();
      nodes.emplace_back();
    }
    nodes[at].column = column;
  }
};

class TfIdfVectorizer {
 public:
  struct Prepared {
    const TfIdfVectorizer* kernel;
    std::int64_t rows, items;

    void compute(const sdk::ComputeContext& ctx) const {
      auto* y = ctx.output(0).mutable_data<float>();
      const std::int64_t columns = kernel->columns_;
      std::fill_n(y, rows * columns, 0.0f);
      for (std::int64_t row = 0; row < rows; ++row) {
        count_row(ctx, row * items, y + row * columns);
        kernel->weigh(y + row * columns);
      }
    }

    /// Counts the n-grams of the row that begins with item `first`.
    void count_row(const sdk::ComputeContext& ctx, std::int64_t first, float* counts) const {
      switch (ctx.input(0).type()) {
        case sdk::DataType::String:
          return count(kernel->strings_, counts, [&](std::int64_t i) {
            return ctx.input_value(0).string_at(static_cast<std::uint64_t>(first + i));
          });
        case sdk::DataType::Int32:
          return count(kernel->numbers_, counts, [&](std::int64_t i) {
            return std::int64_t{ctx.input(0).data<std::int32_t>()[first + i]};
          });
        default:
          return count(kernel->numbers_, counts, [&](std::int64_t i) {
            return ctx.input(0).data<std::int64_t>()[first + i];
          });
      }
    }

    /// Counts the n-grams of a row, with every number of items skipped between two that is allowed.
    template <class Item, class At>
    void count(const Tree<Item>& tree, float* counts, const At& item_at) const {
      // Steps as long as the row reach one item, which counted with the first.
      const std::int64_t skips = std::min(kernel->skips_, std::max<std::int64_t>(0, items - 2));
      for (std::int64_t step = 1; step <= skips + 1; ++step) {
        for (std::int64_t start = 0; start < items; ++start) {
          std::size_t node = 0;
          std::int64_t length = 0;
          for (std::int64_t i = start; i < items && length < kernel->longest_; i += step) {
            const auto found = tree.nodes[node].next.find(item_at(i));
            if (found == tree.nodes[node].next.end()) break;
            node = found->second;
            ++length;
            // Skipping makes no difference to n-grams of one item: they count once.
            if (length < kernel->shortest_ || (length == 1 && step > 1)) continue;
            if (tree.nodes[node].column >= 0) ++counts[tree.nodes[node].column];
          }
        }
      }
    }
  };

  TfIdfVectorizer(const sdk::CreateContext&, const sdk::Node& node)
      : mode_(node.get_string("mode", "")),
        weights_(node.get_floats("weights")),
        shortest_(node.get_int("min_gram_length", 1)),
        longest_(node.get_int("max_gram_length", 1)),
        skips_(node.get_int("max_skip_count", 0)) {
    if (mode_ != "TF" && mode_ != "IDF" && mode_ != "TFIDF") {
      sdk::invalid("attribute 'mode' is '", mode_, "'; it may be TF, IDF or TFIDF");
    }
    if (shortest_ < 1 || longest_ < shortest_ || skips_ < 0) {
      sdk::invalid("attributes 'min_gram_length' ", shortest_, ", 'max_gram_length' ", longest_,
                   " and 'max_skip_count' ", skips_, " do not fit each other");
    }
    const std::vector<std::int64_t> indexes = node.get_ints("ngram_indexes");
    for (const std::int64_t index : indexes) {
      if (index < 0) sdk::invalid("attribute 'ngram_indexes' has the negative entry ", index);
      columns_ = std::max(
          columns_,
          (common::Checked(index) + 1).value("attribute 'ngram_indexes' has an entry that"));
    }
    const std::vector<std::string> strings = node.get_strings("pool_strings");
    const std::vector<std::int64_t> numbers = node.get_ints("pool_int64s");
    if (strings.empty() == numbers.empty())
      sdk::invalid("one of the attributes 'pool_strings' and 'pool_int64s' is needed, not both");
    if (!weights_.empty() && static_cast<std::int64_t>(weights_.size()) < columns_) {
      sdk::invalid("attribute 'weights' has ", weights_.size(), " entries, ", columns_,
                   " are needed");
    }
    const std::vector<std::int64_t> begins = node.get_ints("ngram_counts");
    add_pool(strings, begins, indexes, strings_);
    add_pool(numbers, begins, indexes, numbers_);
  }
  TfIdfVectorizer(const TfIdfVectorizer&) = delete;
  TfIdfVectorizer& operator=(const TfIdfVectorizer&) = delete;

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    if (x.rank() > 2) {
      sdk::invalid("TfIdfVectorizer: the input has dims ", sdk::to_string(x.dims()),
                   ", expected [items] or [rows, items]");
    }
    if ((x.type() == sdk::DataType::String) != (strings_.nodes.size() > 1)) {
      sdk::invalid("TfIdfVectorizer: the input holds ", sdk::type_name(x.type()),
                   ", the pool something else");
    }
    sdk::Dims dims;
    if (x.rank() == 2) dims.push_back(x.dim(0));
    dims.push_back(columns_);
    ctx.set_output(0, sdk::DataType::Float, dims);
    const std::int64_t items = x.rank() == 0 ? 1 : x.dim(x.rank() - 1);
    return {this, x.rank() == 2 ? x.dim(0) : 1, items};
  }

 private:
  template <class Given, class Item>
  static void add_pool(const std::vector<Given>& pool, const std::vector<std::int64_t>& begins,
                       const std::vector<std::int64_t>& indexes, Tree<Item>& tree) {
    if (pool.empty()) return;
    const auto size = static_cast<std::int64_t>(pool.size());
    std::size_t gram = 0;
    for (std::size_t n = 0; n < begins.size(); ++n) {
      const auto length = static_cast<std::int64_t>(n) + 1;
      const std::int64_t end = n + 1 < begins.size() ? begins[n + 1] : size;
      if (begins[n] < 0 || end < begins[n] || end > size || (end - begins[n]) % length != 0) {
        sdk::invalid("attribute 'ngram_counts' does not cut a pool of ", size, " items into ",
                     length, "-grams");
      }
      for (std::int64_t at = begins[n]; at < end; at += length, ++gram) {
        if (gram >= indexes.size())
          sdk::invalid("attribute 'ngram_indexes' has ", indexes.size(), " entries, too few");
        tree.add(pool.data() + at, length, indexes[gram]);
      }
    }
  }

  /// Weights go by the column and not by the place in the pool: ONNX's reference and other runtimes read
  /// them so, and exporters write them so.
  void weigh(float* counts) const {
    for (std::int64_t i = 0; mode_ != "TF" && i < columns_; ++i) {
      const float weight = weights_.empty() ? 1.0f : weights_[static_cast<std::size_t>(i)];
      if (mode_ == "IDF") {
        counts[i] = counts[i] > 0 ? weight : 0;
      } else {
        counts[i] *= weight;
      }
    }
  }

  std::string mode_;
  std::vector<float> weights_;
  std::int64_t shortest_, longest_, skips_;
  std::int64_t columns_ = 0;
  Tree<std::string> strings_;
  Tree<std::int64_t> numbers_;
};

}  // namespace

sdk::KernelList tf_idf_vectorizer_kernels() {
  return {sdk::op("TfIdfVectorizer").name("cpu:TfIdfVectorizer").kernel<TfIdfVectorizer>()};
}

}  // namespace backplane::cpu
