// A program with its plans and runs: what a session keeps for one cut of its model.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/host_views.hpp"
#include "core/plan/program.hpp"
#include "core/runtime/address_filter.hpp"
#include "core/runtime/host_views.hpp"
#include "core/runtime/plan_key.hpp"
#include "core/runtime/plan_node.hpp"
#include "core/runtime/run_context.hpp"

namespace backplane::core {

/// A program and its plans. Replaced as a whole when a kernel refuses shapes and nodes move elsewhere.
struct Generation {
  std::unique_ptr<Program> program;
  std::mutex planning;  ///< held while plans are looked up or made
  PlanNode plans;       ///< `next` holds the first segments
  std::atomic<std::uint64_t> plan_count{0};
  std::once_flag moved_told;
  std::once_flag homes_found;
  BodyPlaces homes;  ///< of a body: see Body::homes
  std::once_flag views_found;
  HostViewPlaces views;  ///< what may be viewed where it lies
};

/// The plan that a caller used last; makes the next run with equal feeds skip the look-up. One per caller.
struct PlanMemo {
  PlanKey key, scratch;
  std::shared_ptr<Generation> generation;  ///< of the plan
  std::shared_ptr<PlanNode> plan;
  HostViewWishes wishes;  ///< of the present run
  HostViews views;        ///< of the caller's feeds and fetches
};

/// Gives fetches of a body their memory.
class FetchMemory {
 public:
  FetchMemory() = default;
  FetchMemory(const FetchMemory&) = delete;
  FetchMemory& operator=(const FetchMemory&) = delete;
  /// Makes `value` a tensor as `state` says, with memory in the space.
  virtual void provide(std::size_t fetch, const ValueState& state, int space,
                       RuntimeValue& value) = 0;

 protected:
  ~FetchMemory() = default;
};

/// How a run goes.
struct RunSettings {
  RunControls controls;
  PlanMemo* memo = nullptr;
  const std::vector<bool>* resizable =
      nullptr;  ///< by fetch: made to fit, where it owns its memory, instead of refused; null: none
  const BodyPlaces* places =
      nullptr;  ///< of a body: where feeds lie and fetches go; null: all on the host
  const DeviceSet* own_fetches =
      nullptr;  ///< not null: fetches that go to devices get memory of their own there
  FetchMemory* fetch_memory = nullptr;  ///< of a body: asked for every fetch whose size is known
};

/// The main graph's, or that of a body.
/// Threads: run() may be called from any number of threads.
class Executable : public Body {
 public:
  /// Runs borrow arenas from the pool (null: one of its own); `trace` (null: nobody wants to know) gets a span for each
  /// plan. Both outlive it.
  Executable(const ProgramContext& context, Cut cut, ArenaPool* arenas = nullptr,
             TraceLog* trace = nullptr);
  ~Executable() override;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  BodyPlaces homes() const override;
  std::vector<ValueState> plan_body(const std::vector<ValueState>& feeds,
                                    const BodyPlaces& places) override;
  std::optional<bool> constant_truth(std::size_t fetch) const override;

  const Cut& cut() const { return cut_; }

  /// Runs. Feeds and fetches are in the cut's order; the types and dims of feeds fit the model. A fetch that is absent
  /// (kind BP_VALUE_ABSENT) is allocated; any other must fit in type and dims, or InvalidArgument names it.
  void run(const RunValues& feeds, const RunValues& fetches, const RunSettings& settings);

  /// Plans for these feeds without running, as far as can be known; returns the first segment.
  std::shared_ptr<const Segment> plan(const RunValues& feeds);

  /// Plans for these feeds, and makes all that a run needs which can be known before it: contexts, arenas, streams,
  /// fetches. A run with the same memo and feeds then only computes.
  void prepare(const RunValues& feeds, const RunValues& fetches, const RunSettings& settings);

  /// Waits for what runs that were not synchronized left going on. Throws what the first of them failed with.
  void synchronize();

  /// The newest program.
  std::shared_ptr<Generation> generation() const;
  /// The first segment that ran or was planned last (null: none yet), and its program, which may have been replaced since.
  struct Last {
    std::shared_ptr<Generation> generation;
    std::shared_ptr<const Segment> segment;
  };
  Last last() const;
  std::vector<std::uint64_t> arena_bytes() const;
  /// What was decided, and all that is planned: for saved plans.
  PlanRecord record() const;
  std::vector<std::shared_ptr<const Segment>> segments() const;
  double plan_ms() const { return plan_ms_; }

 private:
  /// A run context with what it borrows.
  struct Idle {
    std::shared_ptr<Generation> generation;  ///< declared first: outlives the context
    std::unique_ptr<RunContext> context;
  };
  /// Everything about one run.
  struct Run {
    std::shared_ptr<Generation> generation;
    const RunValues& feeds;
    const RunValues& fetches;
    const RunSettings& settings;
    HostViewWishes& wishes;  ///< filled in when its plan is looked up
  };

  Idle* acquire(const std::shared_ptr<Generation>& generation);
  void release(Idle* idle) noexcept;
  std::shared_ptr<PlanNode> find_first_plan(const Run& run, RunContext* context);
  std::shared_ptr<PlanNode> resize_kept(const Run& run, const PlanKey& key, const FeedStates& feeds,
                                        RunContext& context);
  std::optional<PlanList::Place> plan_to_resize(PlanList& plans, const PlanKey& key,
                                                RunContext& context) const;
  static bool may_become(const PlanList::Entry& plan, RunContext& context);
  std::shared_ptr<PlanNode> make_first_plan(Generation& generation, PlanKey key, ValueStates values,
                                            const BodyPlaces* places, const HostViewWishes& wishes);
  const HostViewPlaces& views_of(Generation& generation) const;
  void make_run_key(const Run& run, PlanKey& key) const;
  std::shared_ptr<PlanNode> next_plan(const Run& run, PlanNode& from, const RunContext& context,
                                      const std::vector<bool>& fetched);
  std::shared_ptr<PlanNode> make_plan(Generation& generation, PlanNode& from, PlanKey key,
                                      std::size_t begin, ValueStates values,
                                      const std::vector<LiveValue>& available,
                                      const std::vector<bool>& fetched, const BodyPlaces* places,
                                      const HostViewWishes& wishes);
  const std::shared_ptr<PlanNode>& find_plan_of(const Run& run, RunContext& context,
                                                std::shared_ptr<PlanNode>& looked_up);
  template <class Work>
  void in_context(const Run& run, const Work& work);
  void attempt(const Run& run);
  void attempt_preparing(const Run& run);
  std::shared_ptr<Generation> newest(const PlanMemo* memo) const;
  /// Returns what attempt(generation) does, of the first generation in which no node has to go elsewhere.
  template <class Attempt>
  auto with_generations(const PlanMemo* memo, const Attempt& attempt);
  void run_or_prepare(const RunValues& feeds, const RunValues& fetches, const RunSettings& settings,
                      void (Executable::*work)(const Run&));
  std::vector<ValueState> plan_body_of(const std::shared_ptr<Generation>& generation,
                                       const std::vector<ValueState>& feeds,
                                       const BodyPlaces& places);
  void run_segments(const Run& run, std::shared_ptr<PlanNode> plan, RunContext& context);
  void check_apart(const Segment& segment, const Run& run, const AddressFilter& fed,
                   std::size_t fetch, int slot) const;
  void provide_fetches(const Segment& segment, const Run& run) const;
  void provide_fetch(const Segment& segment, const Run& run, const AddressFilter& fed, int fetch,
                     int slot) const;
  void own_fetch(const Run& run, std::size_t fetch, const ValueState& state) const;
  void note(const std::shared_ptr<Generation>& generation,
            const std::shared_ptr<const Segment>& segment,
            const std::vector<std::uint64_t>& arena_bytes);
  void note_run(const Run& run, const std::shared_ptr<const Segment>& segment,
                const RunContext& context);
  void replace_generation(const std::shared_ptr<Generation>& old, const KernelRefused& refused);
  void build_next();
  /// Throws where what plans are made of is no longer what the session read. What runs have of it at hand is not looked
  /// at again for each of them.
  void check_files() const {
    if (context_.files != nullptr) check_unchanged(*context_.files);
  }
  void check_room(Generation& generation, const Segment& segment);
  void keep_plan(Generation& generation, PlanNode& from, PlanList::Entry plan, std::uint64_t start);
  void warn_of_moved(const Program& program);
  void make_room(const std::shared_ptr<Generation>& old, const DeviceFull& full);
  void copy_all(const ViewRefused& refused);

  ProgramContext context_;
  Cut cut_;
  std::size_t max_plans_;  ///< 0: see kept_plans
  std::unique_ptr<ArenaPool> own_arenas_;
  ArenaPool& arenas_;
  TraceLog* trace_;
  Refusals refusals_;
  std::map<std::string, std::size_t>
      moved_;  ///< nodes for want of memory, as the log knows, by device
  mutable std::mutex mutex_;
  std::shared_ptr<Generation> generation_;
  /// generation_, to be compared with that of a memo, which no other can have the address of
  std::atomic<const Generation*> newest_{nullptr};
  std::shared_ptr<Generation> last_generation_;  ///< of the segment below, whose kernels it has
  std::shared_ptr<const Segment> last_segment_;
  std::vector<std::uint64_t> arena_bytes_;
  std::atomic<const Segment*> last_noted_{nullptr};
  std::atomic<double> plan_ms_{0};
  std::atomic<bool> copies_all_{false};  ///< a device that could view host memory refused to
  std::array<std::atomic<Idle*>, 16>
      idle_{};  ///< run contexts nobody uses; taking one is one exchange
};

template <class Attempt>
auto Executable::with_generations(const PlanMemo* memo, const Attempt& attempt) {
  while (true) {
    const std::shared_ptr<Generation> current = newest(memo);
    try {
      return attempt(current);
    } catch (const KernelRefused& refused) {
      replace_generation(current, refused);
    } catch (const DeviceFull& full) {
      make_room(current, full);
    } catch (const ViewRefused& refused) {
      copy_all(refused);
    }
  }
}

}  // namespace backplane::core
