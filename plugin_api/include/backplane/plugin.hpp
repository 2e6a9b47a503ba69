// The Backplane SDK: a header-only C++17 layer on the plugin ABI.
//
// Read, in this order: plugin/kernel.hpp (what a kernel is), plugin/op.hpp (schemas of custom operators),
// plugin/provider.hpp (a provider on host memory), plugin/rewrite.hpp (fusing nodes), plugin/plugin_main.hpp (the
// exported symbol), plugin/operator.hpp (kernels that use other operators' kernels). Every class is a thin view of a struct of
// plugin_api.h, whose text is the authority.
#pragma once

#include "backplane/plugin/attribute.hpp"
#include "backplane/plugin/error.hpp"
#include "backplane/plugin/graph.hpp"
#include "backplane/plugin/kernel.hpp"
#include "backplane/plugin/op.hpp"
#include "backplane/plugin/operator.hpp"
#include "backplane/plugin/plugin_main.hpp"
#include "backplane/plugin/provider.hpp"
#include "backplane/plugin/rewrite.hpp"
#include "backplane/plugin/tensor.hpp"
#include "backplane/plugin/types.hpp"
