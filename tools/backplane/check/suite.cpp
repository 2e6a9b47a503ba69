#include "tools/backplane/check/suite.hpp"

#include "tools/backplane/failure.hpp"

namespace backplane::cli::check {

Row passed(const std::string& name, const std::string& subject) {
  return {name, subject, "passed", ""};
}
Row failed(const std::string& name, const std::string& subject, const std::string& reason) {
  return {name, subject, "failed", reason};
}
Row skipped(const std::string& name, const std::string& subject, const std::string& reason) {
  return {name, subject, "skipped", reason};
}

PluginFile& Subject::plugin() {
  if (plugin_ == nullptr) {
    // The file itself first: what it links against is then found for the copy too, wherever that lies.
    PluginFile::open(request_.file);
    plugin_ = std::make_unique<PluginFile>(request_.copy);
  }
  plugin_->start();
  return *plugin_;
}

const bp_provider* Subject::provider(const std::string& name) {
  PluginFile& file = plugin();
  for (std::uint32_t i = 0; i < file->provider_count; ++i) {
    if (name == file->providers[i]->name) return file->providers[i];
  }
  throw Broken("the plugin has no provider '" + name + "' any more");
}

const bp_device_info* Subject::device_info(const std::string& name) {
  const std::vector<const bp_device_info*> devices = PluginFile::devices(provider(name));
  if (request_.device >= devices.size())
    throw Broken(text("provider ", name, " shows ", devices.size(), " devices now"));
  return devices[request_.device];
}

OptionValues Subject::options_of(const std::string& name) const {
  OptionValues values;
  const std::string prefix = "provider." + name + ".";
  for (const std::string& setting : settings_of(request_)) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos || setting.compare(0, prefix.size(), prefix) != 0) continue;
    values.emplace_back(setting.substr(prefix.size(), equals - prefix.size()),
                        setting.substr(equals + 1));
  }
  return values;
}

std::unique_ptr<OpenDevice> Subject::open(const Piece& piece) {
  if (piece.is_guest) return std::make_unique<OpenDevice>(nullptr, nullptr);
  return std::make_unique<OpenDevice>(provider(piece.provider), device_info(piece.provider),
                                      options_of(piece.provider));
}

std::vector<const bp_kernel_def*> Subject::kernels(const Piece& piece, const OpenDevice& device) {
  return piece.is_guest ? plugin().guest_kernels(piece.provider) : device.kernels();
}

}  // namespace backplane::cli::check
