// Formats: PPM, http://netpbm.sourceforge.net/doc/ppm.html; JPEG by libjpeg.
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>

#include "tools/detect/picture.hpp"
#ifdef BACKPLANE_DETECT_JPEG
#include <jpeglib.h>
#endif

namespace backplane::detect {
namespace {

constexpr int kMostPixelsPerSide = 1 << 15;

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw std::runtime_error("'" + path + "': " + why);
}

Picture blank(const std::string& path, long width, long height) {
  if (width < 1 || height < 1 || width > kMostPixelsPerSide || height > kMostPixelsPerSide)
    fail(path, "a picture of " + std::to_string(width) + " x " + std::to_string(height) +
                   " pixels is too small or too large");
  Picture picture;
  picture.width = static_cast<int>(width);
  picture.height = static_cast<int>(height);
  picture.bytes.resize(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3);
  return picture;
}

/// A number of a PPM header; blanks and comments before it are passed over.
long header_number(std::istream& file, const std::string& path) {
  while (file.good() && (std::isspace(file.peek()) != 0 || file.peek() == '#')) {
    if (file.get() != '#') continue;
    while (file.good() && file.get() != '\n') {
    }
  }
  long number = -1;
  if (!(file >> number)) fail(path, "its PPM header is broken");
  return number;
}

Picture read_ppm(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  file.ignore(2);
  const long width = header_number(file, path), height = header_number(file, path);
  const long most = header_number(file, path);
  if (most != 255) fail(path, "its colours go to " + std::to_string(most) + "; 255 was expected");
  file.ignore(1);
  Picture picture = blank(path, width, height);
  const auto bytes = static_cast<std::streamsize>(picture.bytes.size());
  if (!file.read(reinterpret_cast<char*>(picture.bytes.data()), bytes)) fail(path, "it is cut off");
  return picture;
}

void write_ppm(const Picture& picture, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  file << "P6\n" << picture.width << ' ' << picture.height << "\n255\n";
  file.write(reinterpret_cast<const char*>(picture.bytes.data()),
             static_cast<std::streamsize>(picture.bytes.size()));
  file.close();
  if (!file) fail(path, std::string("it cannot be written: ") + std::strerror(errno));
}

#ifdef BACKPLANE_DETECT_JPEG

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

File open(const std::string& path, const char* mode) {
  File file(std::fopen(path.c_str(), mode));
  if (file == nullptr) fail(path, std::strerror(errno));
  return file;
}

/// libjpeg ends the process on an error unless told otherwise; its C++ build unwinds.
[[noreturn]] void throw_error(j_common_ptr info) {
  char text[JMSG_LENGTH_MAX];
  info->err->format_message(info, text);
  throw std::runtime_error(text);
}

Picture read_jpeg(const std::string& path) {
  const File file = open(path, "rb");
  jpeg_error_mgr errors{};
  jpeg_decompress_struct info{};
  info.err = jpeg_std_error(&errors);
  errors.error_exit = throw_error;
  errors.output_message = [](j_common_ptr) {};  // standard error is not its to write
  jpeg_create_decompress(&info);
  const std::unique_ptr<jpeg_decompress_struct, void (*)(jpeg_decompress_struct*)> ending(
      &info, jpeg_destroy_decompress);
  try {
    jpeg_stdio_src(&info, file.get());
    jpeg_read_header(&info, TRUE);
    info.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info);
    Picture picture = blank(path, info.output_width, info.output_height);
    while (info.output_scanline < info.output_height) {
      JSAMPROW row = picture.pixel(0, static_cast<int>(info.output_scanline));
      jpeg_read_scanlines(&info, &row, 1);
    }
    jpeg_finish_decompress(&info);
    return picture;
  } catch (const std::runtime_error& error) {
    fail(path, error.what());
  }
}

void write_jpeg(const Picture& picture, const std::string& path) {
  const File file = open(path, "wb");
  jpeg_error_mgr errors{};
  jpeg_compress_struct info{};
  info.err = jpeg_std_error(&errors);
  errors.error_exit = throw_error;
  jpeg_create_compress(&info);
  const std::unique_ptr<jpeg_compress_struct, void (*)(jpeg_compress_struct*)> ending(
      &info, jpeg_destroy_compress);
  try {
    jpeg_stdio_dest(&info, file.get());
    info.image_width = static_cast<JDIMENSION>(picture.width);
    info.image_height = static_cast<JDIMENSION>(picture.height);
    info.input_components = 3;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, 92, TRUE);
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) {
      auto row = const_cast<JSAMPROW>(picture.pixel(0, static_cast<int>(info.next_scanline)));
      jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
  } catch (const std::runtime_error& error) {
    fail(path, error.what());
  }
}

#else

Picture read_jpeg(const std::string& path) {
  fail(path, "this build reads PPM alone, since libjpeg was not there; convert it with djpeg");
}
void write_jpeg(const Picture&, const std::string& path) {
  fail(path,
       "this build writes PPM alone, since libjpeg was not there; give a name that ends in .ppm");
}

#endif

}  // namespace

Picture read_picture(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(path, std::strerror(errno));
  unsigned char head[2] = {};
  file.read(reinterpret_cast<char*>(head), 2);
  if (head[0] == 'P' && head[1] == '6') return read_ppm(path);
  if (head[0] == 0xFF && head[1] == 0xD8) return read_jpeg(path);
  fail(path, "it is neither a PPM (P6) nor a JPEG picture");
}

void write_picture(const Picture& picture, const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  const std::string whole = path + ".part";
  if (ending == ".ppm") {
    write_ppm(picture, whole);
  } else if (ending == ".jpg" || ending == ".jpeg") {
    write_jpeg(picture, whole);
  } else {
    fail(path, "pictures are written as .ppm, .jpg or .jpeg");
  }
  std::error_code error;
  std::filesystem::rename(whole, path, error);
  if (error) fail(path, error.message());
}

}  // namespace backplane::detect
