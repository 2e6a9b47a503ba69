#include "core/runtime/stacked_output.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace backplane::core {

StackedOutput::StackedOutput(const DeviceSet& devices, SpaceCopies& copies, int space)
    : devices_(devices), copies_(copies), space_(space) {}

void StackedOutput::begin(RuntimeValue* whole, std::int64_t count) {
  given_ = whole;
  count_ = count;
  capacity_ = made_ = index_ = 0;
  type_ = DataType::None;
}

/// The first slice says what all are.
void StackedOutput::check(DataType type, const std::vector<std::int64_t>& dims) {
  if (made_ > 0 || (type_ == type && dims_ == dims && capacity_ > 0)) {
    if (type_ == type && dims_ == dims) return;
    invalid("it stacks tensors of one type and shape, but after tensor(", name(type_), ") ",
            to_string(dims_), " comes tensor(", name(type), ") ", to_string(dims));
  }
  if (given_ != nullptr) {
    const std::vector<std::int64_t>& all = given_->dims;
    const bool fits = given_->element() == type && all.size() > dims.size() &&
                      std::equal(dims.rbegin(), dims.rend(), all.rbegin());
    if (!fits)
      throw Error(Code::Internal, text("it makes slices of shape ", to_string(dims), " for ",
                                       to_string(all), ", which was planned otherwise"));
  }
  type_ = type;
  dims_ = dims;
  const auto elements = static_cast<std::uint64_t>(element_count(dims));
  const auto bits = static_cast<std::uint64_t>(element_bits(type));
  if (type != DataType::String && elements * bits % 8 != 0) {
    throw Error(Code::Unsupported, text("it stacks slices of ", elements, " elements of type ",
                                        name(type), ", which do not fill whole bytes"));
  }
  slice_bytes_ = type == DataType::String ? 0 : elements * bits / 8;
  capacity_ = 0;
  make_room();
}

bp_tensor StackedOutput::whole() const {
  return given_ != nullptr ? given_->description : own_.description;
}

/// Memory for slice `index_`.
void StackedOutput::make_room() {
  if (given_ != nullptr || index_ < capacity_) return;
  std::int64_t wanted = count_;
  if (count_ < 0) wanted = std::max<std::int64_t>({2 * capacity_, index_ + 1, last_count_, 4});
  all_dims_.assign(1, wanted);
  all_dims_.insert(all_dims_.end(), dims_.begin(), dims_.end());
  if (made_ == 0) {
    own_tensor(own_, type_, all_dims_, space_, devices_);
  } else if (type_ == DataType::String) {
    std::vector<std::string> strings = std::move(own_.strings);
    own_tensor(own_, type_, all_dims_, space_, devices_);
    std::move(strings.begin(), strings.end(), own_.strings.begin());
  } else {
    own_tensor(larger_, type_, all_dims_, space_, devices_);
    bp_tensor to = own_.description;
    to.buffer = larger_.description.buffer;
    to.offset = larger_.description.offset;
    to.host_ptr = larger_.description.host_ptr;
    copies_.copy(own_.description, to, space_);
    move_value(larger_, own_);
  }
  capacity_ = wanted;
}

void StackedOutput::provide(const ValueState& slice, RuntimeValue& value) {
  check(slice.type, slice.dims);
  make_room();
  is_provided_ = true;
  const std::uint64_t offset = slice_bytes_ * static_cast<std::uint64_t>(index_);
  // A device's kernels may count on its alignment.
  const std::uint64_t least =
      space_ == kHostSpace
          ? 1
          : devices_.at(DeviceSet::device_of_space(space_)).alignment(BP_MEMORY_DEVICE);
  in_place_ = type_ != DataType::String && (whole().offset + offset) % least == 0;
  if (!in_place_) {
    own_tensor(value, slice.type, slice.dims, space_, devices_);
    return;
  }
  value.set_tensor(slice.type, slice.dims);
  point_into(value, whole(), offset);
}

void StackedOutput::add(const RuntimeValue& value) {
  if (!value.is_tensor()) invalid("it stacks tensors, but a turn made something else");
  check(value.element(), value.dims);
  make_room();
  made_ = std::max(made_, index_ + 1);
  if (is_provided_ && in_place_) return;
  RuntimeValue& all = given_ != nullptr ? *given_ : own_;
  if (type_ == DataType::String) {
    std::copy(value.strings.begin(), value.strings.end(),
              all.strings.begin() + index_ * static_cast<std::ptrdiff_t>(value.strings.size()));
    return;
  }
  bp_tensor to = value.description;
  const bp_tensor from = whole();
  const std::uint64_t offset = slice_bytes_ * static_cast<std::uint64_t>(index_);
  to.buffer = from.buffer;
  to.offset = from.buffer != nullptr ? from.offset + offset : 0;
  to.host_ptr =
      from.host_ptr != nullptr ? static_cast<std::byte*>(from.host_ptr) + offset : nullptr;
  to.memory = from.memory;
  copies_.copy(value.description, to, space_);
}

void StackedOutput::add_zeros() {
  if (type_ == DataType::None && given_ != nullptr)
    check(given_->element(), {given_->dims.begin() + 2, given_->dims.end()});
  if (type_ == DataType::None || type_ == DataType::String) return;  // new strings are empty
  const std::uint64_t offset = slice_bytes_ * static_cast<std::uint64_t>(index_);
  if (slice_bytes_ > 0)
    std::memset(static_cast<std::byte*>(whole().host_ptr) + offset, 0, slice_bytes_);
}

/// Writes the whole with its first axis behind `axis` others.
void StackedOutput::move_axis(RuntimeValue& output, std::size_t axis) {
  const auto turns = static_cast<std::size_t>(all_dims_.front());
  std::size_t outer = 1, inner = 1;
  for (std::size_t i = 0; i < dims_.size(); ++i)
    (i < axis ? outer : inner) *= static_cast<std::size_t>(dims_[i]);
  all_dims_.erase(all_dims_.begin());
  all_dims_.insert(all_dims_.begin() + static_cast<std::ptrdiff_t>(axis),
                   static_cast<std::int64_t>(turns));
  output.set_owned_tensor(type_, all_dims_);
  const std::size_t piece =
      type_ == DataType::String ? inner : inner * static_cast<std::size_t>(element_bits(type_)) / 8;
  for (std::size_t t = 0; t < turns; ++t) {
    for (std::size_t o = 0; o < outer; ++o) {
      const std::size_t from = (t * outer + o) * piece, to = (o * turns + t) * piece;
      if (type_ == DataType::String) {
        std::copy_n(own_.strings.begin() + static_cast<std::ptrdiff_t>(from), piece,
                    output.strings.begin() + static_cast<std::ptrdiff_t>(to));
      } else if (piece > 0) {
        std::memcpy(static_cast<std::byte*>(output.description.host_ptr) + to,
                    static_cast<const std::byte*>(own_.description.host_ptr) + from, piece);
      }
    }
  }
}

void StackedOutput::finish(RuntimeValue& output, const std::vector<std::int64_t>& stack,
                           const Type& declared, std::int64_t axis) {
  last_count_ = made_;
  if (given_ != nullptr) return;
  all_dims_ = stack;
  if (made_ == 0) {
    if (declared.is_tensor() && declared.shape) {
      for (std::size_t i = stack.size(); i < declared.shape->size(); ++i)
        all_dims_.push_back(std::max<std::int64_t>((*declared.shape)[i].size, 0));
    }
    const DataType type = declared.element != DataType::None ? declared.element : DataType::Float;
    if (axis != 0 && !all_dims_.empty()) {
      const auto rank = static_cast<std::int64_t>(all_dims_.size());
      const auto to = std::min(axis < 0 ? axis + rank : axis, rank - 1);
      std::rotate(all_dims_.begin(), all_dims_.begin() + 1, all_dims_.begin() + to + 1);
    }
    own_tensor(output, type, all_dims_, space_, devices_);
    return;
  }
  all_dims_.insert(all_dims_.end(), dims_.begin(), dims_.end());
  if (axis != 0) {
    const auto rank = static_cast<std::int64_t>(all_dims_.size());
    move_axis(output, static_cast<std::size_t>(axis < 0 ? axis + rank : axis));
    return;
  }
  // The memory stays the larger one; only the dims are what was made.
  const bp_tensor from = own_.description;
  own_.strings.resize(type_ == DataType::String ? static_cast<std::size_t>(element_count(all_dims_))
                                                : 0);
  std::vector<std::string> strings = std::move(own_.strings);
  own_.set_tensor(type_, all_dims_);
  own_.strings = std::move(strings);
  point_into(own_, from, 0);
  move_value(own_, output);
}

}  // namespace backplane::core
