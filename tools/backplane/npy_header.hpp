// The header of a .npy file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace backplane::cli {

struct NpyHeader {
  std::string descr;  ///< "<f4"
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

/// Reads the dictionary; `file` is how errors (wrong request) call the file.
NpyHeader parse_npy_header(const std::string& text, const std::string& file);

/// Magic, version, length and dictionary, padded so that the elements are aligned.
std::string make_npy_header(const NpyHeader& header);

}  // namespace backplane::cli
