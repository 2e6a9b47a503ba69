// com.microsoft::MurmurHash3: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
// The 32-bit hash of https://github.com/aappleby/smhasher/wiki/MurmurHash3 of each element's bytes; converters of
// feature hashers write it.
#include <bit>
#include <cstring>
#include <string_view>

#include "backplane/plugin.hpp"

namespace backplane::cpu {
namespace {

constexpr std::uint32_t mixed_word(std::uint32_t word) {
  return std::rotl(word * 0xcc9e2d51U, 15) * 0x1b873593U;
}

std::uint32_t murmur3(std::string_view bytes, std::uint32_t seed) {
  std::uint32_t hash = seed;
  std::size_t at = 0;
  for (; at + 4 <= bytes.size(); at += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes.data() + at, 4);
    hash = std::rotl(hash ^ mixed_word(word), 13) * 5 + 0xe6546b64U;
  }
  std::uint32_t tail = 0;
  for (std::size_t i = bytes.size(); i-- > at;)
    tail = tail << 8 | static_cast<unsigned char>(bytes[i]);
  hash ^= mixed_word(tail);  // of no tail: 0
  hash ^= static_cast<std::uint32_t>(bytes.size());
  hash = (hash ^ hash >> 16) * 0x85ebca6bU;
  hash = (hash ^ hash >> 13) * 0xc2b2ae35U;
  return hash ^ hash >> 16;
}

class MurmurHash3 {
 public:
  struct Prepared {
    std::uint32_t seed;

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Tensor x = ctx.input(0);
      // Hashes as int32 are the same bits.
      auto* y = ctx.output(0).mutable_data<std::uint32_t>();
      if (x.type() == sdk::DataType::String) {
        for (std::int64_t i = 0; i < x.size(); ++i)
          y[i] = murmur3(ctx.input_value(0).string_at(static_cast<std::uint64_t>(i)), seed);
        return;
      }
      const auto size = static_cast<std::size_t>(sdk::element_bytes(x.type()));
      const auto* bytes = static_cast<const char*>(x.bytes_data());
      for (std::int64_t i = 0; i < x.size(); ++i)
        y[i] = murmur3({bytes + static_cast<std::size_t>(i) * size, size}, seed);
    }
  };

  MurmurHash3(const sdk::CreateContext&, const sdk::Node& node)
      : seed_(static_cast<std::uint32_t>(node.get_int("seed", 0))),
        type_(node.get_int("positive", 1) != 0 ? sdk::DataType::UInt32 : sdk::DataType::Int32) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output(0, type_, ctx.input(0).dims());
    return {seed_};
  }

 private:
  std::uint32_t seed_;
  sdk::DataType type_;
};

}  // namespace

sdk::KernelList murmur_hash_kernels() {
  return {sdk::op("MurmurHash3", "com.microsoft").name("cpu:murmur_hash").kernel<MurmurHash3>()};
}

}  // namespace backplane::cpu
