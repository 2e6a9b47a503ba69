// Memory of the program's own, by its address: the interface "bp.import_memory".
#pragma once

#include "backplane/plugin_api/optional/import_memory.h"

namespace backplane::cuda {

const bp_import_memory& imported_memory();

}  // namespace backplane::cuda
