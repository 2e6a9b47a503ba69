// Plans that are resized instead of made: random graphs whose sizes grow, shrink and jump from run to run give what new
// plans give, no two live values share bytes, and nothing reads memory that is dead.
//
// 120 graphs of 40 runs; ten times as many with BACKPLANE_TEST_FULL=1, a third under a sanitizer.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <string_view>

#include "tests/faults/arena_audit.hpp"
#include "tests/faults/fault_test.hpp"

namespace backplane::core::faults {
namespace {

constexpr std::int64_t kMostSize = 48;
constexpr std::size_t kPlans = 3;

/// A dimension for each size n from 1 to kMostSize that the graph may be run with.
using Dim = std::array<std::int64_t, kMostSize + 1>;
using Shape = std::array<Dim, 2>;

Dim constant(std::int64_t size) {
  Dim dim;
  dim.fill(size);
  return dim;
}

template <class Function>
Dim dim_of(const Function& function) {
  Dim dim;
  for (std::int64_t n = 0; n <= kMostSize; ++n) dim[static_cast<std::size_t>(n)] = function(n);
  return dim;
}

/// Matrices that depend on one size: element-wise nodes, products, softmaxes, views of many kinds, concatenations, and
/// arithmetic on shapes.
class GrowingGraph {
 public:
  explicit GrowingGraph(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u) {
    const Dim n = dim_of([](std::int64_t size) { return size; });
    feed("x0", {n, constant(7)});
    feed("x1", {constant(4), n});
    feed("x2", {constant(3), constant(7)});
    for (std::size_t nodes = 6 + pick(14); nodes > 0; --nodes) add();
    for (const Made& value : values_) {
      if (value.name[0] != 'x' && (!value.is_read || pick(6) == 0)) maker_.output(value.name);
    }
  }

  std::string model() const { return maker_.bytes(); }
  const std::string& describe() const { return lines_; }

  Tensors feeds(std::int64_t n, std::uint64_t seed) const {
    Tensors feeds;
    for (std::size_t i = 0; i < 3; ++i) {
      const Shape& shape = values_[i].shape;
      const auto at = static_cast<std::size_t>(n);
      feeds[values_[i].name] = random_tensor({shape[0][at], shape[1][at]}, seed + i);
    }
    return feeds;
  }

  std::size_t pick(std::size_t count) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::size_t>((state_ >> 33) % count);
  }

 private:
  struct Made {
    std::string name;
    Shape shape;
    bool is_read = false;
  };

  void feed(const std::string& name, const Shape& shape) {
    Dims dims;
    for (const Dim& dim : shape) dims.push_back(dim.front() == dim.back() ? dim[0] : -1);
    maker_.input(name, dims);
    values_.push_back({name, shape, false});
  }
  const Made& read() {
    Made& value = values_[pick(values_.size())];
    value.is_read = true;
    return value;
  }
  /// One of the values that fit; the first one fits always.
  template <class Fits>
  const Made& read_fitting(const Made& first, const Fits& fits) {
    std::vector<std::size_t> fitting;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (values_[i].name == first.name || fits(values_[i].shape)) fitting.push_back(i);
    }
    Made& value = values_[fitting[pick(fitting.size())]];
    value.is_read = true;
    return value;
  }
  std::string ints(const Dims& values) {
    std::string name = text("s", constants_++);
    maker_.ints(name, values);
    return name;
  }
  std::string weight(const Dims& dims) {
    std::string name = text("w", constants_++);
    maker_.weight(name, random_tensor(dims, state_));
    return name;
  }
  /// A node whose output nobody but the next one reads.
  std::string inner(const std::string& op, const std::vector<std::string>& inputs, int axis = -1) {
    std::string name = text("i", inner_++);
    maker_.node("make_" + name, op, inputs, name, axis);
    lines_ += text(name, " = ", op, "\n");
    return name;
  }
  void make(const std::string& op, const std::vector<std::string>& inputs, const Shape& shape,
            int axis = -1) {
    const std::string name = text("v", values_.size());
    maker_.node("make_" + name, op, inputs, name, axis);
    lines_ += text(name, " = ", op, "(");
    for (const std::string& input : inputs) lines_ += input + " ";
    lines_ += text(") axis ", axis, "\n");
    values_.push_back({name, shape, false});
  }

  void add() {
    const Made a = read();
    switch (pick(10)) {
      case 0:
        return make(pick(2) == 0 ? "Relu" : "Sigmoid", {a.name}, a.shape);
      case 1:
        return make("Softmax", {a.name}, a.shape, static_cast<int>(pick(2)));
      case 2:
        return make("Transpose", {a.name}, {a.shape[1], a.shape[0]});
      case 3:
        return add_product(a);
      case 4:
        return add_concat(a);
      case 5:
        return add_reshape(a);
      case 6:
        return add_slice(a);
      case 7:
        return add_row_of_table(a);
      default:
        return add_binary(a);
    }
  }
  void add_binary(const Made& a) {
    const Made& b = read_fitting(a, [&](const Shape& shape) { return shape == a.shape; });
    make(pick(2) == 0 ? "Add" : "Mul", {a.name, b.name}, a.shape);
  }
  void add_product(const Made& a) {
    if (a.shape[1].front() == a.shape[1].back() && pick(2) == 0) {
      const auto columns = static_cast<std::int64_t>(1 + pick(9));
      return make("MatMul", {a.name, weight({a.shape[1][0], columns})},
                  {a.shape[0], constant(columns)});
    }
    const std::string turned = inner("Transpose", {a.name});
    make("MatMul", {turned, a.name}, {a.shape[1], a.shape[1]});
  }
  void add_concat(const Made& a) {
    const std::size_t axis = pick(2);
    const Made& b =
        read_fitting(a, [&](const Shape& shape) { return shape[1 - axis] == a.shape[1 - axis]; });
    Shape shape = a.shape;
    shape[axis] = dim_of([&](std::int64_t n) {
      return a.shape[axis][static_cast<std::size_t>(n)] +
             b.shape[axis][static_cast<std::size_t>(n)];
    });
    make("Concat", {a.name, b.name}, shape, static_cast<int>(axis));
  }
  /// To one row, or to dims that are computed; 0 among them would mean something else.
  void add_reshape(const Made& a) {
    for (const Dim& dim : a.shape) {
      if (std::count(dim.begin() + 1, dim.end(), 0) > 0) return make("Relu", {a.name}, a.shape);
    }
    if (pick(2) == 0) {
      const std::string shape = inner("Shape", {a.name});
      return make("Reshape", {a.name, inner("Gather", {shape, ints({1, 0})})},
                  {a.shape[1], a.shape[0]});
    }
    const Dim all = dim_of([&](std::int64_t n) {
      return a.shape[0][static_cast<std::size_t>(n)] * a.shape[1][static_cast<std::size_t>(n)];
    });
    make("Reshape", {a.name, ints({1, -1})}, {constant(1), all});
  }
  /// The first two lines, from the second line on, or the last line, whose place depends on the size.
  void add_slice(const Made& a) {
    const std::size_t axis = pick(2);
    const auto a_axis = static_cast<std::int64_t>(axis);
    Shape shape = a.shape;
    const std::size_t kind = pick(3);
    if (kind == 0) {
      shape[axis] = dim_of([&](std::int64_t n) {
        return std::min<std::int64_t>(a.shape[axis][static_cast<std::size_t>(n)], 2);
      });
      return make("Slice", {a.name, ints({0}), ints({2}), ints({a_axis})}, shape);
    }
    if (kind == 1) {
      shape[axis] = dim_of([&](std::int64_t n) {
        return std::max<std::int64_t>(a.shape[axis][static_cast<std::size_t>(n)] - 1, 0);
      });
      return make("Slice", {a.name, ints({1}), ints({1 << 20}), ints({a_axis})}, shape);
    }
    const std::string size = inner("Gather", {inner("Shape", {a.name}), ints({a_axis})});
    const std::string last = inner("Sub", {size, ints({1})});
    shape[axis] = dim_of([&](std::int64_t n) {
      return std::min<std::int64_t>(a.shape[axis][static_cast<std::size_t>(n)], 1);
    });
    make("Slice", {a.name, last, size, ints({a_axis})}, shape);
  }
  /// Of a constant, as many rows or the one that the size says; numbers that it is too small for are left out.
  void add_row_of_table(const Made& a) {
    const std::string size = inner("Gather", {inner("Shape", {a.name}), ints({0})});
    const std::string table = weight({40, 5});
    const auto rows = [&](std::int64_t n) {
      return std::min<std::int64_t>(a.shape[0][static_cast<std::size_t>(n)], 40);
    };
    if (pick(3) == 0) {
      const std::string zeros = inner("ConstantOfShape", {inner("Concat", {size, ints({5})}, 0)});
      return make("Relu", {zeros}, {a.shape[0], constant(5)});
    }
    make("Slice", {table, ints({0}), size, ints({0})}, {dim_of(rows), constant(5)});
  }

  std::uint64_t state_;
  ModelMaker maker_;
  std::vector<Made> values_;
  std::string lines_;
  int constants_ = 0, inner_ = 0;
};

std::uint64_t graphs() {
#ifdef BACKPLANE_SANITIZED
  return 40;
#else
  const char* text = std::getenv("BACKPLANE_TEST_FULL");
  return text != nullptr && std::string_view(text) == "1" ? 1200 : 120;
#endif
}

/// A walk over sizes: mostly a step up, as language models make them, sometimes one down, one back or a jump.
std::vector<std::int64_t> sizes(GrowingGraph& graph) {
  std::vector<std::int64_t> sizes{static_cast<std::int64_t>(20 + graph.pick(10))};
  while (sizes.size() < 40) {
    const std::int64_t last = sizes.back();
    const std::size_t way = graph.pick(16);
    std::int64_t next = way == 0 ? static_cast<std::int64_t>(graph.pick(kMostSize + 1)) : last + 1;
    if (way == 1) next = last - 2;
    if (way == 2 && sizes.size() > 3) next = sizes[sizes.size() - 3];
    sizes.push_back(std::clamp<std::int64_t>(next, 1, kMostSize));
  }
  return sizes;
}

class Runner {
 public:
  Runner(const GrowingGraph& graph, std::size_t plans, bool optimized, bool arena = true)
      : session_(graph.model(), {}, {}, {"cpu"}, [&](SessionOptions& options) {
          options.plan_cache = plans;
          options.arena = arena;
          if (optimized) options.optimization = OptimizationLevel::All;
        }) {}

  Tensors run(const Tensors& feeds) {
    Tensors got = session_.run(feeds);
    const Segment* const used = executable().generation()->plans.next.front().node->segment.get();
    const std::uint64_t count = executable().generation()->plan_count;
    if (count > planned_ && !segments_.insert(used).second && used->resize_index != nullptr)
      ++resized_;
    planned_ = count;
    return got;
  }
  const Executable& executable() {
    if (executable_ == nullptr)
      executable_ = session_.core().route({"x0", "x1", "x2"}, {}).executable.get();
    return *executable_;
  }
  int resized() const { return resized_; }

 private:
  MixedSession session_;
  const Executable* executable_ = nullptr;
  std::set<const Segment*> segments_;
  std::uint64_t planned_ = 0;
  int resized_ = 0;
};

class ResizedPlans : public FaultTest {};

TEST_F(ResizedPlans, GrowingGraphs) {
  int resized = 0;
  for (std::uint64_t seed = 1; seed <= graphs() && !HasFailure(); ++seed) {
    GrowingGraph graph(seed);
    SCOPED_TRACE(text("seed ", seed, "\n", graph.describe()));
    Runner runner(graph, kPlans, seed % 2 == 0), fresh(graph, 1, seed % 2 == 0);
    std::uint64_t turn = 0;
    for (const std::int64_t n : sizes(graph)) {
      const Tensors feeds = graph.feeds(n, ++turn);
      ASSERT_EQ(difference(runner.run(feeds), fresh.run(feeds)), "")
          << "turn " << turn << ", " << n;
      ASSERT_EQ(PlanAudit(runner.executable()).overlap(), "") << "turn " << turn << ", " << n;
    }
    EXPECT_EQ(fresh.resized(), 0);
    resized += runner.resized();
  }
  EXPECT_GT(resized, static_cast<int>(graphs()) * 13) << "of 40 runs a graph";
}

TEST_F(ResizedPlans, ReadNoDeadMemory) {
  for (std::uint64_t seed = 1; seed <= graphs() && !HasFailure(); ++seed) {
    GrowingGraph graph(5000 + seed);
    SCOPED_TRACE(text("seed ", seed, "\n", graph.describe()));
    Runner runner(graph, kPlans, seed % 2 == 0, false), fresh(graph, 1, seed % 2 == 0);
    const std::vector<std::int64_t> walk = sizes(graph);
    for (std::size_t turn = 0; turn < 12; ++turn) runner.run(graph.feeds(walk[turn], turn));
    PlanAudit(runner.executable()).poison();
    for (std::size_t turn = 12 - kPlans; turn < 12; ++turn) {
      const Tensors feeds = graph.feeds(walk[turn], turn + 100);
      ASSERT_EQ(difference(runner.run(feeds), fresh.run(feeds)), "") << "turn " << turn;
    }
  }
}

}  // namespace
}  // namespace backplane::core::faults
