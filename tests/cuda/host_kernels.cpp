#include "tests/cuda/host_kernels.hpp"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>

#include "tests/cuda/fibers.hpp"
#include "tests/cuda/host_compiler.hpp"
#include "tests/cuda/warpgroups.hpp"

namespace backplane::cuda {
namespace {

HostKernel compile(const std::string& source) {
  void* const library = ::dlopen(host_library(source).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::logic_error(::dlerror());
  HostKernel made;
  made.item = reinterpret_cast<ItemFunction>(::dlsym(library, "host_item"));
  made.has_barriers = source.find("BARRIER;") != std::string::npos ||
                      source.find("SHUFFLE(") != std::string::npos ||
                      source.find("__shfl_xor_sync(") != std::string::npos;
  made.has_warpgroups = has_warpgroups(source);
  const std::string parts = "#define PARTS ";
  if (const std::size_t at = source.find(parts); made.has_warpgroups && at != std::string::npos)
    made.parts = static_cast<unsigned>(std::atoi(source.c_str() + at + parts.size()));
  std::uintptr_t bounds[6];
  reinterpret_cast<void (*)(std::uintptr_t*)>(::dlsym(library, "host_sections"))(bounds);
  made.local = {bounds[0], bounds[1]};
  made.own = {bounds[2], bounds[3]};
  for (int i = 0; i < 2; ++i)
    made.places[i] = reinterpret_cast<Extent*>(bounds[4 + i]);  // NOLINT(performance-no-int-to-ptr)
  // Of memory that kernels declare; more takes an attribute of the function.
  constexpr std::uintptr_t kMostLocal = std::uintptr_t{48} * 1024;
  if (bounds[1] - bounds[0] > kMostLocal)
    throw std::logic_error(
        sdk::message("a kernel has ", bounds[1] - bounds[0],
                     " bytes of local memory, which ptxas does not take: ", source));
  return made;
}

/// A group without barriers, whose items need no stacks of their own.
void run_group(const HostKernel& kernel, const Extent& group, const Extent& size,
               void** arguments) {
  Watch& watch = Watch::all();
  const auto top = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  constexpr std::uintptr_t kMostStack = std::uintptr_t{1} << 20;
  watch.stack = {top - kMostStack, top};
  watch.item.barriers = 0;
  const unsigned items = size[0] * size[1] * size[2];
  for (unsigned i = 0; i < items; ++i) {
    const Extent item = place_in(i, size);
    watch.item.item = i;
    kernel.item(group.data(), item.data(), size.data(), arguments, nullptr, note_access, nullptr);
  }
}

void run_groups(const HostKernel& kernel, const Extent& groups, const Extent& size,
                std::uint32_t local_bytes, void** arguments) {
  Watch& watch = Watch::all();
  watch.local = kernel.local;
  watch.own = kernel.own;
  watch.has_turn = true;
  watch.fault.clear();
  watch.memory.begin_launch();
  const unsigned count = groups[0] * groups[1] * groups[2];
  if (count % kernel.parts != 0) watch.fault = "groups are left that are no cluster";
  for (unsigned i = 0; i < count && watch.fault.empty(); i += kernel.parts) {
    watch.item.group = i;
    watch.memory.begin_group();
    if (!kernel.has_barriers) {
      run_group(kernel, place_in(i, groups), size, arguments);
      continue;
    }
    if (kernel.has_warpgroups)
      Warpgroups::all().begin(kernel.parts, size[0], kernel.local, local_bytes);
    Fibers::all().run(kernel, i, groups, size, arguments);
    if (kernel.has_warpgroups && watch.fault.empty())
      watch.fault = Warpgroups::all().what_is_left();
  }
  if (watch.fault.empty()) watch.fault = watch.memory.fault();
}

}  // namespace

void run_kernels_on_host() {
  stand_in().kernel = [](const std::string& source, const Extent& groups, const Extent& group,
                         void** arguments) {
    static std::map<std::string, HostKernel> kernels;
    auto found = kernels.find(source);
    if (found == kernels.end()) found = kernels.emplace(source, compile(source)).first;
    run_groups(found->second, groups, group, stand_in().local_bytes, arguments);
    if (const std::string& fault = Watch::all().fault; !fault.empty())
      throw std::logic_error(
          sdk::message(fault, ", in ", source.substr(source.find("KERNEL run("))));
  };
}

bool are_accesses_seen() {
#ifdef BACKPLANE_SANITIZED
  return false;
#else
  return true;
#endif
}

}  // namespace backplane::cuda
