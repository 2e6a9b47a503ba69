#include "core/graph/constant.hpp"

#define XXH_INLINE_ALL
#include <algorithm>
#include <bit>
#include <utility>
#include <xxhash.h>

#include "core/base/error.hpp"
#include "core/base/mapped_file.hpp"
#include "core/graph/type.hpp"

namespace backplane::core {
namespace {

static_assert(std::endian::native == std::endian::little, "ONNX's raw data is little-endian");

/// A streaming hash over parts of any length, each counted, so that parts cannot run into one another.
class Hasher {
 public:
  Hasher() : state_(XXH3_createState()) {
    if (state_ == nullptr) throw Error(Code::OutOfMemory, "no memory for a hash");
    XXH3_128bits_reset(state_);
  }
  ~Hasher() { XXH3_freeState(state_); }
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  void number(std::int64_t value) { XXH3_128bits_update(state_, &value, sizeof value); }
  void part(const void* data, std::size_t size) {
    number(static_cast<std::int64_t>(size));
    if (size > 0) XXH3_128bits_update(state_, data, size);
  }
  ContentHash digest() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_);
    return {hash.high64, hash.low64};
  }

 private:
  XXH3_state_t* state_;
};

bool is_aligned(const std::byte* data, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
}

}  // namespace

std::size_t Constant::alignment(DataType type) {
  const auto bytes = static_cast<std::size_t>(element_bits(type) / 8);
  return std::clamp<std::size_t>(bytes, 1, 8);
}

Constant::Constant(DataType type, std::vector<std::int64_t> dims, std::span<const std::byte> bytes,
                   std::shared_ptr<const void> owner)
    : type_(type),
      dims_(std::move(dims)),
      element_count_(core::element_count(dims_)),
      bytes_(bytes),
      owner_(std::move(owner)),
      aligned_(is_aligned(bytes.data(), alignment(type))) {
  if (element_bits(type) == 0) invalid("a constant of type ", name(type), " has no bytes");
  const auto wanted = storage_bytes(type, static_cast<std::uint64_t>(element_count_));
  if (!wanted || *wanted != bytes.size()) {
    invalid("a tensor of ", name(type), to_string(dims_), " takes ",
            wanted ? std::to_string(*wanted) : std::string("more than 2^63"), " bytes, but has ",
            bytes.size());
  }
}

Constant::Constant(std::vector<std::int64_t> dims, std::vector<std::string> strings)
    : type_(DataType::String),
      dims_(std::move(dims)),
      element_count_(core::element_count(dims_)),
      strings_(std::move(strings)) {
  if (static_cast<std::uint64_t>(element_count_) != strings_.size()) {
    invalid("a tensor of string", to_string(dims_), " has ", element_count_, " elements, but ",
            strings_.size(), " strings are given");
  }
}

std::shared_ptr<const Constant> Constant::copy_of(DataType type, std::vector<std::int64_t> dims,
                                                  std::span<const std::byte> bytes) {
  auto copy = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
  const std::span<const std::byte> view(*copy);
  return std::make_shared<const Constant>(type, std::move(dims), view, std::move(copy));
}

std::span<const std::byte> Constant::aligned_bytes() const {
  std::call_once(copied_, [this] {
    copy_.assign(bytes_.begin(), bytes_.end());
    MappedFile::let_go(bytes_);
  });
  return copy_;
}

ContentHash Constant::hash() const {
  std::call_once(hashed_, [this] {
    Hasher hasher;
    hasher.number(static_cast<std::int64_t>(type_));
    hasher.number(static_cast<std::int64_t>(dims_.size()));
    for (const std::int64_t dim : dims_) hasher.number(dim);
    hasher.part(bytes_.data(), bytes_.size());
    for (const std::string& string : strings_) hasher.part(string.data(), string.size());
    hash_ = hasher.digest();
  });
  return hash_;
}

}  // namespace backplane::core
