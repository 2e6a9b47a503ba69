// ExpandDims, Trilu, GatherND, GridSample, Pad, Range, Unique: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include "core/onnx/function_operator.hpp"

namespace backplane::core {
namespace {

void write_expand_dims(BodyWriter& body) {
  const auto axis = body.cast(body.reshape(body.in(1), {1}), DataType::Int64);
  body.output(0, body.op("Unsqueeze", {body.in(0), axis}));
}

void write_trilu(BodyWriter& body) {
  body.output(0, body.op("Trilu", {body.in(0), body.in(1)}, body.attributes({"upper"})));
}

void write_gather_nd(BodyWriter& body) {
  const auto indices =
      body.type(1) == DataType::Int64 ? body.in(1) : body.cast(body.in(1), DataType::Int64);
  body.output(0, body.op("GatherND", {body.in(0), indices}));
}

/// Its words for the modes are those of ONNX's first version.
void write_grid_sample(BodyWriter& body) {
  std::string mode = body.string_of("mode");
  if (mode == "bilinear") mode = "linear";
  if (mode == "bicubic") mode = "cubic";
  if (body.type(0) != body.type(1)) body.refuse("its grid is of another type than its images");
  BodyWriter::Attrs attributes = body.attributes({"align_corners", "padding_mode"});
  attributes.push_back({"mode", BodyWriter::Attr::Value(mode)});
  body.output(0, body.op("GridSample", {body.in(0), body.in(1)}, attributes));
}

void write_pad(BodyWriter& body) {
  const auto value = body.has_input(2) ? body.reshape(body.in(2), {}) : std::string();
  body.output(0, body.op("Pad", {body.in(0), body.reshape(body.in(1), {-1}), value},
                         body.attributes({"mode"})));
}

void write_range(BodyWriter& body) {
  const auto step = body.has_input(2) ? body.reshape(body.in(2), {}) : body.scalar(body.type(0), 1);
  body.output(0,
              body.op("Range", {body.reshape(body.in(0), {}), body.reshape(body.in(1), {}), step}));
}

/// In the order in which elements are first met.
void write_unique(BodyWriter& body) {
  const auto found =
      body.ops("Unique", {body.in(0)}, {true, false, body.has_output(1), body.has_output(2)},
               {{"axis", 0}, {"sorted", 0}});
  body.output(0, found[0]);
  body.output(1, found[2]);
  body.output(2, found[3]);
}

}  // namespace

OperatorList indexing_operators() {
  const std::vector<std::string> all{"float",  "float16", "bfloat16", "double", "int8",
                                     "int16",  "int32",   "int64",    "uint8",  "uint16",
                                     "uint32", "uint64",  "bool"};
  std::vector<std::string> more = all;
  for (const char* type : {"string", "complex64", "complex128"}) more.emplace_back(type);
  OperatorList list;
  list.push_back(OperatorDraft("ExpandDims", write_expand_dims)
                     .input("X")
                     .input("axis", "int32")
                     .output("Y")
                     .types("T", more)
                     .done());
  list.push_back(OperatorDraft("Trilu", write_trilu)
                     .input("X")
                     .optional_input("k", "int64")
                     .output("Y")
                     .int_or("upper", 1)
                     .types("T", all)
                     .keeps_shape()
                     .done());
  list.push_back(OperatorDraft("GatherND", write_gather_nd)
                     .input("data")
                     .input("indices", "TI")
                     .output("output")
                     .types("T", more)
                     .types("TI", {"int32", "int64"})
                     .done());
  list.push_back(OperatorDraft("GridSample", write_grid_sample)
                     .input("X", "T1")
                     .input("Grid", "T1")
                     .output("Y", "T1")
                     .string_or("mode", "bilinear")
                     .string_or("padding_mode", "zeros")
                     .int_or("align_corners", 0)
                     .types("T1", float_types())
                     .done());
  list.push_back(OperatorDraft("Pad", write_pad)
                     .input("data")
                     .input("pads", "int64")
                     .optional_input("value")
                     .output("output")
                     .string_or("mode", "constant")
                     .types("T", {"float16", "float", "double"})
                     .done());
  list.push_back(OperatorDraft("Range", write_range)
                     .input("start")
                     .input("limit")
                     .optional_input("delta")
                     .output("Y")
                     .types("T", {"float", "double", "int16", "int32", "int64"})
                     .done());
  list.push_back(OperatorDraft("Unique", write_unique)
                     .input("x")
                     .output("y")
                     .output("idx", "int64")
                     .output("counts", "int64")
                     .types("T", more)
                     .done());
  return list;
}

}  // namespace backplane::core
