// Kernels on the processor: the text that a launch of the stand-in has, as CUDA's compiler would read it, compiled by the
// compiler of this build and run item by item. So what nodes and whole networks compute can be seen without a device, in CUDA's own
// words too.
#pragma once

#include "tests/cuda/stand_in.hpp"

namespace backplane::cuda {

/// Makes the stand-in compute what its kernels say, until its state is reset. Items of kernels with barriers
/// take turns from one barrier to the next. A launch fails where a GPU might do otherwise: where items access memory without an order
/// (memory_check.hpp), come to different barriers, or not to the shuffles of their neighbours, declare too much local memory, or what is
/// found of warpgroups (warpgroups.hpp).
void run_kernels_on_host();

/// Whether a launch sees what its items access. Not in a program with a sanitizer, which watches in its place.
bool are_accesses_seen();

}  // namespace backplane::cuda
