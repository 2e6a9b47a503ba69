// MaxUnpool, Col2Im: https://onnx.ai/onnx/operators/onnx__MaxUnpool.html, onnx__Col2Im.html
#include <algorithm>
#include <cstring>

#include "backplane/plugin.hpp"
#include "plugins/common/checked.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/dense/window_checks.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

std::int64_t entry(const std::vector<std::int64_t>& values, std::size_t index,
                   std::int64_t absent) {
  return values.empty() ? absent : values[index];
}

/// Puts each element of X where its index says in an image of zeros.
class MaxUnpool {
 public:
  struct Prepared {
    // Indices count through a tensor of the dims that the attributes give; output_shape may be larger.
    sdk::Dims indexed;
    sdk::Dims out;
    bool same;

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Tensor y = ctx.output(0);
      if (y.size() == 0) return;
      std::memset(y.mutable_data<char>(), 0, y.bytes());
      const auto* indices = ctx.input(1).data<std::int64_t>();
      const std::int64_t count = ctx.input(0).size();
      const std::int64_t size = sdk::element_count(indexed);
      common::with_float(y.type(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T* x = ctx.input(0).data<T>();
        T* to = y.mutable_data<T>();
        for (std::int64_t i = 0; i < count; ++i) {
          if (indices[i] < 0 || indices[i] >= size) {
            sdk::failed("MaxUnpool: index ", indices[i], " at ", i, " is not in [0, ", size, ")");
          }
          to[same ? indices[i] : place(indices[i])] = x[i];
        }
      });
    }

    std::int64_t place(std::int64_t index) const {
      std::int64_t at = 0;
      std::int64_t stride = 1;
      for (std::size_t axis = out.size(); axis-- > 0;) {
        at += index % indexed[axis] * stride;
        index /= indexed[axis];
        stride *= out[axis];
      }
      return at;
    }
  };

  MaxUnpool(const sdk::CreateContext&, const sdk::Node& node)
      : kernel_(node.get_ints("kernel_shape")),
        strides_(node.get_ints("strides")),
        pads_(node.get_ints("pads")) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    if (x.rank() < 3) sdk::invalid("MaxUnpool: X has rank ", x.rank(), ", at least 3 is needed");
    if (sdk::to_string(ctx.input(1).dims()) != sdk::to_string(x.dims())) {
      sdk::invalid("MaxUnpool: I has dims ", sdk::to_string(ctx.input(1).dims()), ", X ",
                   sdk::to_string(x.dims()));
    }
    const auto axes = static_cast<std::size_t>(x.rank() - 2);
    if (kernel_.size() != axes) {
      sdk::invalid("MaxUnpool: attribute 'kernel_shape' has ", kernel_.size(), " entries, ", axes,
                   " are needed");
    }
    check_count("strides", strides_, axes);
    check_count("pads", pads_, 2 * axes);
    Prepared prepared;
    prepared.indexed.assign(x.dims().begin(), x.dims().begin() + 2);
    for (std::size_t axis = 0; axis < axes; ++axis) {
      const std::int64_t dim = x.dims()[axis + 2], stride = entry(strides_, axis, 1);
      const std::int64_t begin = entry(pads_, axis, 0), end = entry(pads_, axis + axes, 0);
      prepared.indexed.push_back(((common::Checked(dim) - 1) * stride - begin - end + kernel_[axis])
                                     .value("MaxUnpool: what ", dim, " elements with kernel ",
                                            kernel_[axis], ", stride ", stride, " and pads ", begin,
                                            " and ", end, " make along spatial axis ", axis));
      if (prepared.indexed.back() < 0)
        sdk::invalid("MaxUnpool: ", dim, " elements with kernel ", kernel_[axis], ", stride ",
                     stride, " and pads ", begin, " and ", end,
                     " make less than nothing along spatial axis ", axis);
    }
    prepared.out = prepared.indexed;
    if (ctx.input(2).present())
      prepared.out = output_shape(ctx.input(2).to_ints(), prepared.indexed);
    prepared.same = prepared.out == prepared.indexed;
    ctx.set_output(0, x.type(), prepared.out);
    return prepared;
  }

 private:
  static sdk::Dims output_shape(const std::vector<std::int64_t>& given, const sdk::Dims& least) {
    bool fits = given.size() == least.size();
    for (std::size_t axis = 0; fits && axis < given.size(); ++axis) {
      fits = axis < 2 ? given[axis] == least[axis] : given[axis] >= least[axis];
    }
    if (!fits) {
      sdk::invalid("MaxUnpool: output_shape is ", sdk::to_string(given),
                   ", the attributes give at least ", sdk::to_string(least));
    }
    return given;
  }

  std::vector<std::int64_t> kernel_, strides_, pads_;
};

/// Sums blocks, given as columns [batch, channels * block elements, blocks], into images.
class Col2Im {
 public:
  struct Axis {
    std::int64_t image, block, blocks, stride, dilation, pad;
  };

  struct Prepared {
    std::vector<Axis> axes;
    std::int64_t planes, block_size, block_count, image_size;

    void compute(const sdk::ComputeContext& ctx) const {
      if (ctx.output(0).size() == 0) return;
      common::with_number(ctx.output(0).type(),
                          [&](auto tag) { run<typename decltype(tag)::type>(ctx); });
    }

    template <class T>
    void run(const sdk::ComputeContext& ctx) const {
      const T* x = ctx.input(0).data<T>();
      T* y = ctx.output(0).mutable_data<T>();
      const double ns = 4.0 * static_cast<double>(block_size * block_count);
      split_loop(ctx.threads(), planes, ns, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t plane = begin; plane < end; ++plane) {
          for (std::int64_t pixel = 0; pixel < image_size; ++pixel) {
            y[plane * image_size + pixel] = sum(x + plane * block_size * block_count, pixel);
          }
        }
      });
    }

    /// A pixel is the sum over the block elements that fall on it, in the order of the elements.
    template <class T>
    T sum(const T* columns, std::int64_t pixel) const {
      common::Wide<T> total{};
      for (std::int64_t element = 0; element < block_size; ++element) {
        std::int64_t block = 0, step = 1, rest = element, place = pixel;
        bool hit = true;
        for (std::size_t i = axes.size(); hit && i-- > 0;) {
          const Axis& axis = axes[i];
          const std::int64_t from =
              place % axis.image + axis.pad - rest % axis.block * axis.dilation;
          hit = from >= 0 && from % axis.stride == 0 && from / axis.stride < axis.blocks;
          block += from / axis.stride * step;
          step *= axis.blocks;
          rest /= axis.block;
          place /= axis.image;
        }
        if (!hit) continue;
        total = static_cast<common::Wide<T>>(total +
                                             common::widen(columns[element * block_count + block]));
      }
      return common::narrow<T>(total);
    }
  };

  Col2Im(const sdk::CreateContext&, const sdk::Node& node)
      : strides_(node.get_ints("strides")),
        dilations_(node.get_ints("dilations")),
        pads_(node.get_ints("pads")) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const std::vector<std::int64_t> image = ctx.input(1).to_ints();
    const std::vector<std::int64_t> block = ctx.input(2).to_ints();
    const std::size_t count = image.size();
    if (x.rank() != 3 || block.size() != count || count == 0) {
      sdk::invalid("Col2Im: the input has dims ", sdk::to_string(x.dims()), ", image_shape is ",
                   sdk::to_string(image), " and block_shape ", sdk::to_string(block));
    }
    check_count("strides", strides_, count);
    check_count("dilations", dilations_, count);
    check_count("pads", pads_, 2 * count);
    Prepared prepared{{}, 0, 1, 1, 1};
    common::Checked sizes(1), counts(1), images(1);
    for (std::size_t i = 0; i < count; ++i) {
      Axis axis{image[i],          block[i], 0, entry(strides_, i, 1), entry(dilations_, i, 1),
                entry(pads_, i, 0)};
      const std::int64_t pad_end = entry(pads_, i + count, 0);
      const bool are_sizes = axis.image >= 1 && axis.block >= 1 && axis.stride >= 1 &&
                             axis.dilation >= 1 && axis.pad >= 0 && pad_end >= 0;
      const std::int64_t room =
          are_sizes ? (common::Checked(axis.image) + axis.pad + pad_end - 1 -
                       (common::Checked(axis.block) - 1) * axis.dilation)
                          .value("Col2Im: a block of ", axis.block, " with dilation ",
                                 axis.dilation, " in ", axis.image, " with pads ", axis.pad,
                                 " and ", pad_end, " along spatial axis ", i)
                    : -1;
      if (room < 0) {
        sdk::invalid("Col2Im: a block of ", axis.block, " does not fit into ", axis.image,
                     " along spatial axis ", i);
      }
      axis.blocks = room / axis.stride + 1;
      sizes = sizes * axis.block;
      counts = counts * axis.blocks;
      images = images * axis.image;
      prepared.axes.push_back(axis);
    }
    prepared.block_size = sizes.value("Col2Im: a block of ", sdk::to_string(block));
    prepared.block_count = counts.value("Col2Im: the number of blocks of ", sdk::to_string(block),
                                        " in an image of ", sdk::to_string(image));
    prepared.image_size = images.value("Col2Im: an image of ", sdk::to_string(image));
    if (x.dim(1) % prepared.block_size != 0 || x.dim(2) != prepared.block_count) {
      sdk::invalid("Col2Im: the input has dims ", sdk::to_string(x.dims()), ", expected [batch, ",
                   prepared.block_size, " times the channels, ", prepared.block_count, "]");
    }
    const std::int64_t channels = x.dim(1) / prepared.block_size;
    prepared.planes = x.dim(0) * channels;
    sdk::Dims dims{x.dim(0), channels};
    dims.insert(dims.end(), image.begin(), image.end());
    ctx.set_output(0, x.type(), dims);
    return prepared;
  }

 private:
  std::vector<std::int64_t> strides_, dilations_, pads_;
};

}  // namespace

sdk::KernelList unpool_kernels() {
  return {sdk::op("MaxUnpool")
              .name("cpu:MaxUnpool")
              .roles({BP_INPUT_DATA, BP_INPUT_DATA, BP_INPUT_HOST_VALUE})
              .types("T1", common::float_types())
              .kernel<MaxUnpool>(),
          sdk::op("Col2Im")
              .name("cpu:Col2Im")
              .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE, BP_INPUT_HOST_VALUE})
              .types("T", common::number_types())
              .kernel<Col2Im>()};
}

}  // namespace backplane::cpu
