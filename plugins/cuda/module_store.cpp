#include "plugins/cuda/module_store.hpp"

#include <optional>
#include <string_view>
#include <utility>

namespace backplane::cuda {
namespace {

/// The first compute capability whose kernels can wait for others, as 10 * major + minor.
constexpr int kFirstToWait = 90;

/// Of "sm_90" or "compute_90": 90.
int number_of(const std::string& architecture) {
  int number = 0;
  for (const char c : architecture) {
    if (c >= '0' && c <= '9') number = 10 * number + (c - '0');
  }
  return number;
}

/// The text with IN_TURN as the first words of each kernel that it defines: of several, conditions choose one.
std::string in_turn(const std::string& source) {
  constexpr std::string_view kHead = "KERNEL run(", kWords = " IN_TURN;";
  std::string text = source;
  std::size_t count = 0;
  for (std::size_t at = text.find(kHead); at != std::string::npos; at = text.find(kHead, at)) {
    at += kHead.size();
    for (int depth = 1; depth > 0 && at < text.size(); ++at)
      depth += text[at] == '(' ? 1 : text[at] == ')' ? -1 : 0;
    at = text.find_first_not_of(" \n", at);
    if (at == std::string::npos || text[at] != '{') break;
    text.insert(++at, kWords);
    ++count;
  }
  if (count == 0 || text.find(kHead, text.rfind(kWords)) != std::string::npos)
    throw sdk::Error(BP_INTERNAL,
                     "a kernel's text does not begin its work behind \"KERNEL run(...) {\"");
  return text;
}

}  // namespace

Kernel::Kernel(Context& context, const std::string& image, bool waits, std::uint32_t local_bytes)
    : context_(context),
      module_(retry_trimmed(context, [&] { return context.load(image); })),
      function_(nullptr),
      waits_(waits),
      local_bytes_(local_bytes) {
  try {
    // With lazy loading it is this call that takes the memory.
    function_ = retry_trimmed(context, [&] { return context.function(module_, local_bytes); });
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
      kernels_wait_(number_of(architecture_) >= kFirstToWait),
      cache_(std::move(folder)) {}

ModuleStore::Counts ModuleStore::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::shared_ptr<const Kernel> ModuleStore::get(const std::string& source,
                                               const KernelNeeds& needs) {
  // Held while a kernel is compiled: several nodes of a plan want the same one.
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Kernel>& kernel = kernels_[source];
  if (kernel != nullptr) return kernel;
  const std::string text = in_turn(source);
  const std::string architecture = needs.of_generation ? architecture_ + 'a' : architecture_;
  const std::string key = compiler_.version() + '\n' + architecture + '\n' + text;
  if (const std::optional<std::string> image = cache_.read(key)) {
    try {
      kernel = std::make_shared<const Kernel>(context_, *image, kernels_wait_, needs.local_bytes);
      ++counts_.read;
      return kernel;
    } catch (const sdk::Error& error) {
      // An image that this driver does not take is made anew; a device that is lost or full is another matter.
      if (error.code() != BP_INTERNAL) throw;
    }
  }
  const std::string image = compiler_.compile(text, architecture);
  kernel = std::make_shared<const Kernel>(context_, image, kernels_wait_, needs.local_bytes);
  ++counts_.compiled;
  cache_.write(key, image);
  return kernel;
}

}  // namespace backplane::cuda
