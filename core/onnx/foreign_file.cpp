#include "core/onnx/foreign_file.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace backplane::core {
namespace {

using std::string_view_literals::operator""sv;

struct Beginning {
  std::size_t at;
  std::string_view bytes;
  const char* words;
};

constexpr std::array kBeginnings = {
    Beginning{0, "version https://git-lfs."sv,
              "it is a pointer of Git LFS, not the file itself: get that by `git lfs pull`"},
    Beginning{0, "<!doctype html"sv, "it is a web page: look at where it was downloaded from"},
    Beginning{0, "<html"sv, "it is a web page: look at where it was downloaded from"},
    Beginning{0, "BPPLAN"sv,
              "it is a saved plan: give the model that it was made of, and the plan by the option "
              "saved_plan"},
    Beginning{0, "PK\3\4"sv,
              "it is a zip archive, as PyTorch's checkpoints are: export the model to ONNX, or "
              "unpack it if it lies inside"},
    Beginning{0, "\x1f\x8b"sv, "it is compressed by gzip: unpack it first"},
    Beginning{0,
              "\xfd"
              "7zXZ"sv,
              "it is compressed by xz: unpack it first"},
    Beginning{0, "\x28\xb5\x2f\xfd"sv, "it is compressed by zstd: unpack it first"},
    Beginning{0, "\x89HDF"sv, "it is HDF5, as Keras saves: convert the model to ONNX"},
    Beginning{0, "\x93NUMPY"sv, "it is a numpy array"},
    Beginning{0, "GGUF"sv, "it is GGUF, for llama.cpp: convert the model to ONNX"},
    Beginning{0, "\x80\2"sv, "it is a Python pickle: export the model to ONNX"},
    Beginning{0, "\x80\4"sv, "it is a Python pickle: export the model to ONNX"},
    Beginning{4, "ORTM"sv,
              "it is in ONNX Runtime's own format (.ort): give the .onnx that it was made of"},
    Beginning{4, "TFL3"sv, "it is TensorFlow Lite's: convert the model to ONNX"},
    Beginning{8, "{\""sv, "it is safetensors, weights without a graph: export the model to ONNX"},
    Beginning{0, "{"sv, "it is a text that begins as JSON does"},
};

bool begins(std::span<const std::byte> bytes, const Beginning& beginning) {
  if (bytes.size() < beginning.at + beginning.bytes.size()) return false;
  return std::equal(beginning.bytes.begin(), beginning.bytes.end(),
                    bytes.begin() + static_cast<std::ptrdiff_t>(beginning.at),
                    [](char want, std::byte byte) {
                      const auto have = std::to_integer<int>(byte);
                      return static_cast<unsigned char>(want) == have ||
                             (have < 128 && want == std::tolower(have));
                    });
}

}  // namespace

std::string describe_foreign(std::span<const std::byte> bytes) {
  for (const Beginning& beginning : kBeginnings) {
    if (begins(bytes, beginning)) return beginning.words;
  }
  return "";
}

}  // namespace backplane::core
