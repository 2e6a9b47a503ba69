#include "core/plan/aliasing.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

namespace backplane::core {
namespace {

constexpr int kForEver = std::numeric_limits<int>::max();

std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& dims) {
  std::vector<std::int64_t> strides(dims.size(), 1);
  for (std::size_t axis = dims.size(); axis-- > 1;)
    strides[axis - 1] = strides[axis] * std::max<std::int64_t>(dims[axis], 1);
  return strides;
}

/// Where a slot is read, and whether that place takes strides.
struct Reader {
  int step;
  bool strided;
};

class Aliasing {
 public:
  explicit Aliasing(SegmentDraft& draft)
      : draft_(draft),
        segment_(draft.segment),
        first_reader_(segment_.slots.size() + 1),
        outlives_(segment_.slots.size()) {
    aliases_.storage_of.assign(segment_.slots.size(), -1);
    aliases_.next_slot.assign(segment_.slots.size(), -1);
    aliases_.dropped.assign(segment_.steps.size(), false);
    writer_strided_.assign(segment_.slots.size(), false);
    find_readers();
    make_storages();
  }

  Aliases run() {
    for (std::size_t i = 0; i < segment_.steps.size(); ++i) {
      if (segment_.steps[i].kind != StepKind::Compute) continue;
      grant_views(static_cast<int>(i));
      if (aliases_.dropped[i]) continue;
      grant_in_place(static_cast<int>(i));
      grant_insides(static_cast<int>(i));
    }
    for (std::size_t i = 0; i < segment_.steps.size(); ++i) {
      if (segment_.steps[i].kind == StepKind::Compute && !aliases_.dropped[i])
        allow_over_incoming(static_cast<int>(i));
    }
    return std::move(aliases_);
  }

 private:
  Slot& slot(int index) { return segment_.slot(index); }
  Storage& storage(int slot_index) {
    return aliases_.storages[static_cast<std::size_t>(
        aliases_.storage_of[static_cast<std::size_t>(slot_index)])];
  }
  bool has_storage(int slot_index) const {
    return slot_index >= 0 && aliases_.storage_of[static_cast<std::size_t>(slot_index)] >= 0;
  }
  std::span<const Reader> readers(int slot_index) const {
    const auto slot = static_cast<std::size_t>(slot_index);
    return std::span(readers_).subspan(first_reader_[slot],
                                       first_reader_[slot + 1] - first_reader_[slot]);
  }
  bool outlives(int slot_index) const { return outlives_[static_cast<std::size_t>(slot_index)]; }

  void find_readers() {
    for (const Step& step : segment_.steps) {
      for (const int input : step.inputs) {
        if (input >= 0) ++first_reader_[static_cast<std::size_t>(input) + 1];
      }
    }
    std::partial_sum(first_reader_.begin(), first_reader_.end(), first_reader_.begin());
    readers_.resize(first_reader_.back());
    std::vector<std::size_t> next = first_reader_;
    for (std::size_t i = 0; i < segment_.steps.size(); ++i) {
      const Step& step = segment_.steps[i];
      const StepWishes& wishes = draft_.wishes[i];
      for (std::size_t k = 0; k < step.inputs.size(); ++k) {
        if (step.inputs[k] < 0) continue;
        const bool strided =
            step.kind == StepKind::Compute && wishes.said->inputs[k].may_be_strided;
        readers_[next[static_cast<std::size_t>(step.inputs[k])]++] = {static_cast<int>(i), strided};
      }
      for (std::size_t k = 0; k < step.outputs.size(); ++k) {
        if (step.outputs[k] >= 0 && step.kind == StepKind::Compute)
          writer_strided_[static_cast<std::size_t>(step.outputs[k])] =
              wishes.said->outputs[k].may_be_strided;
      }
    }
    for (const LiveValue& live : segment_.outgoing)
      outlives_[static_cast<std::size_t>(live.slot)] = true;
    for (const auto& [fetch, index] : segment_.fetches)
      outlives_[static_cast<std::size_t>(index)] = true;
  }

  void make_storages() {
    for (std::size_t i = 0; i < segment_.slots.size(); ++i) {
      const Slot& s = segment_.slots[i];
      const bool memory = s.place == Place::Arena || s.place == Place::Fetch ||
                          s.place == Place::Incoming || s.place == Place::Weight ||
                          s.place == Place::View;
      if (!memory || s.state->kind != ValueState::Kind::Tensor || s.state->type == DataType::String)
        continue;
      Storage made;
      made.first_slot = made.last_slot = made.fresh_slot = static_cast<int>(i);
      made.root = static_cast<int>(i);
      made.bytes = s.state->bytes;
      made.alignment = s.state->alignment;
      made.first = -1;
      made.last = outlives_[i] ? kForEver : -1;
      for (const Reader& reader : readers(static_cast<int>(i)))
        made.last = std::max(made.last, reader.step);
      aliases_.storage_of[i] = static_cast<int>(aliases_.storages.size());
      aliases_.storages.push_back(made);
    }
    for (std::size_t i = 0; i < segment_.steps.size(); ++i) {
      for (const int output : segment_.steps[i].outputs) {
        if (!has_storage(output)) continue;
        storage(output).first = static_cast<int>(i);
        storage(output).last = std::max(storage(output).last, static_cast<int>(i));
      }
    }
  }

  /// Moves all slots of one storage into another, `offset` bytes in.
  void merge(int from_slot, int into_slot, std::uint64_t offset) {
    Storage& from = storage(from_slot);
    Storage& into = storage(into_slot);
    const int number = aliases_.storage_of[static_cast<std::size_t>(into_slot)];
    into.first = std::min(into.first, from.first);
    into.last = std::max(into.last, from.last);
    into.alignment = std::max(into.alignment, from.alignment);
    aliases_.each_slot(from, [&](int member) {
      slot(member).offset += offset;
      slot(member).place = slot(into.root).place;
      slot(member).number = slot(into.root).number;
      slot(member).arena = slot(into.root).arena;
      slot(member).weight = slot(into.root).weight;
      aliases_.storage_of[static_cast<std::size_t>(member)] = number;
    });
    aliases_.next_slot[static_cast<std::size_t>(into.last_slot)] = from.first_slot;
    if (from.first_slot != from.last_slot) into.fresh_slot = into.first_slot;
    into.last_slot = from.last_slot;
    from.first_slot = from.last_slot = -1;
    from.bytes = 0;
  }

  // Views

  bool can_view(const Step& step, const OutputPlan& plan, int output, int input) {
    if (!has_storage(output) || !has_storage(input)) return false;
    if (slot(output).place != Place::Arena || slot(output).space != slot(input).space) return false;
    if (slot(input).strides || slot(input).state->format != 0 || plan.format != 0) return false;
    if (step.on_stream && slot(input).place == Place::Weight && slot(input).space == kHostSpace)
      return false;
    if (outlives(output) && slot(input).place != Place::Arena)
      return false;  // what is outside may be recycled
    if (!plan.view_strides || is_dense(plan.dims, *plan.view_strides)) return true;
    if (outlives(output)) return false;
    return std::all_of(readers(output).begin(), readers(output).end(),
                       [](const Reader& reader) { return reader.strided; });
  }

  void grant_views(int index) {
    const Step& step = segment_.step(index);
    const StepWishes& wishes = draft_.wishes[static_cast<std::size_t>(index)];
    bool all = true;
    for (std::size_t k = 0; k < step.outputs.size(); ++k) {
      const OutputPlan& plan = wishes.said->outputs[k];
      if (step.outputs[k] < 0) continue;
      const int input =
          plan.view_of >= 0 ? step.inputs[static_cast<std::size_t>(plan.view_of)] : -1;
      if (input < 0 || !can_view(step, plan, step.outputs[k], input)) all = false;
    }
    if (!all || step.outputs.empty()) return;
    for (std::size_t k = 0; k < step.outputs.size(); ++k) {
      const int output = step.outputs[k];
      if (output < 0) continue;
      const OutputPlan& plan = wishes.said->outputs[k];
      const int input = step.inputs[static_cast<std::size_t>(plan.view_of)];
      if (plan.view_strides && !is_dense(plan.dims, *plan.view_strides))
        slot(output).strides = plan.view_strides;
      viewed_.push_back(aliases_.storage_of[static_cast<std::size_t>(input)]);
      storage(output).first = storage(input).first;
      merge(output, input, slot(input).offset + plan.view_offset);
    }
    aliases_.dropped[static_cast<std::size_t>(index)] = true;
  }

  // In place

  void grant_in_place(int index) {
    const Step& step = segment_.step(index);
    const StepWishes& wishes = draft_.wishes[static_cast<std::size_t>(index)];
    for (std::size_t k = 0; k < step.outputs.size(); ++k) {
      const int wish = wishes.said->outputs[k].in_place_of;
      if (step.outputs[k] < 0 || wish < 0) continue;
      const int input = step.inputs[static_cast<std::size_t>(wish)];
      if (!can_be_in_place(index, step, step.outputs[k], wish)) continue;
      if (slot(step.outputs[k]).state->dims != slot(input).state->dims)
        viewed_.push_back(aliases_.storage_of[static_cast<std::size_t>(input)]);
      order_behind_readers(index, storage(input));
      merge(step.outputs[k], input, slot(input).offset);
      storage(input).fresh_slot = step.outputs[k];
    }
  }

  void allow_over_incoming(int index) {
    const Step& step = segment_.step(index);
    const StepWishes& wishes = draft_.wishes[static_cast<std::size_t>(index)];
    for (std::size_t k = 0; k < step.outputs.size(); ++k) {
      const int wish = wishes.said->outputs[k].in_place_of, output = step.outputs[k];
      if (output < 0 || wish < 0) continue;
      const int input = step.inputs[static_cast<std::size_t>(wish)];
      if (!has_storage(output) || !has_storage(input) || outlives(input)) continue;
      if (slot(output).place != Place::Fetch || slot(input).place != Place::Incoming) continue;
      const Storage& from = storage(input);
      const Storage& to = storage(output);
      const bool alone = from.first_slot == from.last_slot && to.first_slot == to.last_slot;
      if (alone && readers(input).size() == 1) aliases_.over_incoming.emplace_back(output, input);
    }
  }

  /// Those of earlier slots come before the last writer in place, which made what this one reads.
  void order_behind_readers(int writer, const Storage& storage) {
    for (int member = storage.fresh_slot; member >= 0;
         member = aliases_.next_slot[static_cast<std::size_t>(member)]) {
      for (const Reader& reader : readers(member)) {
        if (reader.step != writer) aliases_.orders.emplace_back(reader.step, writer);
      }
    }
  }

  bool can_be_in_place(int index, const Step& step, int output, int wish) {
    const int input = step.inputs[static_cast<std::size_t>(wish)];
    if (!has_storage(output) || !has_storage(input)) return false;
    if (aliases_.storage_of[static_cast<std::size_t>(output)] ==
        aliases_.storage_of[static_cast<std::size_t>(input)])
      return false;
    const Slot& in = slot(input);
    if (slot(output).place != Place::Arena || in.place != Place::Arena ||
        slot(output).space != in.space || slot(output).arena != in.arena)
      return false;
    if (in.strides || slot(output).state->bytes != in.state->bytes || storage(input).last > index)
      return false;
    // Another input in the same memory, the same value read twice included, would be overwritten.
    for (std::size_t k = 0; k < step.inputs.size(); ++k) {
      const int other = step.inputs[k];
      if (other >= 0 && static_cast<int>(k) != wish && has_storage(other) &&
          aliases_.storage_of[static_cast<std::size_t>(other)] ==
              aliases_.storage_of[static_cast<std::size_t>(input)]) {
        return false;
      }
    }
    return std::none_of(step.outputs.begin(), step.outputs.end(), [&](int other) {
      return other >= 0 && other != output && has_storage(other) &&
             aliases_.storage_of[static_cast<std::size_t>(other)] ==
                 aliases_.storage_of[static_cast<std::size_t>(input)];
    });
  }

  // Inside

  void grant_insides(int index) {
    Step& step = segment_.step(index);
    for (const InsideWish& wish : draft_.wishes[static_cast<std::size_t>(index)].said->insides) {
      const int input = step.inputs[wish.input], output = step.outputs[wish.output];
      if (!can_be_inside(step, wish, input, output)) continue;
      if (wish.strides) restride(input, wish);
      merge(input, output, slot(output).offset + wish.offset);
      storage(output).fresh_slot = storage(output).first_slot;
      step.input_state[wish.input] |= BP_INPUT_INSIDE;
    }
  }

  /// Whether what these slots are, before anything is known about their readers, lets one lie in the other.
  static bool fits_inside(const Slot& in, const Slot& out) {
    const bool places =
        in.place == Place::Arena &&
        (out.place == Place::Arena || out.place == Place::Fetch || out.place == Place::View) &&
        in.space == out.space && in.arena == out.arena && in.offset == 0;
    const bool plain =
        !in.strides && !out.strides && in.state->format == 0 && out.state->format == 0;
    return places && plain && element_bits(in.state->type) % 8 == 0;
  }

  /// Whether writer and readers of a slot, but for `step` itself, can work with strides.
  bool takes_strides(int member, const Step& step, int input) const {
    if (!writer_strided_[static_cast<std::size_t>(member)]) return false;
    const std::span<const Reader> all = readers(member);
    return std::all_of(all.begin(), all.end(), [&](const Reader& reader) {
      const auto index = static_cast<std::size_t>(reader.step);
      const bool is_this_input = &segment_.steps[index] == &step && member == input;
      const bool reads_inside = aliases_.dropped[index] || was_inside(reader.step, member);
      return reader.strided || is_this_input || reads_inside;
    });
  }

  bool can_be_inside(const Step& step, const InsideWish& wish, int input, int output) {
    if (input < 0 || output < 0 || !has_storage(input) || !has_storage(output)) return false;
    if (std::count(step.inputs.begin(), step.inputs.end(), input) != 1) return false;
    const Slot& in = slot(input);
    const Slot& out = slot(output);
    if (!fits_inside(in, out)) return false;
    const int from = aliases_.storage_of[static_cast<std::size_t>(input)];
    if (from == aliases_.storage_of[static_cast<std::size_t>(output)]) return false;
    if (std::find(viewed_.begin(), viewed_.end(), from) != viewed_.end()) return false;
    if (storage(input).bytes != in.state->bytes || storage(input).last == kForEver) return false;
    if (!reaches_at_most(wish.offset, extent(*in.state, wish.strides), out.state->bytes))
      return false;
    const bool strided = wish.strides && !is_dense(in.state->dims, *wish.strides);
    bool all = true;
    aliases_.each_slot(storage(input), [&](int member) {
      const Place place = segment_.slot(member).place;
      all = all && !outlives(member) && place == Place::Arena &&
            (!strided || takes_strides(member, step, input));
    });
    return all;
  }

  /// The step finds this input inside its output and so never reads it through strides.
  bool was_inside(int step_index, int slot_index) const {
    const Step& step = segment_.step(step_index);
    for (std::size_t k = 0; k < step.inputs.size(); ++k) {
      if (step.inputs[k] == slot_index && !step.input_state.empty() &&
          (step.input_state[k] & BP_INPUT_INSIDE) != 0)
        return true;
    }
    return false;
  }

  /// Gives every slot of the input's storage its place inside the output, whose axes it shares.
  void restride(int input, const InsideWish& wish) {
    const std::vector<std::int64_t> inner = dense_strides(slot(input).state->dims);
    const auto bytes = static_cast<std::uint64_t>(element_bits(slot(input).state->type) / 8);
    aliases_.each_slot(storage(input), [&](int member) {
      Slot& m = slot(member);
      std::uint64_t index = m.offset / bytes, moved = 0;
      for (std::size_t axis = 0; axis < inner.size(); ++axis) {
        const auto step = static_cast<std::uint64_t>(std::max<std::int64_t>(inner[axis], 1));
        moved += index / step * static_cast<std::uint64_t>((*wish.strides)[axis]);
        index %= step;
      }
      m.offset = moved * bytes;
      if (!is_dense(m.state->dims, *wish.strides)) m.strides = wish.strides;
    });
  }

  SegmentDraft& draft_;
  Segment& segment_;
  Aliases aliases_;
  std::vector<std::size_t>
      first_reader_;  ///< by slot, in `readers_`; one more than there are slots
  std::vector<Reader> readers_;
  std::vector<bool> writer_strided_;
  std::vector<bool> outlives_;
  std::vector<int> viewed_;  ///< storages that have views: they stay dense
};

}  // namespace

bool is_dense(const std::vector<std::int64_t>& dims, const std::vector<std::int64_t>& strides) {
  const std::vector<std::int64_t> dense = dense_strides(dims);
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    if (dims[axis] > 1 && strides[axis] != dense[axis]) return false;
  }
  return true;
}

Aliases find_aliases(SegmentDraft& draft) {
  Aliasing aliasing(draft);
  return aliasing.run();
}

}  // namespace backplane::core
