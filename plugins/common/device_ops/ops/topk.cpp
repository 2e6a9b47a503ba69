// TopK: https://onnx.ai/onnx/operators/onnx__TopK.html
#include <algorithm>
#include <bit>
#include <limits>

#include "op_table.hpp"
#include "plugins/common/device_ops/types.hpp"
#include "plugins/common/device_ops/walk.hpp"
#include "plugins/common/kernels/selection.hpp"

namespace backplane::device_ops {
namespace {

/// Each line is gone through once; what is better than the last of the k found so far is put in its place.
constexpr char kBody[] = R"kernel(
  x += i1 * n * inner + i0;
  y += i1 * k * inner + i0;
  at += i1 * k * inner + i0;
  i64 found = 0;
  for (i64 j = 0; j < n; ++j) {
    VALUE(T) v = LOAD(T, x, j * inner);
    if (found == k && !(BETTER(v, LOAD(T, y, (k - 1) * inner)))) continue;
    i64 place = found < k ? found : k - 1;
    for (; place > 0 && (BETTER(v, LOAD(T, y, (place - 1) * inner))); --place) {
      y[place * inner] = y[(place - 1) * inner];
      at[place * inner] = at[(place - 1) * inner];
    }
    STORE(T, y, place * inner, v);
    at[place * inner] = j;
    if (found < k) ++found;
  }
)kernel";

/// Lines of `n` elements, `inner` apart, along the axis, of which the `k` best are asked for.
struct Lines {
  std::int64_t outer, n, inner, k;
  std::int64_t count() const { return outer * inner; }
};

/// What a group has room to sort.
constexpr std::int64_t kMostSorted = 1024;

/// Whether a group is given to each line: not to short ones, nor where the lines, side by side in memory, fill a device.
bool shares_lines(const Device& device, const Lines& lines) {
  constexpr std::int64_t kShort = 16, kManyLines = 1 << 14;
  return shares_rows(device) && lines.n > kShort &&
         lines.n < std::numeric_limits<std::int32_t>::max() &&
         !(lines.inner > 1 && lines.count() >= kManyLines);
}

/// A group's items and its part of a line. Long lines are divided among groups while these are few, into parts in which the
/// k best are few.
RowForm form_of(const Device& device, std::int64_t rows, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kManyGroups = 256, kLeastPart = 2048, kPartOverK = 8;
  constexpr std::int64_t kElementsOfItem = 4, kLeastItems = 32, kMostItems = 256;
  RowForm form;
  form.rows = rows;
  form.n = form.part_n = n;
  const std::int64_t least = std::max(kLeastPart, kPartOverK * k);
  const std::int64_t parts = std::min(kManyGroups / rows, n / least);
  if (parts > 1) {
    form.part_n = ceil_divide(n, parts);
    form.parts = ceil_divide(n, form.part_n);
  }
  const auto most = static_cast<std::int64_t>(std::bit_floor(device.limits().max_group_items));
  form.group_items = std::min(
      most, std::clamp(power_from(form.part_n / kElementsOfItem), kLeastItems, kMostItems));
  form.lanes = form.group_items;
  return form;
}

/// The unsigned type of an element's bits, and that of its key in kernels/selection.hpp.
DataType bits_type(DataType type) {
  switch (sdk::element_bits(type)) {
    case 8:
      return DataType::UInt8;
    case 16:
      return DataType::UInt16;
    case 32:
      return DataType::UInt32;
    default:
      return DataType::UInt64;
  }
}

DataType key_type(DataType type) {
  return sdk::element_bits(type) == 64 ? DataType::UInt64 : DataType::UInt32;
}

/// The bits of infinity.
const char* infinity_of(DataType type) {
  switch (type) {
    case DataType::Double:
      return "0x7ff0000000000000ull";
    case DataType::Float16:
      return "0x7c00u";
    case DataType::BFloat16:
      return "0x7f80u";
    default:
      return "0x7f800000u";
  }
}

class SharedTopK {
 public:
  SharedTopK(const Lines& lines, DataType type, bool largest)
      : lines_(lines), type_(type), largest_(largest) {}

  /// Returns the bytes of workspace that it takes.
  std::uint64_t add_to(Work& work) const {
    const RowForm form = form_of(work.device(), lines_.count(), lines_.n, lines_.k);
    if (form.parts == 1) {
      add(work, form, 0, walk());
      return 0;
    }
    // 8 bytes for each key: what follows them is aligned as memory is.
    const std::int64_t found = form.part_count() * lines_.k;
    const std::uint64_t alignment = work.device().limits().alignment;
    const std::uint64_t key_bytes =
        (static_cast<std::uint64_t>(found) * sizeof(std::uint64_t) + alignment - 1) / alignment *
        alignment;
    const MemoryRef keys = workspace(), places = workspace(key_bytes);
    Walk first(Dims{1});
    first.in("x", input(0), bits_type(type_));
    first.out("found_keys", keys, key_type(type_)).out("found_places", places, DataType::UInt32);
    add(work, form, 1, first);
    Walk second = walk();
    second.in("found_keys", keys, key_type(type_)).in("found_places", places, DataType::UInt32);
    RowForm met = form_of(work.device(), lines_.count(), form.parts * lines_.k, lines_.k);
    met.parts = 1;
    met.part_n = met.n;
    add(work, met, 2, second);
    return key_bytes + static_cast<std::uint64_t>(found) * sizeof(std::uint32_t);
  }

 private:
  /// With what every launch that writes the results has.
  Walk walk() const {
    Walk made(Dims{1});
    made.in("x", input(0), bits_type(type_)).out("y", output(0), bits_type(type_));
    made.out("at", output(1), DataType::Int64);
    return made;
  }

  void add(Work& work, const RowForm& form, int phase, Walk walk) const {
    const bool selects = phase == 1 || form.n > kMostSorted ||
                         (form.n > kSortedAtOnce && lines_.k * kPartOfRow < form.n);
    const std::int64_t padded = power_from(selects ? lines_.k : form.n);
    walk.number("k", lines_.k).number("inner", lines_.inner).number("length", lines_.n);
    walk.number("padded", padded).number("digits", digits());
    walk.define("T", type_code(bits_type(type_))).define("KEY", type_code(key_type(type_)));
    walk.define("BITS", sdk::element_bits(type_)).define("IS_LARGEST", largest_ ? 1 : 0);
    walk.define("IS_FLOAT", is_float(type_) ? 1 : 0).define("INFINITE", infinity_of(type_));
    walk.define("IS_SIGNED", is_signed() ? 1 : 0).define("PHASE", phase);
    walk.define("SELECTS", selects ? 1 : 0);
    // Of few sizes, so that nodes share programs.
    walk.define("SIZE", padded <= 64 ? 64 : padded <= 256 ? 256 : kMostSorted);
    walk.functions = common::kSelectionKeys;
    walk.body = common::kTopRow;
    walk.add_to(work, form, lines_.count() * lines_.n);
  }

  /// Those of a key and of a place; what fills up has the place that would be last of them all.
  std::int64_t digits() const {
    constexpr int kBitsOfDigit = 8;
    const auto bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(lines_.n)));
    return sdk::element_bits(type_) / kBitsOfDigit + ceil_divide(bits, kBitsOfDigit);
  }

  bool is_signed() const {
    return type_ == DataType::Int8 || type_ == DataType::Int16 || type_ == DataType::Int32 ||
           type_ == DataType::Int64;
  }

  /// Lines as short as that are sorted wholly, and longer ones of which one element in kPartOfRow is asked for.
  static constexpr std::int64_t kSortedAtOnce = 256, kPartOfRow = 4;
  Lines lines_;
  DataType type_;
  bool largest_;
};

class TopK {
 public:
  TopK(const Device&, const sdk::Node& node)
      : axis_(node.get_int("axis", -1)),
        largest_(node.get_int("largest", 1) != 0),
        k_(node.get_int("k", -1)) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    const int axis = normalize_axis(axis_, x.rank());
    if (ctx.input(1).present() && ctx.input(1).size() != 1)
      sdk::invalid("TopK: K has ", ctx.input(1).size(), " elements, not 1");
    const std::int64_t k = ctx.input(1).present() ? ctx.input(1).to_ints()[0] : k_;
    const std::int64_t n = x.dim(axis);
    if (k < 0 || k > n) sdk::invalid("TopK of ", k, " of ", n, " elements");
    // Past this the time of an item that has a line to itself grows with the product of both, and a group has no room.
    if (k > kMostSorted)
      sdk::unsupported("TopK of ", k, " elements; the kernel takes ", kMostSorted);
    Dims dims(x.dims().begin(), x.dims().end());
    dims[static_cast<std::size_t>(axis)] = k;
    ctx.set_output(0, x.type(), dims);
    ctx.set_output(1, DataType::Int64, dims);
    const std::int64_t inner = common::product(x.dims(), axis + 1, x.rank());
    const Lines lines{common::product(x.dims(), 0, axis), n, inner, k};
    if (k == 0 || lines.count() == 0) return;
    if (shares_lines(work.device(), lines)) {
      const std::uint64_t bytes = SharedTopK(lines, x.type(), largest_).add_to(work);
      if (bytes > 0) ctx.set_workspace(bytes, work.device().limits().alignment);
      return;
    }
    Walk walk(Dims{lines.outer, inner});
    walk.in("x", input(0), x.type()).out("y", output(0), x.type());
    walk.out("at", output(1), DataType::Int64).number("n", n).number("k", k).number("inner", inner);
    walk.define("T", type_code(x.type()));
    // NaN counts as greater than every number.
    walk.define("BETTER(a, b)", largest_ ? "(a) > (b) || ((a) != (a) && (b) == (b))"
                                         : "(a) < (b) || ((b) != (b) && (a) == (a))");
    walk.body = kBody;
    walk.add_to(work);
  }

 private:
  std::int64_t axis_;
  bool largest_;
  std::int64_t k_;
};

}  // namespace

KernelList topk_kernels() {
  return {device_kernel<TopK>(sdk::op("TopK")
                                  .name(kernel_name("topk"))
                                  .types("T", number_types())
                                  .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE}))};
}

}  // namespace backplane::device_ops
