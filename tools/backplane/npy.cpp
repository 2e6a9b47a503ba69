#include "tools/backplane/npy.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "tools/backplane/elements.hpp"
#include "tools/backplane/failure.hpp"
#include "tools/backplane/input_file.hpp"
#include "tools/backplane/npy_header.hpp"

namespace backplane::cli {
namespace {

struct Descr {
  ElementType type;
  const char* code;  ///< without the byte order
};

constexpr std::array<Descr, 14> kDescrs = {{
    {ElementType::Float, "f4"},
    {ElementType::Double, "f8"},
    {ElementType::Float16, "f2"},
    {ElementType::Bool, "b1"},
    {ElementType::Int8, "i1"},
    {ElementType::Int16, "i2"},
    {ElementType::Int32, "i4"},
    {ElementType::Int64, "i8"},
    {ElementType::UInt8, "u1"},
    {ElementType::UInt16, "u2"},
    {ElementType::UInt32, "u4"},
    {ElementType::UInt64, "u8"},
    {ElementType::Complex64, "c8"},
    {ElementType::Complex128, "c16"},
}};

/// What the elements of a file are.
struct Layout {
  ElementType type = ElementType::None;
  std::uint64_t item_bytes = 0;
  std::uint64_t swap_bytes = 1;  ///< bytes of the units whose order is to be reversed; 1: none
  char kind = '\0';              ///< 'U' and 'S': text and bytes of item_bytes
};

std::optional<std::uint64_t> decimal(const std::string& digits) {
  if (digits.empty() || digits.size() > 9 ||
      digits.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  return std::stoull(digits);
}

Layout layout_of(const std::string& descr, ElementType expected, const std::string& file) {
  Layout layout;
  const bool is_known = descr.size() >= 3 && std::strchr("<>|=", descr[0]) != nullptr;
  const bool is_big = is_known && descr[0] == '>';
  const std::string code = is_known ? descr.substr(1) : descr;
  for (const Descr& row : kDescrs) {
    if (code != row.code) continue;
    layout.type = row.type;
    layout.item_bytes = static_cast<std::uint64_t>(element_bits(row.type)) / 8;
    if (is_big)
      layout.swap_bytes = is_complex(row.type) ? layout.item_bytes / 2 : layout.item_bytes;
    return layout;
  }
  const std::optional<std::uint64_t> length = is_known ? decimal(code.substr(1)) : std::nullopt;
  if (length && *length > 0 && (code[0] == 'U' || code[0] == 'S')) {
    const std::uint64_t unit = code[0] == 'U' ? 4 : 1;
    return {ElementType::String, *length * unit, is_big ? unit : 1, code[0]};
  }
  const bool is_numpys = std::any_of(kDescrs.begin(), kDescrs.end(),
                                     [&](const Descr& row) { return row.type == expected; });
  if (length && code[0] == 'V' && !is_numpys && *length > 0 &&
      *length * 8 == static_cast<std::uint64_t>(element_bits(expected))) {
    return {expected, *length, 1, 'V'};
  }
  if (descr == "|O")
    wrong_request(file, " holds Python objects, not numbers or text; save it with another dtype");
  wrong_request(file, " holds elements of numpy type '", one_line(descr).substr(0, 60),
                "', which no tensor has here; give such a tensor as a .pb file");
}

/// Reverses the bytes of each unit.
void swap_units(char* data, std::uint64_t bytes, std::uint64_t unit) {
  for (std::uint64_t i = 0; i + unit <= bytes; i += unit) std::reverse(data + i, data + i + unit);
}

/// Copies items from column-major to row-major order.
void transpose_items(const char* from, char* to, const std::vector<std::int64_t>& dims,
                     std::uint64_t item_bytes) {
  const std::size_t rank = dims.size();
  std::vector<std::uint64_t> strides(rank);
  std::uint64_t count = 1;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    strides[axis] = count;
    count *= static_cast<std::uint64_t>(dims[axis]);
  }
  std::vector<std::int64_t> at(rank);
  std::uint64_t source = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * item_bytes, from + source * item_bytes, item_bytes);
    for (std::size_t axis = rank; axis-- > 0;) {
      source += strides[axis];
      if (++at[axis] < dims[axis]) break;
      source -= strides[axis] * static_cast<std::uint64_t>(dims[axis]);
      at[axis] = 0;
    }
  }
}

void append_utf8(std::string& to, std::uint32_t point) {
  if (point < 0x80) {
    to += static_cast<char>(point);
  } else if (point < 0x800) {
    to += static_cast<char>(0xC0 | (point >> 6));
    to += static_cast<char>(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    to += static_cast<char>(0xE0 | (point >> 12));
    to += static_cast<char>(0x80 | ((point >> 6) & 0x3F));
    to += static_cast<char>(0x80 | (point & 0x3F));
  } else {
    to += static_cast<char>(0xF0 | ((point >> 18) & 0x07));
    to += static_cast<char>(0x80 | ((point >> 12) & 0x3F));
    to += static_cast<char>(0x80 | ((point >> 6) & 0x3F));
    to += static_cast<char>(0x80 | (point & 0x3F));
  }
}

/// An item of text, without the zeros that fill it up.
std::string item_text(const char* item, const Layout& layout) {
  std::string result;
  if (layout.kind == 'S') {
    result.assign(item, layout.item_bytes);
    result.erase(result.find_last_not_of('\0') + 1);
    return result;
  }
  std::uint64_t units = layout.item_bytes / 4;
  const auto point = [&](std::uint64_t i) {
    std::uint32_t value = 0;
    std::memcpy(&value, item + i * 4, 4);
    return value;
  };
  while (units > 0 && point(units - 1) == 0) --units;
  for (std::uint64_t i = 0; i < units; ++i) append_utf8(result, point(i));
  return result;
}

std::string read_header(InputFile& file) {
  std::array<unsigned char, 12> start{};
  const auto truncated = [&] {
    wrong_request(file.name(), " is no valid .npy file: it ends within its header");
  };
  const std::size_t got = file.read(start.data(), 8);
  if (got == 0) wrong_request(file.name(), " is empty");
  if (std::memcmp(start.data(), "\x93NUMPY", std::min<std::size_t>(got, 6)) != 0) {
    wrong_request(file.name(), " is no .npy file: it does not start as one");
  }
  if (got < 8) truncated();
  const int version = start[6];
  if (version < 1 || version > 3)
    wrong_request(file.name(), " has version ", version, " of the .npy format; known are 1 to 3");
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  if (file.read(start.data(), length_bytes) < length_bytes) truncated();
  std::size_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;) length = length * 256 + start[i];
  if (length > (1u << 20))
    wrong_request(file.name(), " is no valid .npy file: a header of ", length, " bytes");
  std::string header(length, '\0');
  if (file.read(header.data(), length) < length) truncated();
  return header;
}

/// Bytes that the elements take; fails where the shape and the file's size contradict each other.
std::uint64_t data_bytes(const NpyHeader& header, const Layout& layout, const InputFile& file) {
  constexpr std::uint64_t kLimit = std::uint64_t{1} << 62;
  std::uint64_t bytes = layout.item_bytes;
  const bool is_empty =
      std::find(header.shape.begin(), header.shape.end(), 0) != header.shape.end();
  for (const std::int64_t dim : header.shape) {
    const auto size = static_cast<std::uint64_t>(dim);
    if (!is_empty && bytes != 0 && size > kLimit / bytes) {
      wrong_request(file.name(), " has the shape ", shape_text(header.shape),
                    ", larger than any file");
    }
    bytes = is_empty ? 0 : bytes * size;
  }
  const std::optional<std::uint64_t> held = file.remaining();
  if (held && *held != bytes) {
    wrong_request(file.name(), " holds ", *held, " bytes of elements, its shape ",
                  shape_text(header.shape), " needs ", bytes);
  }
  return bytes;
}

}  // namespace

Value read_npy(const std::filesystem::path& path, ElementType expected, const HeaderCheck& check) {
  InputFile file(path);
  const NpyHeader header = parse_npy_header(read_header(file), file.name());
  const Layout layout = layout_of(header.descr, expected, file.name());
  const std::uint64_t bytes = data_bytes(header, layout, file);
  if (check) check(layout.type, header.shape);
  const bool is_text = layout.type == ElementType::String;

  Value value = Value::tensor(layout.type, header.shape);
  const bool is_transposed = header.fortran_order && header.shape.size() > 1;
  std::vector<char> staged(is_text || is_transposed ? bytes : 0);
  char* data = staged.empty() ? static_cast<char*>(value.mutable_bytes()) : staged.data();
  if (bytes > 0 && file.read(data, bytes) < bytes)
    wrong_request(file.name(), " ends before its last element");
  char extra = 0;
  if (file.read(&extra, 1) != 0) wrong_request(file.name(), " goes on after its last element");
  if (layout.swap_bytes > 1) swap_units(data, bytes, layout.swap_bytes);
  if (is_transposed && bytes > 0) {
    std::vector<char> dense(is_text ? bytes : 0);
    char* to = is_text ? dense.data() : static_cast<char*>(value.mutable_bytes());
    transpose_items(data, to, header.shape, layout.item_bytes);
    if (is_text) staged.swap(dense);
  }
  for (std::uint64_t i = 0; is_text && i < value.size(); ++i) {
    value.set_string(i, item_text(staged.data() + i * layout.item_bytes, layout));
  }
  return value;
}

bool npy_holds(ElementType type) {
  return std::any_of(kDescrs.begin(), kDescrs.end(),
                     [&](const Descr& row) { return row.type == type; });
}

void write_npy(const ValueView& value, const Append& append) {
  const ElementType type = value.element_type();
  const auto* row =
      std::find_if(kDescrs.begin(), kDescrs.end(), [&](const Descr& r) { return r.type == type; });
  const std::string order = element_bits(type) == 8 ? "|" : "<";
  const std::string header = make_npy_header({order + row->code, false, value.dims()});
  append(header.data(), header.size());
  append(value.bytes(), value.byte_count());
}

}  // namespace backplane::cli
