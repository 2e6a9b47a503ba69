// https://onnx.ai/onnx/repo-docs/IR.html, TensorProto in onnx.proto
#include "core/onnx/tensors.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"
#include "core/graph/type.hpp"

namespace backplane::core {
namespace {

using ::onnx::TensorProto;

constexpr std::uint64_t kLargestDense = 256ull << 20;

std::vector<std::int64_t> dims_of(const TensorProto& tensor) {
  return {tensor.dims().begin(), tensor.dims().end()};
}

std::span<const std::byte> bytes_of(const std::string& raw) {
  return std::as_bytes(std::span<const char>(raw.data(), raw.size()));
}

/// The field that holds the contents of a type when raw_data does not; each value of it becomes `Stored`.
template <class Stored, class Values>
ConstantPtr convert(const Values& values, DataType type, std::vector<std::int64_t> dims,
                    std::uint64_t values_needed) {
  if (static_cast<std::uint64_t>(values.size()) != values_needed) {
    invalid("its type and shape, ", name(type), to_string(dims), ", take ", values_needed,
            " values, but it has ", values.size());
  }
  auto stored = std::make_shared<std::vector<Stored>>();
  stored->reserve(static_cast<std::size_t>(values.size()));
  for (const auto value : values) stored->push_back(static_cast<Stored>(value));
  const auto bytes = std::as_bytes(std::span<const Stored>(*stored));
  return std::make_shared<const Constant>(type, std::move(dims), bytes, std::move(stored));
}

/// Booleans are read as bool, which knows only 0 and 1.
ConstantPtr canonical_bools(std::vector<std::int64_t> dims, std::span<const std::byte> bytes) {
  std::vector<std::byte> values(bytes.begin(), bytes.end());
  for (std::byte& value : values) value = value == std::byte{0} ? std::byte{0} : std::byte{1};
  return Constant::copy_of(DataType::Bool, std::move(dims), values);
}

ConstantPtr read_typed(const TensorProto& tensor, DataType type, std::vector<std::int64_t> dims) {
  const auto count = static_cast<std::uint64_t>(element_count(dims));
  const auto bytes = storage_bytes(type, count).value_or(0);
  switch (type) {
    case DataType::Float:
      return convert<float>(tensor.float_data(), type, std::move(dims), count);
    case DataType::Complex64:
      return convert<float>(tensor.float_data(), type, std::move(dims), count * 2);
    case DataType::Double:
      return convert<double>(tensor.double_data(), type, std::move(dims), count);
    case DataType::Complex128:
      return convert<double>(tensor.double_data(), type, std::move(dims), count * 2);
    case DataType::Int64:
      return convert<std::int64_t>(tensor.int64_data(), type, std::move(dims), count);
    case DataType::UInt32:
      return convert<std::uint32_t>(tensor.uint64_data(), type, std::move(dims), count);
    case DataType::UInt64:
      return convert<std::uint64_t>(tensor.uint64_data(), type, std::move(dims), count);
    case DataType::Int32:
      return convert<std::int32_t>(tensor.int32_data(), type, std::move(dims), count);
    default:
      break;
  }
  // The rest is in int32_data: 16-bit types one a value, 8-bit types one a value, smaller ones a packed byte a value.
  if (element_bits(type) == 16) {
    return convert<std::uint16_t>(tensor.int32_data(), type, std::move(dims), count);
  }
  ConstantPtr result = convert<std::uint8_t>(tensor.int32_data(), type, std::move(dims), bytes);
  return type == DataType::Bool ? canonical_bools(result->dims(), result->bytes()) : result;
}

/// ONNX allows one field with contents. Zero-size tensors may have none.
void check_single_contents(const TensorProto& tensor) {
  const bool filled[] = {tensor.has_segment(),
                         tensor.has_raw_data() && !tensor.raw_data().empty(),
                         tensor.float_data_size() > 0,
                         tensor.int32_data_size() > 0,
                         tensor.string_data_size() > 0,
                         tensor.int64_data_size() > 0,
                         tensor.double_data_size() > 0,
                         tensor.uint64_data_size() > 0,
                         tensor.data_location() == TensorProto::EXTERNAL};
  if (std::count(std::begin(filled), std::end(filled), true) > 1) {
    invalid(
        "its contents are given in more than one way; one of raw_data, the typed fields and "
        "external data is allowed");
  }
}

/// Row-major position of an entry of a sparse tensor, from a linear index or one coordinate per dimension.
std::int64_t position_of(const std::int64_t* index, std::size_t coordinates,
                         const std::vector<std::int64_t>& dims, std::int64_t count) {
  if (coordinates == 0) {
    if (*index < 0 || *index >= count)
      invalid("its index ", *index, " is outside of shape ", to_string(dims));
    return *index;
  }
  std::int64_t position = 0;
  for (std::size_t i = 0; i < coordinates; ++i) {
    if (index[i] < 0 || index[i] >= dims[i]) {
      invalid("its index ", index[i], " is outside of dimension ", i, " of shape ",
              to_string(dims));
    }
    position = position * dims[i] + index[i];
  }
  return position;
}

}  // namespace

DataType to_data_type(int onnx_type) {
  constexpr int kLast = static_cast<int>(DataType::Int2);
  if (onnx_type > 0 && onnx_type <= kLast) return static_cast<DataType>(onnx_type);
  if (onnx_type == 0) invalid("its element type is undefined");
  throw Error(Code::Unsupported, text("its element type is number ", onnx_type,
                                      " of TensorProto.DataType, which this "
                                      "build does not know; known are 1 to ",
                                      kLast));
}

bool has_inline_contents(const TensorProto& tensor) {
  return !tensor.has_segment() && tensor.data_location() != TensorProto::EXTERNAL;
}

ConstantPtr TensorReader::read_contents(const TensorProto& tensor) {
  const DataType type = to_data_type(tensor.data_type());
  std::vector<std::int64_t> dims = dims_of(tensor);
  const std::int64_t count = element_count(dims);
  check_single_contents(tensor);
  if (tensor.data_location() == TensorProto::EXTERNAL) {
    ConstantPtr found = external_.read(tensor, type, std::move(dims));
    if (type == DataType::Bool) return canonical_bools(found->dims(), found->bytes());
    return found;
  }
  if (type == DataType::String) {
    if (tensor.has_raw_data() || tensor.has_segment())
      invalid("strings must be in string_data, not in raw_data");
    return std::make_shared<const Constant>(
        std::move(dims),
        std::vector<std::string>(tensor.string_data().begin(), tensor.string_data().end()));
  }
  std::span<const std::byte> bytes;
  if (tensor.has_segment() && !contents_.empty())
    return contents_.at(static_cast<std::size_t>(tensor.segment().begin()));
  if (tensor.has_segment()) {
    const auto begin = static_cast<std::uint64_t>(tensor.segment().begin());
    const auto end = static_cast<std::uint64_t>(tensor.segment().end());
    if (begin > end || end > model_.size()) invalid("its contents lie outside of the model");
    bytes = model_.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    if (type == DataType::Bool) return canonical_bools(std::move(dims), bytes);
    return std::make_shared<const Constant>(type, std::move(dims), bytes, owner_);
  }
  if (tensor.has_raw_data() && (count == 0 || !tensor.raw_data().empty())) {
    bytes = bytes_of(tensor.raw_data());
    if (type == DataType::Bool) return canonical_bools(std::move(dims), bytes);
    return Constant::copy_of(type, std::move(dims), bytes);
  }
  return read_typed(tensor, type, std::move(dims));
}

ConstantPtr TensorReader::read(const TensorProto& tensor, const std::string& what) {
  try {
    return read_contents(tensor);
  } catch (const Error& error) {
    throw error.within(what);
  }
}

ConstantPtr TensorReader::initializer(const TensorProto& tensor) {
  ConstantPtr& constant = initializers_[&tensor];
  if (!constant) constant = read(tensor, "initializer " + quoted(tensor.name()));
  return constant;
}

ConstantPtr TensorReader::read_sparse(const ::onnx::SparseTensorProto& tensor) {
  if (tensor.values().has_segment() || tensor.indices().has_segment())
    invalid("a sparse tensor has segments");
  const ConstantPtr values = read_contents(tensor.values());
  const std::vector<std::int64_t> dims(tensor.dims().begin(), tensor.dims().end());
  const std::int64_t count = element_count(dims);
  const std::int64_t entries = values->element_count();
  const auto bytes = storage_bytes(values->type(), static_cast<std::uint64_t>(count));
  if (values->type() == DataType::String || element_bits(values->type()) < 8) {
    throw Error(Code::Unsupported, text("sparse tensors of ", name(values->type()),
                                        " are not supported; store it dense"));
  }
  if (!bytes || *bytes > kLargestDense) {
    throw Error(Code::Unsupported,
                text("made dense, its shape ", to_string(dims), " would take more than ",
                     kLargestDense >> 20, " MiB; sparse kernels do not exist here"));
  }
  if (values->dims().size() != 1) invalid("the values of a sparse tensor must have one dimension");
  std::vector<std::byte> dense(static_cast<std::size_t>(*bytes));
  if (entries > 0) {
    const ConstantPtr indices = read_contents(tensor.indices());
    const bool linear = indices->dims().size() == 1;
    const std::size_t coordinates = linear ? 0 : dims.size();
    const std::vector<std::int64_t> pairs = {entries, static_cast<std::int64_t>(dims.size())};
    if (indices->type() != DataType::Int64 ||
        indices->dims() != (linear ? std::vector<std::int64_t>{entries} : pairs)) {
      invalid("the indices of a sparse tensor must be int64", to_string(pairs), " or int64[",
              entries, "]");
    }
    const auto size = static_cast<std::size_t>(element_bits(values->type()) / 8);
    std::vector<std::int64_t> index(indices->bytes().size() / sizeof(std::int64_t));
    std::memcpy(index.data(), indices->bytes().data(), indices->bytes().size());
    for (std::int64_t i = 0; i < entries; ++i) {
      const auto entry = static_cast<std::size_t>(i);
      const std::int64_t position = position_of(
          &index[entry * std::max<std::size_t>(1, coordinates)], coordinates, dims, count);
      std::memcpy(&dense[static_cast<std::size_t>(position) * size], &values->bytes()[entry * size],
                  size);
    }
  }
  return Constant::copy_of(values->type(), dims, dense);
}

ConstantPtr TensorReader::read(const ::onnx::SparseTensorProto& tensor, const std::string& what) {
  try {
    return read_sparse(tensor);
  } catch (const Error& error) {
    throw error.within(what);
  }
}

TensorProto to_proto(const Constant& constant, const std::string& name) {
  TensorProto tensor;
  if (!name.empty()) tensor.set_name(name);
  tensor.set_data_type(static_cast<int>(constant.type()));
  for (const std::int64_t dim : constant.dims()) tensor.add_dims(dim);
  if (constant.type() == DataType::String) {
    for (const std::string& string : constant.strings()) tensor.add_string_data(string);
  } else {
    const auto bytes = constant.stored_bytes();
    tensor.set_raw_data(bytes.data(), bytes.size());
  }
  return tensor;
}

}  // namespace backplane::core
