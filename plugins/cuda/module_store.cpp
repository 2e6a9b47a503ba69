#include "plugins/cuda/module_store.hpp"

#include <optional>
#include <utility>

namespace backplane::cuda {

Kernel::Kernel(Context& context, const std::string& image)
    : context_(context),
      module_(retry_trimmed(context, [&] { return context.load(image); })),
      function_(nullptr) {
  try {
    // With lazy loading it is this call that takes the memory.
    function_ = retry_trimmed(context, [&] { return context.function(module_); });
  } catch (...) {
    context.unload(module_);
    throw;
  }
}

Kernel::~Kernel() { context_.unload(module_); }

ModuleStore::ModuleStore(Context& context, Compiler& compiler, std::string architecture,
                         std::string folder)
    : context_(context),
      compiler_(compiler),
      architecture_(std::move(architecture)),
      cache_(std::move(folder)) {}

ModuleStore::Counts ModuleStore::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::shared_ptr<const Kernel> ModuleStore::get(const std::string& source) {
  // Held while a kernel is compiled: several nodes of a plan want the same one.
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Kernel>& kernel = kernels_[source];
  if (kernel != nullptr) return kernel;
  const std::string key = compiler_.version() + '\n' + architecture_ + '\n' + source;
  if (const std::optional<std::string> image = cache_.read(key)) {
    try {
      kernel = std::make_shared<const Kernel>(context_, *image);
      ++counts_.read;
      return kernel;
    } catch (const sdk::Error& error) {
      // An image that this driver does not take is made anew; a device that is lost or full is another matter.
      if (error.code() != BP_INTERNAL) throw;
    }
  }
  const std::string image = compiler_.compile(source, architecture_);
  kernel = std::make_shared<const Kernel>(context_, image);
  ++counts_.compiled;
  cache_.write(key, image);
  return kernel;
}

}  // namespace backplane::cuda
