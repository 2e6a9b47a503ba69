// Convolutions by a library: the seam to cuDNN (engine/cudnn.cpp) and to the stand-in of the tests.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugins/cuda/plan_store.hpp"
#include "plugins/cuda/products.hpp"

namespace backplane::cuda {

/// y = relu?(conv(x, w) + bias + addend), or with the transposed convolution, whose weights are [channels][filters / groups].
/// Dense tensors with `rank` spatial axes, 2 or 3, after the channels or, with
/// `is_channels_last`, before them; of weights, the channels are those that a filter reads. Of int8 the result is the sums, exact
/// int32, and nothing else is done with them.
struct Convolution {
  sdk::DataType type = sdk::DataType::Float;
  std::size_t rank = 2;
  std::int64_t batch = 1, channels = 1, filters = 1, groups = 1;
  std::array<std::int64_t, 3> in{1, 1, 1}, kernel{1, 1, 1}, out{1, 1, 1}, stride{1, 1, 1},
      dilation{1, 1, 1}, pad_begin{0, 0, 0}, pad_end{0, 0, 0};
  bool is_transposed = false;
  bool has_bias = false, has_addend = false, has_relu = false;
  bool is_channels_last = false;
  Precision precision = Precision::kFp32;
  std::uint32_t alignment = kLibraryAlignment;  ///< every address is a multiple of it, in bytes

  sdk::DataType result_type() const {
    return type == sdk::DataType::Int8 ? sdk::DataType::Int32 : type;
  }
  /// Everything that a plan depends on, but for the device and the library.
  std::string key() const;
  bool is_fused() const { return has_bias || has_addend || has_relu; }
};

struct ConvolutionAddresses {
  Address x = 0, w = 0, bias = 0, addend = 0, y = 0, workspace = 0;
  bool w_is_constant = false;  ///< no work on the stream makes it
};

using PreparedConvolution = PreparedPlan<const ConvolutionAddresses&>;

/// Of x, w, the bias, the addend and y; 0 where there is none.
std::vector<std::uint64_t> operand_bytes(const Convolution& form);
/// A plan on such operands.
TrialRun trial_run(const Convolution& form, std::shared_ptr<const PreparedConvolution> plan);

/// The library, opened for one device. Threads: any.
class ConvolutionLibrary {
 public:
  ConvolutionLibrary() = default;
  ConvolutionLibrary(const ConvolutionLibrary&) = delete;
  ConvolutionLibrary& operator=(const ConvolutionLibrary&) = delete;
  virtual ~ConvolutionLibrary() = default;
  /// For keys: "cuDNN 9.19.0".
  virtual std::string version() = 0;
  using Taker = TakePlan<PreparedConvolution>;
  /// What takes long and is made once, as the library's first use: before the time of a form begins.
  virtual void begin(const Convolution&) {}
  /// What takes long and is made for the comparison of plans alone: before the time of a form begins.
  virtual void make_ready(const Convolution&) {}
  /// Offers the library's plans within the limit, best first, until one is the last that is wanted. Why there are no more;
  /// empty where no more were wanted.
  virtual std::string offer(const Convolution& convolution, std::uint64_t workspace_limit,
                            const Taker& take) = 0;
  /// A plan that was kept; null when the library does not take it.
  virtual std::shared_ptr<const PreparedConvolution> restore(const Convolution& convolution,
                                                             const std::string& kept) = 0;
};

}  // namespace backplane::cuda
