// Looking at a file before the dynamic linker does.
#pragma once

#include <filesystem>

namespace backplane::core {

/// Says what is wrong with a file that is to be loaded: not there, a folder, no permission, empty, no
/// ELF file, cut off, for another processor, not a shared object. Reads headers only and trusts none
/// of their numbers.
/// Errors: NotFound for a file that is not there, InvalidArgument for the rest, Incompatible for
///         another processor; the message names the file.
void check_shared_object(const std::filesystem::path& file);

}  // namespace backplane::core
