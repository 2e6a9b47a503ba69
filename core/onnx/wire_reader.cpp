// Protobuf's encoding: https://protobuf.dev/programming-guides/encoding. The input is hostile: every length is checked
// against the message that it stands in, nesting is bounded, and so is the memory that parsing the result will take.
#include "core/onnx/wire_reader.hpp"

#include <limits>
#include <optional>
#include <vector>

#include "core/base/data_type.hpp"
#include "core/base/error.hpp"

namespace backplane::core {
namespace {

// What messages may take in memory beyond the size of the file.
constexpr std::uint64_t kSpareBytes = 400ull << 20;
// About what an empty message of the model takes once parsed; a tag and a length on the wire make one.
constexpr std::uint64_t kMessageBytes = 200;
constexpr std::uint64_t kStringBytes = 40;
constexpr std::uint64_t kNumberBytes = 8;
// Types of values consist of messages of a few bytes each, which grow by about this much.
constexpr std::uint64_t kTypeGrowth = 8;

enum class Message { Model, Graph, Node, Attribute, Function, Tensor, Plain };

// Numbers of fields, from onnx.proto.
constexpr std::uint32_t kModelGraph = 7;
constexpr std::uint32_t kModelTraining = 20;
constexpr std::uint32_t kModelFunctions = 25;
constexpr std::uint32_t kGraphNode = 1;
constexpr std::uint32_t kGraphInitializer = 5;
constexpr std::uint32_t kGraphInput = 11;
constexpr std::uint32_t kGraphValueInfo = 13;
constexpr std::uint32_t kNodeAttribute = 5;
constexpr std::uint32_t kNodeInput = 1;
constexpr std::uint32_t kNodeOutput = 2;
constexpr std::uint32_t kAttributeTensor = 5;
constexpr std::uint32_t kAttributeGraph = 6;
constexpr std::uint32_t kAttributeStrings = 9;
constexpr std::uint32_t kAttributeTensors = 10;
constexpr std::uint32_t kAttributeGraphs = 11;
constexpr std::uint32_t kFunctionNode = 7;
constexpr std::uint32_t kFunctionAttribute = 11;
constexpr std::uint32_t kTensorDataType = 2;
constexpr std::uint32_t kTensorSegment = 3;
constexpr std::uint32_t kTensorFloatData = 4;
constexpr std::uint32_t kTensorStringData = 6;
constexpr std::uint32_t kTensorRawData = 9;
constexpr std::uint32_t kTensorDoubleData = 10;

enum WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

/// A field that the walk treats in its own way: a message that it enters, or one that it passes by.
struct KnownField {
  Message parent;
  std::uint32_t number;
  std::optional<Message> child;
};

constexpr KnownField kKnownFields[] = {
    {Message::Model, kModelGraph, Message::Graph},
    {Message::Model, kModelFunctions, Message::Function},
    {Message::Graph, kGraphNode, Message::Node},
    {Message::Graph, kGraphInitializer, Message::Tensor},
    {Message::Node, kNodeAttribute, Message::Attribute},
    {Message::Node, kNodeInput, std::nullopt},
    {Message::Node, kNodeOutput, std::nullopt},
    {Message::Attribute, kAttributeGraph, Message::Graph},
    {Message::Attribute, kAttributeGraphs, Message::Graph},
    {Message::Attribute, kAttributeTensor, Message::Tensor},
    {Message::Attribute, kAttributeTensors, Message::Tensor},
    {Message::Attribute, kAttributeStrings, std::nullopt},
    {Message::Function, kFunctionNode, Message::Node},
    {Message::Function, kFunctionAttribute, Message::Attribute},
    {Message::Tensor, kTensorStringData, std::nullopt},
};

/// What a field of a message is, as far as the walk goes into it.
std::optional<Message> child_of(Message parent, std::uint32_t field) {
  if (parent == Message::Plain) return std::nullopt;
  for (const KnownField& known : kKnownFields) {
    if (known.parent == parent && known.number == field) return known.child;
  }
  return Message::Plain;
}

struct Field {
  std::uint32_t number;
  std::uint32_t wire_type;
  std::uint64_t value;     // of a varint
  std::size_t begin;       // of the tag
  std::size_t data_begin;  // of the contents of kBytes
  std::size_t end;
};

bool is_large_piece(const Field& field, std::optional<DataType> type) {
  if (field.wire_type != kBytes || field.end - field.data_begin <= kInlineBytes) return false;
  switch (field.number) {
    case kTensorRawData:
      return true;
    case kTensorFloatData:
      return type == DataType::Float || type == DataType::Complex64;
    case kTensorDoubleData:
      return type == DataType::Double || type == DataType::Complex128;
    default:
      return false;
  }
}

std::size_t varint_size(std::uint64_t value) {
  std::size_t size = 1;
  while (value >= 0x80) {
    value >>= 7;
    ++size;
  }
  return size;
}

void append_varint(std::string& to, std::uint64_t value) {
  while (value >= 0x80) {
    to += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  to += static_cast<char>(value);
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> model) : model_(model) {}

  std::string reduce() {
    const std::size_t size = measure(Message::Model, 0, model_.size(), 0);
    if (size > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
      fail(0, "has more than 2 GiB beside its tensor data");
    }
    std::string result;
    result.reserve(size);
    emit(Message::Model, 0, model_.size(), result);
    return result;
  }

 private:
  [[noreturn]] static void fail(std::size_t at, const std::string& reason) {
    invalid("no ONNX model, or a truncated one: at byte ", at, " it ", reason);
  }

  std::uint64_t varint(std::size_t& at, std::size_t end) const {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
      if (at >= end) fail(at, "ends inside a number");
      const auto byte = static_cast<std::uint8_t>(model_[at++]);
      if (shift == 63 && byte > 1) break;
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    fail(at, "has a number of more than 64 bits");
  }

  Field next(std::size_t& at, std::size_t end) const {
    Field field{};
    field.begin = at;
    const std::uint64_t tag = varint(at, end);
    const std::uint64_t number = tag >> 3;
    if (number == 0 || number > 0x1fffffff)
      fail(field.begin, "has a field with an impossible number");
    field.number = static_cast<std::uint32_t>(number);
    field.wire_type = static_cast<std::uint32_t>(tag & 7);
    switch (field.wire_type) {
      case kVarint:
        field.value = varint(at, end);
        break;
      case kFixed64:
        skip(at, end, 8);
        break;
      case kFixed32:
        skip(at, end, 4);
        break;
      case kBytes: {
        const std::uint64_t length = varint(at, end);
        field.data_begin = at;
        skip(at, end, length);
        break;
      }
      default:
        fail(field.begin, "has a field of a kind that ONNX does not use");
    }
    field.end = at;
    return field;
  }

  static void skip(std::size_t& at, std::size_t end, std::uint64_t count) {
    if (count > end - at) {
      fail(at, text("has a field of ", count, " bytes, but its message ends after ", end - at));
    }
    at += static_cast<std::size_t>(count);
  }

  void account(std::uint64_t bytes) {
    parsed_bytes_ += bytes;
    if (parsed_bytes_ > kSpareBytes + model_.size()) {
      fail(0, text("has so many parts that parsing it would take more than ", kSpareBytes >> 20,
                   " MiB beyond its size"));
    }
  }

  /// The one large piece of a tensor's contents, or nothing: small, in several pieces, of a kind to be converted.
  std::optional<Field> large_piece(std::size_t begin, std::size_t end) const {
    std::optional<DataType> type;
    for (std::size_t at = begin; at < end;) {
      const Field field = next(at, end);
      if (field.number == kTensorSegment)
        fail(field.begin, "has a tensor with segments, which no ONNX version defines");
      if (field.number == kTensorDataType && field.wire_type == kVarint && field.value < 64) {
        type = static_cast<DataType>(field.value);
      }
    }
    std::optional<Field> piece;
    int pieces = 0;
    for (std::size_t at = begin; at < end;) {
      const Field field = next(at, end);
      const bool contents = field.number == kTensorRawData || field.number == kTensorFloatData ||
                            field.number == kTensorDoubleData;
      if (contents) ++pieces;
      if (is_large_piece(field, type)) piece = field;
    }
    return pieces == 1 ? piece : std::nullopt;
  }

  /// Walks a message and checks it; returns its reduced size and notes those of its children.
  std::size_t measure(Message message, std::size_t begin, std::size_t end, int depth) {
    if (depth > kDeepestMessage) {
      invalid("its bodies are nested too deep: at byte ", begin, " it is more than ",
              kDeepestMessage, " messages deep, and each body takes 3");
    }
    account(message == Message::Plain ? 0 : kMessageBytes);
    const std::optional<Field> piece =
        message == Message::Tensor ? large_piece(begin, end) : std::nullopt;
    std::size_t size = piece ? segment_size(*piece) : 0;
    for (std::size_t at = begin; at < end;) {
      const Field field = next(at, end);
      if (is_left_out(message, field, piece)) continue;
      const std::optional<Message> child =
          field.wire_type == kBytes ? child_of(message, field.number) : std::nullopt;
      if (!child || *child == Message::Plain) {
        account(parsed_size(message, field));
        size += field.end - field.begin;
        continue;
      }
      const std::size_t slot = sizes_.size();
      sizes_.push_back(0);
      const std::size_t child_size = measure(*child, field.data_begin, field.end, depth + 1);
      sizes_[slot] = child_size;
      size += varint_size(tag_of(field)) + varint_size(child_size) + child_size;
    }
    return size;
  }

  /// The same walk again, with all sizes known.
  void emit(Message message, std::size_t begin, std::size_t end, std::string& to) {
    const std::optional<Field> piece =
        message == Message::Tensor ? large_piece(begin, end) : std::nullopt;
    for (std::size_t at = begin; at < end;) {
      const Field field = next(at, end);
      if (is_left_out(message, field, piece)) continue;
      const std::optional<Message> child =
          field.wire_type == kBytes ? child_of(message, field.number) : std::nullopt;
      if (!child || *child == Message::Plain) {
        to.append(reinterpret_cast<const char*>(model_.data()) + field.begin,
                  field.end - field.begin);
        continue;
      }
      append_varint(to, tag_of(field));
      append_varint(to, sizes_[next_size_++]);
      emit(*child, field.data_begin, field.end, to);
    }
    if (piece) append_segment(*piece, to);
  }

  static std::uint64_t parsed_size(Message message, const Field& field) {
    if (field.wire_type != kBytes) return kNumberBytes;
    if (!child_of(message, field.number)) return kStringBytes;
    const bool type =
        message == Message::Graph && field.number >= kGraphInput && field.number <= kGraphValueInfo;
    return kMessageBytes + (type ? kTypeGrowth * (field.end - field.data_begin) : 0);
  }

  static bool is_left_out(Message message, const Field& field, const std::optional<Field>& piece) {
    if (message == Message::Model && field.number == kModelTraining) return true;
    return piece && field.begin == piece->begin;
  }

  static std::uint64_t tag_of(const Field& field) {
    return (static_cast<std::uint64_t>(field.number) << 3) | field.wire_type;
  }

  // TensorProto.Segment: begin = 1, end = 2, both varints.
  static std::size_t segment_contents_size(const Field& piece) {
    return 2 + varint_size(piece.data_begin) + varint_size(piece.end);
  }
  static std::size_t segment_size(const Field& piece) { return 2 + segment_contents_size(piece); }
  static void append_segment(const Field& piece, std::string& to) {
    append_varint(to, (kTensorSegment << 3) | kBytes);
    append_varint(to, segment_contents_size(piece));
    append_varint(to, (1u << 3) | kVarint);
    append_varint(to, piece.data_begin);
    append_varint(to, (2u << 3) | kVarint);
    append_varint(to, piece.end);
  }

  std::span<const std::byte> model_;
  std::uint64_t parsed_bytes_ = 0;
  std::vector<std::size_t>
      sizes_;  // of the messages that are walked into, in the order of the walk
  std::size_t next_size_ = 0;
};

}  // namespace

std::string reduce_model(std::span<const std::byte> model) { return Reader(model).reduce(); }

}  // namespace backplane::core
