// Reads handwritten digits: the application that tools/quickstart runs, and an example of backplane.hpp.
//
//   backplane_digits [--quickstart] [FOLDER]
//
// FOLDER holds digits.onnx, images.npy and labels.npy; default: tests/data/digits of the source tree. Fails when
// fewer than 97 % of the images are read right.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "backplane/backplane.hpp"
#include "tools/digits/array_file.hpp"
#include "tools/digits/placement_report.hpp"

namespace backplane::digits {
namespace {

namespace fs = std::filesystem;

constexpr int kSide = 8;
constexpr int kPixels = kSide * kSide;
constexpr int kDigits = 10;
constexpr double kLeastAccuracy = 0.97;

/// The held-out scans and what they show.
struct Scans {
  ArrayFile images;  ///< float [count, 1, 8, 8] in 0 .. 1
  ArrayFile labels;  ///< int64 [count]

  explicit Scans(const fs::path& folder)
      : images(read_array((folder / "images.npy").string(), "<f4", 4)),
        labels(read_array((folder / "labels.npy").string(), "<i8", 8)) {
    const bool fits = images.shape.size() == 4 && images.shape[1] == 1 &&
                      images.shape[2] == kSide && images.shape[3] == kSide &&
                      labels.shape.size() == 1 && labels.shape[0] == images.shape[0];
    if (!fits)
      throw std::runtime_error(folder.string() + ": images and labels do not fit each other");
  }
  std::int64_t count() const { return labels.shape[0]; }
  const float* image(std::int64_t i) const { return images.elements<float>() + i * kPixels; }
  std::int64_t label(std::int64_t i) const { return labels.elements<std::int64_t>()[i]; }
};

std::int64_t likeliest(const float* probabilities) {
  return std::max_element(probabilities, probabilities + kDigits) - probabilities;
}

// [run]
/// What the model takes each scan for, all in one batch.
std::vector<std::int64_t> read_all(const Session& session, const Scans& scans) {
  Value images = Value::tensor<float>(scans.images.shape);
  std::copy_n(scans.image(0), images.size(), images.data<float>());
  const std::vector<Value> results = session.run({{session.inputs().at(0).name, images}});
  std::vector<std::int64_t> answers;
  for (std::int64_t i = 0; i < scans.count(); ++i) {
    answers.push_back(likeliest(results.at(0).data<float>() + i * kDigits));
  }
  return answers;
}
// [/run]

/// The time of an image by itself, in microseconds: the median of all scans, one after the other.
double microseconds_per_image(const Session& session, const Scans& scans) {
  Value image = Value::tensor<float>({1, 1, kSide, kSide});
  Binding binding(session);
  binding.bind_input(session.inputs().at(0).name, image);
  binding.bind_output(session.outputs().at(0).name);
  binding.run();  // plans for this shape
  std::vector<double> times;
  for (std::int64_t i = 0; i < scans.count(); ++i) {
    std::copy_n(scans.image(i), kPixels, image.data<float>());
    const auto start = std::chrono::steady_clock::now();
    binding.run();
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count());
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

/// Scans side by side as text, darker characters for more ink, the answers below.
void draw(const Scans& scans, const std::vector<std::int64_t>& chosen,
          const std::vector<std::int64_t>& answers) {
  static const std::string kInk = " .:-=+*#%@";
  for (int row = 0; row < kSide; ++row) {
    for (const std::int64_t scan : chosen) {
      std::cout << "  ";
      for (int column = 0; column < kSide; ++column) {
        const float ink = std::clamp(scans.image(scan)[row * kSide + column], 0.0f, 1.0f);
        const char mark =
            kInk[static_cast<std::size_t>(std::lround(ink * static_cast<float>(kInk.size() - 1)))];
        std::cout << mark << mark;  // characters are twice as high as wide
      }
    }
    std::cout << '\n';
  }
  for (const std::int64_t scan : chosen) {
    const std::int64_t answer = answers[static_cast<std::size_t>(scan)];
    const std::string text =
        "read as " + std::to_string(answer) +
        (answer == scans.label(scan) ? ", right" : ", is " + std::to_string(scans.label(scan)));
    std::printf("  %-*s", 2 * kSide, text.c_str());
  }
  std::printf("\n\n");
  std::fflush(stdout);
}

/// One scan of each of some digits, and the first that was read wrong.
std::vector<std::int64_t> scans_to_draw(const Scans& scans,
                                        const std::vector<std::int64_t>& answers) {
  std::vector<std::int64_t> chosen;
  for (const std::int64_t digit : {3, 5, 8}) {
    for (std::int64_t i = 0; i < scans.count(); ++i) {
      if (scans.label(i) != digit || answers[static_cast<std::size_t>(i)] != digit) continue;
      chosen.push_back(i);
      break;
    }
  }
  for (std::int64_t i = 0; i < scans.count(); ++i) {
    if (answers[static_cast<std::size_t>(i)] == scans.label(i)) continue;
    chosen.push_back(i);
    break;
  }
  return chosen;
}

/// The folder of the program, as a path from here where that is shorter.
fs::path program_folder() {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  const fs::path relative = fs::proximate(folder, error);
  return relative.string().size() < folder.string().size() ? relative : folder;
}

fs::path default_data() {
  // <source>/build/<preset>/bin/backplane_digits
  return (program_folder() / "../../../tests/data/digits").lexically_normal();
}

void print_next_commands() {
  const std::string build = program_folder().parent_path().string();
  const std::string program = build + "/bin/backplane";
  const std::string library = build + "/lib/backplane/custom_ops/";
  std::cout << "Three things to try next:\n\n"
            << "  # a model of your own: how fast it runs, on inputs that are made up\n"
            << "  " << program << " bench YOUR_MODEL.onnx\n\n"
            << "  # custom operators: a model that needs two libraries, checked against its "
               "expected outputs\n"
            << "  " << program << " verify tests/custom_ops --custom-ops " << library
            << "windowed_mean.so --custom-ops " << library << "decode_boxes.so\n\n"
            << "  # a second provider: build the smallest one, and see what it takes and why it "
               "leaves the rest\n"
            << "  cmake --build " << build << " --target backplane_plugin_null_provider && "
            << program << " inspect tests/data/digits/digits.onnx --plugin-path " << build
            << "/tests/fixtures --providers null,cpu --explain\n";
}

int read_digits(const fs::path& folder, bool is_quickstart) {
  const Scans scans(folder);
  const std::string model = (folder / "digits.onnx").string();
  const Environment environment;
  const Session session(environment, model);

  const std::vector<std::int64_t> answers = read_all(session, scans);
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < scans.count(); ++i) {
    right += answers[static_cast<std::size_t>(i)] == scans.label(i) ? 1 : 0;
  }
  std::cout << model << " reads " << scans.count()
            << " scans of handwritten digits that it was not trained on.\n\n";
  draw(scans, scans_to_draw(scans, answers), answers);
  const double accuracy = static_cast<double>(right) / static_cast<double>(scans.count());
  std::printf("Accuracy: %.2f %% (%d of %d)\n", 100 * accuracy, static_cast<int>(right),
              static_cast<int>(scans.count()));
  std::printf("Time of an image: %.1f us\n\n", microseconds_per_image(session, scans));
  std::fflush(stdout);
  std::cout << "Where each node ran, and why:\n" << placement_report(session.explain()) << '\n';
  if (is_quickstart) print_next_commands();
  if (accuracy >= kLeastAccuracy) return 0;
  std::cerr << "backplane_digits: fewer than " << 100 * kLeastAccuracy << " % were read right\n";
  return 1;
}

int guarded_main(const std::vector<std::string>& arguments) {
  fs::path folder = default_data();
  bool is_quickstart = false;
  for (const std::string& argument : arguments) {
    if (argument == "--quickstart") {
      is_quickstart = true;
    } else if (!argument.empty() && argument[0] == '-') {
      std::cerr << "backplane_digits: unknown option '" << argument
                << "'; use [--quickstart] [FOLDER]\n";
      return 2;
    } else {
      folder = argument;
    }
  }
  try {
    return read_digits(folder, is_quickstart);
  } catch (const std::exception& error) {
    std::cerr << "backplane_digits: " << error.what() << '\n';
    return 2;
  }
}

}  // namespace
}  // namespace backplane::digits

int main(int argc, char** argv) {
  return backplane::digits::guarded_main(std::vector<std::string>(argv + 1, argv + argc));
}
