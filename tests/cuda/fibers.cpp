#include "tests/cuda/fibers.hpp"

#include "backplane/plugin.hpp"
#include "tests/cuda/warpgroups.hpp"

namespace backplane::cuda {
void Fibers::run(const HostKernel& kernel, unsigned first, const Extent& groups, const Extent& size,
                 void** arguments) {
  kernel_ = &kernel;
  first_ = first;
  groups_ = groups;
  size_ = size;
  items_ = size[0] * size[1] * size[2];
  arguments_ = arguments;
  scheduler_.has_begun = true;
  is_stopped_ = false;
  const unsigned count = items_ * kernel.parts;
  while (fibers_.size() < count) fibers_.push_back(std::make_unique<Fiber>());
  for (unsigned i = 0; i < count; ++i) begin(i);
  alive_.assign(kernel.parts, items_);
  for (;;) {
    bool moves = false, is_left = false;
    for (unsigned group = 0; group < kernel.parts && !is_stopped_; ++group) {
      moves = run_group(group) || moves;
      is_left = is_left || is_alive(group);
    }
    if (is_stopped_ || !is_left) break;
    // What was put off is done for one group after another, so that the first are as far ahead as can be.
    for (unsigned group = 0; group < kernel.parts && !moves; ++group)
      moves = kernel.has_warpgroups && Warpgroups::all().go_on(group);
    if (kernel.has_warpgroups && !Watch::all().fault.empty()) is_stopped_ = true;
    if (is_stopped_) break;
    if (moves) continue;
    Watch::all().fault = what_all_wait_for();
    is_stopped_ = true;
  }
  if (is_stopped_) fibers_.clear();  // they stand somewhere
}

/// Whether any of its items had a turn.
bool Fibers::run_group(unsigned group) {
  const unsigned first = group * items_;
  for (bool has_moved = false;;) {
    bool moves = false;
    // Of warpgroups no item is always the first to go on.
    const bool is_turned = kernel_->has_warpgroups && random() % 2 == 0;
    for (unsigned i = 0; i < items_ && !is_stopped_; ++i) {
      const unsigned index = first + (is_turned ? items_ - 1 - i : i);
      if (!is_ready(*fibers_[index])) continue;
      resume(index);
      moves = true;
    }
    if (is_stopped_) return true;
    if (!moves && !go_on(group)) return has_moved;
    has_moved = true;
  }
}

bool Fibers::is_ready(const Fiber& fiber) const {
  return !fiber.is_done && fiber.waits_at == nullptr &&
         (fiber.wait.is_over == nullptr || fiber.wait.is_over(fiber.wait));
}

void Fibers::resume(unsigned index) {
  Fiber& fiber = *fibers_[index];
  Watch& watch = Watch::all();
  current_ = index;
  const auto stack = reinterpret_cast<std::uintptr_t>(fiber.stack.get());
  watch.stack = {stack, stack + kStackBytes};
  watch.item = {first_ + group(), item(), fiber.barriers};
  watch.has_turn = fiber.has_turn;
  *kernel_->places[0] = place_in(first_ + group(), groups_);
  *kernel_->places[1] = place_in(item(), size_);
  scheduler_.hand_over(fiber.turn);
}

/// From a barrier that all of a group have come to; false: some have not, or all have ended. What CUDA leaves undefined is a fault: items
/// at different barriers, and shuffles that not all neighbours come to.
bool Fibers::go_on(unsigned group) {
  constexpr unsigned kNeighbours = 32;
  const auto fiber_of = [&](unsigned i) -> Fiber& { return *fibers_[group * items_ + i]; };
  for (unsigned i = 0; i < items_; ++i) {
    if (!fiber_of(i).is_done && fiber_of(i).waits_at == nullptr) return false;
  }
  std::string& fault = Watch::all().fault;
  const void* place = nullptr;
  for (unsigned i = 0; i < items_; ++i) {
    Fiber& fiber = fiber_of(i);
    const unsigned first = i / kNeighbours * kNeighbours;
    if (fiber.meetings != fiber_of(first).meetings)
      fault = sdk::message("items ", first, " and ", i, " do not meet in as many shuffles");
    if (fiber.meetings > 0 && items_ % kNeighbours != 0)
      fault = sdk::message("shuffles of all neighbours in a group of ", items_, " items");
    if (fiber.is_done) continue;
    if (place != nullptr && place != fiber.waits_at)
      fault = sdk::message("item ", i, " waits at another barrier than those before it");
    place = fiber.waits_at;
    fiber.waits_at = nullptr;
    ++fiber.barriers;
  }
  return is_alive(group);
}

void Fibers::begin(unsigned index) {
  Fiber& fiber = *fibers_[index];
  ucontext_t& context = fiber.turn.context;
  ::getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack.get();
  context.uc_stack.ss_size = kStackBytes;
  fiber.turn.has_begun = fiber.is_done = false;
  fiber.has_turn = !kernel_->has_warpgroups;
  fiber.waits_at = nullptr;
  fiber.wait = {};
  fiber.barriers = fiber.meetings = 0;
  ::makecontext(
      &context, [] { all().run_item(); }, 0);
}

void Fibers::run_item() {
  const auto meet = [](const void* place) {
    Fiber& fiber = *all().fibers_[all().current_];
    fiber.waits_at = place;  // at none, until the others have had a turn
    if (place == nullptr) ++fiber.meetings;
    fiber.turn.hand_over(all().scheduler_);
  };
  const Extent group_place = place_in(first_ + group(), groups_);
  const Extent item_place = place_in(item(), size_);
  kernel_->item(group_place.data(), item_place.data(), size_.data(), arguments_, meet, note_access,
                Warpgroups::words());
  if (kernel_->has_warpgroups) Warpgroups::all().end_item();
  Fiber& fiber = *fibers_[current_];
  fiber.is_done = true;
  --alive_[group()];
  fiber.turn.hand_over(scheduler_);  // for good
}

void Fibers::wait(const Wait& wait) {
  if (wait.is_over(wait)) return;
  Fiber& fiber = *fibers_[current_];
  fiber.wait = wait;
  fiber.turn.hand_over(scheduler_);
  fiber.wait = {};
}

void Fibers::stop(const std::string& fault) {
  std::string& first = Watch::all().fault;
  if (first.empty())
    first = sdk::message("item ", item(), " of group ", first_ + group(), ": ", fault);
  is_stopped_ = true;
  fibers_[current_]->turn.hand_over(scheduler_);
}

std::uint32_t Fibers::random() {
  random_ = random_ * 1664525u + 1013904223u;
  return random_ >> 16;
}

std::string Fibers::what_all_wait_for() const {
  for (unsigned i = 0; i < fibers_.size() && i < items_ * kernel_->parts; ++i) {
    const Fiber& fiber = *fibers_[i];
    if (!fiber.is_done)
      return sdk::message("item ", i % items_, " of group ", first_ + i / items_,
                          " waits for ever ",
                          fiber.waits_at != nullptr ? "at a barrier" : fiber.wait.what);
  }
  return "";
}

}  // namespace backplane::cuda
