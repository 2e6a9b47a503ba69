// The table of accesses that orders the commands of a queue out of order, without a device: every command is behind all
// that it depends on, waits for nothing else, and keeps no event. Tables that are wrong on purpose show that the first
// two are looked at.
#include "plugins/opencl/hazards.hpp"

#include <algorithm>
#include <array>
#include <bitset>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace {

/// Events are the numbers of commands; this is how often each is retained.
std::map<cl_event, int>& references() {
  static std::map<cl_event, int> counts;
  return counts;
}

}  // namespace

// In the place of the OpenCL loader, which this program is not linked with.
extern "C" cl_int clRetainEvent(cl_event event) {
  ++references()[event];
  return CL_SUCCESS;
}
extern "C" cl_int clReleaseEvent(cl_event event) {
  --references()[event];
  return CL_SUCCESS;
}

namespace backplane::opencl {
namespace {

constexpr std::size_t kCommands = 200;
using Events = std::vector<cl_event>;

cl_event event_of(std::size_t command) {
  static std::array<char, kCommands> places;
  return reinterpret_cast<cl_event>(&places.at(command));
}
std::size_t command_of(cl_event event) {
  return static_cast<std::size_t>(reinterpret_cast<char*>(event) -
                                  reinterpret_cast<char*>(event_of(0)));
}

/// The provider's own; those below change one thing.
class Table {
 public:
  Table() = default;
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  virtual ~Table() = default;
  virtual void find(const Access& access, Events& events) const { hazards_.find(access, events); }
  virtual void add(const Access& access, cl_event event) { hazards_.add(access, event); }

 private:
  Hazards hazards_;
};

/// Who writes does not wait for those that read.
class ForgetsReaders : public Table {
  void add(const Access& access, cl_event event) override {
    if (access.writes) Table::add(access, event);
  }
};
/// Neither readers nor writers wait for those that write.
class ForgetsWriters : public Table {
  void add(const Access& access, cl_event event) override {
    if (!access.writes) Table::add(access, event);
  }
};
/// What overlaps with the second half of what is asked for is missed.
class LooksAtTheFirstHalf : public Table {
  void find(const Access& access, Events& events) const override {
    Access half = access;
    half.end = access.begin + (access.end - access.begin) / 2;
    Table::find(half, events);
  }
};
/// What a write covers in part alone is forgotten.
class ForgetsWhatIsCoveredInPart : public Table {
  void add(const Access& access, cl_event event) override {
    Access wide = access;
    if (access.writes) {
      wide.begin -= std::min<std::uint64_t>(wide.begin, 8);
      wide.end += 8;
    }
    Table::add(wide, event);
  }
};
/// A command is known by the first of its accesses.
class KnowsOneAccess : public Table {
  void add(const Access& access, cl_event event) override {
    if (event != last_) Table::add(access, event);
    last_ = event;
  }
  cl_event last_ = nullptr;
};
/// What touches another buffer is waited for as well.
class MixesUpBuffers : public Table {
  void find(const Access& access, Events& events) const override {
    Access anywhere = access;
    anywhere.memory = nullptr;
    Table::find(anywhere, events);
  }
  void add(const Access& access, cl_event event) override {
    Access anywhere = access;
    anywhere.memory = nullptr;
    Table::add(anywhere, event);
  }
};

bool conflict(const Access& a, const Access& b) {
  return a.memory == b.memory && a.begin < b.end && b.begin < a.end && (a.writes || b.writes);
}

bool conflict(const std::vector<Access>& a, const std::vector<Access>& b) {
  return std::any_of(a.begin(), a.end(), [&](const Access& one) {
    return std::any_of(b.begin(), b.end(),
                       [&](const Access& other) { return conflict(one, other); });
  });
}

/// Commands with one to three accesses to two buffers.
std::vector<std::vector<Access>> random_commands(unsigned seed) {
  static constexpr std::array<char, 2> kBuffers{};
  std::mt19937 random(seed);
  std::vector<std::vector<Access>> commands(kCommands);
  for (std::vector<Access>& accesses : commands) {
    accesses.resize(1 + random() % 3);
    for (Access& access : accesses) {
      access.memory = &kBuffers.at(random() % 2);
      access.begin = random() % 16 * 8;
      access.end = access.begin + (1 + random() % 4) * 8;
      access.writes = random() % 3 == 0;
    }
  }
  return commands;
}

/// What is wrong with the order that a table gives; "" when nothing is.
std::string audit(Table& table, unsigned seed) {
  const std::vector<std::vector<Access>> commands = random_commands(seed);
  std::vector<std::bitset<kCommands>> before(kCommands);  // what has ended when a command begins
  for (std::size_t i = 0; i < kCommands; ++i) {
    Events events;
    for (const Access& access : commands[i]) table.find(access, events);
    for (const cl_event event : events) {
      const std::size_t earlier = command_of(event);
      before[i] |= before[earlier];
      before[i].set(earlier);
      if (!conflict(commands[i], commands[earlier]))
        return "command " + std::to_string(i) + " waits for " + std::to_string(earlier) +
               " for nothing";
    }
    for (const Access& access : commands[i]) table.add(access, event_of(i));
    for (std::size_t j = 0; j < i; ++j) {
      if (conflict(commands[i], commands[j]) && !before[i].test(j))
        return "command " + std::to_string(i) + " does not wait for " + std::to_string(j);
    }
  }
  return "";
}

TEST(OpenClHazards, EveryCommandIsBehindAllThatItDependsOnAndWaitsForNothingElse) {
  for (unsigned seed = 1; seed <= 100; ++seed) {
    {
      Table table;
      EXPECT_EQ(audit(table, seed), "") << "seed " << seed;
    }
    for (const auto& [event, count] : references()) EXPECT_EQ(count, 0) << command_of(event);
  }
}

template <class Wrong>
void expect_seen(const char* words) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    Wrong table;
    const std::string found = audit(table, seed);
    EXPECT_NE(found.find(words), std::string::npos) << "seed " << seed << ": '" << found << "'";
  }
}

TEST(OpenClHazards, ATableThatForgetsReadersIsSeen) {
  expect_seen<ForgetsReaders>("does not wait");
}
TEST(OpenClHazards, ATableThatForgetsWritersIsSeen) {
  expect_seen<ForgetsWriters>("does not wait");
}
TEST(OpenClHazards, ATableThatMissesPartOfARangeIsSeen) {
  expect_seen<LooksAtTheFirstHalf>("does not wait");
}
TEST(OpenClHazards, ATableThatForgetsWhatIsNotWhollyWrittenOverIsSeen) {
  expect_seen<ForgetsWhatIsCoveredInPart>("wait");
}
TEST(OpenClHazards, ATableThatKnowsOneAccessOfACommandIsSeen) {
  expect_seen<KnowsOneAccess>("does not wait");
}
TEST(OpenClHazards, ATableThatMixesUpBuffersIsSeen) { expect_seen<MixesUpBuffers>("for nothing"); }

}  // namespace
}  // namespace backplane::opencl
