// Finds things or faces in a picture: an application on backplane.hpp alone.
//
//   backplane_detect MODEL PICTURE [--output FILE] [--json] [--threshold SHARE] [--providers NAMES]
//
// MODEL has one input [1, 3, height, width] of float, and the outputs of a detector of things or of faces (boxes.hpp);
// PICTURE is a PPM or JPEG file. What is found is listed, and drawn into FILE.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "backplane/backplane.hpp"
#include "tools/detect/boxes.hpp"
#include "tools/detect/picture.hpp"

namespace backplane::detect {
namespace {

constexpr float kOverlap = 0.45f;

struct Request {
  std::string model, picture, output, providers;
  float threshold = 0.5f;
  bool json = false;
};

struct Finding {
  std::string what;
  float score;
  int left, top, right, bottom;  ///< pixels of the picture
};

/// A network that finds things or faces, and how it wants pictures.
class Detector {
 public:
  Detector(const Environment& environment, const std::string& model, const Options& options)
      : session_(environment, model, options) {
    const std::vector<ValueInfo> inputs = session_.inputs(), outputs = session_.outputs();
    const bool fits = inputs.size() == 1 && inputs[0].type == "tensor(float)" &&
                      inputs[0].rank == 4 && inputs[0].dims[1] == 3 && inputs[0].dims[2] > 0 &&
                      inputs[0].dims[3] > 0;
    finds_faces_ = outputs.size() == 2 && outputs[0].rank == 3 && outputs[0].dims[2] == 2;
    const bool finds_things = outputs.size() == 1 && outputs[0].rank == 3 && outputs[0].dims[2] > 5;
    if (!fits || !(finds_faces_ || finds_things))
      throw std::runtime_error("'" + model + "' is no detector that this program knows");
    input_ = inputs[0].name;
    height_ = static_cast<int>(inputs[0].dims[2]);
    width_ = static_cast<int>(inputs[0].dims[3]);
  }

  /// The best boxes that are surer than `threshold`.
  std::vector<Box> find(const Picture& picture, float threshold) const {
    std::vector<float> planes = finds_faces_ ? to_planes(picture, width_, height_, 127, 128)
                                             : to_planes(picture, width_, height_, 0, 255);
    const Value image = Value::borrow({1, 3, height_, width_}, planes.data(), planes.size());
    const std::vector<Value> results = session_.run({{input_, image}});
    return best_boxes(finds_faces_ ? decode_faces(results[0], results[1], threshold)
                                   : decode_things(results[0], width_, height_, threshold),
                      kOverlap);
  }

  std::string name_of(const Box& box) const {
    return finds_faces_ ? "face" : class_name(box.kind, session_.outputs()[0].dims[2] - 5);
  }

 private:
  Session session_;
  std::string input_;
  int width_ = 0, height_ = 0;
  bool finds_faces_ = false;
};

Finding finding_of(const Detector& detector, const Box& box, const Picture& picture) {
  const auto x = [&](float share) {
    return static_cast<int>(std::lround(share * static_cast<float>(picture.width)));
  };
  const auto y = [&](float share) {
    return static_cast<int>(std::lround(share * static_cast<float>(picture.height)));
  };
  return {detector.name_of(box), box.score, x(box.left), y(box.top), x(box.right), y(box.bottom)};
}

void print(const std::vector<Finding>& findings, bool json) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Finding& one : findings) {
    if (json) {
      rows.push_back({{"what", one.what},
                      {"score", one.score},
                      {"box", {one.left, one.top, one.right, one.bottom}}});
    } else {
      std::printf("%-16s %.3f  %d,%d .. %d,%d\n", one.what.c_str(), static_cast<double>(one.score),
                  one.left, one.top, one.right, one.bottom);
    }
  }
  if (json) std::cout << rows.dump() << '\n';
  if (!json && findings.empty()) std::printf("nothing was found\n");
}

void detect(const Request& request) {
  static constexpr std::uint8_t kColours[][3] = {
      {230, 40, 40}, {40, 160, 60}, {40, 90, 220}, {230, 160, 20}, {160, 50, 200}};
  Options options;
  if (!request.providers.empty()) options.set("providers", request.providers);
  Picture picture = read_picture(request.picture);
  const Environment environment;
  const Detector detector(environment, request.model, options);
  std::vector<Finding> findings;
  for (const Box& box : detector.find(picture, request.threshold)) {
    findings.push_back(finding_of(detector, box, picture));
  }
  for (const Finding& one : findings) {
    const std::size_t colour = std::hash<std::string>()(one.what) % std::size(kColours);
    draw_rectangle(picture, one.left, one.top, one.right, one.bottom, kColours[colour]);
  }
  if (!request.output.empty()) write_picture(picture, request.output);
  print(findings, request.json);
}

Request parse(const std::vector<std::string>& arguments) {
  Request request;
  std::vector<std::string> files;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const auto value = [&]() -> const std::string& {
      if (i + 1 == arguments.size()) throw std::runtime_error("'" + word + "' needs a value");
      return arguments[++i];
    };
    if (word == "--json") {
      request.json = true;
    } else if (word == "--output") {
      request.output = value();
    } else if (word == "--providers") {
      request.providers = value();
    } else if (word == "--threshold") {
      std::size_t end = 0;
      const std::string& text = value();
      try {
        request.threshold = std::stof(text, &end);
      } catch (const std::exception&) {
        end = 0;
      }
      if (end == 0 || end != text.size())
        throw std::runtime_error("'" + text + "' is no threshold; give a number from 0 to 1");
    } else if (!word.empty() && word[0] == '-') {
      throw std::runtime_error("unknown option '" + word + "'");
    } else {
      files.push_back(word);
    }
  }
  if (files.size() != 2) {
    throw std::runtime_error(
        "use: backplane_detect MODEL PICTURE [--output FILE] [--json] [--threshold SHARE] "
        "[--providers NAMES]");
  }
  request.model = files[0];
  request.picture = files[1];
  return request;
}

}  // namespace
}  // namespace backplane::detect

int main(int argc, char** argv) {
  try {
    backplane::detect::detect(
        backplane::detect::parse(std::vector<std::string>(argv + 1, argv + argc)));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "backplane_detect: " << error.what() << '\n';
    return 2;
  }
}
