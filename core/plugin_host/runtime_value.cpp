#include "core/plugin_host/runtime_value.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <utility>

#include "core/base/error.hpp"
#include "core/plugin_host/spare_memory.hpp"

namespace backplane::core {
namespace {

/// A tensor of no elements, as the keys or values of a map that is empty yet: most maps are filled next, so that all
/// of them share one.
RuntimeValuePtr empty_part(DataType type) {
  thread_local std::map<DataType, RuntimeValuePtr> parts;
  RuntimeValuePtr& part = parts[type];
  if (part == nullptr) {
    auto made = std::make_shared<RuntimeValue>();
    made->set_owned_tensor(type, {0});
    made->is_element = true;
    part = std::move(made);
  }
  return part;
}

/// `dims` of a scalar: plugins need not ask whether the pointer is null.
constexpr std::int64_t kNoDims = 0;

/// Deletes host memory; how a shared_ptr's memory is known to be such, and how large it is.
struct FreeMemory {
  std::uint64_t bytes;
  void operator()(void* memory) const { SpareMemory::instance().give(memory, bytes); }
};

/// Null: there is not so much.
std::shared_ptr<void> make_memory(std::uint64_t bytes, std::uint64_t alignment) {
  std::uint64_t capacity = 0;
  void* memory = SpareMemory::instance().take(bytes, alignment, capacity);
  if (memory == nullptr) return nullptr;
  return {memory, FreeMemory{capacity}};
}

[[noreturn]] void throw_too_large(DataType type, const std::vector<std::int64_t>& dims,
                                  const std::string& size) {
  throw Error(Code::OutOfMemory, text("a tensor(", name(type), ") ", to_string(dims), " of ", size,
                                      " does not fit into memory"));
}

/// True when the memory is the host's, nobody else holds it, and it is large enough and aligned.
bool is_reusable(const std::shared_ptr<void>& memory, std::uint64_t bytes,
                 std::uint64_t alignment) {
  const auto* host = std::get_deleter<FreeMemory>(memory);
  return host != nullptr && host->bytes >= bytes && memory.use_count() == 1 &&
         reinterpret_cast<std::uintptr_t>(memory.get()) % alignment == 0;
}

/// What a value that is no tensor shows as its tensor. Copied whole: put together member by member it would be read back
/// before it is written.
constexpr bp_tensor kNoTensor = [] {
  bp_tensor tensor{};
  tensor.struct_size = sizeof(tensor);
  tensor.dims = &kNoDims;
  tensor.memory = BP_MEMORY_HOST;
  return tensor;
}();

}  // namespace

RuntimeValue::RuntimeValue() : bp_value{}, description{} {
  struct_size = sizeof(bp_value);
  tensor = &description;
  description = kNoTensor;
}

void RuntimeValue::set_absent() {
  kind = BP_VALUE_ABSENT;
  description = kNoTensor;
  elements.clear();
  strings.clear();
}

void RuntimeValue::give_back() {
  memory.reset();
  std::vector<std::string>().swap(strings);
  elements.clear();
}

void RuntimeValue::set_tensor(DataType type_of_elements,
                              const std::vector<std::int64_t>& new_dims) {
  const std::int64_t count = element_count(new_dims);
  const auto bytes = storage_bytes(type_of_elements, static_cast<std::uint64_t>(count));
  if (!bytes) {
    invalid("a tensor of type ", name(type_of_elements), " and shape ", to_string(new_dims),
            " is too large");
  }
  kind = BP_VALUE_TENSOR;
  dims = new_dims;
  elements.clear();
  strings.clear();
  description = kNoTensor;
  if (!dims.empty()) description.dims = dims.data();
  description.rank = static_cast<std::int32_t>(dims.size());
  description.dtype = static_cast<bp_dtype>(type_of_elements);
  description.bytes = type_of_elements == DataType::String ? 0 : *bytes;
}

void RuntimeValue::set_owned_tensor(DataType type_of_elements,
                                    const std::vector<std::int64_t>& new_dims,
                                    std::uint64_t alignment) {
  if (type_of_elements == DataType::String) {
    std::vector<std::string> reused = std::move(strings);
    set_tensor(type_of_elements, new_dims);
    strings = std::move(reused);
    const auto count = static_cast<std::size_t>(element_count(new_dims));
    try {
      strings.resize(count);
    } catch (const std::exception&) {  // no memory, or more than there could be
      throw_too_large(type_of_elements, new_dims, text(count, " strings"));
    }
    for (std::string& string : strings) string.clear();
    return;
  }
  set_tensor(type_of_elements, new_dims);
  if (!is_reusable(memory, description.bytes, alignment)) {
    memory.reset();
    memory = make_memory(std::max<std::uint64_t>(description.bytes, 1), alignment);
    if (memory == nullptr)
      throw_too_large(type_of_elements, new_dims, text(description.bytes, " bytes"));
  }
  description.host_ptr = memory.get();
}

bool RuntimeValue::has_own_memory(std::uint64_t bytes) const {
  const auto* host = std::get_deleter<FreeMemory>(memory);
  return host != nullptr && host->bytes <= bytes && memory.use_count() == 1;
}

void RuntimeValue::set_constant(const Constant& constant) {
  set_tensor(constant.type(), constant.dims());
  if (constant.type() == DataType::String) {
    strings = constant.strings();
  } else {
    // Plugins do not write inputs; the ABI's tensor has one pointer for both uses.
    description.host_ptr = const_cast<std::byte*>(constant.bytes().data());
  }
}

void RuntimeValue::set_type(const Type& new_type) {
  if (new_type.kind != Type::Kind::Sequence && new_type.kind != Type::Kind::Optional &&
      new_type.kind != Type::Kind::Map) {
    throw Error(Code::Internal,
                text("'", new_type.to_string(), "' is no sequence, optional or map"));
  }
  if (&new_type != &type) type = new_type;
  elements.clear();
  strings.clear();
  description = kNoTensor;
  kind = BP_VALUE_SEQUENCE;
  if (type.kind == Type::Kind::Optional) kind = BP_VALUE_OPTIONAL;
  if (type.kind != Type::Kind::Map) return;
  kind = BP_VALUE_MAP;
  elements.resize(2);
  elements[0] = empty_part(type.element);
  if (type.inner != nullptr && !type.inner->is_tensor()) {
    elements[1] = std::make_shared<RuntimeValue>();
    elements[1]->set_type(Type{Type::Kind::Sequence, DataType::None, std::nullopt, type.inner});
    elements[1]->is_element = true;
  } else {
    elements[1] = empty_part(type.inner != nullptr ? type.inner->element : DataType::Float);
  }
}

ConstantPtr RuntimeValue::to_constant() const {
  if (!is_tensor()) throw Error(Code::Internal, "a value that is no tensor cannot be a constant");
  if (element() == DataType::String) return std::make_shared<const Constant>(dims, strings);
  if (description.strides == nullptr &&
      (description.host_ptr != nullptr || description.bytes == 0)) {
    return Constant::copy_of(element(), dims,
                             {static_cast<const std::byte*>(description.host_ptr),
                              static_cast<std::size_t>(description.bytes)});
  }
  std::vector<std::byte> dense(static_cast<std::size_t>(description.bytes));
  copy_dense(description, dense.data());
  return Constant::copy_of(element(), dims, dense);
}

void copy_dense(const bp_tensor& tensor, std::byte* to) {
  if (tensor.bytes == 0) return;
  const auto* from = static_cast<const std::byte*>(tensor.host_ptr);
  if (from == nullptr) invalid("the tensor is not in host memory");
  if (tensor.format != BP_FORMAT_PLAIN) invalid("the tensor is in a provider's own format");
  if (tensor.strides == nullptr) {
    std::memcpy(to, from, static_cast<std::size_t>(tensor.bytes));
    return;
  }
  const int bits = element_bits(static_cast<DataType>(tensor.dtype));
  if (bits % 8 != 0) invalid("a tensor of packed elements cannot have strides");
  const auto size = static_cast<std::size_t>(bits / 8);
  const auto rank = static_cast<std::size_t>(tensor.rank);
  std::vector<std::int64_t> at(rank);
  std::int64_t offset = 0;  // of the element at `at`, in elements
  for (std::uint64_t done = 0; done < tensor.bytes; done += size) {
    std::memcpy(to + done, from + offset * static_cast<std::int64_t>(size), size);
    for (std::size_t axis = rank; axis-- > 0;) {
      offset += tensor.strides[axis];
      if (++at[axis] < tensor.dims[axis]) break;
      offset -= at[axis] * tensor.strides[axis];
      at[axis] = 0;
    }
  }
}

}  // namespace backplane::core
