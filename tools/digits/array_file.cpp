#include "tools/digits/array_file.hpp"

#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace backplane::digits {

ArrayFile read_array(const std::string& path, const std::string& descr,
                     std::uint64_t element_bytes) {
  std::ifstream file(path, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(file)),
                            std::istreambuf_iterator<char>());
  const auto fail = [&](const std::string& what) { throw std::runtime_error(path + ": " + what); };
  if (!file) fail("cannot be read; tools/train_digits.py writes it");
  if (content.size() < 10 || content.compare(0, 8, std::string("\x93NUMPY\x01\x00", 8)) != 0) {
    fail("is no .npy file of version 1");
  }
  const std::size_t length =
      static_cast<unsigned char>(content[8]) + 256u * static_cast<unsigned char>(content[9]);
  if (content.size() < 10 + length) fail("ends within its header");
  const std::string header = content.substr(10, length);
  const std::size_t shape = header.find("'shape': (");
  if (header.find("'descr': '" + descr + "'") == std::string::npos ||
      header.find("'fortran_order': False") == std::string::npos || shape == std::string::npos) {
    fail("is not an array of " + descr + " in row-major order");
  }
  ArrayFile array;
  std::uint64_t bytes = element_bytes;
  std::istringstream dims(header.substr(shape + 10, header.find(')', shape) - shape - 10));
  for (std::string dim; std::getline(dims, dim, ',');) {
    if (dim.find_first_of("0123456789") == std::string::npos) continue;
    array.shape.push_back(std::stoll(dim));
    bytes *= static_cast<std::uint64_t>(array.shape.back());
  }
  array.bytes = content.substr(10 + length);
  if (array.bytes.size() != bytes) fail("holds more or fewer elements than its shape says");
  return array;
}

}  // namespace backplane::digits
