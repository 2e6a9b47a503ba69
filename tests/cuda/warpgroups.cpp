#include "tests/cuda/warpgroups.hpp"

#include <algorithm>
#include <cstring>

#include "backplane/plugin.hpp"

namespace backplane::cuda {
namespace {

using Number = unsigned long long;

/// As the words have them.
struct Boxes {
  const StandInBoxes* is;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

unsigned local_address(const void* place) { return Warpgroups::all().memory().address_of(place); }
void* local_memory() { return Warpgroups::all().memory().given(); }
void begin_barrier(unsigned at, unsigned count) {
  Warpgroups::all().memory().begin_barrier(at, count);
}
void expect_bytes(unsigned at, unsigned bytes) { Warpgroups::all().memory().arrive(at, bytes); }
void arrive(unsigned at) { Warpgroups::all().memory().arrive(at, 0); }
void await(unsigned at, unsigned parity) { Warpgroups::all().memory().await(at, parity); }
void load_box(unsigned to, const Boxes* from, int x, int y, int z, unsigned barrier) {
  Warpgroups::all().memory().load_box(to, *from->is, {x, y, z}, barrier);
}
void load_pixels(unsigned to, const Boxes* from, int c, int x, int y, int n, int right, int down,
                 unsigned barrier) {
  Warpgroups::all().memory().load_pixels(to, *from->is, {c, x, y, n, right, down}, barrier);
}
void store_box(const Boxes* to, int x, int y, int z, unsigned from) {
  Warpgroups::all().memory().store_box(*to->is, {x, y, z}, from);
}
void show_to_copies() { Warpgroups::all().memory().show_to_copies(); }
void commit_stores() { Warpgroups::all().memory().commit_stores(); }
void wait_for_stores() { Warpgroups::all().memory().wait_for_stores(); }
unsigned local_word(unsigned at) { return Warpgroups::all().memory().read<unsigned>(at); }
void set_local_word(unsigned at, unsigned word) {
  Warpgroups::all().memory().write(at, &word, sizeof(word));
}
void set_local_sums(unsigned at, float first, float second) {
  const float both[] = {first, second};
  Warpgroups::all().memory().write(at, both, sizeof(both));
}
float4 sums_of(unsigned at, int part) {
  Warpgroups& cluster = Warpgroups::all();
  const auto group = static_cast<unsigned>(part);
  if (group >= cluster.groups() || !Fibers::all().is_alive(group))
    Fibers::all().stop("memory is read of a group that is not there");
  return cluster.memory(group).read<float4>(at);
}
void meet(unsigned number, unsigned items) { Warpgroups::all().meet(number, items); }
void reach_cluster() { Warpgroups::all().reach_cluster(); }
void await_cluster() { Warpgroups::all().await_cluster(); }
void order_sums() { Warpgroups::all().team().order_sums(); }
void multiply_later(const char* instruction, float* sums, Number a, Number b, int adds) {
  Warpgroups::all().team().multiply(instruction, sums, a, b, adds != 0);
}
void commit_products() { Warpgroups::all().team().commit(); }
void await_products(unsigned but) { Warpgroups::all().team().await(but); }
void wait_for_turn() { Fibers::all().take_turn(); }

/// What each gives, its name, what it takes and is given: the words' table and text.
#define WARPGROUP_WORDS(WORD)                                                                      \
  WORD(unsigned, local_address, (const void* place), (place))                                      \
  WORD(void*, local_memory, (), ())                                                                \
  WORD(void, begin_barrier, (unsigned at, unsigned count), (at, count))                            \
  WORD(void, expect_bytes, (unsigned at, unsigned bytes), (at, bytes))                             \
  WORD(void, arrive, (unsigned at), (at))                                                          \
  WORD(void, await, (unsigned at, unsigned parity), (at, parity))                                  \
  WORD(void, load_box, (unsigned to, const Boxes* from, int x, int y, int z, unsigned barrier),    \
       (to, from, x, y, z, barrier))                                                               \
  WORD(void, load_pixels,                                                                          \
       (unsigned to, const Boxes* from, int c, int x, int y, int n, int right, int down,           \
        unsigned barrier),                                                                         \
       (to, from, c, x, y, n, right, down, barrier))                                               \
  WORD(void, store_box, (const Boxes* to, int x, int y, int z, unsigned from),                     \
       (to, x, y, z, from))                                                                        \
  WORD(void, show_to_copies, (), ())                                                               \
  WORD(void, commit_stores, (), ())                                                                \
  WORD(void, wait_for_stores, (), ())                                                              \
  WORD(unsigned, local_word, (unsigned at), (at))                                                  \
  WORD(void, set_local_word, (unsigned at, unsigned word), (at, word))                             \
  WORD(void, set_local_sums, (unsigned at, float first, float second), (at, first, second))        \
  WORD(float4, sums_of, (unsigned at, int part), (at, part))                                       \
  WORD(void, meet, (unsigned number, unsigned items), (number, items))                             \
  WORD(void, reach_cluster, (), ())                                                                \
  WORD(void, await_cluster, (), ())                                                                \
  WORD(void, order_sums, (), ())                                                                   \
  WORD(void, multiply_later, (const char* instruction, float* sums, Number a, Number b, int adds), \
       (instruction, sums, a, b, adds))                                                            \
  WORD(void, commit_products, (), ())                                                              \
  WORD(void, await_products, (unsigned but), (but))                                                \
  WORD(void, wait_for_turn, (), ())

#define WORD_ADDRESS(made, name, parameters, values) \
  reinterpret_cast<void*>(static_cast<made(*) parameters>(name)),
void* const kWordTable[] = {WARPGROUP_WORDS(WORD_ADDRESS)};
#undef WORD_ADDRESS

constexpr char kBefore[] = R"text(
using Number = unsigned long long;
struct Boxes { Number words[1]; };
SHARED_WORD void *const *host_table;
#define HOST_WORD(made, name, parameters, values) \
  NOT_WATCHED static inline made name parameters { \
    return ((made(*) parameters)host_table[__COUNTER__]) values; \
  }
)text";

/// What there is of every barrier's number: 0 is the whole group's, warps have those from 32 on.
constexpr char kAfter[] = R"text(
#define __forceinline__ inline
#define __cluster_dims__(...)
#define BOXES(x) const Boxes x
#define LOCAL_MEMORY(name) u8 *name = (u8 *)local_memory()
#define MULTIPLY(d, a, b, more) multiply_later(PRODUCT, d, a, b, more)
#define HOLD(d)
#define AWAIT_PRODUCTS(but) await_products(but)
#define HAVE_FEW_REGISTERS
#define HAVE_MANY_REGISTERS
#define BEGIN_NEXT
#define WAIT_FOR_TURN wait_for_turn()
#define wait_for_stores_to_have_read wait_for_stores
NOT_WATCHED static inline void prefetch_boxes(const Boxes *) {}
NOT_WATCHED static inline void show_barriers() {}
NOT_WATCHED static inline void meet_team(int team) { meet(team, 128); }
NOT_WATCHED static inline void meet_teams(int items) { meet(15, items); }
NOT_WATCHED static inline void __syncwarp() { meet(32 + threadIdx.x / 32, 32); }
template <class T> NOT_WATCHED static T __shfl_sync(unsigned, T value, int lane) {
  static T given[1024];
  given[threadIdx.x] = value;
  host_meet(nullptr);
  const T other = given[threadIdx.x / 32 * 32 + lane];
  host_meet(nullptr);
  return other;
}
)text";

}  // namespace

bool has_warpgroups(const std::string& source) {
  return source.find("LOCAL_MEMORY(") != std::string::npos;
}

std::string warpgroup_words() {
#define WORD_AS_TEXT(made, name, parameters, values) \
  "HOST_WORD(" #made ", " #name ", " #parameters ", " #values ")\n"
  return sdk::message(kBefore, WARPGROUP_WORDS(WORD_AS_TEXT), kAfter);
#undef WORD_AS_TEXT
}

void* const* Warpgroups::words() { return kWordTable; }

void Warpgroups::begin(unsigned groups, unsigned items, const Range& declared,
                       std::uint32_t given_bytes) {
  groups_.resize(groups);
  for (Group& group : groups_) {
    group.memory.begin(declared, given_bytes, items);
    group.teams.clear();
    group.teams.resize(items / Warpgroup::kItems);
    group.meetings = {};
    group.reached.assign(items, 0);
    group.awaited.assign(items, 0);
  }
  come_.clear();
  ended_.clear();
  items_ = groups * items;
}

bool Warpgroups::go_on(unsigned group) {
  Group& going = groups_[group];
  const auto count = static_cast<unsigned>(going.teams.size());
  const unsigned first = Fibers::all().random();
  for (unsigned i = 0; i < count; ++i) {
    if (going.teams[(first + i) % count].go_on(going.memory)) return true;
  }
  return going.memory.bring();
}

std::string Warpgroups::what_is_left() const {
  for (const Group& group : groups_) {
    if (const std::string left = group.memory.what_is_left(); !left.empty()) return left;
  }
  return "";
}

void Warpgroups::meet(unsigned number, unsigned items) {
  Fibers& fibers = Fibers::all();
  constexpr unsigned kFirstOfWarps = 32, kMostNumber = 15;
  if (number == 0 || (number > kMostNumber && number < kFirstOfWarps) || number >= 64)
    fibers.stop(sdk::message("there is no such barrier: ", number));
  Meeting& meeting = groups_[fibers.group()].meetings[number];
  if (meeting.come == 0) meeting.items = items;
  if (meeting.items != items) fibers.stop("a barrier is for another number of items");
  if (++meeting.come == items) {
    meeting.come = 0;
    ++meeting.times;
    return;
  }
  fibers.wait({[](const Wait& wait) {
                 return all().groups_[wait.group].meetings[wait.number].times != wait.more;
               },
               "for others of its group", fibers.group(), fibers.item(), number, meeting.times});
}

void Warpgroups::reach_cluster() {
  Group& group = groups_[Fibers::all().group()];
  const unsigned item = Fibers::all().item(), times = group.reached[item]++;
  if (group.awaited[item] != times) Fibers::all().stop("the cluster is reached twice");
  if (come_.size() <= times) come_.resize(times + 1);
  ++come_[times];
}

/// Or have ended.
bool Warpgroups::have_all_reached(unsigned times) const {
  unsigned count = come_[times];
  for (unsigned i = 0; i <= times && i < ended_.size(); ++i) count += ended_[i];
  return count == items_;
}

void Warpgroups::await_cluster() {
  Group& group = groups_[Fibers::all().group()];
  const unsigned item = Fibers::all().item(), times = group.awaited[item]++;
  if (group.reached[item] != times + 1) Fibers::all().stop("the cluster is awaited, not reached");
  Fibers::all().wait(
      {[](const Wait& wait) { return all().have_all_reached(static_cast<unsigned>(wait.number)); },
       "for the cluster", Fibers::all().group(), item, times, 0});
}

void Warpgroups::end_item() {
  const unsigned times = groups_[Fibers::all().group()].reached[Fibers::all().item()];
  if (ended_.size() <= times) ended_.resize(times + 1);
  ++ended_[times];
}

}  // namespace backplane::cuda
