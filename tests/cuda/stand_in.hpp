// A driver without a device: memory is the process's, streams are queues whose work is done as soon as what it waits
// for is done, and every call is written down. Kernels do what a test says.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "plugins/cuda/provider.hpp"

namespace backplane::cuda {

/// The stand-in's device memory is the host's.
template <class T>
T* memory_at(Address address) {
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

/// What the first word of a description points to here: of matrices, or of pixels where these have an address.
struct StandInBoxes {
  BoxedMatrices matrices;
  BoxedPixels pixels;
};

/// One of several ways in which a library does its work.
struct StandInWay {
  std::uint64_t takes_ns = 0;  ///< by the events' clock
  std::uint64_t workspace_bytes = 0;
  std::string error;  ///< with which it fails when it is run
};

/// What all contexts of a stand-in share. One thread.
struct StandInState {
  std::vector<DeviceTraits> devices;
  std::vector<std::string> calls;
  std::size_t run_began = 0;  ///< the number of calls before the last run of a node
  std::map<std::string, std::vector<std::string>>
      failures;                              ///< by call: the errors of the next ones
  std::vector<std::string> misuses;          ///< what the real driver leaves undefined
  std::multiset<const void*> awaited_words;  ///< that work on some stream still reads or writes
  bool holds = false;                        ///< streams do nothing until it is false
  bool peers = true;
  bool shares_contexts = false;  ///< contexts of one device are one, as primary contexts are
  std::set<const void*>
      peer_memory;  ///< of contexts, and pools, that another device was given access to
  std::uint64_t live_bytes = 0;
  std::uint64_t kept_bytes = 0;  ///< freed, and the pool's until it is trimmed
  bool is_full = false;  ///< what takes memory beside the pool gets none while that keeps any
  int live_pinned = 0, live_streams = 0, live_events = 0, live_modules = 0, live_contexts = 0;
  int live_graphs = 0, live_execs = 0;
  bool updates_graphs = true;
  bool takes_early_launches = true;
  std::vector<bool>
      early;  ///< of each launch, whether it may begin before the one before it has ended
  std::uint64_t ahead_ns = 0;  ///< of the events' clock before the host's
  bool has_own_clock = false;  ///< events know `ahead_ns` alone
  std::uint64_t rises_ns =
      0;  ///< what the next run of a way takes more, and each after it half of that
  /// What a run of a way takes the host, and a copy the device; and how far the host has come in that time.
  std::uint64_t host_takes_ns = 0, copy_takes_ns = 0, host_ns = 0;
  /// A kernel's work: its source, the part's groups, a group's items, its arguments.
  std::function<void(const std::string& source, const Extent& groups, const Extent& group,
                     void** arguments)>
      kernel;
  std::uint32_t local_bytes = 0;  ///< that the launch asks for whose work is done

  /// Whether libraries compute; not where a test asks for what is prepared alone, and trials run large forms for it.
  bool libraries_compute = true;
  bool engine_is_there = true;  ///< as far as that can be seen without opening it

  // The library of matrix products.
  std::string library_version = "stand-in 1";
  std::vector<ProductAlgorithm> proposals{ProductAlgorithm{{1}, 0}};
  bool serves_kept = true;
  std::function<bool(const LibraryProduct&)>
      multiplies;                     ///< whether it has an algorithm; unset: always
  std::uint32_t least_alignment = 1;  ///< of products for which there are algorithms
  std::map<std::uint64_t, StandInWay> algorithm_ways;  ///< by an algorithm's first word
  std::vector<LibraryProduct> products;                ///< that were proposed for
  std::vector<ProductAlgorithm> algorithms;            ///< that were prepared

  std::vector<bool> constant_weights;  ///< of each product and convolution that was enqueued

  // The library of convolutions.
  bool has_convolutions = true;
  std::function<bool(const Convolution&)> plans;  ///< whether it has a plan; unset: always
  std::uint64_t convolution_workspace = 0;
  std::vector<StandInWay> ways{StandInWay()};  ///< plans that it has for each, of attention too
  std::uint64_t fused_takes_ns = 0;  ///< what a convolution takes more where something is fused
  std::vector<Convolution> convolutions;  ///< that were planned

  // The library of attention; it is there where that of convolutions is.
  std::function<bool(const Attention&)> attends;  ///< whether it has a plan; unset: always
  std::uint64_t attention_workspace = 0;
  std::vector<Attention> attentions;  ///< that were planned

  std::size_t count(const std::string& call) const;
  /// Of the last run of a node, without what trials ran to prepare it.
  std::size_t count_of_run(const std::string& call) const;
  void note(const std::string& call);
  void take_device_memory(const char* call) const;
};

/// The state of the stand-in that load_stand_in() serves; reset by each test.
StandInState& stand_in();
/// The clock of the stand-in's events, which is the host's.
std::uint64_t steady_ns();
DeviceTraits stand_in_device(int major = 9, int minor = 0);

std::unique_ptr<Driver> load_stand_in();
/// A compiler whose images are the sources, for sm_75 to sm_90, which counts what it compiles; matrix products that
/// are computed.
std::unique_ptr<Engine> load_stand_in_engine();
/// All of it, for a provider.
Libraries stand_in_libraries();
std::vector<std::string>& compiled_sources();

}  // namespace backplane::cuda
