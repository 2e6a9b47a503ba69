#include "plugins/common/device_ops/recurrent.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <ios>
#include <string>

#include "plugins/common/device_ops/types.hpp"
#include "plugins/common/kernels/recurrent.hpp"
#include "plugins/common/kernels/rows.hpp"
#include "plugins/common/kernels/scalar_functions.hpp"

namespace backplane::device_ops {
namespace {

using common::Cell;
using common::GateFunction;
using common::RecurrentInput;

constexpr std::int64_t kWordBytes = 16;

/// What one launch does of a step, or one of two loops of it: see PART.
struct Part {
  int number = 0;
  std::int64_t first_gate = 0, gates = 0;
};

std::vector<Part> parts_of(const RecurrentForm& form) {
  if (form.two_products()) return {{1, 0, 2}, {2, 2, 1}};
  return {{0, 0, form.gates()}};
}

std::string literal(float value) {
  if (!std::isfinite(value))
    sdk::unsupported("a gate's function with the parameter ", value, ", which is not finite");
  return sdk::message("(", std::hexfloat, value, "f)");
}

/// The function, of `x`.
std::string function_text(const GateFunction& function) {
  const std::string alpha = literal(function.alpha), beta = literal(function.beta);
  switch (function.kind) {
    case GateFunction::kAffine:
      return sdk::message("(", alpha, " * (x) + ", beta, ")");
    case GateFunction::kRelu:
      return "relu_of(x)";
    case GateFunction::kLeakyRelu:
      return sdk::message("gate_leaky(x, ", alpha, ")");
    case GateFunction::kThresholdedRelu:
      return sdk::message("gate_threshold(x, ", alpha, ")");
    case GateFunction::kTanh:
      return "gate_tanh(x)";
    case GateFunction::kScaledTanh:
      return sdk::message("(", alpha, " * gate_tanh(", beta, " * (x)))");
    case GateFunction::kSigmoid:
      return "sigmoid_of(x)";
    case GateFunction::kHardSigmoid:
      return sdk::message("hard_sigmoid_of(x, ", alpha, ", ", beta, ")");
    case GateFunction::kElu:
      return sdk::message("elu_of(x, ", alpha, ")");
    case GateFunction::kSoftsign:
      return "gate_softsign(x)";
    case GateFunction::kSoftplus:
      return "softplus_of(x)";
  }
  return "(x)";
}

/// F0, F1 ... of the direction that an item has.
void define_functions(Walk& walk, const RecurrentForm& form) {
  const auto count = static_cast<std::size_t>(form.function_count());
  for (std::size_t i = 0; i < count; ++i) {
    std::string text = function_text(form.functions[i]);
    if (form.directions == 2) {
      const std::string other = function_text(form.functions[count + i]);
      if (other != text) text = sdk::message("(direction == 0 ? ", text, " : ", other, ")");
    }
    walk.define(sdk::message("F", i, "(x)").c_str(), text);
  }
}

/// What kernels of all kinds are told of the layer, and its outputs.
void define_layer(Walk& walk, const RecurrentForm& form) {
  const int cell = form.cell == Cell::kRnn ? 1 : form.cell == Cell::kGru ? 2 : 3;
  walk.define("T", type_code(form.type)).define("TR", type_code(form.sum_type));
  walk.real_type(form.sum_type);
  walk.define("CELL", cell).define("ALL_GATES", form.gates());
  walk.define("HAS_X", form.has_products() ? 1 : 0).define("HAS_BIAS", form.has_bias ? 1 : 0);
  walk.define("HAS_LENGTHS", form.has_lengths ? 1 : 0);
  walk.define("HAS_PEEPHOLES", form.has_peepholes ? 1 : 0);
  walk.define("HAS_Y", form.has_y ? 1 : 0).define("HAS_Y_H", form.has_y_h ? 1 : 0);
  walk.define("HAS_Y_C", form.has_y_c ? 1 : 0).define("HAS_CLIP", form.clip > 0 ? 1 : 0);
  walk.define("INPUT_FORGET", form.input_forget ? 1 : 0);
  walk.define("BATCH_FIRST", form.batch_first ? 1 : 0);
  walk.define("REVERSE", form.first_is_reverse ? 1 : 0);
  walk.define("IN_PANELS", form.panel > 0 ? 1 : 0);
  define_functions(walk, form);
  walk.number("steps", form.steps).number("batch", form.batch).number("hidden", form.hidden);
  walk.number("directions", form.directions);
  if (form.has_lengths) walk.in("lengths", input(RecurrentInput::kLengths), DataType::Int32);
  if (form.has_y_h) walk.out("y_h", output(1), form.type);
  if (form.has_y_c) walk.out("y_c", output(2), form.type);
  walk.out("h", form.h, form.sum_type);
  if (form.cell == Cell::kLstm) walk.out("c", form.c, form.sum_type);
  walk.functions = std::string(common::kScalarFunctions) + common::kRecurrentWords;
}

void add_start(Work& work, const RecurrentForm& form) {
  Walk walk(Dims{form.directions, form.batch, form.hidden});
  define_layer(walk, form);
  walk.define("HAS_INITIAL_H", form.has_initial_h ? 1 : 0);
  walk.define("HAS_INITIAL_C", form.has_initial_c ? 1 : 0);
  if (form.has_initial_h) walk.in("initial_h", input(RecurrentInput::kH), form.type);
  if (form.has_initial_c) walk.in("initial_c", input(RecurrentInput::kC), form.type);
  if (form.has_lengths)
    walk.may_fault(
        sdk::message("sequence_lens has a number which is not in [0, ", form.steps, "]"));
  walk.body = common::kRecurrentStart;
  walk.in_bands().name("first states").add_to(work);
}

/// A kernel of steps: what it reads and writes besides what all have. Its first number is `turn`.
Walk steps_walk(const RecurrentForm& form, const char* turn) {
  Walk walk(Dims{1});
  walk.number(turn, 0);
  define_layer(walk, form);
  walk.in("r", form.r, form.panel > 0 ? form.sum_type : form.type);
  if (form.has_products()) walk.in("from_x", form.from_x, form.sum_type);
  if (form.has_bias) walk.in("bias", input(RecurrentInput::kBiases), form.type);
  if (form.has_peepholes) walk.in("peepholes", input(RecurrentInput::kP), form.type);
  if (form.has_y) walk.out("y", output(0), form.type);
  if (form.two_products()) {
    walk.out("update", form.update, form.sum_type);
    walk.out("reset", form.reset, form.sum_type);
  }
  if (form.clip > 0) walk.real("clip", static_cast<double>(form.clip));
  walk.name("recurrent step");
  return walk;
}

/// How items of a group share units: see kRecurrentGroup. Few units are divided among more items, and these among more groups, so that
/// a small layer is on many multiprocessors, too.
struct GroupForm {
  std::int64_t lanes, items, rows;

  GroupForm(const RecurrentForm& form, std::int64_t width, std::int64_t most_items) {
    constexpr std::int64_t kMostBytes = 32, kLeastLanes = 8, kMostLanes = 32;
    constexpr std::int64_t kMostGroup = 128, kLeastGroup = 32;
    constexpr std::int64_t kManyItems = 1 << 16, kManyGroups = 256;
    rows = std::min(kMostBytes / sdk::element_bytes(form.sum_type), power_from(form.batch));
    const std::int64_t blocks = ceil_divide(form.batch, rows) * form.directions;
    const std::int64_t wanted = power_from(ceil_divide(kManyItems, form.hidden * blocks));
    lanes = std::min({most_items, power_from(ceil_divide(form.hidden, width)),
                      std::clamp(wanted, kLeastLanes, kMostLanes)});
    items = std::max(lanes, std::min(kMostGroup, most_items));
    const auto groups = [&] { return ceil_divide(form.hidden * lanes, items) * blocks; };
    while (items > std::max(lanes, kLeastGroup) && groups() < kManyGroups) items /= 2;
  }
};

void add_group_steps(Work& work, const RecurrentForm& form) {
  const std::int64_t width = kWordBytes / sdk::element_bytes(form.type);
  const auto most_items =
      static_cast<std::int64_t>(std::bit_floor(work.device().limits().max_group_items));
  const GroupForm group(form, width, most_items);
  std::vector<LaunchPlan> launches;
  for (const Part& part : parts_of(form)) {
    Walk walk = steps_walk(form, "step");
    walk.define("PART", part.number).define("GATES", part.gates);
    walk.define("FIRST_GATE", part.first_gate);
    walk.define("GROUP", group.items).define("LANES", group.lanes).define("ROWS", group.rows);
    walk.define("V", width).define("WIDE_TYPE", type_code(form.type));
    walk.define("HV", kWordBytes / sdk::element_bytes(form.sum_type));
    walk.functions = std::string(common::kWideRows) + walk.functions;
    walk.body = common::kRecurrentGroup;
    launches.push_back(walk.plan_groups(
        {static_cast<std::size_t>(ceil_divide(form.hidden * group.lanes, group.items)),
         static_cast<std::size_t>(ceil_divide(form.batch, group.rows)),
         static_cast<std::size_t>(form.directions)},
        static_cast<std::size_t>(group.items)));
  }
  work.add_loop(std::move(launches), form.steps);
}

/// What an item does that has a core to itself.
struct ItemForm {
  std::int64_t rows, item_panels, launch_steps;

  ItemForm(const RecurrentForm& form, std::int64_t sums) {
    constexpr std::int64_t kMostRows = 4;
    // So many products take about as long as a launch: below, an item does all units of its rows, which needs no other item's, and
    // all steps are one launch.
    constexpr std::int64_t kFewProducts = 1 << 17;
    std::int64_t gates = 0;
    for (const Part& part : parts_of(form)) gates = std::max(gates, part.gates);
    const std::int64_t vectors = gates * form.panel / form.vector;
    const std::int64_t most = std::clamp<std::int64_t>(sums / vectors, 1, kMostRows);
    rows = ceil_divide(form.batch, ceil_divide(form.batch, most));
    const std::int64_t blocks = ceil_divide(form.batch, rows) * form.directions;
    const std::int64_t products = form.gates() * form.hidden * form.hidden * rows;
    const bool is_whole = products <= kFewProducts * std::min<std::int64_t>(blocks, 2);
    item_panels = is_whole ? ceil_divide(form.hidden, form.panel) : 1;
    launch_steps = is_whole ? form.steps : 1;
  }
};

std::string part_text(const Part& part) {
  return sdk::message("#undef PART\n#undef GATES\n#undef FIRST_GATE\n#define PART ", part.number,
                      "\n#define GATES ", part.gates, "\n#define FIRST_GATE ", part.first_gate,
                      common::kRecurrentPart);
}

void add_item_steps(Work& work, const RecurrentForm& form) {
  // Vectors of sums that registers hold: of AVX-512, and elsewhere.
  constexpr std::int64_t kManyFloats = 16, kManySums = 16, kFewSums = 8;
  const bool has_many = work.device().limits().vector_floats >= kManyFloats;
  const ItemForm item(form, has_many ? kManySums : kFewSums);
  const std::vector<Part> parts = parts_of(form);
  std::vector<std::string> bodies;
  for (const Part& part : parts) {
    if (bodies.empty() || item.launch_steps == 1) bodies.emplace_back();
    bodies.back() += part_text(part);
  }
  std::vector<LaunchPlan> launches;
  for (const std::string& body : bodies) {
    Walk walk = steps_walk(form, "turn");
    walk.define("ROWS", item.rows).define("PANEL", form.panel).define("VW", form.vector);
    walk.define("VT",
                sdk::message(form.sum_type == DataType::Double ? "double" : "float", form.vector));
    walk.number("item_panels", item.item_panels).number("launch_steps", item.launch_steps);
    walk.body = common::kRecurrentItem + body + common::kRecurrentEnd;
    launches.push_back(
        walk.plan_groups({static_cast<std::size_t>(
                              ceil_divide(ceil_divide(form.hidden, form.panel), item.item_panels)),
                          static_cast<std::size_t>(ceil_divide(form.batch, item.rows)),
                          static_cast<std::size_t>(form.directions)},
                         1));
  }
  work.add_loop(std::move(launches), ceil_divide(form.steps, item.launch_steps));
}

/// Panels as wide as leaves registers for the sums of all gates.
void choose_panel(const Device& device, RecurrentForm& form) {
  constexpr std::int64_t kMostVector = 16, kLeastVector = 4;
  form.vector = std::clamp(device.limits().vector_floats, kLeastVector, kMostVector);
  form.vector = power_from(form.vector);
  if (form.sum_type == DataType::Double) form.vector /= 2;
  form.panel = form.hidden > form.vector ? 2 * form.vector : form.vector;
}

}  // namespace

void RecurrentForm::place(WorkspacePieces& pieces) {
  const std::int64_t element = sdk::element_bytes(sum_type);
  const std::int64_t state = directions * batch * hidden * element;
  if (has_products()) from_x = pieces.add(steps * batch * columns() * element);
  h = pieces.add(2 * state);
  if (cell == Cell::kLstm) c = pieces.add(state);
  if (!two_products()) return;
  update = pieces.add(state);
  reset = pieces.add(state);
}

std::int64_t RecurrentForm::panel_bytes() const {
  const std::int64_t units = ceil_divide(hidden, panel) * panel;
  return directions * gates() * units * hidden * sdk::element_bytes(sum_type);
}

Recurrent::Recurrent(const sdk::Node& node)
    : layer_(recurrent_layer(node, node.op_type() == "LSTM"  ? Cell::kLstm
                                   : node.op_type() == "GRU" ? Cell::kGru
                                                             : Cell::kRnn)) {}

RecurrentForm Recurrent::begin(sdk::PrepareContext& ctx, const Device& device) const {
  const sdk::Tensor x = ctx.input(RecurrentInput::kX), r = ctx.input(RecurrentInput::kR);
  if (r.rank() != 3) sdk::invalid("R has rank ", r.rank(), ", expected 3");
  RecurrentForm form;
  static_cast<common::RecurrentLayer&>(form) = layer_;
  set_recurrent_dims(ctx, r.dim(2), form);
  const std::int64_t rows = form.gates() * form.hidden;
  common::check_recurrent_dims(ctx, RecurrentInput::kW, "W", {form.directions, rows, form.input});
  common::check_recurrent_dims(ctx, RecurrentInput::kR, "R", {form.directions, rows, form.hidden});
  form.type = x.type();
  form.sum_type = form.type == DataType::Double ? DataType::Double : DataType::Float;
  const bool is_lstm = form.cell == Cell::kLstm;
  form.has_bias = ctx.input(RecurrentInput::kBiases).present();
  form.has_lengths = ctx.input(RecurrentInput::kLengths).present();
  form.has_initial_h = ctx.input(RecurrentInput::kH).present();
  form.has_initial_c = is_lstm && ctx.input(RecurrentInput::kC).present();
  form.has_peepholes = is_lstm && ctx.input(RecurrentInput::kP).present();
  form.has_y = ctx.output_wanted(0);
  form.has_y_h = ctx.output_wanted(1);
  form.has_y_c = is_lstm && ctx.output_wanted(2);
  form.r = device_ops::input(RecurrentInput::kR);
  if (!shares_rows(device)) choose_panel(device, form);
  ctx.set_cost(form.operations(), ctx.input(RecurrentInput::kW).bytes() + r.bytes());
  return form;
}

void add_recurrent_panels(Work& work, const RecurrentForm& form, const MemoryRef& to) {
  const std::int64_t panels = ceil_divide(form.hidden, form.panel);
  MemoryRef place = to;
  for (const Part& part : parts_of(form)) {
    Walk walk(Dims{form.directions, panels, form.hidden, form.panel});
    walk.define("T", type_code(form.type)).define("TR", type_code(form.sum_type));
    walk.define("GATES", part.gates).number("panels", panels).number("hidden", form.hidden);
    walk.number("panel", form.panel).number("all_gates", form.gates());
    walk.number("first_gate", part.first_gate);
    walk.in("r", form.r, form.type).out("y", place, form.sum_type);
    walk.body = common::kRecurrentPanels;
    walk.in_bands(part.gates).name("weights in panels").add_to(work);
    place.offset += static_cast<std::uint64_t>(form.directions * part.gates * panels * form.panel *
                                               form.hidden * sdk::element_bytes(form.sum_type));
  }
}

std::vector<float> recurrent_panels(const RecurrentForm& form, const float* r) {
  const std::int64_t hidden = form.hidden;
  std::vector<float> packed(static_cast<std::size_t>(form.panel_bytes()) / sizeof(float), 0.0f);
  float* to = packed.data();
  for (const Part& part : parts_of(form)) {
    for (std::int64_t d = 0; d < form.directions; ++d) {
      for (std::int64_t first = 0; first < hidden; first += form.panel) {
        const std::int64_t count = std::min(form.panel, hidden - first);
        for (std::int64_t k = 0; k < hidden; ++k) {
          for (std::int64_t g = 0; g < part.gates; ++g, to += form.panel) {
            const std::int64_t line = (d * form.gates() + part.first_gate + g) * hidden + first;
            for (std::int64_t e = 0; e < count; ++e) to[e] = r[(line + e) * hidden + k];
          }
        }
      }
    }
  }
  return packed;
}

void add_recurrent_steps(Work& work, const RecurrentForm& form) {
  add_start(work, form);
  if (form.is_empty() || form.steps == 0) return;
  if (form.panel > 0) {
    add_item_steps(work, form);
  } else {
    add_group_steps(work, form);
  }
}

std::vector<sdk::KernelBuilder> recurrent_ops() {
  constexpr int kFirst = 7;  // versions before had an output_sequence and other optional inputs
  std::vector<sdk::KernelBuilder> ops;
  for (const char* op_type : {"RNN", "GRU", "LSTM"}) {
    ops.push_back(sdk::op(op_type)
                      .name(kernel_name("recurrent"))
                      .since(kFirst)
                      .types("T", float_types())
                      .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_WEIGHT, BP_INPUT_DATA}));
  }
  return ops;
}

}  // namespace backplane::device_ops
