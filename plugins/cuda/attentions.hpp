// Attention by a library: the seam to cuDNN (engine/cudnn_attention.cpp) and to the stand-in of the tests.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugins/common/device_ops/row_attention.hpp"
#include "plugins/cuda/plan_store.hpp"
#include "plugins/cuda/products.hpp"

namespace backplane::cuda {

using AttentionSteps = device_ops::RowSteps;
using AttentionOperand = device_ops::HeadRows;

/// y[b][h][i] = sum over j of softmax(scale * q[b][h][i] . k[b][g][j] + mask[b][h][i][j]) v[b][g][j], where g is h's group of
/// heads; with is_causal over j <= i alone.
struct Attention {
  sdk::DataType type = sdk::DataType::Float16;  ///< Float16 or BFloat16, of everything
  std::int64_t batch = 1, heads = 1, groups = 1;
  std::int64_t rows = 1, columns = 1;       ///< positions of q and y, of k and v
  std::int64_t width = 8, value_width = 8;  ///< of a row of q and k, of v and y
  AttentionSteps q, k, v, y;
  bool has_mask = false, is_causal = false;
  /// Of [batch, heads, rows, columns], axes of one element where it is the same for all.
  std::array<std::int64_t, 4> mask_dims{1, 1, 1, 1};

  /// Everything that a plan depends on, but for the device and the library.
  std::string key() const;
};

/// Every address is a multiple of kLibraryAlignment.
struct AttentionAddresses {
  Address q = 0, k = 0, v = 0, mask = 0, y = 0, workspace = 0;
};

/// What it is enqueued with: the addresses, and the scale.
using PreparedAttention = PreparedPlan<const AttentionAddresses&, float>;

/// Of q, k, v, the mask and y; 0 where there is none.
std::vector<std::uint64_t> operand_bytes(const Attention& form);
/// A plan on such operands.
TrialRun trial_run(const Attention& form, std::shared_ptr<const PreparedAttention> plan);

/// The library, opened for one device. Threads: any.
class AttentionLibrary {
 public:
  AttentionLibrary() = default;
  AttentionLibrary(const AttentionLibrary&) = delete;
  AttentionLibrary& operator=(const AttentionLibrary&) = delete;
  virtual ~AttentionLibrary() = default;
  /// For keys: "cuDNN 9.19.0".
  virtual std::string version() = 0;
  using Taker = TakePlan<PreparedAttention>;
  /// What the library makes on its first use, which takes it long: before the time of a form begins.
  virtual void begin(const Attention&) {}
  /// What takes long and is made for the comparison of plans alone: before the time of a form begins.
  virtual void make_ready(const Attention&) {}
  /// Offers the library's plans within the limit, best first, until one is the last that is wanted. Why there are no more;
  /// empty where no more were wanted.
  virtual std::string offer(const Attention& attention, std::uint64_t workspace_limit,
                            const Taker& take) = 0;
  /// A plan that was kept; null when the library does not take it.
  virtual std::shared_ptr<const PreparedAttention> restore(const Attention& attention,
                                                           const std::string& kept) = 0;
};

/// Whether that version of cuDNN, as cudnnGetVersion() has it, is one that its own front end keeps from such attention, for
/// faults that are known. Source: sdpa_support_surface.h of https://github.com/NVIDIA/cudnn-frontend
/// Or one that makes NaN where a mask's infinities are all of a row's first columns (PyTorch kept them from cuDNN 9.1 on,
/// https://github.com/pytorch/pytorch/pull/140837; 9.10.2 is known to be right, https://github.com/huggingface/diffusers/pull/14349).
inline bool has_known_fault(const Attention& attention, std::size_t cudnn_version) {
  constexpr std::size_t kFaulty = 91000, kFaultyToo = 91001, kLastWithoutMaskedSingleRows = 90900;
  return cudnn_version == kFaulty || cudnn_version == kFaultyToo ||
         (cudnn_version < kFaulty && attention.has_mask) ||
         (cudnn_version <= kLastWithoutMaskedSingleRows && attention.rows == 1 &&
          attention.is_causal);
}

/// The most workspace of an attention.
inline constexpr std::uint64_t kAttentionWorkspace = std::uint64_t{256} << 20;

class AttentionStore : public PlanStore<Attention, PreparedAttention, AttentionLibrary> {
 public:
  AttentionStore(AttentionLibrary* library, const DeviceTraits& traits, const std::string& folder,
                 Trials* trials)
      : PlanStore(library, traits, folder, trials, kAttentionWorkspace),
        major_(traits.major),
        has_library_(library != nullptr) {}
  /// Why the library does not compute it; empty where it has a plan.
  std::string refusal(const Attention& attention, Choosing choosing);

 private:
  int major_;
  bool has_library_;
};

/// Errors: BP_INVALID_ARGUMENT where they do not fit.
Attention attention_of(const AttentionOperand& q, const AttentionOperand& k,
                       const AttentionOperand& v);
/// The mask's dims, of up to four axes. Errors: BP_INVALID_ARGUMENT where it does not broadcast.
void set_mask(sdk::DimsView dims, Attention& attention);

}  // namespace backplane::cuda
