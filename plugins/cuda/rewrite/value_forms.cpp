#include "plugins/cuda/rewrite/value_forms.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "plugins/common/axes.hpp"
#include "plugins/common/device_ops/provider.hpp"
#include "plugins/common/half.hpp"

namespace backplane::cuda {
namespace {

using sdk::DataType;
using sdk::Dims;

Dims ordered(const Dims& dims, const Dims& order) {
  Dims made;
  for (const std::int64_t axis : order) made.push_back(dims[static_cast<std::size_t>(axis)]);
  return made;
}

/// A finite number stays one: beyond the range, it is the greatest.
std::uint16_t small_bits(float value, DataType type) {
  const bool is_bfloat = type == DataType::BFloat16;
  const float most = is_bfloat ? 3.38953139e38f : 65504;
  if (std::isfinite(value)) value = std::clamp(value, -most, most);
  return is_bfloat ? common::to_bfloat16(value).bits : common::to_half(value).bits;
}

/// Writes a constant's elements in another order and type.
struct Packing {
  Dims dims;   ///< of the source, ones in front to the rank that is wanted
  Dims order;  ///< empty: the same
  DataType from, to;
  std::int64_t fill = 0;  ///< so many zeros behind each line of the target

  /// Of the target.
  Dims made() const {
    Dims all = order.empty() ? dims : ordered(dims, order);
    if (fill > 0) all.back() += fill;
    return all;
  }

  void operator()(const sdk::PackContext& ctx) const {
    const auto bytes = static_cast<std::size_t>(sdk::element_bytes(from));
    const auto* const source = static_cast<const unsigned char*>(ctx.source(0).bytes_data());
    auto* target = ctx.target().mutable_data<unsigned char>();
    const Dims strides = common::dense_strides(dims);
    const Dims to_dims = order.empty() ? dims : ordered(dims, order);
    const Dims steps = order.empty() ? strides : ordered(strides, order);
    Dims at(to_dims.size(), 0);
    const std::int64_t count = sdk::element_count(to_dims);
    std::int64_t place = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const unsigned char* const element = source + static_cast<std::size_t>(place) * bytes;
      target += write(element, bytes, target);
      for (std::size_t axis = at.size(); axis-- > 0;) {
        place += steps[axis];
        if (++at[axis] < to_dims[axis]) break;
        if (axis + 1 == at.size()) {
          const std::size_t filled = static_cast<std::size_t>(fill * sdk::element_bytes(to));
          std::memset(target, 0, filled);
          target += filled;
        }
        place -= steps[axis] * to_dims[axis];
        at[axis] = 0;
      }
    }
  }

 private:
  std::size_t write(const unsigned char* element, std::size_t bytes, unsigned char* target) const {
    if (from == to) {
      std::memcpy(target, element, bytes);
      return bytes;
    }
    float value = 0;
    std::memcpy(&value, element, sizeof(value));
    const std::uint16_t bits = small_bits(value, to);
    std::memcpy(target, &bits, sizeof(bits));
    return sizeof(bits);
  }
};

}  // namespace

Dims order_to(bool is_last, int rank) {
  Dims order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  if (is_last) {
    std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  } else {
    std::rotate(order.begin() + 1, order.end() - 1, order.end());
  }
  return order;
}

Form ValueForms::plain(const std::string& value) const {
  if (value.empty()) return {};
  if (const RecordedEdit::Constant* const constant = recorded_.constant(value))
    return {constant->type, false};
  if (const auto added = added_.find(value); added != added_.end()) return {added->second, false};
  const sdk::ValueInfo info = graph_.value(value.c_str());
  return {info ? info.type() : DataType::None, false};
}

Dims ValueForms::dims(const std::string& value) const {
  if (const RecordedEdit::Constant* const constant = recorded_.constant(value))
    return constant->dims;
  const sdk::ValueInfo info = graph_.value(value.c_str());
  if (!info || info.rank() < 0) return {};
  const sdk::DimsView view = info.dims();
  return {view.begin(), view.end()};
}

int ValueForms::rank(const std::string& value) const {
  if (const RecordedEdit::Constant* const constant = recorded_.constant(value))
    return static_cast<int>(constant->dims.size());
  const sdk::ValueInfo info = graph_.value(value.c_str());
  return info ? info.rank() : -1;
}

bool ValueForms::is_constant(const std::string& value) const {
  if (recorded_.constant(value) != nullptr) return true;
  const sdk::ValueInfo info = graph_.value(value.c_str());
  return info && info.is_constant();
}

bool ValueForms::is_scalar(const std::string& value) const {
  const Dims all = dims(value);
  return rank(value) >= 0 &&
         std::all_of(all.begin(), all.end(), [](std::int64_t dim) { return dim == 1; });
}

std::int64_t ValueForms::dim(const std::string& value, std::size_t axis) const {
  const Dims all = dims(value);
  return axis < all.size() ? all[axis] : -1;
}

bool ValueForms::is_output(const std::string& value) const {
  const sdk::ValueInfo info = graph_.value(value.c_str());
  return info && info.is_output();
}

Dims ValueForms::ints(const std::string& value) const {
  const sdk::ValueInfo info = graph_.value(value.c_str());
  if (!info || !info.is_constant()) return {};
  const sdk::Tensor tensor = info.constant();
  const bool is_int = tensor.type() == DataType::Int64 || tensor.type() == DataType::Int32;
  return is_int && (tensor.size() == 0 || tensor.bytes_data() != nullptr) ? tensor.to_ints()
                                                                          : Dims();
}

std::int64_t ValueForms::constant_size(const std::string& value) const {
  const sdk::ValueInfo info = graph_.value(value.c_str());
  if (!info || !info.is_constant()) return -1;
  const sdk::Tensor tensor = info.constant();
  return tensor.size() == 0 || tensor.bytes_data() != nullptr ? tensor.size() : -1;
}

std::string ValueForms::get_axes(const std::string& value, int rank) {
  std::string& name = axes_[value];
  if (!name.empty()) return name;
  const sdk::Tensor tensor = graph_.value(value.c_str()).constant();
  const Dims order = order_to(true, rank);
  const auto bytes = static_cast<std::size_t>(sdk::element_bytes(tensor.type()));
  const auto* const from = static_cast<const unsigned char*>(tensor.bytes_data());
  std::vector<unsigned char> made;
  for (std::int64_t run = 0; run < tensor.size(); run += rank) {
    for (const std::int64_t axis : order) {
      const unsigned char* const element = from + static_cast<std::size_t>(run + axis) * bytes;
      made.insert(made.end(), element, element + bytes);
    }
  }
  name = fresh(value, {DataType::None, true}, {DataType::None, false});
  host_.constant(name, tensor.type(), tensor.dims(), made.data(), made.size());
  return name;
}

Form ValueForms::made(const std::string& value) const {
  const auto found = held_.find(value);
  return found == held_.end() ? plain(value) : found->second.form;
}

bool ValueForms::has(const std::string& value, const Form& form) const {
  const auto found = held_.find(value);
  if (found == held_.end()) return plain(value) == form;
  return found->second.form == form || found->second.others.count(form) > 0;
}

std::string ValueForms::fresh(const std::string& value, const Form& form, const Form& from) {
  std::string base = value;
  if (form.type != from.type) base += sdk::message("/", sdk::type_name(form.type));
  if (form.is_last) base += "/channels_last";
  if (form.channels > 0) base += sdk::message("/", form.channels, "_channels");
  std::string name = base;
  for (int i = 1; graph_.value(name.c_str()) || !names_.insert(name).second; ++i)
    name = sdk::message(base, "_", i);
  return name;
}

std::string ValueForms::get(const std::string& value, const Form& form) {
  if (is_constant(value)) return get_constant(value, form, rank(value));
  Held& held = held_.try_emplace(value, Held{plain(value), value, {}}).first->second;
  if (held.form == form) return held.name;
  std::string& name = held.others[form];
  if (!name.empty()) return name;
  // As the graph has it, a value has the graph's name.
  name = form == plain(value) ? value : fresh(value, form, plain(value));
  sdk::NodeDraft draft = host_.node(device_ops::private_domain(), "Reformat");
  draft.input(held.name).output(name);
  if (form.type != held.form.type) draft.attribute("to", static_cast<std::int64_t>(form.type));
  if (form.is_last != held.form.is_last)
    draft.attribute("perm", order_to(form.is_last, rank(value)));
  if (form.channels > 0) draft.attribute("channels", form.channels).attribute("own", form.own);
  draft.add();
  return name;
}

std::string ValueForms::get_constant(const std::string& value, const Form& form, int rank) {
  const Form from = plain(value);
  Dims padded = dims(value);
  if (form == from) return value;
  std::string& name = constants_[{value, rank}][form];
  if (!name.empty()) return name;
  name = fresh(value, form, from);
  padded.insert(padded.begin(), static_cast<std::size_t>(rank) - padded.size(), 1);
  Packing packing{padded, form.is_last ? order_to(true, rank) : Dims(), from.type, form.type};
  if (form.channels > 0) packing.fill = form.channels - padded[1];
  host_.lazy_constant(
      name, form.type, packing.made(), {value},
      sdk::message("stored as ", sdk::type_name(form.type), form.is_last ? ", channels last " : " ",
                   rank, ' ', form.channels),
      packing);
  return name;
}

std::string ValueForms::make(const std::string& value, const Form& form) {
  const Form from = plain(value);
  std::string name = form == from ? value : fresh(value, form, from);
  held_[value] = {form, name, {}};
  if (is_output(value)) get(value, from);
  return name;
}

}  // namespace backplane::cuda
