// Images put together from parts: MaxUnpool and Col2Im, which spread their input, and DeformConv, whose
// windows are bent.
#include <cmath>
#include <cstdint>

#include "tests/reference/reference.hpp"

namespace backplane::reference {
namespace {

Arrays max_unpool(const Call& call) {
  const Array& x = call.input(0);
  const Dims kernel = call.list("kernel_shape");
  const Dims strides = call.list("strides", Dims(kernel.size(), 1));
  const Dims pads = call.list("pads", Dims(2 * kernel.size(), 0));
  Dims dims = {x.dims[0], x.dims[1]};
  for (std::size_t a = 0; a < kernel.size(); ++a) {
    dims.push_back((x.dims[a + 2] - 1) * strides[a] + kernel[a] - pads[a] -
                   pads[a + kernel.size()]);
  }
  const Dims out = call.optional(2) == nullptr ? dims : call.integers(2);
  Array y = filled(x.type, out);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    auto rest = static_cast<std::int64_t>(call.input(1).values[i]);
    Dims index(dims.size());
    for (std::size_t a = dims.size(); a > 0; --a) {
      index[a - 1] = rest % dims[a - 1];
      rest /= dims[a - 1];
    }
    y.values[offset_of(out, index)] = x.values[i];
  }
  return {y};
}

Arrays col2im(const Call& call) {
  const Array& x = call.input(0);
  const Dims image = call.integers(1);
  const Dims block = call.integers(2);
  const std::size_t axes = image.size();
  const Dims strides = call.list("strides", Dims(axes, 1));
  const Dims dilations = call.list("dilations", Dims(axes, 1));
  const Dims pads = call.list("pads", Dims(2 * axes, 0));
  Dims blocks;
  for (std::size_t a = 0; a < axes; ++a) {
    const std::int64_t extent = (block[a] - 1) * dilations[a] + 1;
    blocks.push_back((image[a] + pads[a] + pads[a + axes] - extent) / strides[a] + 1);
  }
  const std::int64_t block_size = element_count(block);
  Dims dims = {x.dims[0], x.dims[1] / block_size};
  dims.insert(dims.end(), image.begin(), image.end());
  Array y = filled(x.type, dims);
  std::size_t position = 0;
  for (std::int64_t n = 0; n < dims[0]; ++n) {
    for (std::int64_t c = 0; c < dims[1]; ++c) {
      for_each_index(block, [&](const Dims& k) {
        for_each_index(blocks, [&](const Dims& b) {
          const double value = x.values[position++];
          Dims at = {n, c};
          for (std::size_t a = 0; a < axes; ++a) {
            at.push_back(b[a] * strides[a] + k[a] * dilations[a] - pads[a]);
            if (at.back() < 0 || at.back() >= image[a]) return;
          }
          y.values[offset_of(dims, at)] += value;
        });
      });
    }
  }
  return {y};
}

/// Each pixel around the point counts by its nearness: a tent of height and half-width 1.
double tent_sum(const Array& x, std::int64_t n, std::int64_t c, double row, double column) {
  double sum = 0;
  for (std::int64_t i = 0; i < x.dims[2]; ++i) {
    for (std::int64_t j = 0; j < x.dims[3]; ++j) {
      const double weight = std::fmax(0, 1 - std::abs(row - static_cast<double>(i))) *
                            std::fmax(0, 1 - std::abs(column - static_cast<double>(j)));
      if (weight > 0) sum += weight * x.values[offset_of(x.dims, {n, c, i, j})];
    }
  }
  return sum;
}

/// Two spatial axes.
Arrays deform_conv(const Call& call) {
  const Array& x = call.input(0);
  const Array& w = call.input(1);
  const Array& offset = call.input(2);
  const Array* bias = call.optional(3);
  const Array* mask = call.optional(4);
  const std::int64_t groups = call.integer("group", 1);
  const std::int64_t offset_groups = call.integer("offset_group", 1);
  const Dims strides = call.list("strides", {1, 1});
  const Dims dilations = call.list("dilations", {1, 1});
  const Dims pads = call.list("pads", {0, 0, 0, 0});
  const std::int64_t taps = w.dims[2] * w.dims[3];
  Array y = filled(x.type, {x.dims[0], w.dims[0], offset.dims[2], offset.dims[3]});
  std::size_t position = 0;
  for_each_index(y.dims, [&](const Dims& o) {
    double sum = bias == nullptr ? 0 : bias->values[o[1]];
    const std::int64_t group = o[1] / (w.dims[0] / groups);
    for_each_index({w.dims[1], w.dims[2], w.dims[3]}, [&](const Dims& k) {
      const std::int64_t c = group * w.dims[1] + k[0];
      const std::int64_t tap = k[1] * w.dims[3] + k[2];
      const std::int64_t map = c / (x.dims[1] / offset_groups) * taps + tap;
      const auto moved = [&](std::int64_t which) {
        return offset.values[offset_of(offset.dims, {o[0], 2 * map + which, o[2], o[3]})];
      };
      const double row = static_cast<double>(o[2] * strides[0] + k[1] * dilations[0] - pads[0]);
      const double column = static_cast<double>(o[3] * strides[1] + k[2] * dilations[1] - pads[1]);
      const double factor =
          mask == nullptr ? 1 : mask->values[offset_of(mask->dims, {o[0], map, o[2], o[3]})];
      sum += factor * tent_sum(x, o[0], c, row + moved(0), column + moved(1)) *
             w.values[offset_of(w.dims, {o[1], k[0], k[1], k[2]})];
    });
    y.values[position++] = sum;
  });
  return {y};
}

const Registration kMaxUnpool({"MaxUnpool"}, max_unpool);
const Registration kCol2Im({"Col2Im"}, col2im);
const Registration kDeformConv({"DeformConv"}, deform_conv);

}  // namespace
}  // namespace backplane::reference
