#include "core/plugin_host/host_api.hpp"

#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "core/plugin_host/graph_view.hpp"
#include "core/plugin_host/runtime_value.hpp"
#include "core/plugin_host/thread_pool.hpp"

namespace backplane::core {
namespace {

void in_this_program() {}

TEST(HostApi, HasEveryFunction) {
  const bp_host_api& api = host_api();
  EXPECT_EQ(api.struct_size, sizeof(bp_host_api));
  EXPECT_EQ(api.abi_major, static_cast<std::uint32_t>(BP_ABI_MAJOR));
  EXPECT_EQ(api.abi_minor, static_cast<std::uint32_t>(BP_ABI_MINOR));
  EXPECT_EQ(api.graph, &graph_api());
  EXPECT_EQ(api.value, &value_api());
  // From the first function to the last field there is no hole.
  const auto* words = reinterpret_cast<void* const*>(&api.status_new);
  const std::size_t count =
      (sizeof(bp_host_api) - offsetof(bp_host_api, status_new)) / sizeof(void*);
  for (std::size_t i = 0; i < count; ++i) EXPECT_NE(words[i], nullptr) << i;
}

TEST(HostApi, TablesOfGraphsAndValuesHaveNoHole) {
  const auto* graph = reinterpret_cast<void* const*>(&graph_api());
  for (std::size_t i = 1; i < sizeof(bp_graph_api) / sizeof(void*); ++i)
    EXPECT_NE(graph[i], nullptr) << i;
  const auto* value = reinterpret_cast<void* const*>(&value_api());
  for (std::size_t i = 1; i < sizeof(bp_value_api) / sizeof(void*); ++i)
    EXPECT_NE(value[i], nullptr) << i;
}

TEST(HostApi, MemoryIsAlignedAndCounted) {
  const bp_host_api& api = host_api();
  const PluginMemoryCounts before = plugin_memory_counts();
  std::vector<void*> blocks;
  for (const std::uint64_t alignment : {1, 2, 8, 64, 4096}) {
    void* block = api.alloc(100, alignment);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % alignment, 0U);
    blocks.push_back(block);
  }
  blocks.push_back(api.alloc(0, 16));
  EXPECT_EQ(plugin_memory_counts().allocations, before.allocations + 6);
  EXPECT_EQ(plugin_memory_counts().live, before.live + 6);
  for (void* block : blocks) api.dealloc(block);
  api.dealloc(nullptr);
  EXPECT_EQ(plugin_memory_counts().live, before.live);
  EXPECT_EQ(api.alloc(8, 3), nullptr);
  EXPECT_EQ(api.alloc(std::uint64_t{1} << 60, 64), nullptr);
  EXPECT_EQ(plugin_memory_counts().live, before.live);
}

TEST(HostApi, LoopsRunWithAndWithoutThreads) {
  const bp_host_api& api = host_api();
  const auto add = [](void* sum, std::uint64_t begin, std::uint64_t end, std::uint32_t) {
    *static_cast<std::uint64_t*>(sum) += end - begin;
  };
  std::uint64_t sum = 0;
  api.parallel_for(nullptr, 10, 1, add, &sum);
  api.parallel_for(nullptr, 0, 1, add, &sum);
  EXPECT_EQ(sum, 10U);
  EXPECT_EQ(api.thread_count(nullptr), 1U);
  ThreadPool pool(3);
  bp_threads threads{&pool, 2};
  EXPECT_EQ(api.thread_count(&threads), 2U);
  threads.max_threads = 9;
  EXPECT_EQ(api.thread_count(&threads), 3U);
  threads.max_threads = 1;
  api.parallel_for(&threads, 10, 1, add, &sum);
  EXPECT_EQ(sum, 20U);
}

TEST(HostApi, LogLinesGoToTheLoggerWithTheirPluginsName) {
  std::vector<std::string> lines;
  std::vector<LogLevel> levels;
  set_plugin_logger(
      std::make_shared<const Logger>(LogLevel::Info, [&](LogLevel level, std::string_view message) {
        levels.push_back(level);
        lines.emplace_back(message);
      }));
  name_plugin_code(reinterpret_cast<const void*>(&in_this_program), "tester");
  const std::string text = "two\nlines";
  host_api().log(BP_LOG_WARNING, text.data(), text.size());
  host_api().log(BP_LOG_DEBUG, text.data(), text.size());
  host_api().log(99, text.data(), text.size());
  host_api().log(BP_LOG_ERROR, nullptr, 5);
  set_plugin_logger(nullptr);
  EXPECT_EQ(lines, (std::vector<std::string>{"tester: two lines", "tester: two lines"}));
  EXPECT_EQ(levels, (std::vector<LogLevel>{LogLevel::Warning, LogLevel::Error}));
}

TEST(HostApi, UnknownInterfacesAreNull) {
  EXPECT_EQ(host_api().get_interface("bp.none", 1), nullptr);
  EXPECT_EQ(host_api().get_interface(nullptr, 0), nullptr);
}

TEST(HostApi, InterfacesAreGivenByNameAndVersion) {
  static const int first = 1, second = 2;
  offer_interface("test.numbers", 2, &first);
  EXPECT_EQ(host_api().get_interface("test.numbers", 1), &first);
  EXPECT_EQ(host_api().get_interface("test.numbers", 2), &first);
  EXPECT_EQ(host_api().get_interface("test.numbers", 3), nullptr);
  EXPECT_EQ(host_api().get_interface("test.number", 1), nullptr);
  offer_interface("test.numbers", 3, &second);
  EXPECT_EQ(host_api().get_interface("test.numbers", 3), &second);
}

}  // namespace
}  // namespace backplane::core
