// What graphs of cuDNN's have in common: descriptions, handles, plans that are tried.
// https://docs.nvidia.com/deeplearning/cudnn/backend/latest/api/cudnn-graph-library.html
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cudnn.h>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "plugins/cuda/engine/pointer.hpp"

// Needed by libraries before 9.8, which know no other way; later ones call them deprecated.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace backplane::cuda {

/// `what`, and what the library said last on this thread in more detail, on one line: a status names neither the tensor nor
/// the limit that it is about. The library says it once.
inline std::string in_full(const char* what) {
  std::array<char, 1024> said{};
  cudnnGetLastErrorString(said.data(), said.size());
  said.back() = '\0';
  std::string words = said.data();
  std::replace(words.begin(), words.end(), '\n', ' ');
  words.erase(words.find_last_not_of(' ') + 1);
  return words.empty() ? what : sdk::message(what, " (", words, ')');
}
inline std::string words_of(cudnnStatus_t status) { return in_full(cudnnGetErrorString(status)); }

inline void check_cudnn(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  const bool is_memory = status == CUDNN_STATUS_ALLOC_FAILED ||
                         status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
                         status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
  throw sdk::Error(is_memory ? BP_OUT_OF_MEMORY : BP_INTERNAL,
                   sdk::message(call, ": ", words_of(status)));
}

#define DNN_CALL(name, ...) check_cudnn(name(__VA_ARGS__), #name)

/// A description of the library's, of whatever kind.
class Description {
 public:
  explicit Description(cudnnBackendDescriptorType_t type) {
    DNN_CALL(cudnnBackendCreateDescriptor, type, &raw_);
  }
  ~Description() {
    if (raw_ != nullptr) cudnnBackendDestroyDescriptor(raw_);
  }
  Description(Description&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  Description& operator=(Description&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  cudnnBackendDescriptor_t get() const { return raw_; }

  template <class Value>
  Description& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   const Value& value) {
    return set(name, type, 1, &value);
  }
  Description& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   std::size_t count, const void* values) {
    DNN_CALL(cudnnBackendSetAttribute, raw_, name, type, static_cast<std::int64_t>(count), values);
    return *this;
  }
  Description& set(cudnnBackendAttributeName_t name, const Description& value) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.raw_);
  }
  void finish() { DNN_CALL(cudnnBackendFinalize, raw_); }
  /// Why the library does not do this; empty where it does.
  std::string try_finish() {
    const cudnnStatus_t status = cudnnBackendFinalize(raw_);
    return status == CUDNN_STATUS_SUCCESS ? "" : words_of(status);
  }
  std::int64_t get_number(cudnnBackendAttributeName_t name) const {
    std::int64_t count = 0, value = 0;
    DNN_CALL(cudnnBackendGetAttribute, raw_, name, CUDNN_TYPE_INT64, 1, &count, &value);
    return value;
  }

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
};

inline cudnnDataType_t cudnn_type(sdk::DataType type) {
  switch (type) {
    case sdk::DataType::Float:
      return CUDNN_DATA_FLOAT;
    case sdk::DataType::Double:
      return CUDNN_DATA_DOUBLE;
    case sdk::DataType::Float16:
      return CUDNN_DATA_HALF;
    case sdk::DataType::BFloat16:
      return CUDNN_DATA_BFLOAT16;
    case sdk::DataType::Int8:
      return CUDNN_DATA_INT8;
    case sdk::DataType::Int32:
      return CUDNN_DATA_INT32;
    default:
      sdk::unsupported("cuDNN computes with no elements of type ", sdk::type_name(type));
  }
}

/// A handle of the library's, which serves one stream at a time.
struct Slot {
  cudnnHandle_t handle = nullptr;
  std::atomic<bool> is_taken{false};
};

/// A run holds a handle for the microseconds that enqueueing takes.
class Handles {
 public:
  explicit Handles(Context& context) : context_(context) {
    const EnteredContext entered(context);
    try {
      for (Slot& slot : slots_) DNN_CALL(cudnnCreate, &slot.handle);
    } catch (...) {
      close();
      throw;
    }
  }
  ~Handles() {
    const EnteredContext entered(context_, std::nothrow);
    if (entered) close();
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;

  Slot& take() {
    for (std::size_t i = 0;; i = (i + 1) % slots_.size()) {
      if (!slots_[i].is_taken.exchange(true, std::memory_order_acquire)) return slots_[i];
      if (i + 1 == slots_.size()) std::this_thread::yield();
    }
  }
  Context& context() const { return context_; }

 private:
  void close() noexcept {
    for (const Slot& slot : slots_) {
      if (slot.handle == nullptr) continue;
      // The stream that it was given last may be gone by now.
      cudnnSetStream(slot.handle, nullptr);
      cudnnDestroy(slot.handle);
    }
  }

  Context& context_;
  std::array<Slot, 2> slots_;
};

/// A handle, taken as long as this lives, in the current context.
class TakenHandle {
 public:
  explicit TakenHandle(Handles& handles) : entered_(handles.context()), slot_(handles.take()) {}
  ~TakenHandle() { slot_.is_taken.store(false, std::memory_order_release); }
  TakenHandle(const TakenHandle&) = delete;
  TakenHandle& operator=(const TakenHandle&) = delete;
  cudnnHandle_t get() const { return slot_.handle; }

 private:
  EnteredContext entered_;
  Slot& slot_;
};

/// The device that plans are for: a handle's, or one of which there is a description alone, as cuDNN 9.8 and later
/// take it; for that one plans are found and none can be run.
class Target {
 public:
  explicit Target(cudnnHandle_t handle) : handle_(handle) {}
  explicit Target(const Description& device) : device_(&device) {}

  void set_in_graph(Description& graph) const {
    if (device_ == nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle_);
  }
  void set_in_heuristic([[maybe_unused]] Description& heuristic) const {
#if CUDNN_VERSION >= 90800
    if (device_ != nullptr) heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *device_);
#endif
  }
  Description new_plan() const {
    Description plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
#if CUDNN_VERSION >= 90800
    if (device_ != nullptr) {
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *device_);
      return plan;
    }
#endif
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle_);
    return plan;
  }

 private:
  cudnnHandle_t handle_ = nullptr;
  const Description* device_ = nullptr;
};

/// What the library would do, best first; where that is nothing, `why` is set if it says why.
inline std::vector<Description> configurations(const Target& target, const Description& graph,
                                               cudnnBackendHeurMode_t mode, std::string& why) {
  Description heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  target.set_in_heuristic(heuristic);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (const std::string refused = heuristic.try_finish(); !refused.empty()) {
    why = refused;
    return {};
  }
  std::int64_t count = 0;
  const cudnnStatus_t status =
      cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr);
  if (status != CUDNN_STATUS_SUCCESS) {
    why = words_of(status);
    return {};
  }
  std::vector<Description> results;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i) {
    results.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw.push_back(results.back().get());
  }
  DNN_CALL(cudnnBackendGetAttribute, heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
           CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, raw.data());
  results.erase(results.begin() + count, results.end());
  return results;
}

/// How the engine of a configuration computes.
inline std::vector<cudnnBackendNumericalNote_t> numerical_notes(
    cudnnBackendDescriptor_t configuration) {
  Description engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  std::int64_t count = 0;
  DNN_CALL(cudnnBackendGetAttribute, configuration, CUDNN_ATTR_ENGINECFG_ENGINE,
           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw);
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  DNN_CALL(cudnnBackendGetAttribute, raw, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
           CUDNN_TYPE_NUMERICAL_NOTE, static_cast<std::int64_t>(notes.size()), &count,
           notes.data());
  notes.resize(static_cast<std::size_t>(count));
  return notes;
}

/// A plan in the library's own words; empty where it has none.
inline std::string kept_plan(const Description& plan) {
  std::int64_t size = 0;
  if (cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                               CUDNN_TYPE_CHAR, 0, &size, nullptr) != CUDNN_STATUS_SUCCESS)
    return "";
  std::string text(static_cast<std::size_t>(size), '\0');
  DNN_CALL(cudnnBackendGetAttribute, plan.get(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
           CUDNN_TYPE_CHAR, size, &size, text.data());
  return text;
}

/// Ends the description of a graph. Why the library has no such graph; empty where it has.
inline std::string try_finish_graph(Description& graph, const std::vector<Description>& operations,
                                    const Target& target) {
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const Description& operation : operations) raw.push_back(operation.get());
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, raw.size(), raw.data());
  target.set_in_graph(graph);
  return graph.try_finish();
}

/// A plan that can be run.
class FinishedPlan {
 public:
  /// `plan` is finished.
  explicit FinishedPlan(Description plan)
      : plan_(std::move(plan)),
        workspace_bytes_(static_cast<std::uint64_t>(
            plan_.get_number(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE))) {}
  std::uint64_t workspace_bytes() const { return workspace_bytes_; }
  std::string kept() const { return kept_plan(plan_); }
  /// Ends a plan of a device's. The code that the library has loaded for it is unloaded from the current context, and who
  /// gives a plan up is on any thread.
  void end(Context& context) noexcept {
    const EnteredContext entered(context, std::nothrow);
    const Description ended = std::move(plan_);
  }
  std::vector<cudnnBackendNumericalNote_t> notes() const {
    Description configuration(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    cudnnBackendDescriptor_t raw = configuration.get();
    std::int64_t count = 0;
    DNN_CALL(cudnnBackendGetAttribute, plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
             CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw);
    return numerical_notes(raw);
  }

  /// `count` tensors by their numbers in the graph. The list of addresses is an object of the library's, which cannot be
  /// used again: its memory is the one thing that a run allocates, and a captured run does not.
  void enqueue(Handles& handles, StreamHandle stream, std::size_t count, const std::int64_t* ids,
               void* const* addresses, Address workspace) const {
    auto* const scratch = pointer(workspace);
    const TakenHandle handle(handles);
    Description pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, addresses);
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, scratch);
    pack.finish();
    DNN_CALL(cudnnSetStream, handle.get(), stream);
    DNN_CALL(cudnnBackendExecute, handle.get(), plan_.get(), pack.get());
  }

 private:
  Description plan_;
  std::uint64_t workspace_bytes_;
};

/// Takes plans, best first. True: no more are wanted.
using PlanTaker = std::function<bool(FinishedPlan)>;

/// Why none of a graph's configurations, or none that is left, is a plan.
class Refusals {
 public:
  void add(std::string why) {
    ++count_;
    last_ = std::move(why);
  }
  std::string text() const {
    if (count_ == 0) return in_full("there is no configuration");
    if (count_ == 1) return last_;
    return sdk::message(count_, " configurations are refused, the last: ", last_);
  }

 private:
  std::size_t count_ = 0;
  std::string last_;
};

/// Offers the plans of a graph within the limit whose configurations are accepted, best first, until one is the last that is
/// wanted. Why there are no more; empty where no more were wanted.
template <class Accepts>
std::string offer_plans(const Target& target, const Description& graph,
                        std::uint64_t workspace_limit, const Accepts& accepts,
                        const PlanTaker& take) {
  Refusals refusals;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    std::string why;
    for (const Description& configuration : configurations(target, graph, mode, why)) {
      if (!accepts(configuration.get())) {
        refusals.add("its arithmetic is not what was asked for");
        continue;
      }
      Description plan = target.new_plan();
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
      if (std::string refused = plan.try_finish(); !refused.empty()) {
        refusals.add(std::move(refused));
        continue;
      }
      FinishedPlan made(std::move(plan));
      if (made.workspace_bytes() > workspace_limit) {
        refusals.add(sdk::message("it wants ", made.workspace_bytes(), " bytes of workspace"));
      } else if (take(std::move(made))) {
        return "";
      }
    }
    if (!why.empty()) refusals.add(why);
  }
  return refusals.text();
}

/// A plan from words that were kept; none where the library does not take them.
inline std::optional<FinishedPlan> restored_plan(const Target& target, const std::string& kept) {
  Description plan = target.new_plan();
  const bool is_taken =
      cudnnBackendSetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                               CUDNN_TYPE_CHAR, static_cast<std::int64_t>(kept.size()),
                               kept.data()) == CUDNN_STATUS_SUCCESS;
  if (!is_taken || !plan.try_finish().empty()) return std::nullopt;
  return FinishedPlan(std::move(plan));
}

/// Handles that are made by the first use: it takes the library a while, and memory of the device.
class LateHandles {
 public:
  explicit LateHandles(Context& context) : context_(context) {}
  Handles& get() {
    const std::lock_guard lock(mutex_);
    if (handles_ == nullptr) handles_ = std::make_unique<Handles>(context_);
    return *handles_;
  }

 private:
  Context& context_;
  std::mutex mutex_;
  std::unique_ptr<Handles> handles_;
};

inline std::string cudnn_version() {
  const std::size_t version = cudnnGetVersion();
  return sdk::message("cuDNN ", version / 10000, '.', version / 100 % 100, '.', version % 100);
}

}  // namespace backplane::cuda
