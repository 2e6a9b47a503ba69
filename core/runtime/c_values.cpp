// The C host interface: statuses, strings, values.
#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <span>

#include "core/base/atomic_file.hpp"
#include "core/base/quote.hpp"
#include "core/onnx/value_proto.hpp"
#include "core/plugin_host/imported_memory.hpp"
#include "core/runtime/c_objects.hpp"
#include "core/runtime/work_of_thread.hpp"

namespace backplane::core {

namespace {

constexpr std::size_t kLongestMessage = 20000;

}  // namespace

// Names in messages come from strangers: whatever they hold, a message is one line.
backplane_status* new_status(Code code, const std::string& message) noexcept {
  static backplane_status out_of_memory(BACKPLANE_OUT_OF_MEMORY, {});
  try {
    return new backplane_status(static_cast<std::int32_t>(code),
                                single_line(message, kLongestMessage));
  } catch (...) {  // the code alone survives; backplane_status_free knows it
    return &out_of_memory;
  }
}

namespace {

std::vector<std::int64_t> read_dims(const std::int64_t* dims, std::size_t rank) {
  if (rank > 0) required(dims, "dims");
  if (rank > 1024) invalid("a tensor of rank ", rank, " is not supported");
  std::vector<std::int64_t> copy(dims, dims + rank);
  element_count(copy);
  return copy;
}

std::span<std::string> strings_of(const backplane_value& value, std::uint64_t index,
                                  std::uint64_t count) {
  RuntimeValue& held = *value.value;
  if (!held.is_tensor() || held.element() != DataType::String)
    invalid("the value is no tensor of strings");
  if (index > held.strings.size() || count > held.strings.size() - index)
    invalid("there are no strings ", index, " to ", index + count, "; the value has ",
            held.strings.size());
  return std::span(held.strings).subspan(index, count);
}

DataType read_dtype(std::int32_t dtype) {
  const auto type = static_cast<DataType>(dtype);
  if (type != DataType::String && element_bits(type) == 0)
    invalid("there is no element type ", dtype);
  return type;
}

/// Makes it a tensor without memory; throws where it could not lie in so many bytes.
void describe_tensor(RuntimeValue& value, std::int32_t dtype, const std::int64_t* dims,
                     std::size_t rank, std::uint64_t bytes) {
  const DataType type = read_dtype(dtype);
  const std::vector<std::int64_t> shape = read_dims(dims, rank);
  if (type == DataType::String)
    invalid("a string tensor cannot be borrowed; use backplane_value_create");
  value.set_tensor(type, shape);
  const std::uint64_t needed = value.description.bytes;
  if (bytes < needed)
    invalid("the memory has ", bytes, " bytes; a ", name(type), " tensor of dims ",
            to_string(value.dims), " needs ", needed);
}

std::unique_ptr<backplane_value> tensor_over(std::int32_t dtype, const std::int64_t* dims,
                                             std::size_t rank, std::uint64_t bytes) {
  auto made = std::make_unique<backplane_value>();
  describe_tensor(*made->value, dtype, dims, rank, bytes);
  return made;
}

/// Lays it over memory of the host.
void borrow(RuntimeValue& value, void* data, const char* argument) {
  if (value.description.bytes > 0) required(static_cast<const char*>(data), argument);
  const DataType type = value.element();
  if (element_bits(type) >= 16 &&
      reinterpret_cast<std::uintptr_t>(data) %
              std::min<std::uintptr_t>(8, static_cast<std::uintptr_t>(element_bits(type) / 8)) !=
          0) {
    invalid("the memory is not aligned to its elements of type ", name(type));
  }
  value.description.host_ptr = data;
}

/// Lays it over memory of a device, by its number in the device's API.
void borrow(RuntimeValue& value, const DevicePtr& device, ImportedMemory::Extent extent,
            const Session& session) {
  if (value.description.bytes == 0) {
    extent.bytes = 0;
  } else if (extent.memory == 0) {
    invalid("the argument 'memory' is null");
  }
  lay_over(value, std::make_shared<ImportedMemory>(device, extent, session.shared_environment()));
}

RuntimeValuePtr from_datum(const Datum& datum) {
  auto value = std::make_shared<RuntimeValue>();
  if (datum.type.is_tensor()) {
    value->set_owned_tensor(datum.tensor->type(), datum.tensor->dims());
    value->strings = datum.tensor->strings();
    if (!datum.tensor->bytes().empty())
      std::memcpy(value->description.host_ptr, datum.tensor->bytes().data(),
                  datum.tensor->bytes().size());
    return value;
  }
  value->set_type(datum.type);
  value->elements.clear();  // an empty map has its keys and values already
  for (const Datum& element : datum.elements) value->elements.push_back(from_datum(element));
  return value;
}

Datum to_datum(const RuntimeValue& value) {
  Datum datum;
  if (value.is_tensor()) {
    datum.type = Type::tensor(value.element(), value.dims);
    datum.tensor = value.to_constant();
    return datum;
  }
  datum.type = value.type;
  for (const RuntimeValuePtr& element : value.elements)
    datum.elements.push_back(to_datum(*element));
  return datum;
}

}  // namespace

void lay_over_host(RuntimeValue& value, const backplane_tensor& tensor) {
  describe_tensor(value, tensor.dtype, tensor.dims, tensor.rank, tensor.bytes);
  borrow(value, tensor.data, "data");
}

}  // namespace backplane::core

using namespace backplane::core;  // the functions below are C

const char* backplane_version(void) { return BACKPLANE_VERSION; }

void backplane_remove_unfinished_files(void) { remove_unfinished_files(); }

void backplane_describe_work(char* text, std::size_t size) { describe_work(text, size); }

std::int32_t backplane_status_code(const backplane_status* status) {
  return usable(status) != nullptr ? status->code : BACKPLANE_OK;
}

const char* backplane_status_message(const backplane_status* status) {
  if (usable(status) == nullptr) return "";
  return status->message.empty() && status->code == BACKPLANE_OUT_OF_MEMORY
             ? "host memory is exhausted"
             : status->message.c_str();
}

void backplane_status_free(backplane_status* status) {
  if (usable(status) != nullptr &&
      !(status->code == BACKPLANE_OUT_OF_MEMORY && status->message.empty()))
    delete status;
}

const char* backplane_string_data(const backplane_string* string) {
  return usable(string) != nullptr ? string->text.c_str() : "";
}

std::uint64_t backplane_string_size(const backplane_string* string) {
  return usable(string) != nullptr ? string->text.size() : 0;
}

void backplane_string_destroy(backplane_string* string) { destroy(string); }

backplane_status* backplane_value_create(std::int32_t dtype, const std::int64_t* dims,
                                         std::size_t rank, backplane_value** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    auto made = std::make_unique<backplane_value>();
    made->value->set_owned_tensor(read_dtype(dtype), read_dims(dims, rank));
    if (made->value->description.host_ptr != nullptr)
      std::memset(made->value->description.host_ptr, 0, made->value->description.bytes);
    *out = made.release();
  });
}

backplane_status* backplane_value_borrow(std::int32_t dtype, const std::int64_t* dims,
                                         std::size_t rank, void* data, std::uint64_t bytes,
                                         backplane_value** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    auto made = tensor_over(dtype, dims, rank, bytes);
    borrow(*made->value, data, "data");
    *out = made.release();
  });
}

backplane_status* backplane_value_borrow_const(std::int32_t dtype, const std::int64_t* dims,
                                               std::size_t rank, const void* data,
                                               std::uint64_t bytes, backplane_value** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    auto made = tensor_over(dtype, dims, rank, bytes);
    borrow(*made->value, const_cast<void*>(data), "data");  // what is read only is never written
    made->value->read_only = true;
    *out = made.release();
  });
}

backplane_status* backplane_value_borrow_on(const backplane_session* session, const char* device,
                                            std::int32_t dtype, const std::int64_t* dims,
                                            std::size_t rank, std::uint64_t memory,
                                            std::uint64_t offset, std::uint64_t bytes,
                                            backplane_value** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    const Session& on = *required(session, "session").session;
    DevicePtr chosen = find_device(on.devices(), &required(device, "device"));
    auto made = tensor_over(dtype, dims, rank, bytes);
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
    if (offset > kMost - bytes)
      invalid("no memory has ", bytes, " bytes from byte ", offset, " on");
    if (!chosen->on_host_memory()) {
      borrow(*made->value, chosen, {memory, offset, bytes}, on);
      made->device = std::move(chosen);
    } else {
      if (memory > kMost - offset) invalid("no address is ", memory, " + ", offset);
      const std::uint64_t address = memory != 0 ? memory + offset : 0;
      // NOLINTNEXTLINE(performance-no-int-to-ptr): numbers are what all devices' memory is told by
      borrow(*made->value, reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)), "memory");
    }
    *out = made.release();
  });
}

backplane_status* backplane_value_parse(const char* kind, const void* data, std::uint64_t bytes,
                                        backplane_value** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    const std::string word = &required(kind, "kind");
    Type::Kind type = Type::Kind::Tensor;
    if (word == "sequence")
      type = Type::Kind::Sequence;
    else if (word == "optional")
      type = Type::Kind::Optional;
    else if (word == "map")
      type = Type::Kind::Map;
    else if (word != "tensor")
      invalid("a value of kind '", word,
              "' cannot be parsed; the kinds are tensor, sequence, optional, map");
    if (bytes > 0) required(static_cast<const char*>(data), "data");
    auto made = std::make_unique<backplane_value>();
    made->value = from_datum(parse_value({static_cast<const std::byte*>(data), bytes}, type));
    *out = made.release();
  });
}

backplane_status* backplane_value_serialize(const backplane_value* value, backplane_string** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    *out = new backplane_string(serialize_value(to_datum(*required(value, "value").value)));
  });
}

void backplane_value_destroy(backplane_value* value) { destroy(value); }

const char* backplane_value_type(const backplane_value* value) {
  if (usable(value) == nullptr) return "";
  const RuntimeValue& held = *value->value;
  value->type = held.is_tensor() ? Type::tensor(held.element()).to_string() : held.type.to_string();
  return value->type.c_str();
}

std::int32_t backplane_value_dtype(const backplane_value* value) {
  return usable(value) != nullptr ? value->value->description.dtype : BP_NONE;
}

std::size_t backplane_value_rank(const backplane_value* value) {
  return usable(value) != nullptr && value->value->is_tensor()
             ? static_cast<std::size_t>(value->value->description.rank)
             : 0;
}

const std::int64_t* backplane_value_dims(const backplane_value* value) {
  return usable(value) != nullptr && value->value->is_tensor() ? value->value->description.dims
                                                               : nullptr;
}

void* backplane_value_data(backplane_value* value) {
  return usable(value) != nullptr ? value->value->description.host_ptr : nullptr;
}

std::uint64_t backplane_value_bytes(const backplane_value* value) {
  return usable(value) != nullptr ? value->value->description.bytes : 0;
}

backplane_status* backplane_value_get_string(const backplane_value* value, std::uint64_t index,
                                             const char** data, std::uint64_t* size) {
  return guarded([&] {
    required(data, "data") = nullptr;
    required(size, "size") = 0;
    const std::vector<std::string>& strings = required(value, "value").value->strings;
    if (index >= strings.size())
      invalid("there is no string ", index, "; the value has ", strings.size());
    *data = strings[index].c_str();
    *size = strings[index].size();
  });
}

backplane_status* backplane_value_set_string(backplane_value* value, std::uint64_t index,
                                             const char* data, std::uint64_t size) {
  return guarded([&] {
    std::vector<std::string>& strings = required(value, "value").value->strings;
    if (index >= strings.size())
      invalid("there is no string ", index, "; the value has ", strings.size());
    if (size > 0) required(data, "data");
    strings[index].assign(data, size);
  });
}

backplane_status* backplane_value_read_strings(const backplane_value* value, std::uint64_t index,
                                               std::uint64_t count, std::uint64_t* ends, char* data,
                                               std::uint64_t bytes) {
  return guarded([&] {
    const std::span<std::string> strings = strings_of(required(value, "value"), index, count);
    if (count > 0) required(ends, "ends");
    std::uint64_t end = 0;
    for (std::size_t i = 0; i < strings.size(); ++i) ends[i] = end += strings[i].size();
    if (data == nullptr) return;
    if (end > bytes)
      invalid("the strings have ", end, " bytes together, and there is room for ", bytes);
    for (const std::string& string : strings) data += string.copy(data, string.size());
  });
}

backplane_status* backplane_value_write_strings(backplane_value* value, std::uint64_t index,
                                                std::uint64_t count, const std::uint64_t* ends,
                                                const char* data, std::uint64_t bytes) {
  return guarded([&] {
    const std::span<std::string> strings = strings_of(required(value, "value"), index, count);
    if (count > 0) required(ends, "ends");
    if (bytes > 0) required(data, "data");
    std::uint64_t begin = 0;
    for (std::size_t i = 0; i < strings.size(); begin = ends[i++]) {
      if (ends[i] < begin || ends[i] > bytes)
        invalid("string ", i, " is said to be from byte ", begin, " to ", ends[i], " of ", bytes);
    }
    begin = 0;
    for (std::size_t i = 0; i < strings.size(); begin = ends[i++])
      strings[i].assign(data + begin, ends[i] - begin);
  });
}

std::uint64_t backplane_value_element_count(const backplane_value* value) {
  return usable(value) != nullptr ? value->value->elements.size() : 0;
}

backplane_status* backplane_value_element(const backplane_value* value, std::uint64_t index,
                                          backplane_value** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    const auto& elements = required(value, "value").value->elements;
    if (index >= elements.size())
      invalid("there is no element ", index, "; the value has ", elements.size());
    auto made = std::make_unique<backplane_value>();
    made->value = elements[index];
    *out = made.release();
  });
}
