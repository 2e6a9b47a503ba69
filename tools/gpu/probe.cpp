// gpu_probe alive | hold
// gpu_probe libraries ENGINE
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

const std::map<std::string, Json (*)(const Request&)> kCommands = {
    {"alive", [](const Request&) { return device_is_alive(); }},
    {"hold", [](const Request&) { return hold_device(); }},
    {"libraries", [](const Request& request) { return libraries_of(request.model); }},
    {"limits", device_limits},
    {"model", [](const Request& request) {
       return request.one_run.empty() ? model_times(request) : one_run(request);
     }}};

int run(const std::vector<std::string>& words) {
  const std::string command = words.empty() ? "" : words[0];
  Request request;
  try {
    if (kCommands.count(command) == 0)
      throw std::invalid_argument("the first word is one of alive, hold, libraries, limits, model");
    request = parse(words);
    const bool wants_file = command == "model" || command == "libraries";
    if (wants_file != !request.model.empty())
      throw std::invalid_argument("'" + command + "' wants " + (wants_file ? "one file" : "none"));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_probe: %s\n", error.what());
    return kWrongRequest;
  }
  try {
    std::puts(kCommands.at(command)(request).dump().c_str());
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
