// gpu_probe limits [--quick] [--warm-up SECONDS]
// gpu_probe model FILE [--feed FILE] [--provider NAME] [--set KEY=VALUE] [--dim NAME=N] [--runs N] [--warm-up SECONDS]
//     [--one-run marked|traced]
//
// Prints one JSON object. Exit codes: 0 done, 2 wrong request, 3 what was asked for failed: one line says why.
#include "tools/gpu/probe.hpp"

#include <cstdio>
#include <exception>
#include <stdexcept>

namespace backplane::gpu {
namespace {

constexpr int kWrongRequest = 2, kFailed = 3;

std::pair<std::string, std::string> split(const std::string& text) {
  const std::size_t at = text.find('=');
  if (at == std::string::npos) throw std::invalid_argument("'" + text + "' is no NAME=VALUE");
  return {text.substr(0, at), text.substr(at + 1)};
}

Request parse(const std::vector<std::string>& words) {
  Request request;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    const auto value = [&] {
      if (i + 1 == words.size()) throw std::invalid_argument(word + " wants a value");
      return words[++i];
    };
    if (word == "--quick") {
      request.is_quick = true;
    } else if (word == "--feed") {
      request.feed_model = value();
    } else if (word == "--provider") {
      request.provider = value();
    } else if (word == "--runs") {
      request.runs = std::stoi(value());
    } else if (word == "--one-run") {
      request.one_run = value();
      if (request.one_run != "marked" && request.one_run != "traced")
        throw std::invalid_argument("--one-run is 'marked' or 'traced'");
    } else if (word == "--warm-up") {
      request.warm_up_s = std::stod(value());
    } else if (word == "--set") {
      request.options.insert(split(value()));
    } else if (word == "--dim") {
      const auto [name, size] = split(value());
      request.dims[name] = std::stoll(size);
    } else if (word.rfind("--", 0) == 0 || !request.model.empty()) {
      throw std::invalid_argument("'" + word + "' is not known");
    } else {
      request.model = word;
    }
  }
  return request;
}

int run(const std::vector<std::string>& words) {
  const std::string command = words.empty() ? "" : words[0];
  Request request;
  try {
    if (command != "limits" && command != "model")
      throw std::invalid_argument("the first word is 'limits' or 'model'");
    request = parse(words);
    if ((command == "model") != !request.model.empty())
      throw std::invalid_argument("'model' wants one file, 'limits' none");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_probe: %s\n", error.what());
    return kWrongRequest;
  }
  try {
    const Json result = command == "limits"       ? device_limits(request)
                        : request.one_run.empty() ? model_times(request)
                                                  : one_run(request);
    std::puts(result.dump().c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_probe: %s\n", error.what());
    return kFailed;
  }
}

}  // namespace
}  // namespace backplane::gpu

int main(int argc, char** argv) {
  return backplane::gpu::run(std::vector<std::string>(argv + 1, argv + argc));
}
