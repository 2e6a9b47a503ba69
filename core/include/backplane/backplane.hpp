// Backplane's host interface for C++17: the objects of backplane.h, owned, with exceptions.
//
//   backplane::Environment environment;
//   backplane::Session session(environment, "model.onnx");
//   auto x = backplane::Value::tensor<float>({1, 3});
//   x.data<float>()[0] = 1;
//   std::vector<backplane::Value> y = session.run({{"x", x}});
//
// Header-only; link the library of backplane.h. Every failure is an Error with one of the codes BACKPLANE_*. What
// backplane.h says of threads, ownership and lifetimes holds here too.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "backplane/backplane.h"

namespace backplane {

/// A failure: what to do next (one of BACKPLANE_*), and one line that says what is wrong.
class Error : public std::runtime_error {
 public:
  Error(std::int32_t code, const std::string& message) : std::runtime_error(message), code_(code) {}
  std::int32_t code() const noexcept { return code_; }

 private:
  std::int32_t code_;
};

/// Element types of tensors: the numbers of ONNX's TensorProto.DataType.
enum class ElementType : std::int32_t {
  None = 0,
  Float = 1,
  UInt8 = 2,
  Int8 = 3,
  UInt16 = 4,
  Int16 = 5,
  Int32 = 6,
  Int64 = 7,
  String = 8,
  Bool = 9,
  Float16 = 10,
  Double = 11,
  UInt32 = 12,
  UInt64 = 13,
  Complex64 = 14,
  Complex128 = 15,
  BFloat16 = 16,
  Float8E4M3FN = 17,
  Float8E4M3FNUZ = 18,
  Float8E5M2 = 19,
  Float8E5M2FNUZ = 20,
  UInt4 = 21,
  Int4 = 22,
  Float4E2M1 = 23,
  Float8E8M0 = 24,
  UInt2 = 25,
  Int2 = 26,
};

namespace detail {

/// Ends a C object; for unique_ptr.
template <class Object, void (*kDestroy)(Object*)>
struct Deleter {
  void operator()(Object* object) const noexcept { kDestroy(object); }
};

using OwnedString =
    std::unique_ptr<backplane_string, Deleter<backplane_string, backplane_string_destroy>>;
using OwnedStatus =
    std::unique_ptr<backplane_status, Deleter<backplane_status, backplane_status_free>>;

/// Throws what a function returned, unless that was success.
inline void check(backplane_status* status) {
  if (status == nullptr) return;
  const OwnedStatus owned(status);
  throw Error(backplane_status_code(status), backplane_status_message(status));
}

/// The text that `make` gives.
template <class Object>
std::string text_of(Object* object, backplane_status* (*make)(Object*, backplane_string**)) {
  backplane_string* string = nullptr;
  check(make(object, &string));
  const OwnedString owned(string);
  return {backplane_string_data(string), static_cast<std::size_t>(backplane_string_size(string))};
}

template <class T>
struct ElementOf;
#define BACKPLANE_ELEMENT(type, value)                       \
  template <>                                                \
  struct ElementOf<type> {                                   \
    static constexpr ElementType kType = ElementType::value; \
  }
BACKPLANE_ELEMENT(float, Float);
BACKPLANE_ELEMENT(double, Double);
BACKPLANE_ELEMENT(bool, Bool);
BACKPLANE_ELEMENT(std::int8_t, Int8);
BACKPLANE_ELEMENT(std::uint8_t, UInt8);
BACKPLANE_ELEMENT(std::int16_t, Int16);
BACKPLANE_ELEMENT(std::uint16_t, UInt16);
BACKPLANE_ELEMENT(std::int32_t, Int32);
BACKPLANE_ELEMENT(std::uint32_t, UInt32);
BACKPLANE_ELEMENT(std::int64_t, Int64);
BACKPLANE_ELEMENT(std::uint64_t, UInt64);
BACKPLANE_ELEMENT(std::complex<float>, Complex64);
BACKPLANE_ELEMENT(std::complex<double>, Complex128);
#undef BACKPLANE_ELEMENT

}  // namespace detail

class Value;

/// A value that somebody else owns: to look at. Cheap to copy.
///
/// Lifetime: as long as the value it came from.
class ValueView {
 public:
  ValueView() = default;
  explicit ValueView(const backplane_value* value) : value_(value) {}

  explicit operator bool() const { return value_ != nullptr; }
  const backplane_value* get() const { return value_; }

  /// ONNX's type string: "tensor(float)", "seq(tensor(int64))".
  std::string type() const { return backplane_value_type(value_); }
  /// None for anything but a tensor; then there are no dims, data and bytes either.
  ElementType element_type() const {
    return static_cast<ElementType>(backplane_value_dtype(value_));
  }
  std::size_t rank() const { return backplane_value_rank(value_); }
  std::vector<std::int64_t> dims() const {
    const std::int64_t* first = backplane_value_dims(value_);
    return first == nullptr ? std::vector<std::int64_t>()
                            : std::vector<std::int64_t>(first, first + rank());
  }
  /// The number of elements of a tensor.
  std::uint64_t size() const {
    const std::int64_t* dims = backplane_value_dims(value_);
    const std::size_t axes = rank();
    std::uint64_t count = 1;
    for (std::size_t axis = 0; axis < axes; ++axis) count *= static_cast<std::uint64_t>(dims[axis]);
    return count;
  }

  /// The elements, row-major, sub-byte ones packed; null for strings and for what is no tensor.
  const void* bytes() const { return backplane_value_data(const_cast<backplane_value*>(value_)); }
  std::uint64_t byte_count() const { return backplane_value_bytes(value_); }
  /// The elements as `T`; any other element type is an Error.
  template <class T>
  const T* data() const {
    check_type(detail::ElementOf<T>::kType);
    return static_cast<const T*>(bytes());
  }
  /// An element of a string tensor.
  std::string string(std::uint64_t index) const {
    const char* data = nullptr;
    std::uint64_t size = 0;
    detail::check(backplane_value_get_string(value_, index, &data, &size));
    return {data, static_cast<std::size_t>(size)};
  }

  /// Elements of a sequence or an optional; a map has two, its keys and its values.
  std::uint64_t element_count() const { return backplane_value_element_count(value_); }
  inline Value element(std::uint64_t index) const;

  /// The serialized TensorProto, SequenceProto, OptionalProto or MapProto.
  std::string serialize() const {
    backplane_string* string = nullptr;
    detail::check(backplane_value_serialize(value_, &string));
    const detail::OwnedString owned(string);
    return {backplane_string_data(string), static_cast<std::size_t>(backplane_string_size(string))};
  }

 protected:
  void check_type(ElementType wanted) const {
    if (element_type() == wanted) return;
    throw Error(BACKPLANE_INVALID_ARGUMENT, "the value is a " + type() +
                                                ", not a tensor of element type " +
                                                std::to_string(static_cast<std::int32_t>(wanted)));
  }

  const backplane_value* value_ = nullptr;
};

/// A value of our own. A default-constructed or moved-from one is empty: give it to a run as an output and the
/// session makes the value.
class Value : public ValueView {
 public:
  Value() = default;
  /// Takes over a handle.
  explicit Value(backplane_value* value) : ValueView(value) {}
  Value(Value&& other) noexcept : ValueView(other.release()) {}
  Value& operator=(Value&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;
  ~Value() { reset(nullptr); }

  /// A tensor with memory of its own, zeroed.
  static Value tensor(ElementType type, const std::vector<std::int64_t>& dims) {
    backplane_value* value = nullptr;
    detail::check(
        backplane_value_create(static_cast<std::int32_t>(type), dims.data(), dims.size(), &value));
    return Value(value);
  }
  template <class T>
  static Value tensor(const std::vector<std::int64_t>& dims) {
    return tensor(detail::ElementOf<T>::kType, dims);
  }
  /// A copy of `elements`; their number must be what `dims` say.
  template <class T>
  static Value tensor(const std::vector<std::int64_t>& dims, const std::vector<T>& elements) {
    Value value = tensor<T>(dims);
    if (value.size() != elements.size()) {
      throw Error(BACKPLANE_INVALID_ARGUMENT, "a tensor of " + std::to_string(value.size()) +
                                                  " elements was given " +
                                                  std::to_string(elements.size()));
    }
    for (std::size_t i = 0; i < elements.size(); ++i) value.data<T>()[i] = elements[i];
    return value;
  }
  /// A tensor over memory of the caller's, which must outlive the value and the runs that use it.
  static Value borrow(ElementType type, const std::vector<std::int64_t>& dims, void* data,
                      std::uint64_t bytes) {
    backplane_value* value = nullptr;
    detail::check(backplane_value_borrow(static_cast<std::int32_t>(type), dims.data(), dims.size(),
                                         data, bytes, &value));
    return Value(value);
  }
  template <class T>
  static Value borrow(const std::vector<std::int64_t>& dims, T* data, std::uint64_t count) {
    return borrow(detail::ElementOf<T>::kType, dims, data, count * sizeof(T));
  }
  /// From a serialized proto; `kind` is "tensor", "sequence" or "optional".
  static Value parse(const std::string& kind, const void* data, std::uint64_t bytes) {
    backplane_value* value = nullptr;
    detail::check(backplane_value_parse(kind.c_str(), data, bytes, &value));
    return Value(value);
  }

  backplane_value* get() { return const_cast<backplane_value*>(value_); }
  using ValueView::get;
  /// Gives the handle away.
  backplane_value* release() noexcept {
    return const_cast<backplane_value*>(std::exchange(value_, nullptr));
  }

  void* mutable_bytes() { return backplane_value_data(get()); }
  using ValueView::data;
  template <class T>
  T* data() {
    check_type(detail::ElementOf<T>::kType);
    return static_cast<T*>(mutable_bytes());
  }
  void set_string(std::uint64_t index, const std::string& text) {
    detail::check(backplane_value_set_string(get(), index, text.data(), text.size()));
  }

 private:
  void reset(backplane_value* value) noexcept {
    backplane_value_destroy(get());
    value_ = value;
  }
};

inline Value ValueView::element(std::uint64_t index) const {
  backplane_value* element = nullptr;
  detail::check(backplane_value_element(value_, index, &element));
  return Value(element);
}

/// Options of environments and sessions; the keys stand in backplane.h.
class Options {
 public:
  Options() {
    backplane_options* options = nullptr;
    detail::check(backplane_options_create(&options));
    options_.reset(options);
  }

  Options& set(const std::string& key, const std::string& value) {
    detail::check(backplane_options_set(get(), key.c_str(), value.c_str()));
    return *this;
  }
  Options& read_file(const std::string& path) {
    detail::check(backplane_options_read_file(get(), path.c_str()));
    return *this;
  }
  Options& read_environment() {
    detail::check(backplane_options_read_environment(get()));
    return *this;
  }
  Options& add_placement(const std::string& pattern, const std::string& provider) {
    detail::check(backplane_options_add_placement(get(), pattern.c_str(), provider.c_str()));
    return *this;
  }
  // These two have the names that users of ONNX Runtime know.
  /// Appends a provider to the order of preference; "name:1" is its second device.
  Options& AppendExecutionProvider(
      const std::string& name,
      const std::vector<std::pair<std::string, std::string>>& options = {}) {
    std::vector<const char*> keys;
    std::vector<const char*> values;
    for (const auto& [key, value] : options) {
      keys.push_back(key.c_str());
      values.push_back(value.c_str());
    }
    detail::check(backplane_options_append_provider(get(), name.c_str(), keys.data(), values.data(),
                                                    keys.size()));
    return *this;
  }
  /// Adds a library of custom operators.
  Options& RegisterCustomOpsLibrary(const std::string& path) {
    detail::check(backplane_options_register_custom_ops(get(), path.c_str()));
    return *this;
  }

  backplane_options* get() const { return options_.get(); }

 private:
  std::unique_ptr<backplane_options, detail::Deleter<backplane_options, backplane_options_destroy>>
      options_;
};

/// What sessions share. Copies are the same environment.
class Environment {
 public:
  /// Receives a line of the log, from any thread: 0 trace .. 4 error. What it throws is swallowed.
  using LogSink = std::function<void(int level, const std::string& message)>;

  /// Without a sink, lines go to standard error.
  explicit Environment(const Options& options = Options(), LogSink sink = {})
      : state_(std::make_shared<State>()) {
    state_->sink = std::move(sink);
    const bool has_sink = static_cast<bool>(state_->sink);
    detail::check(backplane_environment_create(options.get(), has_sink ? &State::log : nullptr,
                                               state_.get(), &state_->handle));
  }

  /// Every plugin file found and what became of it, as JSON.
  std::string providers() const { return detail::text_of(get(), backplane_environment_providers); }
  backplane_environment* get() const { return state_->handle; }

 private:
  friend class Session;
  struct State {
    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() { backplane_environment_destroy(handle); }
    static void log(void* self, std::int32_t level, const char* message) {
      try {
        static_cast<State*>(self)->sink(level, message);
      } catch (...) {  // a log line is not worth a process
      }
    }
    LogSink sink;
    backplane_environment* handle = nullptr;
  };
  std::shared_ptr<State> state_;
};

/// An input, output or overridable initializer of a model.
struct ValueInfo {
  std::string name;
  std::string type;                  ///< "tensor(float)"
  int rank = -1;                     ///< -1: unknown
  std::vector<std::int64_t> dims;    ///< -1: unknown until a run
  std::vector<std::string> symbols;  ///< by axis; "" where a dimension has none
};

/// Feeds by name; the values are borrowed for the call.
using Feeds = std::vector<std::pair<std::string, ValueView>>;

class Graph;

/// What a model says of itself.
struct ModelInfo {
  std::string producer_name, producer_version, domain, description, graph_name, graph_description;
  std::int64_t version = 0;
  std::int64_t ir_version = 0;
  std::map<std::string, std::string> metadata;  ///< the custom map
};

/// A loaded model. Any number of threads may run it at a time.
class Session {
 public:
  Session(const Environment& environment, const std::string& path,
          const Options& options = Options())
      : environment_(environment.state_) {
    backplane_session* session = nullptr;
    detail::check(
        backplane_session_create(environment.get(), path.c_str(), options.get(), &session));
    session_.reset(session);
  }
  /// From bytes, which must stay until the session ends.
  Session(const Environment& environment, const void* data, std::uint64_t bytes,
          const Options& options = Options())
      : environment_(environment.state_) {
    backplane_session* session = nullptr;
    detail::check(backplane_session_create_from_memory(environment.get(), data, bytes,
                                                       options.get(), &session));
    session_.reset(session);
  }

  /// Of a graph as it is now: see host/graph.hpp.
  Session(const Environment& environment, Graph& graph, const Options& options = Options());

  std::vector<ValueInfo> inputs() const { return list(BACKPLANE_INPUTS); }
  /// With the initializers that are listed as inputs.
  std::vector<ValueInfo> all_inputs() const { return list(BACKPLANE_ALL_INPUTS); }
  std::vector<ValueInfo> outputs() const { return list(BACKPLANE_OUTPUTS); }
  std::vector<ValueInfo> overridable_initializers() const { return list(BACKPLANE_OVERRIDABLE); }

  ModelInfo model_info() const {
    const auto text = [this](std::int32_t which) {
      return std::string(backplane_session_text(get(), which));
    };
    ModelInfo info{text(BACKPLANE_TEXT_PRODUCER_NAME),
                   text(BACKPLANE_TEXT_PRODUCER_VERSION),
                   text(BACKPLANE_TEXT_DOMAIN),
                   text(BACKPLANE_TEXT_DESCRIPTION),
                   text(BACKPLANE_TEXT_GRAPH_NAME),
                   text(BACKPLANE_TEXT_GRAPH_DESCRIPTION),
                   backplane_session_model_version(get()),
                   backplane_session_ir_version(get()),
                   {}};
    for (std::size_t i = 0; i < backplane_session_metadata_count(get()); ++i) {
      const char* key = backplane_session_metadata_key(get(), i);
      info.metadata[key] = backplane_session_metadata(get(), key);
    }
    return info;
  }
  /// The version of a domain that the model imports; "" is ONNX's own. 0: it imports none.
  std::int64_t opset(const std::string& domain = "") const {
    return backplane_session_opset(get(), domain.c_str());
  }
  /// The tensor that is a parameter ("SCALE_TENSOR") of a value by the model's quantization annotations; "" for none.
  std::string quantization(const std::string& value, const std::string& parameter) const {
    const char* tensor = backplane_session_quantization(get(), value.c_str(), parameter.c_str());
    return tensor == nullptr ? "" : tensor;
  }

  /// Runs the model and gives what `fetches` name (outputs or inner values; none: all outputs), in that order.
  std::vector<Value> run(const Feeds& feeds, const std::vector<std::string>& fetches = {}) const {
    std::vector<Value> results(fetches.empty() ? backplane_session_count(get(), BACKPLANE_OUTPUTS)
                                               : fetches.size());
    run(feeds, fetches, results);
    return results;
  }
  /// Likewise into `results`: values that are there are written and must fit, empty ones are made.
  void run(const Feeds& feeds, const std::vector<std::string>& fetches,
           std::vector<Value>& results) const {
    std::vector<const char*> feed_names;
    std::vector<const backplane_value*> feed_values;
    for (const auto& [name, value] : feeds) {
      feed_names.push_back(name.c_str());
      feed_values.push_back(value.get());
    }
    std::vector<const char*> fetch_names;
    for (const std::string& name : fetches) fetch_names.push_back(name.c_str());
    std::vector<backplane_value*> fetched;
    for (Value& result : results) fetched.push_back(result.get());
    detail::check(backplane_session_run(get(), feed_names.data(), feed_values.data(), feeds.size(),
                                        fetches.empty() ? nullptr : fetch_names.data(),
                                        fetched.data(), fetched.size()));
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i].get() == nullptr) results[i] = Value(fetched[i]);
    }
  }
  /// `run`, by the name that users of ONNX Runtime know.
  std::vector<Value> Run(const Feeds& feeds, const std::vector<std::string>& fetches = {}) const {
    return run(feeds, fetches);
  }

  /// The model, its placement and every reason, as JSON.
  std::string explain() const { return detail::text_of(get(), backplane_session_explain); }
  /// Times, arena sizes, allocations, nodes by provider, copies, as JSON.
  std::string statistics() const { return detail::text_of(get(), backplane_session_statistics); }
  /// The spans so far as a Chrome/Perfetto trace; the option "profile" must be on.
  std::string trace() const { return detail::text_of(get(), backplane_session_trace); }

  backplane_session* get() const { return session_.get(); }

 private:
  std::vector<ValueInfo> list(std::int32_t which) const {
    std::vector<ValueInfo> infos(backplane_session_count(get(), which));
    for (std::size_t i = 0; i < infos.size(); ++i) {
      ValueInfo& info = infos[i];
      info.name = backplane_session_name(get(), which, i);
      info.type = backplane_session_type(get(), which, i);
      info.rank = backplane_session_rank(get(), which, i);
      const std::int64_t* dims = backplane_session_dims(get(), which, i);
      for (int axis = 0; axis < info.rank; ++axis) {
        const char* symbol = backplane_session_symbol(get(), which, i, axis);
        info.dims.push_back(dims[axis]);
        info.symbols.emplace_back(symbol == nullptr ? "" : symbol);
      }
    }
    return infos;
  }

  std::shared_ptr<Environment::State> environment_;  // the log sink must outlive the session
  std::unique_ptr<backplane_session, detail::Deleter<backplane_session, backplane_session_destroy>>
      session_;
};

/// Feeds and fetches kept between runs: with equal shapes a run allocates nothing. One thread at a time.
///
/// Lifetime: bound values and the session must outlive the binding.
class Binding {
 public:
  explicit Binding(const Session& session) {
    backplane_binding* binding = nullptr;
    detail::check(backplane_binding_create(session.get(), &binding));
    binding_.reset(binding);
  }

  void bind_input(const std::string& name, const ValueView& value) {
    detail::check(backplane_binding_bind_input(get(), name.c_str(), value.get()));
  }
  /// The run writes `value`, which must fit.
  void bind_output(const std::string& name, Value& value) {
    detail::check(backplane_binding_bind_output(get(), name.c_str(), value.get()));
  }
  /// The session makes the value, and reuses it while its shape stays.
  void bind_output(const std::string& name) {
    detail::check(backplane_binding_bind_output(get(), name.c_str(), nullptr));
  }
  void run() { detail::check(backplane_binding_run(get())); }
  /// What the last run wrote; valid until the next one.
  ValueView output(const std::string& name) const {
    return ValueView(backplane_binding_output(get(), name.c_str()));
  }

  backplane_binding* get() const { return binding_.get(); }

 private:
  std::unique_ptr<backplane_binding, detail::Deleter<backplane_binding, backplane_binding_destroy>>
      binding_;
};

/// The library's version, "major.minor.patch".
inline std::string version() { return backplane_version(); }

}  // namespace backplane

#include "backplane/host/graph.hpp"
