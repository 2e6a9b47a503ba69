// Scan: https://onnx.ai/onnx/operators/onnx__Scan.html
#include <algorithm>
#include <cstring>

#include "core/runtime/control_step.hpp"

namespace backplane::core {
namespace {

/// One slice after the other of a value, along its leading axes.
class Slices {
 public:
  Slices(const DeviceSet& devices, SpaceCopies& copies, int space)
      : devices_(devices), copies_(copies), space_(space) {}

  /// `axes`: how many leading axes number the slices; with a `given` axis other than 0 it is that one instead, and the
  /// whole is on the host.
  void begin(const RuntimeValue& whole, std::size_t axes, std::int64_t given) {
    whole_ = &whole;
    axis_ = 0;
    if (given == 0) {
      dims_.assign(whole.dims.begin() + static_cast<std::ptrdiff_t>(axes), whole.dims.end());
    } else {
      axis_ = scan_axis(given, whole.dims.size(), "scan input");
      dims_ = whole.dims;
      dims_.erase(dims_.begin() + static_cast<std::ptrdiff_t>(axis_));
    }
    elements_ = element_count(dims_);
    const auto bits = static_cast<std::uint64_t>(elements_) *
                      static_cast<std::uint64_t>(element_bits(whole.element()));
    bytes_ = bits / 8;
    if (whole.element() != DataType::String && bits % 8 != 0) {
      throw Error(Code::Unsupported,
                  text("it slices an input into ", elements_, " elements of type ",
                       name(whole.element()), ", which do not fill whole bytes"));
    }
    slice_.set_tensor(whole.element(), dims_);
  }

  RuntimeValue& at(std::int64_t index) {
    if (axis_ != 0) return gathered(index);
    if (whole_->element() == DataType::String) {
      slice_.set_owned_tensor(DataType::String, dims_);
      const auto first = whole_->strings.begin() + index * elements_;
      std::copy(first, first + elements_, slice_.strings.begin());
      return slice_;
    }
    const std::uint64_t offset = static_cast<std::uint64_t>(index) * bytes_;
    point_into(slice_, whole_->description, offset);
    if (space_ == kHostSpace) return slice_;
    // A device's kernels may count on its alignment.
    const std::uint64_t least =
        devices_.at(DeviceSet::device_of_space(space_)).alignment(BP_MEMORY_DEVICE);
    if (slice_.description.offset % least == 0) return slice_;
    own_tensor(aligned_, whole_->element(), dims_, space_, devices_);
    copies_.copy(slice_.description, aligned_.description, space_);
    return aligned_;
  }

 private:
  /// A slice of an inner axis, in one piece.
  RuntimeValue& gathered(std::int64_t index) {
    std::size_t outer = 1, inner = 1;
    for (std::size_t i = 0; i < dims_.size(); ++i)
      (i < axis_ ? outer : inner) *= static_cast<std::size_t>(dims_[i]);
    const auto entries = static_cast<std::size_t>(whole_->dims[axis_]);
    const DataType type = whole_->element();
    aligned_.set_owned_tensor(type, dims_);
    const std::size_t piece =
        type == DataType::String ? inner : inner * static_cast<std::size_t>(element_bits(type)) / 8;
    for (std::size_t o = 0; o < outer; ++o) {
      const std::size_t from = (o * entries + static_cast<std::size_t>(index)) * piece;
      if (type == DataType::String) {
        std::copy_n(whole_->strings.begin() + static_cast<std::ptrdiff_t>(from), piece,
                    aligned_.strings.begin() + static_cast<std::ptrdiff_t>(o * piece));
      } else if (piece > 0) {
        std::memcpy(static_cast<std::byte*>(aligned_.description.host_ptr) + o * piece,
                    static_cast<const std::byte*>(whole_->description.host_ptr) + from, piece);
      }
    }
    return aligned_;
  }

  const DeviceSet& devices_;
  SpaceCopies& copies_;
  int space_;
  std::size_t axis_ = 0;
  const RuntimeValue* whole_ = nullptr;
  std::vector<std::int64_t> dims_;
  std::int64_t elements_ = 0;
  std::uint64_t bytes_ = 0;
  RuntimeValue slice_, aligned_;
};

class ScanStep : public ControlStep {
 public:
  ScanStep(const Graph& graph, const Node& node, const Step& step, const DeviceSet& devices)
      : plan_(*step.control),
        body_(plan_.node->bodies[0]),
        layout_(plan_.node->scan),
        node_(node),
        copies_(devices),
        runner_(body_, plan_.places[0], devices),
        carried_(copies_, layout_.state_count) {
    for (std::size_t i = 0; i < body_.input_count; ++i)
      slices_.push_back(std::make_unique<Slices>(devices, copies_, plan_.places[0].feeds[i]));
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNone || (!layout_.batched && i < layout_.state_count)) continue;
      Stacked stacked;
      stacked.output = i;
      stacked.type = graph.value(node.outputs[i]).type;
      stacked.whole = std::make_unique<StackedOutput>(devices, copies_, plan_.output_spaces[i]);
      if (i >= layout_.state_count) {
        stacked.slice = std::make_unique<RuntimeValue>();
        const auto fetch = static_cast<std::size_t>(body_.outputs[i].fetch);
        runner_.stacks[fetch] = stacked.whole.get();
        runner_.fetches[fetch] = stacked.slice.get();
      }
      stacked_.push_back(std::move(stacked));
    }
  }

  void run(const ControlCall& call) override {
    const std::size_t first = layout_.batched ? 1 : 0;
    const std::int64_t turns = *plan_.trip_count;
    const std::int64_t batch = layout_.batched ? call.input(first).dims.front() : 1;
    runner_.take_captured(call, node_.inputs.size());
    for (std::size_t i = 0; i < body_.input_count; ++i) {
      const bool scanned = i >= layout_.state_count;
      if (scanned || layout_.batched)
        slices_[i]->begin(call.input(first + i), first + (scanned ? 1 : 0),
                          scanned ? layout_.input_axes[i - layout_.state_count] : 0);
    }
    for (Stacked& stacked : stacked_) {
      const bool direct = plan_.direct[stacked.output];
      const bool state = stacked.output < layout_.state_count;
      stacked.whole->begin(direct ? &call.output(stacked.output) : nullptr,
                           state ? batch : batch * turns);
    }
    for (std::int64_t b = 0; b < batch; ++b) run_sequence(call, b, turns);
    if (!layout_.batched) finish_states(call);
    for (Stacked& stacked : stacked_) finish(stacked, call, batch, turns);
  }

 private:
  struct Stacked {
    std::size_t output;
    std::unique_ptr<StackedOutput> whole;
    std::unique_ptr<RuntimeValue> slice;  ///< null: of a state, one for each batch entry
    Type type;
  };

  void finish(Stacked& stacked, const ControlCall& call, std::int64_t batch, std::int64_t turns) {
    const bool state = stacked.output < layout_.state_count;
    stack_dims_.clear();
    if (layout_.batched) stack_dims_.push_back(batch);
    if (!state) stack_dims_.push_back(turns);
    stacked.whole->finish(call.output(stacked.output), stack_dims_, stacked.type,
                          state ? 0 : layout_.output_axes[stacked.output - layout_.state_count]);
  }

  void finish_states(const ControlCall& call) {
    for (std::size_t k = 0; k < std::min(layout_.state_count, node_.outputs.size()); ++k) {
      if (node_.outputs[k] != kNone) carried_.finish(k, call.output(k), plan_.output_spaces[k]);
    }
  }

  /// How many turns an entry of the batch has.
  std::int64_t length_of(const ControlCall& call, std::int64_t b, std::int64_t turns) const {
    if (!layout_.batched || node_.inputs[0] == kNone) return turns;
    const RuntimeValue& lengths = call.input(0);
    if (lengths.element() != DataType::Int64 || b >= element_count(lengths.dims))
      invalid("its sequence lengths must be one int64 for each entry of the batch");
    std::int64_t length = 0;
    std::memcpy(&length, static_cast<const std::int64_t*>(lengths.description.host_ptr) + b,
                sizeof(length));
    if (length < 0 || length > turns)
      invalid("its sequence length ", length, " does not lie within 0 and ", turns);
    return length;
  }

  void run_sequence(const ControlCall& call, std::int64_t b, std::int64_t turns) {
    const std::size_t first = layout_.batched ? 1 : 0;
    for (std::size_t k = 0; k < layout_.state_count; ++k)
      carried_.begin(k, layout_.batched ? slices_[k]->at(b) : call.input(first + k));
    const std::int64_t length = length_of(call, b, turns);
    for (std::int64_t turn = 0; turn < length; ++turn) run_turn(call, b * turns, turn, turns);
    for (Stacked& stacked : stacked_) {
      if (stacked.slice == nullptr) {
        stacked.whole->next(b);
        stacked.whole->add(carried_.current(stacked.output));
        continue;
      }
      for (std::int64_t turn = length; turn < turns; ++turn) pad(stacked, b * turns + turn);
    }
  }

  /// A slice behind the end of a sequence is 0; such outputs lie on the host.
  static void pad(Stacked& stacked, std::int64_t index) {
    stacked.whole->next(index);
    stacked.whole->add_zeros();
  }

  void run_turn(const ControlCall& call, std::int64_t before, std::int64_t turn,
                std::int64_t turns) {
    const std::size_t states = layout_.state_count;
    for (std::size_t k = 0; k < states; ++k) {
      runner_.feeds[k] = &carried_.current(k);
      const int fetch = body_.outputs[k].fetch;
      if (fetch < 0) continue;
      RuntimeValue& place = carried_.free_place(k);
      runner_.fetches[static_cast<std::size_t>(fetch)] = &place;
      carried_.set_next(k, place);
    }
    for (std::size_t i = states; i < body_.input_count; ++i) {
      const std::int64_t at = layout_.input_reversed[i - states] ? turns - 1 - turn : turn;
      runner_.feeds[i] = &slices_[i]->at(before + at);
    }
    for (Stacked& stacked : stacked_) {
      if (stacked.slice == nullptr) continue;
      const bool reversed = layout_.output_reversed[stacked.output - states];
      stacked.whole->next(before + (reversed ? turns - 1 - turn : turn));
      stacked.slice->set_absent();
    }
    runner_.run(call, turn);
    for (std::size_t k = 0; k < states; ++k) {
      const BodyOutput& output = body_.outputs[k];
      if (output.fetch < 0)
        carried_.set_next(k, *runner_.feeds[static_cast<std::size_t>(output.feed)]);
    }
    for (Stacked& stacked : stacked_) {
      if (stacked.slice != nullptr) stacked.whole->add(*stacked.slice);
    }
    carried_.end_turn();
  }

  const ControlPlan& plan_;
  const ControlBody& body_;
  const ScanLayout& layout_;
  const Node& node_;
  SpaceCopies copies_;
  BodyRunner runner_;
  CarriedValues carried_;
  std::vector<std::unique_ptr<Slices>> slices_;  ///< by the body's input
  std::vector<Stacked> stacked_;
  std::vector<std::int64_t> stack_dims_;
};

}  // namespace

std::unique_ptr<ControlStep> make_scan_step(const Graph& graph, const Node& node, const Step& step,
                                            const DeviceSet& devices) {
  return std::make_unique<ScanStep>(graph, node, step, devices);
}

}  // namespace backplane::core
