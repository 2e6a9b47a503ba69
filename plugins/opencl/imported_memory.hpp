// Memory objects of the program's own: the interface "bp.import_memory".
#pragma once

#include "backplane/plugin_api/optional/import_memory.h"

namespace backplane::opencl {

const bp_import_memory& imported_memory();

}  // namespace backplane::opencl
