// Places of keys in a list: numbers, or strings.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace backplane::cpu {

/// Looks up strings without making one.
struct TextHash {
  // NOLINTNEXTLINE(readability-identifier-naming): the standard library looks for it
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};

/// Of a key that is there twice, the first place. NaN is a key like others.
class KeyTable {
 public:
  static constexpr std::int32_t kNone = -1;

  void add(const std::string& key, std::size_t place) {
    texts_.emplace(key, static_cast<std::int32_t>(place));
  }
  void add(std::int64_t key, std::size_t place) {
    integers_.emplace(key, static_cast<std::int32_t>(place));
  }
  void add(double key, std::size_t place) {
    if (!std::isnan(key))
      reals_.emplace(key, static_cast<std::int32_t>(place));
    else if (nan_ == kNone)
      nan_ = static_cast<std::int32_t>(place);
  }
  template <class Keys>
  void add_all(const Keys& keys) {
    for (std::size_t i = 0; i < keys.size(); ++i) add(keys[i], i);
  }

  /// kNone where the key is in no list.
  std::int32_t find(std::string_view key) const { return found(texts_, key); }
  std::int32_t find(std::int64_t key) const { return found(integers_, key); }
  std::int32_t find(double key) const { return std::isnan(key) ? nan_ : found(reals_, key); }

 private:
  template <class Map, class Key>
  static std::int32_t found(const Map& map, const Key& key) {
    const auto entry = map.find(key);
    return entry == map.end() ? kNone : entry->second;
  }

  std::unordered_map<std::string, std::int32_t, TextHash, std::equal_to<>> texts_;
  std::unordered_map<std::int64_t, std::int32_t> integers_;
  std::unordered_map<double, std::int32_t> reals_;
  std::int32_t nan_ = kNone;
};

}  // namespace backplane::cpu
