// Feeds and fetches kept between runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/session.hpp"

namespace backplane::core {

/// Inputs and outputs of a session's runs, the caller's or the binding's own.
///
/// Lifetime: holds the session and what is bound.
/// Threads:  one at a time.
class Binding {
 public:
  explicit Binding(std::shared_ptr<Session> session) : session_(std::move(session)) {}

  /// `device`: in whose memory it is, one of the session's; null: the host's.
  void bind_input(const std::string& name, RuntimeValuePtr value, DevicePtr device = nullptr);
  /// A null value: the run makes it, and uses it again while its shape stays. `device`: in whose memory a given one lies.
  void bind_output(const std::string& name, RuntimeValuePtr value, DevicePtr device = nullptr);
  /// The run makes it in the memory of a device of the session, by its label, and copies nothing back.
  void bind_output_to(const std::string& name, const std::string& device);
  /// Forget what is bound.
  void clear_inputs() { clear(inputs_); }
  void clear_outputs() { clear(outputs_); }

  /// Makes the input a tensor of the binding's own, of these dims, zeroed; it stays where it is until the next resize.
  void resize(const std::string& name, const std::vector<std::int64_t>& dims);
  /// The binding's own tensor of an input; makes it where the model fixes its shape, or resize() did.
  RuntimeValuePtr input(const std::string& name);
  /// Does everything for a run that can be done before it. Inputs that are not bound become the binding's own: a first
  /// dimension that is unknown counts as 1. Throws for another one, naming it.
  void plan();
  /// Plans if that was not done for these shapes, and runs.
  void run(const RunOptions* options);

  /// What the last run wrote; null for a name that is not bound.
  RuntimeValuePtr output(const std::string& name) const;
  /// The device in whose memory it is; null: on the host.
  DevicePtr output_device(const std::string& name) const;
  /// Likewise, of an output of the binding's own, which makes another in the next run; null where no run has written it.
  PlacedValue take_output(const std::string& name);
  /// Likewise of a value that the session saves, with its device.
  PlacedValue saved(const std::string& name) const;

  const Session& session() const { return *session_; }

 private:
  struct Bound {
    std::string name;
    RuntimeValuePtr value;
    bool own = false;  ///< made here
    DevicePtr device;  ///< in whose memory it is; null: the host's
  };
  static Bound* find(std::vector<Bound>& list, const std::string& name);
  static const Bound* find(const std::vector<Bound>& list, const std::string& name);
  void put(std::vector<Bound>& list, Bound bound);
  void clear(std::vector<Bound>& list);
  /// Of an input's declared shape: what is known of its symbols from inputs that have sizes, then 1 for the first.
  std::vector<std::int64_t> planned_dims(const Value& input) const;
  std::int64_t size_of_symbol(const std::string& symbol) const;
  void make_own_input(const std::string& name, const std::vector<std::int64_t>& dims);
  void make_route();
  void check_inputs();
  bool same_shapes() const;
  void find_places();

  std::shared_ptr<Session> session_;
  std::vector<Bound> inputs_, outputs_, hidden_, saved_;
  Session::Route route_;
  bool routed_ = false, whole_graph_ = false;
  bool checked_ = false;  ///< the inputs bound now fit the model, in the shapes of checked_shape_
  std::uint64_t save_version_ = 0;
  std::vector<std::int64_t> checked_shape_;
  std::vector<NamedValue> named_, named_fetches_;  ///< as checks want them
  RunValues feeds_, fetches_;
  std::vector<bool> resizable_;  ///< by fetch: it is the binding's own
  BodyPlaces places_;
  bool is_placed_ = false;  ///< not everything is on the host
  PlanMemo memo_;
};

}  // namespace backplane::core
