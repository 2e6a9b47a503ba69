// Options of runs in C++: a part of backplane.hpp, which is the file to include.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backplane/backplane.h"
#include "backplane/host/value.hpp"

namespace backplane {

/// Ends runs from another thread. Copies are the same switch.
class Cancel {
 public:
  Cancel() {
    backplane_cancel* cancel = nullptr;
    detail::check(backplane_cancel_create(&cancel));
    cancel_.reset(cancel, backplane_cancel_destroy);
  }
  void request() { detail::check(backplane_cancel_request(get())); }
  void reset() { detail::check(backplane_cancel_reset(get())); }
  bool is_requested() const { return backplane_cancel_is_requested(get()) != 0; }
  backplane_cancel* get() const { return cancel_.get(); }

 private:
  std::shared_ptr<backplane_cancel> cancel_;
};

/// A node as a callback sees it; valid during the call. A value that the node leaves out is empty.
struct NodeView {
  std::string name, op_type, domain, provider;
  std::vector<ValueView> inputs, outputs;
};

/// How one run goes; the keys stand in host/run.h.
class RunOptions {
 public:
  /// False stops the run. What it throws stops the run too, and is lost.
  using NodeCallback = std::function<bool(const NodeView& node)>;

  RunOptions() {
    backplane_run_options* options = nullptr;
    detail::check(backplane_run_options_create(&options));
    options_.reset(options);
  }

  RunOptions& set(const std::string& key, const std::string& value) {
    detail::check(backplane_run_options_set(get(), key.c_str(), value.c_str()));
    return *this;
  }
  std::string get(const std::string& key) const {
    backplane_string* string = nullptr;
    detail::check(backplane_run_options_get(get(), key.c_str(), &string));
    const detail::OwnedString owned(string);
    return {backplane_string_data(string), static_cast<std::size_t>(backplane_string_size(string))};
  }
  RunOptions& set_cancel(const Cancel& cancel) {
    detail::check(backplane_run_options_set_cancel(get(), cancel.get()));
    return *this;
  }
  /// The time that a run may take, counted from its call: past it the run ends with BACKPLANE_TIMEOUT. What is left of
  /// a time that is over already, 0 or less, ends it before its first node.
  RunOptions& set_timeout(std::chrono::nanoseconds timeout) {
    constexpr std::int64_t kNsPerMs = 1000000;
    const std::int64_t ns = timeout.count() > 0 ? timeout.count() : 0;
    const std::string decimals = std::to_string(kNsPerMs + ns % kNsPerMs).substr(1);
    return set("timeout_ms", std::to_string(ns / kNsPerMs) + "." + decimals);
  }
  /// Functions to call before and after each node; either may be empty.
  RunOptions& set_callbacks(NodeCallback before, NodeCallback after) {
    auto next = std::make_unique<Callbacks>();
    next->before = std::move(before);
    next->after = std::move(after);
    const backplane_node_callbacks callbacks{sizeof(backplane_node_callbacks), next.get(),
                                             next->before ? &Callbacks::call_before : nullptr,
                                             next->after ? &Callbacks::call_after : nullptr};
    detail::check(backplane_run_options_set_callbacks(get(), &callbacks));
    callbacks_ = std::move(next);
    return *this;
  }

  backplane_run_options* get() const { return options_.get(); }

 private:
  struct Callbacks {
    NodeCallback before, after;

    static std::int32_t call_before(void* self, const backplane_node* node) {
      return call(static_cast<Callbacks*>(self)->before, *node);
    }
    static std::int32_t call_after(void* self, const backplane_node* node) {
      return call(static_cast<Callbacks*>(self)->after, *node);
    }
    static std::int32_t call(const NodeCallback& callback, const backplane_node& node) {
      try {
        NodeView view{node.name, node.op_type, node.domain, node.provider, {}, {}};
        for (std::uint64_t i = 0; i < node.input_count; ++i)
          view.inputs.emplace_back(node.inputs[i]);
        for (std::uint64_t i = 0; node.outputs != nullptr && i < node.output_count; ++i)
          view.outputs.emplace_back(node.outputs[i]);
        return callback(view) ? 0 : 1;
      } catch (...) {  // nothing may pass through the C interface
        return 1;
      }
    }
  };

  std::unique_ptr<Callbacks> callbacks_;  // the options point at it: it ends after them
  std::unique_ptr<backplane_run_options,
                  detail::Deleter<backplane_run_options, backplane_run_options_destroy>>
      options_;
};

}  // namespace backplane
