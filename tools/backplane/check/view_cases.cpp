// The optional interface "bp.host_memory": the device sees in a view what the host has written there, and the host what
// the device has, in memory that is aligned as the device asked for it and no better.
#include <algorithm>
#include <cstring>

#include "backplane/plugin_api/optional/host_memory.h"
#include "tools/backplane/check/device_work.hpp"
#include "tools/backplane/failure.hpp"

namespace backplane::cli::check {
namespace {

constexpr std::uint8_t kBlockGuard = 0xC3;
constexpr std::uint64_t kLargeView = std::uint64_t{1} << 20;
constexpr std::uint64_t kMostAlignment = std::uint64_t{1} << 20;  // more no host has to give

/// Memory of the process between guards, at a multiple of the alignment that is none of twice as much.
class HostBlock {
 public:
  HostBlock(std::uint64_t bytes, std::uint64_t alignment)
      : bytes_(bytes), all_(bytes + 4 * alignment, kBlockGuard) {
    const auto address = reinterpret_cast<std::uintptr_t>(all_.data());
    const std::uint64_t twice = 2 * alignment;
    first_ = (address + twice - 1) / twice * twice + alignment - address;
  }
  std::uint8_t* data() { return all_.data() + first_; }
  void write(const std::vector<std::uint8_t>& bytes) {
    std::copy(bytes.begin(), bytes.end(), data());
  }
  std::vector<std::uint8_t> read() const {
    const auto first = all_.begin() + static_cast<std::ptrdiff_t>(first_);
    return {first, first + static_cast<std::ptrdiff_t>(bytes_)};
  }
  bool is_damaged() const {
    for (std::uint64_t i = 0; i < all_.size(); ++i) {
      if ((i < first_ || i >= first_ + bytes_) && all_[i] != kBlockGuard) return true;
    }
    return false;
  }

 private:
  std::uint64_t bytes_;
  std::vector<std::uint8_t> all_;
  std::uint64_t first_ = 0;
};

/// What a device that offers views is asked by.
struct Views {
  const OpenDevice& device;
  const bp_host_memory& table;
  std::uint64_t alignment = 0, least = 0;
};

class View {
 public:
  View(const Views& views, HostBlock& block, std::uint64_t bytes, std::int32_t access)
      : views_(views), size_{static_cast<std::int64_t>(bytes)} {
    enter(text("view of ", bytes, " bytes for ", access == BP_VIEW_READ ? "reading" : "writing"));
    const Outcome outcome = ask(
        [&] { return views.table.view(views.device.raw(), block.data(), bytes, access, &raw_); });
    if (outcome.code == BP_UNSUPPORTED && !outcome.message.empty()) throw Refused{outcome.message};
    if (!outcome.is_ok()) throw Broken(current_step() + " failed: " + described(outcome));
    if (raw_ == nullptr) throw Broken(current_step() + " succeeds and gives no buffer");
  }
  ~View() { views_.table.view_free(views_.device.raw(), raw_); }
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  void hand_over(const Stream& stream) const {
    enter("hand_over");
    need([&] { return views_.table.hand_over(views_.device.raw(), stream.raw(), raw_); });
  }
  void hand_back(const Stream& stream) const {
    enter("hand_back");
    need([&] { return views_.table.hand_back(views_.device.raw(), stream.raw(), raw_); });
  }
  /// As kernels and copies of the device see it.
  Grown<bp_tensor> describe() const {
    Grown<bp_tensor> grown;
    grown.base.bytes = static_cast<std::uint64_t>(size_[0]);
    grown.base.dims = size_.data();
    grown.base.rank = 1;
    grown.base.dtype = BP_UINT8;
    grown.base.memory = BP_MEMORY_DEVICE;
    grown.base.buffer = raw_;
    return grown;
  }

 private:
  const Views& views_;
  std::vector<std::int64_t> size_;
  bp_buffer* raw_ = nullptr;
};

/// Reads of the same memory by two views, between which the host writes it anew.
std::string wrong_reading(const Views& views, std::uint64_t bytes) {
  HostBlock block(bytes, views.alignment);
  block.write(pattern(bytes, 20));
  Memory outer(&views.device, outer_kind(views.device), bytes);
  const Stream stream(views.device);
  const View first(views, block, bytes, BP_VIEW_READ), second(views, block, bytes, BP_VIEW_READ);
  const std::vector<std::int64_t> size{static_cast<std::int64_t>(bytes)};
  for (std::uint64_t round = 1; round <= 3; ++round) {
    const std::vector<std::uint8_t> data = pattern(bytes, 20 + round);
    block.write(data);
    for (const View* view : {&first, &second}) {
      outer.fill(0x11);
      view->hand_over(stream);
      copy(views.device, stream, view->describe().base, outer.describe_bytes(size, 0).base);
      view->hand_back(stream);
      stream.sync();
      const std::string wrong = compared(outer.read(), data);
      if (!wrong.empty())
        return text("a view of ", bytes,
                    " bytes for reading is not of the host's memory: what the ",
                    "host wrote before hand_over number ", round, " is not seen: ", wrong);
    }
    if (block.read() != data) return "a view for reading was written";
  }
  return block.is_damaged() ? "bytes beside a view for reading were written" : "";
}

std::string wrong_writing(const Views& views, std::uint64_t bytes) {
  HostBlock block(bytes, views.alignment);
  Memory outer(&views.device, outer_kind(views.device), bytes);
  const Stream stream(views.device);
  const View view(views, block, bytes, BP_VIEW_WRITE);
  const std::vector<std::int64_t> size{static_cast<std::int64_t>(bytes)};
  for (std::uint64_t round = 1; round <= 3; ++round) {
    const std::vector<std::uint8_t> data = pattern(bytes, 30 + round);
    outer.write(data.data());
    view.hand_over(stream);
    copy(views.device, stream, outer.describe_bytes(size, 0).base, view.describe().base);
    view.hand_back(stream);
    stream.sync();
    const std::string wrong = compared(block.read(), data);
    if (!wrong.empty())
      return text("a view of ", bytes, " bytes for writing is not of the host's memory: what the ",
                  "device wrote before hand_back number ", round, " is not there: ", wrong);
  }
  return block.is_damaged() ? "bytes beside a view for writing were written" : "";
}

/// view_free ends a view that the device has, too; then the memory is the host's.
std::string wrong_end(const Views& views, std::uint64_t bytes) {
  HostBlock block(bytes, views.alignment);
  const Stream stream(views.device);
  {
    const View left(views, block, bytes, BP_VIEW_WRITE);
    left.hand_over(stream);
    stream.sync();
  }
  const std::vector<std::uint8_t> data = pattern(bytes, 40);
  block.write(data);
  stream.sync();
  return block.read() == data ? "" : "memory was written whose view had ended";
}

std::uint64_t heap_after(const Views& views, int rounds) {
  HostBlock block(views.least, views.alignment);
  for (int i = 0; i < rounds; ++i) {
    const Stream stream(views.device);
    const View view(views, block, views.least, BP_VIEW_READ);
    view.hand_over(stream);
    view.hand_back(stream);
    stream.sync();
  }
  return heap_bytes();
}

std::string leak(const Views& views) {
  constexpr int kRounds = 64;
  constexpr std::uint64_t kLeast = kRounds * 512;  // notes of what once lived may stay, objects not
  heap_after(views, kRounds);
  const std::uint64_t start = heap_after(views, kRounds), middle = heap_after(views, kRounds),
                      end = heap_after(views, kRounds);
  if (middle < start + kLeast || end < middle + kLeast) return "";
  return text((end - start) / (2 * kRounds), " bytes of heap are lost per view");
}

bool is_whole(const bp_host_memory* table) {
  return BP_HAS_FN(bp_host_memory, table, caps) && BP_HAS_FN(bp_host_memory, table, view) &&
         BP_HAS_FN(bp_host_memory, table, view_free) &&
         BP_HAS_FN(bp_host_memory, table, hand_over) && BP_HAS_FN(bp_host_memory, table, hand_back);
}

std::string first_wrong(const Views& views) {
  if (views.alignment == 0 || (views.alignment & (views.alignment - 1)) != 0 ||
      views.alignment > kMostAlignment)
    return text("an alignment of ", views.alignment, " is no power of two up to ", kMostAlignment);
  for (const std::uint64_t bytes :
       {views.least, views.least + 4, std::max(views.least, kLargeView) + 12}) {
    for (const auto& check : {wrong_reading, wrong_writing, wrong_end}) {
      std::string wrong = check(views, bytes);
      if (!wrong.empty()) return wrong;
    }
  }
  return leak(views);
}

}  // namespace

std::vector<Row> check_host_memory(Subject& subject, const Piece& piece) {
  const std::string name = "device.host_memory";
  const auto skip = [&](const std::string& reason) {
    return std::vector<Row>{skipped(name, piece.subject, reason)};
  };
  const auto device = subject.open(piece);
  if (!device->has_own_memory()) return not_applicable(name, piece);
  const auto* table =
      static_cast<const bp_host_memory*>(interface_of(subject, piece, BP_HOST_MEMORY_INTERFACE));
  if (table == nullptr) return skip("the provider has no bp.host_memory");
  if (!is_whole(table)) return verdict(name, piece, "its bp_host_memory lacks a function");
  Grown<bp_host_memory_caps> caps;
  enter("caps of bp.host_memory");
  const Outcome outcome = ask([&] { return table->caps(device->raw(), &caps.base); });
  if (outcome.code == BP_UNSUPPORTED && !outcome.message.empty())
    return skip("the device views nothing: " + outcome.message);
  if (!outcome.is_ok())
    return verdict(name, piece, "which memory it views it does not say: " + described(outcome));
  constexpr std::uint64_t kWord = 4;
  const std::uint64_t least = std::max<std::uint64_t>(caps.base.least_bytes, kWord);
  try {
    return verdict(
        name, piece,
        first_wrong({*device, *table, caps.base.alignment, (least + kWord - 1) / kWord * kWord}));
  } catch (const Refused& refused) {
    return skip("the device views nothing after all: " + refused.reason);
  }
}

}  // namespace backplane::cli::check
