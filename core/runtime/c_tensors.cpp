// The C host interface: runs whose feeds and fetches stand in arrays, as raw memory.
#include <optional>

#include "core/base/quote.hpp"
#include "core/runtime/c_objects.hpp"

namespace backplane::core {
namespace {

constexpr std::uint64_t kLongestTensor =
    4096;  // no version will have more; what is greater was not set

/// An array of the caller's, whose elements may be longer than those of this version.
template <class Tensor>
class Tensors {
 public:
  Tensors(Tensor* first, std::size_t count, const char* argument) : count_(count) {
    if (count == 0) return;
    first_ = reinterpret_cast<Address*>(&required(first, argument));
    distance_ = first->struct_size;
    for (std::size_t i = 0; i < count; ++i) {
      // Of one that is too short nothing else can be read, nor where the next one lies.
      const std::uint64_t size = (*this)[i].struct_size;
      if (size == distance_ && size >= sizeof(backplane_tensor) && size <= kLongestTensor &&
          size % alignof(backplane_tensor) == 0)
        continue;
      invalid("backplane_tensor::struct_size of ", argument, "[", i, "] is ", size,
              "; set it to sizeof(backplane_tensor), which is ", sizeof(backplane_tensor),
              ", in every element");
    }
  }
  std::size_t count() const { return count_; }
  Tensor& operator[](std::size_t i) const {
    return *reinterpret_cast<Tensor*>(first_ + i * distance_);
  }

 private:
  using Address = std::conditional_t<std::is_const_v<Tensor>, const std::byte, std::byte>;
  Address* first_ = nullptr;
  std::size_t count_;
  std::uint64_t distance_ = 0;
};

using Feeds = Tensors<const backplane_tensor>;
using Fetches = Tensors<backplane_tensor>;

/// The value's name, where the element has none of its own by its index.
std::string name_of(const backplane_tensor& tensor, std::size_t index,
                    const std::vector<ValueDescription>& list, const char* what) {
  if (tensor.name != nullptr) return tensor.name;
  if (index >= list.size())
    invalid("there is no ", what, " ", index, "; the session has ", list.size(),
            ", so that this element needs a name");
  return list[index].name;
}

/// Tells the caller what a fetch is.
void describe(const backplane_value& made, backplane_tensor& tensor) {
  const RuntimeValue& value = *made.value;
  const bool is_tensor = value.is_tensor();
  tensor.kind = backplane_value_kind(&made);
  tensor.dtype = is_tensor ? value.description.dtype : 0;
  tensor.rank = is_tensor ? static_cast<std::uint64_t>(value.description.rank) : 0;
  tensor.dims = is_tensor ? value.description.dims : nullptr;
  tensor.data = value.description.host_ptr;
  tensor.bytes = value.description.bytes;
}

/// A run of such arrays. Values that are not the caller's live as long as it does.
class TensorCall {
 public:
  TensorCall(const backplane_session& session, const Feeds& feeds, const Fetches& fetches)
      : fetches_(fetches), lent_(feeds.count() + fetches.count()), made_(fetches.count()) {
    named_feeds_.reserve(feeds.count());
    named_fetches_.reserve(fetches.count());
    for (std::size_t i = 0; i < feeds.count(); ++i) {
      const backplane_tensor& feed = feeds[i];
      std::string name = name_of(feed, i, session.lists[BACKPLANE_INPUTS], "input");
      if (feed.value != nullptr) {
        named_feeds_.push_back(given(std::move(name), *feed.value));
        continue;
      }
      if (feed.dtype == 0)
        invalid("the input ", quoted(std::string_view(name)),
                " is given neither a value nor an element type");
      named_feeds_.push_back(lent(std::move(name), feed, "input"));
    }
    for (std::size_t i = 0; i < fetches.count(); ++i) {
      const backplane_tensor& fetch = fetches[i];
      std::string name = name_of(fetch, i, session.lists[BACKPLANE_OUTPUTS], "output");
      if (fetch.value != nullptr) {
        named_fetches_.push_back(given(std::move(name), *fetch.value));
      } else if (fetch.data != nullptr) {
        named_fetches_.push_back(lent(std::move(name), fetch, "output"));
      } else {
        made_[i] = std::make_unique<backplane_value>();
        named_fetches_.push_back({std::move(name), made_[i]->value.get()});
      }
    }
  }
  TensorCall(const TensorCall&) = delete;
  TensorCall& operator=(const TensorCall&) = delete;

  void run(Session& session, const RunOptions* options) const {
    if (lent_count_ > 0 && options != nullptr && !options->synchronize)
      invalid("a run with synchronize=false goes on after the call: lend it values, not memory ",
              "(backplane_value_borrow), for feeds and fetches");
    session.run(named_feeds_, named_fetches_, options);
  }

  /// After a run that succeeded.
  void hand_over() {
    for (std::size_t i = 0; i < made_.size(); ++i) {
      backplane_tensor& fetch = fetches_[i];
      if (made_[i] != nullptr) fetch.value = made_[i].release();
      if (fetch.value != nullptr) {
        describe(*fetch.value, fetch);
      } else {
        fetch.kind = BACKPLANE_KIND_TENSOR;  // in the caller's memory
      }
    }
  }

 private:
  static NamedValue given(std::string name, const backplane_value& value) {
    required(&value, "value");
    return {std::move(name), value.value.get(), value.device};
  }

  NamedValue lent(std::string name, const backplane_tensor& tensor, const char* what) {
    RuntimeValue& value = lent_[lent_count_++];
    try {
      lay_over_host(value, tensor);
    } catch (const Error& error) {
      throw error.within(text("the ", what, " ", quoted(std::string_view(name))));
    }
    return {std::move(name), &value};
  }

  const Fetches& fetches_;
  std::vector<RuntimeValue> lent_;  ///< over the caller's memory; nobody shares them
  std::size_t lent_count_ = 0;
  std::vector<std::unique_ptr<backplane_value>> made_;
  std::vector<NamedValue> named_feeds_, named_fetches_;
};

}  // namespace
}  // namespace backplane::core

using namespace backplane::core;  // the functions below are C

backplane_status* backplane_session_run_tensors(backplane_session* session,
                                                const backplane_run_options* options,
                                                const backplane_tensor* feeds,
                                                std::size_t feed_count, backplane_tensor* fetches,
                                                std::size_t fetch_count) {
  return guarded([&] {
    const backplane_session& of = required(session, "session");
    std::optional<UseGate::Reading> reading;
    if (options != nullptr) reading.emplace(required(options, "options").gate, kRunOptions);
    const Feeds given(feeds, feed_count, "feeds");
    const Fetches wanted(fetches, fetch_count, "fetches");
    TensorCall call(of, given, wanted);
    call.run(*of.session, options != nullptr ? &options->options : nullptr);
    call.hand_over();
  });
}
