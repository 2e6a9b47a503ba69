// Backplane SDK: the interface "bp.import_memory" of a provider whose devices work on memory that the program made by
// their native API. plugin.hpp does not include it: who wants it does.
//
//   struct Imports {
//     static sdk::ImportedBuffer buffer_import(bp_device* device, std::uint64_t memory, std::uint64_t offset,
//                                              std::uint64_t bytes);  // may throw invalid(), unsupported()
//     static void buffer_release(bp_device* device, bp_buffer* buffer) noexcept;
//   };
//   get_interface: if (std::strcmp(id, BP_IMPORT_MEMORY_INTERFACE) == 0) return &sdk::import_memory<Imports>();
#pragma once

#include <cstdint>

#include "backplane/plugin/error.hpp"
#include "backplane/plugin_api/optional/import_memory.h"

namespace backplane::sdk {

/// What bp_import_memory::buffer_import gives.
struct ImportedBuffer {
  bp_buffer* buffer = nullptr;
  bool may_write = true;
};

/// The table over functions that throw; lives as long as the plugin.
template <class Imports>
__attribute__((visibility("hidden"))) const bp_import_memory& import_memory() {
  static const bp_import_memory kTable = [] {
    bp_import_memory table = abi_struct<bp_import_memory>();
    table.buffer_import = [](bp_device* device, std::uint64_t memory, std::uint64_t offset,
                             std::uint64_t bytes, std::int32_t* access, bp_buffer** out) {
      return guarded([&] {
        if (memory == 0) invalid("no memory is given");
        if (bytes == 0) invalid("no bytes of the memory are asked for");
        const ImportedBuffer made = Imports::buffer_import(device, memory, offset, bytes);
        *access = made.may_write ? BP_IMPORT_READ | BP_IMPORT_WRITE : BP_IMPORT_READ;
        *out = made.buffer;
      });
    };
    table.buffer_release = [](bp_device* device, bp_buffer* buffer) {
      Imports::buffer_release(device, buffer);
    };
    return table;
  }();
  return kTable;
}

/// Throws where `bytes` from `offset` on are not in `size` bytes, of what `kind` ("cl_mem") names.
inline void check_imported_range(const char* kind, std::uint64_t size, std::uint64_t offset,
                                 std::uint64_t bytes) {
  if (offset <= size && bytes <= size - offset) return;
  invalid("the ", kind, " has ", size, " bytes; ", bytes, " from byte ", offset,
          " on are asked for");
}

/// Throws where `address`, of which the message says `what` ("the offset"), is no multiple of the device's alignment.
inline void check_imported_alignment(const char* what, std::uint64_t address,
                                     std::uint64_t alignment) {
  if (address % alignment == 0) return;
  invalid(what, " ", address, " is no multiple of ", alignment,
          ", the alignment that the device's kernels rely on");
}

}  // namespace backplane::sdk
