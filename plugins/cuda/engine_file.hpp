// Where the engine's file is, and whether the libraries that it links are there, without opening any of them.
#pragma once

#include <string>
#include <vector>

namespace backplane::cuda {

/// Where the build and the installation put the engine, seen from this file; where it is not there its bare name.
std::string engine_file();

/// What a shared library of this processor's says of others.
struct LinkedLibraries {
  std::vector<std::string> names;    ///< that it needs
  std::vector<std::string> folders;  ///< where it looks for them
};
/// Nothing where the file cannot be read.
LinkedLibraries linked_libraries(const std::string& file);

/// Whether the engine and all that it links lie where the loader surely finds them. False says nothing: the loader knows more
/// places, and why it finds something or not.
bool engine_is_there();

}  // namespace backplane::cuda
