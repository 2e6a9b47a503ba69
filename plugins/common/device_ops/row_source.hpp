// What kernels of rows read: a tensor, or what an expression makes of several.
#pragma once

#include <cstdint>
#include <string>

#include "plugins/common/device_ops/pointwise.hpp"
#include "plugins/common/device_ops/walk.hpp"

namespace backplane::device_ops {

/// What the rows are of, whether it is in memory or not.
struct RowElements {
  Dims dims;
  DataType type = DataType::Float;
  int rank() const { return static_cast<int>(dims.size()); }
  std::int64_t size() const { return sdk::element_count(dims); }
};

/// How a kernel gets at the rows, as text. A kernel of kernels/rows.hpp reads them by READ_ROW, which is defined already.
struct RowReading {
  std::string functions;  ///< before the kernel
  std::string reader;     ///< after `functions`, where rows are shared
  std::string beginning;  ///< the kernel's first statements, where `row` is known
  std::string element;    ///< element k of the row, after `beginning`
  /// The parameters by which functions have what `element` reads, with a comma after each, and what is given for them.
  std::string parameters, arguments;
};

/// Rows of input 0; or, of a node that rewrite/rows.cpp made, of what the attributes "statements" and "result" say of the
/// first "operands" inputs, which are of any float types and broadcast to the dims of MadeDims.
class RowSource {
 public:
  explicit RowSource(const sdk::Node& node);

  /// Whether rows are made by an expression: they are float32 or "type", and go from an axis to the end.
  bool is_made() const { return is_made_; }
  /// The first input that is something else.
  std::uint32_t next_input() const { return operands_; }
  RowElements elements(const sdk::PrepareContext& ctx) const;

  /// Gives the kernel the inputs. A row of an expression is the axes from `axis` on.
  RowReading add_to(Walk& walk, const sdk::PrepareContext& ctx, int axis) const;

 private:
  RowReading add_operands(Walk& walk, const sdk::PrepareContext& ctx, int axis) const;

  bool is_made_;
  std::uint32_t operands_;
  MadeDims dims_;
  DataType type_;
  std::string statements_, result_;
};

/// Statements by which an item makes its row `row`, of `n` elements, at `to` (an output's name); x is read from there.
std::string making_row(const RowReading& reading, const std::string& to);

}  // namespace backplane::device_ops
