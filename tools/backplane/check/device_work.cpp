#include "tools/backplane/check/device_work.hpp"

#include "tools/backplane/failure.hpp"

namespace backplane::cli::check {

std::vector<std::uint8_t> pattern(std::uint64_t bytes, std::uint64_t seed) {
  Generator numbers(seed);
  std::vector<std::uint8_t> data(bytes);
  for (std::uint8_t& byte : data) byte = static_cast<std::uint8_t>(numbers.integer(0, 255));
  return data;
}

void copy(const OpenDevice& device, const Stream& stream, const bp_tensor& from,
          const bp_tensor& to) {
  enter(text("copy of ", from.bytes, " bytes"));
  need([&] { return device->copy(device.raw(), stream.raw(), &from, &to); });
}

void copy(const OpenDevice& device, const Stream& stream, const Memory& from, const Memory& to) {
  const std::vector<std::int64_t> size{static_cast<std::int64_t>(from.bytes())};
  const Grown<bp_tensor> source = from.describe_bytes(size, 0), target = to.describe_bytes(size, 0);
  copy(device, stream, source.base, target.base);
}

bp_memory_kind outer_kind(const OpenDevice& device) {
  for (const bp_memory_kind kind : {BP_MEMORY_PINNED, BP_MEMORY_HOST}) {
    if (kind == BP_MEMORY_PINNED && !device.has_heap(kind)) continue;
    if (device.copy_mode(kind, BP_MEMORY_DEVICE) != BP_COPY_NONE &&
        device.copy_mode(BP_MEMORY_DEVICE, kind) != BP_COPY_NONE)
      return kind;
  }
  throw Broken("the device copies neither with pinned nor with plain host memory, both ways");
}

std::string compared(const std::vector<std::uint8_t>& got, const std::vector<std::uint8_t>& want) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (got[i] != want[i]) return text("byte ", i, " of ", want.size(), " is wrong");
  }
  return "";
}

const void* interface_of(Subject& subject, const Piece& piece, const char* id) {
  const bp_provider* const provider = subject.provider(piece.provider);
  if (!BP_HAS_FN(bp_provider, provider, get_interface)) return nullptr;
  enter(text("get_interface of ", id));
  return across([&] { return provider->get_interface(provider->self, id, 1); });
}

std::vector<Row> not_applicable(const std::string& name, const Piece& piece) {
  return {skipped(name, piece.subject, "the device works on plain host memory")};
}

std::vector<Row> verdict(const std::string& name, const Piece& piece, const std::string& wrong) {
  return {wrong.empty() ? passed(name, piece.subject) : failed(name, piece.subject, wrong)};
}

}  // namespace backplane::cli::check
