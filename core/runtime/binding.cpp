#include "core/runtime/binding.hpp"

#include <algorithm>
#include <cstring>

#include "core/base/nearest_name.hpp"

namespace backplane::core {
namespace {

/// Calls `visit` for everything that a plan depends on but elements.
template <class Visit>
bool all_of_shape(const RunValues& feeds, const Visit& visit) {
  for (const RuntimeValue* feed : feeds) {
    if (!visit(feed->kind) || !visit(feed->description.dtype) || !visit(feed->description.rank))
      return false;
    for (std::int32_t axis = 0; axis < feed->description.rank; ++axis) {
      if (!visit(feed->description.dims[axis])) return false;
    }
  }
  return true;
}

std::string dim_text(const Dim& dim, std::size_t axis) {
  return dim.symbol.empty() ? text("dimension ", axis)
                            : text("dimension ", axis, " ('", dim.symbol, "')");
}

}  // namespace

Binding::Bound* Binding::find(std::vector<Bound>& list, const std::string& name) {
  const auto place =
      std::find_if(list.begin(), list.end(), [&](const Bound& b) { return b.name == name; });
  return place != list.end() ? &*place : nullptr;
}

const Binding::Bound* Binding::find(const std::vector<Bound>& list, const std::string& name) {
  return find(const_cast<std::vector<Bound>&>(list), name);
}

void Binding::put(std::vector<Bound>& list, Bound bound) {
  checked_ = false;
  memo_.views.clear();  // before memory below them goes
  if (Bound* known = find(list, bound.name)) {
    *known = std::move(bound);
    return;
  }
  list.push_back(std::move(bound));
  routed_ = false;
}

void Binding::clear(std::vector<Bound>& list) {
  checked_ = routed_ = false;
  memo_.views.clear();  // before memory below them goes
  list.clear();
}

void Binding::bind_input(const std::string& name, RuntimeValuePtr value, DevicePtr device) {
  if (session_->model().graph.find_value(name) == kNone)
    session_->route({name}, {});                // throws, with the known names
  space_of(session_->devices(), name, device);  // throws for one that the session does not have
  put(inputs_, {name, std::move(value), false, std::move(device)});
}

void Binding::bind_output(const std::string& name, RuntimeValuePtr value, DevicePtr device) {
  const Graph& graph = session_->model().graph;
  if (graph.find_value(name) == kNone) {
    invalid("the model has no output '", name, "'",
            did_you_mean(name, names_of(graph, session_->outputs())));
  }
  const bool own = value == nullptr;
  const Bound* known = find(outputs_, name);
  if (own && known != nullptr && known->own && known->device == nullptr) return;
  if (!own) {
    space_of(session_->devices(), name, device);  // throws for one that the session does not have
    check_may_be_written(name, *value, device);
  }
  put(outputs_,
      {name, own ? std::make_shared<RuntimeValue>() : std::move(value), own, std::move(device)});
}

void Binding::bind_output_to(const std::string& name, const std::string& device) {
  const DevicePtr chosen = find_device(session_->devices(), device);
  const Bound* known = find(outputs_, name);
  if (known != nullptr && known->own && known->device == chosen) return;
  bind_output(name, nullptr);
  if (!chosen->on_host_memory())
    put(outputs_, {name, std::make_shared<RuntimeValue>(), true, chosen});
}

void Binding::find_places() {
  places_.feeds.clear();
  places_.fetches.clear();
  const DeviceSet& devices = session_->devices();
  for (const NamedValue& feed : named_)
    places_.feeds.push_back(space_of(devices, feed.name, feed.device));
  for (const NamedValue& fetch : named_fetches_)
    places_.fetches.push_back(space_of(devices, fetch.name, fetch.device));
  places_.fetches.resize(fetches_.size(), kHostSpace);
  is_placed_ = is_off_host(places_);
}

void Binding::make_own_input(const std::string& name, const std::vector<std::int64_t>& dims) {
  const Graph& graph = session_->model().graph;
  const Value& declared = graph.value(graph.find_value(name));
  Bound* known = find(inputs_, name);
  // What is bound belongs to the caller; what is our own keeps its place.
  const RuntimeValuePtr value =
      known != nullptr && known->own ? known->value : std::make_shared<RuntimeValue>();
  memo_.views.clear();
  value->set_owned_tensor(declared.type.element, dims, session_->feed_alignment());
  if (value->description.host_ptr != nullptr)
    std::memset(value->description.host_ptr, 0, value->description.bytes);
  put(inputs_, {name, value, true, nullptr});
}

void Binding::resize(const std::string& name, const std::vector<std::int64_t>& dims) {
  const Graph& graph = session_->model().graph;
  const ValueId id = graph.find_value(name);
  if (id == kNone) session_->route({name}, {});  // throws, with the known names
  const Value& declared = graph.value(id);
  if (!declared.type.is_tensor() || declared.type.element == DataType::None)
    invalid("the input '", name, "' is a ", declared.type.to_string(),
            "; only tensors are resized, bind a value instead");
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    if (dims[axis] < 0)
      invalid("the input '", name, "': size ", dims[axis], " of dimension ", axis,
              " is not 0 or more");
  }
  if (declared.type.shape) {
    const Shape& shape = *declared.type.shape;
    bool fits = shape.size() == dims.size();
    for (std::size_t axis = 0; fits && axis < dims.size(); ++axis)
      fits = !shape[axis].known() || shape[axis].size == dims[axis];
    if (!fits)
      invalid("the input '", name, "' of shape ", to_string(shape), " cannot become ",
              to_string(dims));
  }
  make_own_input(name, dims);
}

std::int64_t Binding::size_of_symbol(const std::string& symbol) const {
  const Graph& graph = session_->model().graph;
  for (const Bound& input : inputs_) {
    const Value& declared = graph.value(graph.find_value(input.name));
    if (!declared.type.is_tensor() || !declared.type.shape || !input.value->is_tensor()) continue;
    const Shape& shape = *declared.type.shape;
    for (std::size_t axis = 0; axis < std::min(shape.size(), input.value->dims.size()); ++axis) {
      if (shape[axis].symbol == symbol) return input.value->dims[axis];
    }
  }
  return -1;
}

std::vector<std::int64_t> Binding::planned_dims(const Value& input) const {
  if (!input.type.is_tensor() || input.type.element == DataType::None || !input.type.shape) {
    invalid("the input '", input.name, "' of type ", input.type.to_string(),
            " has no shape in the model; bind a value, or resize it");
  }
  std::vector<std::int64_t> dims;
  for (const Dim& dim : *input.type.shape) {
    std::int64_t size = dim.size;
    if (!dim.known() && !dim.symbol.empty()) size = size_of_symbol(dim.symbol);
    if (size < 0 && dims.empty()) size = 1;  // a batch
    if (size < 0) {
      invalid("the input '", input.name, "': ", dim_text(dim, dims.size()), " of ",
              to_string(*input.type.shape), " is unknown and no batch; resize the input");
    }
    dims.push_back(size);
  }
  return dims;
}

RuntimeValuePtr Binding::input(const std::string& name) {
  const Graph& graph = session_->model().graph;
  const ValueId id = graph.find_value(name);
  if (id == kNone) session_->route({name}, {});  // throws, with the known names
  if (const Bound* known = find(inputs_, name)) return known->value;
  make_own_input(name, planned_dims(graph.value(id)));
  return find(inputs_, name)->value;
}

void Binding::make_route() {
  std::vector<std::string> feed_names, fetch_names;
  for (const Bound& input : inputs_) feed_names.push_back(input.name);
  if (outputs_.empty()) {
    for (const std::string& name : names_of(session_->model().graph, session_->outputs())) {
      if (find(outputs_, name) == nullptr)
        put(outputs_, {name, std::make_shared<RuntimeValue>(), true, nullptr});
    }
  }
  for (const Bound& output : outputs_) fetch_names.push_back(output.name);
  save_version_ = session_->save_version();
  route_ = session_->route(feed_names, fetch_names, whole_graph_);
  // The one before is of another program, whose kernels end after the plan's.
  memo_.views = HostViews();
  memo_.plan.reset();
  memo_ = PlanMemo();
  hidden_.clear();
  for (std::size_t i = 0; i < route_.hidden; ++i)
    hidden_.push_back({"", std::make_shared<RuntimeValue>(), true, nullptr});
  saved_.clear();
  for (const std::string& name : route_.saved)
    saved_.push_back({name, std::make_shared<RuntimeValue>(), true, nullptr});
  named_.clear();
  for (const std::size_t i : route_.feeds) named_.push_back({inputs_[i].name, nullptr});
  named_fetches_.clear();
  for (const std::size_t i : route_.fetches) named_fetches_.push_back({outputs_[i].name, nullptr});
  routed_ = true;
}

void Binding::check_inputs() {
  feeds_.clear();
  fetches_.clear();
  resizable_.clear();
  for (std::size_t k = 0; k < route_.feeds.size(); ++k) {
    const Bound& input = inputs_[route_.feeds[k]];
    session_->check_feed(input.name, *input.value);
    named_[k].value = input.value.get();
    named_[k].device = input.device;
    feeds_.push_back(input.value.get());
  }
  session_->check_symbols(named_);
  for (std::size_t k = 0; k < route_.fetches.size(); ++k) {
    const Bound& output = outputs_[route_.fetches[k]];
    named_fetches_[k].value = output.value.get();
    named_fetches_[k].device = output.device;
    fetches_.push_back(output.value.get());
    resizable_.push_back(output.own);
  }
  for (const std::vector<Bound>* more : {&hidden_, &saved_}) {
    for (const Bound& bound : *more) fetches_.push_back(bound.value.get());
  }
  resizable_.resize(fetches_.size(), true);
  check_apart(named_, named_fetches_);
  find_places();
  checked_shape_.clear();
  all_of_shape(feeds_, [&](std::int64_t word) {
    checked_shape_.push_back(word);
    return true;
  });
  checked_ = true;
}

bool Binding::same_shapes() const {
  auto word = checked_shape_.begin();
  return all_of_shape(
      feeds_, [&](std::int64_t now) { return word != checked_shape_.end() && *word++ == now; });
}

void Binding::plan() {
  const Graph& graph = session_->model().graph;
  for (const ValueId id : session_->inputs()) {
    if (find(inputs_, graph.value(id).name) == nullptr) input(graph.value(id).name);
  }
  if (!routed_ || save_version_ != session_->save_version()) make_route();
  check_inputs();
  session_->prepare(route_, feeds_, fetches_, &memo_, &resizable_, is_placed_ ? &places_ : nullptr);
}

void Binding::run(const RunOptions* options) {
  const bool whole_graph = options != nullptr && !options->only_path_to_fetches;
  if (!routed_ || whole_graph != whole_graph_ || save_version_ != session_->save_version()) {
    whole_graph_ = whole_graph;
    make_route();
    checked_ = false;
  }
  if (!checked_ || !same_shapes()) check_inputs();
  session_->run(route_, feeds_, fetches_, &memo_, &resizable_, options,
                is_placed_ ? &places_ : nullptr);
}

RuntimeValuePtr Binding::output(const std::string& name) const {
  const Bound* bound = find(outputs_, name);
  return bound != nullptr ? bound->value : nullptr;
}

DevicePtr Binding::output_device(const std::string& name) const {
  const Bound* bound = find(outputs_, name);
  return bound != nullptr ? bound->device : nullptr;
}

PlacedValue Binding::take_output(const std::string& name) {
  const Bound* bound = find(outputs_, name);
  if (bound == nullptr) {
    std::vector<std::string> names;
    for (const Bound& output : outputs_) names.push_back(output.name);
    invalid("the binding has no output '", name, "'", did_you_mean(name, names), "; it has ",
            quoted_names(names));
  }
  if (!bound->own) invalid("the output '", name, "' is a value that the binding was given");
  PlacedValue taken{bound->value, bound->device};
  if (taken.value->kind == BP_VALUE_ABSENT) return {};
  put(outputs_, {name, std::make_shared<RuntimeValue>(), true, taken.device});
  return taken;
}

PlacedValue Binding::saved(const std::string& name) const {
  if (!session_->is_saved(name)) return {};
  if (const Bound* bound = find(saved_, name)) return {bound->value, nullptr};
  return {output(name), output_device(name)};  // fetched, or not saved at all
}

}  // namespace backplane::core
