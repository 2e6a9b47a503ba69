#include "tests/ops/host.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>

#include <nlohmann/json.hpp>

#include "backplane/backplane.h"

namespace backplane::ops_test {
namespace {

void check(backplane_status* status) {
  if (status == nullptr) return;
  const HostError error(backplane_status_code(status), backplane_status_message(status));
  backplane_status_free(status);
  throw error;
}

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* object) const {
    destroy(object);
  }
};
using OptionsPtr = std::unique_ptr<backplane_options, Destroy<backplane_options_destroy>>;
using ValuePtr = std::unique_ptr<backplane_value, Destroy<backplane_value_destroy>>;

OptionsPtr make_options(const Options& options) {
  backplane_options* raw = nullptr;
  check(backplane_options_create(&raw));
  OptionsPtr result(raw);
  for (const auto& [key, value] : options) {
    check(backplane_options_set(raw, key.c_str(), value.c_str()));
  }
  return result;
}

/// Lives as long as the process, like the libraries that it loads.
backplane_environment* environment() {
  static backplane_environment* const shared = [] {
    Options options = {{"environment.threads", "2"}, {"environment.log_level", "error"}};
    if (const char* path = std::getenv("BACKPLANE_TEST_PLUGIN_PATH")) {
      options.emplace_back("environment.plugin_path", path);
    }
    backplane_environment* raw = nullptr;
    check(backplane_environment_create(make_options(options).get(), nullptr, nullptr, &raw));
    return raw;
  }();
  return shared;
}

ValuePtr to_value(const Tensor& tensor) {
  backplane_value* raw = nullptr;
  check(backplane_value_create(static_cast<std::int32_t>(tensor.type), tensor.dims.data(),
                               tensor.dims.size(), &raw));
  ValuePtr value(raw);
  for (std::size_t i = 0; i < tensor.strings.size(); ++i) {
    const std::string& word = tensor.strings[i];
    check(backplane_value_set_string(raw, i, word.data(), word.size()));
  }
  if (!tensor.bytes.empty()) {
    if (backplane_value_bytes(raw) != tensor.bytes.size()) {
      throw HostError(BACKPLANE_INTERNAL, "backplane_value_create made a value of another size");
    }
    std::memcpy(backplane_value_data(raw), tensor.bytes.data(), tensor.bytes.size());
  }
  return value;
}

Tensor from_value(backplane_value* value) {
  Tensor tensor;
  tensor.type = static_cast<ElementType>(backplane_value_dtype(value));
  const std::int64_t* dims = backplane_value_dims(value);
  tensor.dims.assign(dims, dims + backplane_value_rank(value));
  if (tensor.type != ElementType::String) {
    const auto* data = static_cast<const char*>(backplane_value_data(value));
    if (backplane_value_bytes(value) > 0) tensor.bytes.assign(data, backplane_value_bytes(value));
    return tensor;
  }
  const auto count = static_cast<std::uint64_t>(reference::element_count(tensor.dims));
  for (std::uint64_t i = 0; i < count; ++i) {
    const char* data = nullptr;
    std::uint64_t size = 0;
    check(backplane_value_get_string(value, i, &data, &size));
    tensor.strings.emplace_back(data, size);
  }
  return tensor;
}

}  // namespace

std::vector<std::string> loaded_providers() {
  backplane_string* raw = nullptr;
  check(backplane_environment_providers(environment(), &raw));
  const std::unique_ptr<backplane_string, Destroy<backplane_string_destroy>> text(raw);
  std::vector<std::string> names;
  for (const auto& row : nlohmann::json::parse(backplane_string_data(raw))) {
    const bool has_device = row.contains("devices") && !row["devices"].empty();
    if (row["status"] == "loaded" && has_device) names.push_back(row["provider"]);
  }
  return names;
}

Session::Session(std::string model, const Options& options) : model_(std::move(model)) {
  check(backplane_session_create_from_memory(environment(), model_.data(), model_.size(),
                                             make_options(options).get(), &session_));
}

Session::~Session() { backplane_session_destroy(session_); }

std::string Session::explain() const {
  backplane_string* raw = nullptr;
  check(backplane_session_explain(session_, &raw));
  const std::unique_ptr<backplane_string, Destroy<backplane_string_destroy>> text(raw);
  return backplane_string_data(raw);
}

std::string Session::memory() const {
  backplane_string* raw = nullptr;
  check(backplane_session_memory(session_, &raw));
  const std::unique_ptr<backplane_string, Destroy<backplane_string_destroy>> text(raw);
  return backplane_string_data(raw);
}

std::vector<Tensor> Session::run(const NamedTensors& feeds,
                                 const std::vector<std::string>& outputs) {
  std::vector<ValuePtr> owned;
  std::vector<const char*> feed_names;
  std::vector<const backplane_value*> values;
  for (const auto& [name, tensor] : feeds) {
    owned.push_back(to_value(tensor));
    feed_names.push_back(name.c_str());
    values.push_back(owned.back().get());
  }
  std::vector<const char*> fetch_names;
  for (const std::string& name : outputs) fetch_names.push_back(name.c_str());
  std::vector<backplane_value*> fetches(outputs.size(), nullptr);
  check(backplane_session_run(session_, feed_names.data(), values.data(), values.size(),
                              fetch_names.data(), fetches.data(), fetches.size()));
  std::vector<ValuePtr> results;
  for (backplane_value* fetch : fetches) results.emplace_back(fetch);
  std::vector<Tensor> tensors;
  for (const ValuePtr& result : results) tensors.push_back(from_value(result.get()));
  return tensors;
}

}  // namespace backplane::ops_test
