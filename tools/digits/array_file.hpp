// The arrays that tools/train_digits.py writes: NumPy's .npy, version 1, little-endian, row-major.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace backplane::digits {

struct ArrayFile {
  std::vector<std::int64_t> shape;
  std::string bytes;  ///< the elements

  /// The elements as `T`, which `descr` ("<f4") must have named.
  template <class T>
  const T* elements() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
};

/// Reads an array of the given element type. Throws std::runtime_error that names the file.
ArrayFile read_array(const std::string& path, const std::string& descr,
                     std::uint64_t element_bytes);

}  // namespace backplane::digits
