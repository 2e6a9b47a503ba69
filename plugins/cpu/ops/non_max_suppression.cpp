// NonMaxSuppression: https://onnx.ai/onnx/operators/onnx__NonMaxSuppression.html
#include <algorithm>
#include <array>
#include <limits>

#include "backplane/plugin.hpp"

namespace backplane::cpu {
namespace {

struct Box {
  float y1, x1, y2, x2;

  /// Corners in any order, or center and size as [x, y, width, height].
  static Box of(const float* data, bool center) {
    if (center) {
      return {data[1] - data[3] / 2, data[0] - data[2] / 2, data[1] + data[3] / 2,
              data[0] + data[2] / 2};
    }
    return {std::min(data[0], data[2]), std::min(data[1], data[3]), std::max(data[0], data[2]),
            std::max(data[1], data[3])};
  }
  float area() const { return (y2 - y1) * (x2 - x1); }
};

/// Taken boxes coordinate by coordinate, so that the compiler compares several at a time. Nothing is owned.
class TakenBoxes {
 public:
  static std::int64_t floats(std::int64_t boxes) { return 5 * rounded(boxes); }
  TakenBoxes(float* memory, std::int64_t boxes) {
    for (float*& list : lists_) {
      list = memory;
      memory += rounded(boxes);
    }
  }

  void add(const Box& box) {
    if (count_ % kBlock == 0) fill_block();
    const float values[5] = {box.y1, box.x1, box.y2, box.x2, box.area()};
    for (std::size_t i = 0; i < 5; ++i) lists_[i][count_] = values[i];
    ++count_;
  }

  /// Whether what `box` has in common with one of them is more than `threshold` of what both cover.
  bool overlap(const Box& box, float threshold) const {
    for (std::int64_t i = 0; i < count_; i += kBlock) {
      if (block_overlaps(i, box, threshold)) return true;
    }
    return false;
  }

 private:
  static constexpr std::int64_t kBlock = 16;
  static std::int64_t rounded(std::int64_t boxes) { return (boxes + kBlock - 1) / kBlock * kBlock; }

  /// Boxes that overlap none.
  void fill_block() {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float values[5] = {kInfinity, kInfinity, -kInfinity, -kInfinity, 0};
    for (std::size_t i = 0; i < 5; ++i) std::fill_n(lists_[i] + count_, kBlock, values[i]);
  }

  bool block_overlaps(std::int64_t first, const Box& box, float threshold) const {
    const auto [y1, x1, y2, x2, area] = lists_;
    const float own = box.area();
    int hits = 0;
    for (std::int64_t i = first; i < first + kBlock; ++i) {
      const float height = (y2[i] < box.y2 ? y2[i] : box.y2) - (y1[i] > box.y1 ? y1[i] : box.y1);
      const float width = (x2[i] < box.x2 ? x2[i] : box.x2) - (x1[i] > box.x1 ? x1[i] : box.x1);
      const float common = height * width;
      const float both = own + area[i] - common;
      hits |= static_cast<int>(height > 0) & static_cast<int>(width > 0) &
              static_cast<int>(both > 0) & static_cast<int>(common / both > threshold);
    }
    return hits != 0;
  }

  std::array<float*, 5> lists_{};  // y1, x1, y2, x2, area
  std::int64_t count_ = 0;
};

/// Takes boxes by falling score; one that overlaps a taken box too much is dropped.
class NonMaxSuppression {
 public:
  struct Prepared {
    std::int64_t batches, classes, boxes;
    bool center;

    void compute(const sdk::ComputeContext& ctx) const {
      const std::int64_t most = ctx.has_input(2) ? ctx.input(2).data<std::int64_t>()[0] : 0;
      auto* counts = ctx.workspace().mutable_data<std::int64_t>();
      auto* chosen = reinterpret_cast<std::int32_t*>(counts + batches * classes);
      auto* taken = reinterpret_cast<float*>(chosen + batches * classes * boxes);
      const auto groups = static_cast<std::uint64_t>(batches * classes);
      const auto part = [&](std::uint64_t begin, std::uint64_t end, std::uint32_t worker) {
        float* own = taken + worker * TakenBoxes::floats(boxes);
        for (auto g = static_cast<std::int64_t>(begin); g < static_cast<std::int64_t>(end); ++g) {
          counts[g] =
              most > 0 ? choose(ctx, g, most, chosen + g * boxes, TakenBoxes(own, boxes)) : 0;
        }
      };
      if (static_cast<std::int64_t>(groups) * boxes < 4096) {
        part(0, groups, 0);
      } else {
        ctx.threads().parallel_for(
            groups, static_cast<std::uint64_t>(1 + 2048 / std::max<std::int64_t>(1, boxes)), part);
      }
      write(ctx, counts, chosen);
    }

   private:
    // The chosen boxes of one batch and class in front of `list`, which has room for all of them.
    std::int64_t choose(const sdk::ComputeContext& ctx, std::int64_t group, std::int64_t most,
                        std::int32_t* list, TakenBoxes taken_boxes) const {
      const float* all = ctx.input(0).data<float>() + group / classes * boxes * 4;
      const float* scores = ctx.input(1).data<float>() + group * boxes;
      const float overlap_limit = ctx.has_input(3) ? ctx.input(3).data<float>()[0] : 0;
      const bool limited = ctx.has_input(4);
      const float score_limit = limited ? ctx.input(4).data<float>()[0] : 0;
      std::int64_t candidates = 0;
      for (std::int64_t i = 0; i < boxes; ++i) {
        if (!limited || scores[i] > score_limit) list[candidates++] = static_cast<std::int32_t>(i);
      }
      std::sort(list, list + candidates, [scores](std::int32_t a, std::int32_t b) {
        if (scores[a] > scores[b]) return true;
        return !(scores[b] > scores[a]) && a < b;
      });
      std::int64_t taken = 0;
      for (std::int64_t i = 0; i < candidates && taken < most; ++i) {
        const Box box = Box::of(all + list[i] * 4, center);
        if (taken_boxes.overlap(box, overlap_limit)) continue;
        taken_boxes.add(box);
        list[taken++] = list[i];
      }
      return taken;
    }

    void write(const sdk::ComputeContext& ctx, const std::int64_t* counts,
               const std::int32_t* chosen) const {
      std::int64_t total = 0;
      for (std::int64_t g = 0; g < batches * classes; ++g) total += counts[g];
      const std::int64_t dims[2] = {total, 3};
      auto* target = ctx.alloc_output(0, sdk::DimsView(dims, 2)).mutable_data<std::int64_t>();
      for (std::int64_t g = 0; g < batches * classes; ++g) {
        for (std::int64_t i = 0; i < counts[g]; ++i, target += 3) {
          target[0] = g / classes;
          target[1] = g % classes;
          target[2] = chosen[g * boxes + i];
        }
      }
    }
  };

  NonMaxSuppression(const sdk::CreateContext&, const sdk::Node& node)
      : center_(node.get_int("center_point_box", 0) != 0) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor boxes = ctx.input(0), scores = ctx.input(1);
    if (boxes.rank() != 3 || scores.rank() != 3 || boxes.dim(2) != 4 ||
        boxes.dim(0) != scores.dim(0) || boxes.dim(1) != scores.dim(2)) {
      sdk::invalid("NonMaxSuppression: boxes of dims ", sdk::to_string(boxes.dims()),
                   " and scores of dims ", sdk::to_string(scores.dims()),
                   "; [batch, boxes, 4] and [batch, classes, boxes] are needed");
    }
    for (std::uint32_t i = 2; i < 5; ++i) {
      if (ctx.input(i).present() && ctx.input(i).size() != 1)
        sdk::invalid("NonMaxSuppression: input ", i, " has ", ctx.input(i).size(),
                     " elements, 1 is needed");
    }
    ctx.set_output_unknown(0, sdk::DataType::Int64, 2);
    const std::int64_t groups = scores.dim(0) * scores.dim(1);
    const std::int64_t taken = TakenBoxes::floats(boxes.dim(1)) * ctx.threads().count();
    ctx.set_workspace(static_cast<std::uint64_t>(groups * (8 + 4 * boxes.dim(1)) + 4 * taken));
    return {scores.dim(0), scores.dim(1), boxes.dim(1), center_};
  }

 private:
  bool center_;
};

}  // namespace

sdk::KernelList non_max_suppression_kernels() {
  return {sdk::op("NonMaxSuppression")
              .name("cpu:non_max_suppression")
              .flags(BP_KERNEL_DATA_DEPENDENT)
              .kernel<NonMaxSuppression>()};
}

}  // namespace backplane::cpu
