// The optional interface "bp.import_memory": an imported buffer is the very memory whose native handle was given, at the
// offsets that count from its beginning; what cannot be is refused with a reason; its end leaves the memory as it is. The
// memory is a buffer of the device's own, by the handle that it shows to guests.
#include <algorithm>
#include <limits>

#include "backplane/plugin_api/optional/import_memory.h"
#include "tools/backplane/check/device_work.hpp"
#include "tools/backplane/failure.hpp"

namespace backplane::cli::check {
namespace {

/// What a device that imports memory is asked by.
struct Imports {
  const OpenDevice& device;
  const bp_import_memory& table;
};

/// A buffer of the device's, as the program's own memory: its number and its size.
class Made {
 public:
  Made(const Imports& imports, std::uint64_t bytes) : device_(imports.device), bytes_(bytes) {
    enter("buffer_alloc");
    need([&] {
      return device_->buffer_alloc(device_.raw(), BP_MEMORY_DEVICE, bytes,
                                   device_.alignment(BP_MEMORY_DEVICE), &raw_);
    });
  }
  ~Made() { device_->buffer_free(device_.raw(), raw_); }
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;

  bp_buffer* raw() const { return raw_; }
  std::uint64_t bytes() const { return bytes_; }
  /// Throws Refused where the device shows none.
  std::uint64_t number() const {
    std::uint64_t number = 0;
    if (!BP_HAS_FN(bp_device_api, device_.operator->(), native))
      throw Refused{"it shows no native handles of memory, by which this could be tried"};
    enter("native of BP_NATIVE_BUFFER");
    const Outcome outcome = ask(
        [&] { return device_->native(device_.raw(), BP_NATIVE_BUFFER, nullptr, raw_, &number); });
    if (!outcome.is_ok()) throw Refused{"it shows no native handle of memory: " + outcome.message};
    return number;
  }

 private:
  const OpenDevice& device_;
  std::uint64_t bytes_;
  bp_buffer* raw_ = nullptr;
};

class Imported {
 public:
  Imported(const Imports& imports, std::uint64_t number, std::uint64_t offset, std::uint64_t bytes)
      : imports_(imports) {
    enter(text("buffer_import of ", bytes, " bytes from byte ", offset, " on"));
    std::int32_t access = 0;
    const Outcome outcome = ask([&] {
      return imports.table.buffer_import(imports.device.raw(), number, offset, bytes, &access,
                                         &raw_);
    });
    if (outcome.code == BP_UNSUPPORTED && !outcome.message.empty()) throw Refused{outcome.message};
    if (!outcome.is_ok()) throw Broken(current_step() + " failed: " + described(outcome));
    if (raw_ == nullptr) throw Broken(current_step() + " succeeds and gives no buffer");
    if (access != (BP_IMPORT_READ | BP_IMPORT_WRITE))
      throw Broken(text(current_step(), " gives access ", access, " to memory that it allocated"));
  }
  ~Imported() { imports_.table.buffer_release(imports_.device.raw(), raw_); }
  Imported(const Imported&) = delete;
  Imported& operator=(const Imported&) = delete;
  bp_buffer* raw() const { return raw_; }

 private:
  const Imports& imports_;
  bp_buffer* raw_ = nullptr;
};

/// Bytes of a buffer, as copies take them.
class Bytes {
 public:
  Bytes(bp_buffer* buffer, std::uint64_t offset, std::uint64_t bytes)
      : size_{static_cast<std::int64_t>(bytes)} {
    grown_.base.bytes = bytes;
    grown_.base.dims = size_.data();
    grown_.base.rank = 1;
    grown_.base.dtype = BP_UINT8;
    grown_.base.memory = BP_MEMORY_DEVICE;
    grown_.base.buffer = buffer;
    grown_.base.offset = offset;
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  const bp_tensor& get() const { return grown_.base; }

 private:
  std::vector<std::int64_t> size_;
  Grown<bp_tensor> grown_;
};

void write(const Imports& imports, const Bytes& to, const std::vector<std::uint8_t>& data) {
  Memory outer(&imports.device, outer_kind(imports.device), data.size());
  outer.write(data.data());
  const Stream stream(imports.device);
  const std::vector<std::int64_t> size{static_cast<std::int64_t>(data.size())};
  copy(imports.device, stream, outer.describe_bytes(size, 0).base, to.get());
  stream.sync();
}

std::vector<std::uint8_t> read(const Imports& imports, const Bytes& from) {
  Memory outer(&imports.device, outer_kind(imports.device), from.get().bytes);
  outer.fill(0x11);
  const Stream stream(imports.device);
  const std::vector<std::int64_t> size{static_cast<std::int64_t>(from.get().bytes)};
  copy(imports.device, stream, from.get(), outer.describe_bytes(size, 0).base);
  stream.sync();
  return outer.read();
}

/// Both ways, with the memory around it, and after its end.
std::string wrong_memory(const Imports& imports, std::uint64_t bytes) {
  const std::uint64_t begin = imports.device.alignment(BP_MEMORY_DEVICE);
  const Made made(imports, 2 * begin + bytes);
  const Bytes all(made.raw(), 0, made.bytes()), part(made.raw(), begin, bytes);
  std::vector<std::uint8_t> want = pattern(made.bytes(), 50);
  write(imports, all, want);
  const auto put = [&](const std::vector<std::uint8_t>& data) {
    std::copy(data.begin(), data.end(), want.begin() + static_cast<std::ptrdiff_t>(begin));
  };
  {
    const std::uint64_t number = made.number();
    const Imported one(imports, number, begin, bytes), two(imports, number, begin, bytes);
    const Bytes first(one.raw(), begin, bytes), second(two.raw(), begin, bytes);
    const auto part_of_want = [&] {
      const auto start = want.begin() + static_cast<std::ptrdiff_t>(begin);
      return std::vector<std::uint8_t>(start, start + static_cast<std::ptrdiff_t>(bytes));
    };
    for (std::uint64_t round = 1; round <= 3; ++round) {
      for (const Bytes* seen : {&first, &second}) {
        if (const std::string wrong = compared(read(imports, *seen), part_of_want());
            !wrong.empty())
          return text("an imported buffer of ", bytes,
                      " bytes is not of the memory: what lies there is not seen: ", wrong);
      }
      put(pattern(bytes, 50 + round));
      write(imports, round % 2 == 0 ? part : second, part_of_want());
      if (const std::string wrong = compared(read(imports, all), want); !wrong.empty())
        return text("an imported buffer of ", bytes,
                    " bytes is not of the memory: what was written is not there: ", wrong);
    }
  }
  const std::string wrong = compared(read(imports, all), want);
  return wrong.empty() ? "" : "buffer_release changed the memory: " + wrong;
}

std::string wrong_refusal(const Imports& imports) {
  const std::uint64_t alignment = imports.device.alignment(BP_MEMORY_DEVICE);
  const Made made(imports, 4 * alignment);
  const std::uint64_t number = made.number();
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  struct Wish {
    const char* what;
    std::uint64_t number, offset, bytes;
  };
  const Wish wishes[] = {
      {"memory 0", 0, 0, 4},
      {"more bytes than there are", number, 0, kMost / 2},
      {"bytes beyond all that there are", number, kMost / alignment * alignment, alignment},
      {"an offset that is aligned half as much as tensors are", number, alignment / 2, 1}};
  for (const Wish& wish : wishes) {
    if (wish.number != 0 && wish.offset == 0 && wish.bytes == 1) continue;  // an alignment of 1
    enter(text("buffer_import of ", wish.what));
    std::int32_t access = 0;
    bp_buffer* raw = nullptr;
    const Outcome outcome = ask([&] {
      return imports.table.buffer_import(imports.device.raw(), wish.number, wish.offset, wish.bytes,
                                         &access, &raw);
    });
    if (outcome.is_ok()) {
      imports.table.buffer_release(imports.device.raw(), raw);
      return text(wish.what, " is not refused");
    }
    if (outcome.message.empty()) return text(wish.what, " is refused without a reason");
  }
  return "";
}

std::uint64_t heap_after(const Imports& imports, const Made& made, int rounds) {
  const std::uint64_t number = made.number();
  for (int i = 0; i < rounds; ++i) const Imported imported(imports, number, 0, made.bytes());
  return heap_bytes();
}

std::string leak(const Imports& imports) {
  constexpr int kRounds = 64;
  constexpr std::uint64_t kLeast = kRounds * 64;  // notes of what once lived may stay, objects not
  const Made made(imports, 4096);
  heap_after(imports, made, kRounds);
  const std::uint64_t start = heap_after(imports, made, kRounds),
                      middle = heap_after(imports, made, kRounds),
                      end = heap_after(imports, made, kRounds);
  if (middle < start + kLeast || end < middle + kLeast) return "";
  return text((end - start) / (2 * kRounds), " bytes of heap are lost per imported buffer");
}

std::string first_wrong(const Imports& imports) {
  for (const std::uint64_t bytes : {std::uint64_t{4}, (std::uint64_t{1} << 20) + 12}) {
    std::string wrong = wrong_memory(imports, bytes);
    if (!wrong.empty()) return wrong;
  }
  std::string wrong = wrong_refusal(imports);
  return wrong.empty() ? leak(imports) : wrong;
}

}  // namespace

std::vector<Row> check_import_memory(Subject& subject, const Piece& piece) {
  const std::string name = "device.import_memory";
  const auto skip = [&](const std::string& reason) {
    return std::vector<Row>{skipped(name, piece.subject, reason)};
  };
  const auto device = subject.open(piece);
  if (!device->has_own_memory()) return not_applicable(name, piece);
  const auto* table = static_cast<const bp_import_memory*>(
      interface_of(subject, piece, BP_IMPORT_MEMORY_INTERFACE));
  if (table == nullptr) return skip("the provider has no bp.import_memory");
  if (!BP_HAS_FN(bp_import_memory, table, buffer_import) ||
      !BP_HAS_FN(bp_import_memory, table, buffer_release))
    return verdict(name, piece, "its bp_import_memory lacks a function");
  try {
    return verdict(name, piece, first_wrong({*device, *table}));
  } catch (const Refused& refused) {
    return skip("the device imports nothing: " + refused.reason);
  }
}

}  // namespace backplane::cli::check
