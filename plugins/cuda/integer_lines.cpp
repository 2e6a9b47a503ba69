#include "plugins/cuda/integer_lines.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "plugins/common/device_ops/saturation.hpp"
#include "plugins/common/device_ops/walk.hpp"
#include "plugins/cuda/kernels/integer_lines.hpp"

namespace backplane::cuda {
namespace {

std::int64_t up_to(std::int64_t count, std::int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

/// A launch of one of the texts over words.
device_ops::LaunchPlan plan_of(const char* text, const char* name) {
  device_ops::LaunchPlan plan;
  plan.source = device_ops::KernelText().add(kBytesOfWords).add(text).str();
  plan.name = name;
  return plan;
}

/// Values seen in a result's expression: v0, v1 ...
class Operands {
 public:
  std::string add(const View& view) {
    views_.push_back(view);
    return sdk::message("v", views_.size() - 1);
  }
  const std::vector<View>& views() const { return views_; }

 private:
  std::vector<View> views_;
};

/// A zero point less what the elements were moved by.
std::string zero_text(const std::optional<View>& zero, int shift, Operands& operands) {
  return sdk::message("((u32)(i32)", zero ? operands.add(*zero) : std::string("0"), " - ", shift,
                      "u)");
}

/// The sums less the zero points' part, as an i32.
std::string sums_text(const LineResult& result, Operands& operands,
                      std::vector<double>& parameters) {
  std::string text = sdk::message("(u32)", operands.add(result.sums));
  std::string a, b;
  if (result.has_a_zero()) {
    a = zero_text(result.a_zero, result.a_shift, operands);
    text += sdk::message(" - ", a, " * (u32)", operands.add(result.b_sums.value()));
  }
  if (result.has_b_zero()) {
    b = zero_text(result.b_zero, result.b_shift, operands);
    text += sdk::message(" - ", b, " * (u32)", operands.add(result.a_sums.value()));
  }
  if (result.has_a_zero() && result.has_b_zero()) {
    // An argument, so that nodes of other depths share the kernel; in two floats, which hold it exactly.
    constexpr std::int64_t kPart = 65536;
    const std::int64_t high = result.depth / kPart, low = result.depth % kPart;
    parameters = {static_cast<double>(high), static_cast<double>(low)};
    text += sdk::message(" + ", a, " * ", b, " * ((u32)p0 * 65536u + (u32)p1)");
  }
  return text;
}

}  // namespace

bool Lines::lies_right() const {
  return type == DataType::Int8 && step == 1 && line_step == depth && depth % kInt8Word == 0 &&
         out_lines == lines && out_depth == depth &&
         (matrices == 1 || matrix_step == matrix_bytes());
}

std::int64_t padded_depth(std::int64_t depth) { return up_to(depth, kLibraryAlignment); }

int shift_of(DataType type) {
  constexpr int kSignBit = 128;
  return type == DataType::UInt8 ? kSignBit : 0;
}

void add_lay_out(device_ops::Work& work, const Lines& lines, const MemoryRef& from,
                 const MemoryRef& to) {
  const std::int64_t words = lines.out_depth / kInt8Word;
  device_ops::Walk walk(Dims{lines.matrices, lines.out_lines, words});
  walk.in("x", from, DataType::UInt8)
      .out("y", to, DataType::UInt32)
      .define("FLIP", shift_of(lines.type));
  walk.number("lines", lines.lines).number("depth", lines.depth);
  walk.number("out_lines", lines.out_lines).number("words", words);
  walk.number("matrix_step", lines.matrix_step).number("line_step", lines.line_step);
  walk.number("step", lines.step);
  walk.name("lines of int8");
  walk.body = kLayOutBody;
  walk.add_to(work);
}

void add_line_sums(device_ops::Work& work, std::int64_t count, std::int64_t depth,
                   const MemoryRef& from, const MemoryRef& to) {
  constexpr std::size_t kGroup = 64;
  device_ops::LaunchPlan plan = plan_of(kLineSums, "sums of lines");
  plan.arg(from, DataType::UInt32).arg(to, DataType::Int32).scalar(depth / kInt8Word);
  plan.items = {static_cast<std::size_t>(count) * kGroup, 1, 1};
  plan.group = {kGroup, 1, 1};
  work.add(std::move(plan));
}

std::uint64_t sums_behind(std::int64_t bytes) {
  constexpr std::int64_t kSumsAlignment = 256;
  return static_cast<std::uint64_t>(up_to(bytes, kSumsAlignment));
}

void upload_with_sums(const sdk::PackContext& ctx, std::vector<unsigned char>& packed,
                      const std::vector<std::int32_t>& sums, std::uint64_t sums_at) {
  if (!sums.empty())
    std::memcpy(packed.data() + sums_at, sums.data(), sums.size() * sizeof(std::int32_t));
  upload_packed(ctx, packed.data(), packed.size());
}

std::uint64_t LinePacker::sums_at() const { return sums_behind(lines.bytes()); }

std::uint64_t LinePacker::bytes() const {
  return sums_at() + static_cast<std::uint64_t>(lines.sum_count()) * sizeof(std::int32_t);
}

std::string LinePacker::key() const {
  return sdk::message("int8 lines ", lines.matrices, " of ", lines.lines, "x", lines.depth, " to ",
                      lines.out_lines, "x", lines.out_depth, " steps ", lines.matrix_step, ' ',
                      lines.line_step, ' ', lines.step);
}

void LinePacker::pack(const sdk::PackContext& ctx) const {
  const auto* const from = ctx.source(0).data<std::uint8_t>();
  const auto flip = static_cast<std::uint8_t>(shift_of(ctx.source(0).type()));
  std::vector<unsigned char> packed(bytes(), 0);
  std::vector<std::int32_t> sums(static_cast<std::size_t>(lines.sum_count()), 0);
  for (std::int64_t matrix = 0; matrix < lines.matrices; ++matrix) {
    for (std::int64_t line = 0; line < lines.lines; ++line) {
      const std::int64_t at = matrix * lines.out_lines + line;
      unsigned char* const to = packed.data() + at * lines.out_depth;
      const std::uint8_t* const source = from + matrix * lines.matrix_step + line * lines.line_step;
      std::int32_t sum = 0;
      for (std::int64_t k = 0; k < lines.depth; ++k) {
        to[k] = source[k * lines.step] ^ flip;
        sum += static_cast<std::int8_t>(to[k]);
      }
      sums[static_cast<std::size_t>(at)] = sum;
    }
  }
  upload_with_sums(ctx, packed, sums, sums_at());
}

LaidOut lay_out(sdk::PrepareContext& ctx, NodeWork& work, const LinePackers& packers,
                std::uint32_t place, const Lines& lines, bool wants_sums, bool may_stay,
                WorkspacePieces& pieces) {
  if (ctx.input_constant(place)) return packers.request(ctx, work, place, {lines});
  LaidOut laid;
  if (may_stay && lines.lies_right() && !wants_sums) {
    laid.lines = input(place);
    laid.spare_bytes = static_cast<std::uint64_t>(lines.bytes());
    laid.spare = pieces.add(lines.bytes());
    return laid;
  }
  laid.lines = pieces.add(lines.bytes());
  add_lay_out(work.launches(), lines, input(place), laid.lines);
  if (!wants_sums) return laid;
  laid.sums = pieces.add(lines.sum_count() * static_cast<std::int64_t>(sizeof(std::int32_t)));
  add_line_sums(work.launches(), lines.sum_count(), lines.out_depth, laid.lines, laid.sums);
  return laid;
}

namespace {

std::unique_ptr<ProductWork> library_product(NodeWork& work, const LineProduct& product,
                                             const WorkspacePieces& pieces) {
  ProductPlan plan;
  plan.product.type = DataType::Int8;
  plan.product.result = DataType::Int32;
  plan.product.rows = product.rows;
  plan.product.columns = product.out_columns;
  plan.product.depth = product.depth;
  plan.product.batch = product.batch;
  plan.product.a = {product.depth, product.a_step, false};
  plan.product.b = {product.depth, product.b_step, true};
  plan.product.y_batch_step = product.sums_step;
  plan.a = product.a.lines;
  plan.b = product.b.lines;
  plan.y = product.sums;
  plan.calls = product.calls;
  plan.spare = product.a.spare;
  plan.spare_bytes = product.a.spare_bytes;
  plan.workspace = device_ops::workspace(pieces.bytes());
  try {
    return std::make_unique<ProductWork>(work.device(), work.label(), std::move(plan),
                                         work.choosing());
  } catch (const sdk::Error& error) {
    if (error.code() != BP_UNSUPPORTED) throw;
    return nullptr;  // it has no algorithm for the form
  }
}

void add_plain_product(device_ops::Work& work, const LineProduct& product) {
  constexpr std::size_t kTile = 16;
  for (const ProductPlan::Call& call : product.calls) {
    device_ops::LaunchPlan plan = plan_of(kLineProduct, "product of lines");
    MemoryRef a = product.a.lines, b = product.b.lines, y = product.sums;
    a.offset += call.a;
    b.offset += call.b;
    y.offset += call.y;
    plan.arg(a, DataType::UInt32).arg(b, DataType::UInt32).arg(y, DataType::Int32);
    for (const std::int64_t number :
         {product.rows, product.columns, product.out_columns, product.depth / kInt8Word,
          product.a_step / kInt8Word, product.b_step / kInt8Word, product.sums_step})
      plan.scalar(number);
    plan.items = {static_cast<std::size_t>(product.columns), static_cast<std::size_t>(product.rows),
                  static_cast<std::size_t>(product.batch)};
    plan.group = {kTile, kTile, 1};
    work.add(std::move(plan));
  }
}

}  // namespace

std::string add_line_product(NodeWork& work, const LineProduct& product, WorkspacePieces& pieces) {
  // The library wants a whole number of words of the result's columns too.
  if (product.depth > 0 && product.out_columns % kInt8Word == 0) {
    if (std::unique_ptr<ProductWork> part = library_product(work, product, pieces)) {
      pieces.add(static_cast<std::int64_t>(part->workspace_bytes()));
      work.add(std::move(part));
      return "cublaslt, int8";
    }
  }
  LineProduct plain = product;
  if (plain.a.spare_bytes > 0) {
    // Words are loaded from multiples of four, which nobody promises of the input.
    work.launches().add_copy(plain.a.lines, plain.a.spare, plain.a.spare_bytes);
    plain.a.lines = plain.a.spare;
  }
  add_plain_product(work.launches(), plain);
  return "plain, int8";
}

void add_result(device_ops::Work& work, const LineResult& result) {
  Operands operands;
  device_ops::Expression expression;
  std::string sum = sums_text(result, operands, expression.parameters);
  const bool has_whole_bias = result.bias && result.bias->type == DataType::Int32;
  if (has_whole_bias) sum += sdk::message(" + (u32)", operands.add(*result.bias));
  sum = sdk::message("(i32)(", sum, ")");
  std::string scale;
  if (result.a_scale)
    scale = sdk::message("(float)", operands.add(*result.a_scale), " * (float)",
                         operands.add(result.b_scale.value()));
  std::string value = sum;
  const std::string zero = result.y_zero ? operands.add(*result.y_zero) : std::string("0");
  if (result.a_scale && !result.is_chain) {
    value = sdk::message("(float)", sum, " * (", scale, " / (float)",
                         operands.add(result.y_scale.value()), ")");
  } else if (result.a_scale) {
    value = sdk::message("(float)", sum, " * (", scale, ")");
    if (result.bias && !has_whole_bias)
      value += sdk::message(" + (float)", operands.add(*result.bias));
    if (result.has_relu) {
      expression.statements = sdk::message("  float r = ", value, ";\n");
      value = "(r > 0 || IS_NAN(r) ? r : 0)";
    }
    if (result.y_scale)
      value = sdk::message("(", value, ") / (float)", operands.add(*result.y_scale));
  }
  if (result.y_scale) {
    expression.functions = device_ops::saturation_text(result.type);
    value = sdk::message("saturate(", value, ", (i32)", zero, ")");
  }
  expression.text = value;
  device_ops::add_pointwise(work, result.dims, operands.views(), result.y, expression);
}

}  // namespace backplane::cuda
