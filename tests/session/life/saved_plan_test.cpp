// L3: a saved plan reopens a session without asking or packing, and is refused where it does not fit.
#define XXH_INLINE_ALL
#include <array>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>
#include <xxhash.h>

#include "tests/session/life/fixture.hpp"

namespace backplane::session_test {
namespace {

class SavedPlans : public SessionTest {
 protected:
  std::string plan() const { return file("plan.bin"); }

  /// Saves the plan of a session and gives what it computes.
  std::vector<float> save(const std::string& model, const Settings& settings) {
    TestSession session(model, settings);
    std::vector<float> y = session.run(numbers(8, 3), {2, 4});
    session->save_plan(plan());
    return y;
  }
  Settings reopening(Settings settings) const {
    settings.emplace_back("saved_plan", plan());
    return settings;
  }
  Failure refusal(const std::string& model, const Settings& settings) const {
    Failure failure = failure_of([&] { TestSession(model, reopening(settings)); });
    EXPECT_EQ(alive(), "");
    return failure;
  }
};

const Settings kCpu = {{"providers", "cpu"}};

/// Offsets in the file: see core/runtime/saved_plan.hpp.
constexpr std::size_t kHeader = 8 + 4 * sizeof(std::uint64_t);

/// The file's text, changed by `change`, with the lengths and hashes that go with it.
template <class Change>
std::string with_text(const std::string& contents, const Change& change) {
  std::array<std::uint64_t, 4> words{};
  std::memcpy(words.data(), contents.data() + 8, sizeof(words));
  std::string text = contents.substr(kHeader, words[0]);
  const std::size_t rest = (kHeader + words[0] + 4095) / 4096 * 4096;
  const std::string weights = rest < contents.size() ? contents.substr(rest) : "";
  change(text);
  std::string changed(kHeader, '\0');
  changed += text;
  changed.resize((changed.size() + 4095) / 4096 * 4096, '\0');
  changed += weights;
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  words = {text.size(), changed.size(), hash.high64, hash.low64};
  std::memcpy(changed.data(), contents.data(), 8);
  std::memcpy(changed.data() + 8, words.data(), sizeof(words));
  return changed;
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
}

TEST_F(SavedPlans, L3ReopeningNeitherAsksNorPacks) {
  const std::string model = small_net().bytes();
  const std::vector<float> want = save(model, kFakeAllowed);
  const Json before = TestSession(model, kFakeAllowed).explain();
  fakegpu().reset();
  TestSession session(model, reopening(kFakeAllowed));
  const Json figures = session.statistics();
  EXPECT_EQ(figures["reopened"], true);
  EXPECT_EQ(figures["nodes_asked"], 0);
  EXPECT_EQ(counters().packs, 0u);
  EXPECT_EQ(session.run(numbers(8, 3), {2, 4}), want);
  EXPECT_EQ(counters().packs, 0u);
  const Json after = session.explain();
  EXPECT_EQ(after["nodes"], before["nodes"]) << "reasons and kernels are those of the plan";
  EXPECT_EQ(after["order"], before["order"]);
}

TEST_F(SavedPlans, L3PacksAreReadFromTheMappedFile) {
  ModelMaker maker;
  maker.input("x", {2, 64}).weight("w", {64, 512}, numbers(64 * 512, 1));
  maker.node("product", "MatMul", {"x", "w"}, "h").node("positive", "Relu", {"h"}, "y");
  const std::string model = maker.output("y").bytes();
  Environment first(options());
  TestSession made(model, kCpu, first);
  const std::vector<float> want = made.run(numbers(128, 3), {2, 64});
  const Json packed = made.statistics();
  if (packed["weights_packed"] == 0) GTEST_SKIP() << "the cpu packs no weight of this product here";
  made->save_plan(plan());
  Environment second(options());
  TestSession session(model, reopening(kCpu), second);
  EXPECT_EQ(session.run(numbers(128, 3), {2, 64}), want);
  const Json figures = session.statistics();
  EXPECT_EQ(figures["weights_packed"], 0);
  EXPECT_EQ(figures["weights_restored"], packed["weights_packed"]);
  EXPECT_EQ(figures["memory"]["host"]["weights"], 0) << "they lie in the file";
}

TEST_F(SavedPlans, L3TheOptionSavesAfterLoading) {
  const std::string model = small_net().bytes();
  { TestSession session(model, with(kFakeAllowed, "save_plan", plan())); }
  TestSession session(model, reopening(kFakeAllowed));
  EXPECT_EQ(session.statistics()["reopened"], true);
}

TEST_F(SavedPlans, L3WhatWasRefusedStaysWhereItWent) {
  ModelMaker maker;
  maker.input("x", {2, 4});
  maker.node("first", "Tanh", {"x"}, "a").node("second", "Sigmoid", {"a"}, "y").output("y");
  const Settings plain = with(kFakeAllowed, "disabled_passes", "provider_rewrites");
  const auto provider_of = [](const TestSession& session, int node) {
    return session.explain()["nodes"][node]["provider"].get<std::string>();
  };
  for (int call = 1;; ++call) {
    ASSERT_LT(call, 40);
    fakegpu().reset();
    fakegpu().fail_call(static_cast<std::uint64_t>(call), BP_UNSUPPORTED, 0);
    try {
      TestSession session(maker.bytes(), plain);
      fakegpu().reset();
      if (provider_of(session, 0) != "cpu") continue;
      session->save_plan(plan());
      break;
    } catch (const Error&) {  // the device itself, and no kernel
    }
  }
  fakegpu().reset();
  TestSession session(maker.bytes(), reopening(plain));
  EXPECT_EQ(provider_of(session, 0), "cpu");
  EXPECT_EQ(session.explain()["nodes"][0]["reasons"][0]["code"], "refused");
  EXPECT_EQ(session.run(numbers(8, 1), {2, 4}).size(), 8u);
}

TEST_F(SavedPlans, L3PathsAreInIt) {
  const Settings settings =
      with(with(kCpu, "path.fake.providers", "fakegpu:0"), "path.fake.backup", "cpu");
  const std::string model = small_net().bytes();
  const Value x = Value::tensor<float>({2, 4}, numbers(8, 3));
  std::vector<float> want;
  {
    TestSession session(model, settings);
    want = elements(session->run_path("fake", {{"x", x}})[0]);
    session->save_plan(plan());
  }
  fakegpu().reset();
  TestSession session(model, reopening(settings));
  EXPECT_EQ(elements(session->run_path("fake", {{"x", x}})[0]), want);
  EXPECT_EQ(counters().packs, 0u);
}

TEST_F(SavedPlans, L3ItIsRefusedWhenSomethingItDependsOnChanged) {
  const std::string model = small_net().bytes();
  save(model, kFakeAllowed);
  const auto refused = [&](const std::string& bytes, const Settings& settings, const char* what) {
    const Failure failure = refusal(bytes, settings);
    EXPECT_EQ(failure.code, BACKPLANE_INCOMPATIBLE) << what;
    EXPECT_HOLDS(failure.text, what);
    EXPECT_HOLDS(failure.text, "save it again");
  };
  refused(small_net().metadata("a", "b").bytes(), kFakeAllowed,
          "the contents of the model changed");
  refused(model, with(kCpu, "fallback", "allow"), "the list of devices changed");
  refused(model, with(kFakeAllowed, "provider.fakegpu.seed", "7"), "the list of devices changed");
  refused(model, with(kFakeAllowed, "optimization", "none"), "the set of options changed");
  refused(model, with(kFakeAllowed, "place", "positive=cpu"), "the set of options changed");
  refused(model, with(kFakeAllowed, "widening", "false"), "the set of options changed");
  refused(model, with(kFakeAllowed, "casts", "float16>float"), "the set of options changed");
  refused(model, with(kFakeAllowed, "placement", "cost"), "the set of options changed");
  refused(model,
          with(kFakeAllowed, "custom_ops", BACKPLANE_TEST_CUSTOM_OPS_DIR "/windowed_mean.so"),
          "was not there when it was made");
  write(plan(), with_text(read(plan()), [](std::string& text) {
          replace(text, std::string("\"") + backplane_version() + "\"", "\"0.0.9\"");
        }));
  refused(model, kFakeAllowed, "the version of Backplane changed");
}

TEST_F(SavedPlans, L3ItIsRefusedWhenThePluginIsAnotherFile) {
  const std::string model = small_net().bytes();
  save(model, kFakeAllowed);
  std::filesystem::create_directory(file("plugins"));
  // A byte behind what the loader reads: the same plugin, but not the same file.
  write(file("plugins/fakegpu.so"), read(BACKPLANE_TEST_FAKE_PLUGINS "/fakegpu.so") + "x");
  const Options other = [&] {
    Options made = options(reopening(kFakeAllowed));
    made.set("environment.plugin_path", file("plugins"));
    return made;
  }();
  Environment own(other);
  const Failure failure = failure_of([&] { TestSession(model, other, own); });
  EXPECT_EQ(failure.code, BACKPLANE_INCOMPATIBLE);
  EXPECT_HOLDS(failure.text, "the plugin 'fakegpu' changed");
}

TEST_F(SavedPlans, L3ExternalDataAreContentsToo) {
  ModelMaker maker;
  maker.input("x", {2, 4}).external_weight("w", {2, 4}, "w.bin");
  maker.node("sum", "Add", {"x", "w"}, "y").output("y");
  const Settings settings = with(kCpu, "external_data", folder_);
  write(file("w.bin"), std::string(32, '\0'));
  save(maker.bytes(), settings);
  EXPECT_EQ(refusal(maker.bytes(), settings).code, 0);
  write(file("w.new"), std::string(31, '\0') + "@");
  std::filesystem::rename(file("w.new"), file("w.bin"));
  EXPECT_HOLDS(refusal(maker.bytes(), settings).text, "the contents of the model changed");
}

TEST_F(SavedPlans, L3AFileThatCannotBeWrittenLeavesTheOldOne) {
  const std::string model = small_net().bytes();
  save(model, kFakeAllowed);
  const std::string before = read(plan());
  TestSession session(model, kFakeAllowed);
  const Failure failure = failure_of([&] { session->save_plan(file("no/such/folder/plan")); });
  EXPECT_HOLDS(failure.text, "no/such/folder/plan");
  EXPECT_NE(failure.code, 0);
  EXPECT_NE(failure_of([&] { session->save_plan(""); }).code, 0);
  EXPECT_EQ(read(plan()), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(SavedPlans, L3ThreadsMaySaveToOnePath) {
  const std::string model = small_net().bytes();
  TestSession session(model, kCpu);
  session.run(numbers(8, 3), {2, 4});
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < 10; ++turn) session->save_plan(plan());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(TestSession(model, reopening(kCpu)).statistics()["reopened"], true);
}

TEST_F(SavedPlans, L3DamagedFilesAreRefused) {
  const std::string model = small_net().bytes();
  save(model, kFakeAllowed);
  const std::string good = read(plan());
  const auto opens = [&](const std::string& contents) {
    write(file("bad.new"), contents);
    std::filesystem::rename(file("bad.new"), plan());
    const Failure failure = refusal(model, kFakeAllowed);
    if (failure.code != 0) {
      EXPECT_HOLDS(failure.text, "reading the saved plan");
    }
    return failure.code == 0;
  };
  EXPECT_TRUE(opens(good));
  for (const std::size_t size : {0u, 1u, 8u, 39u, 40u, 41u, 500u}) {
    EXPECT_FALSE(opens(good.substr(0, size))) << size;
  }
  EXPECT_FALSE(opens(good.substr(0, good.size() - 1)));
  EXPECT_FALSE(opens(good + "x"));
  EXPECT_FALSE(opens(std::string(100'000, '\xff')));
  for (std::size_t at = 0; at < kHeader; ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x40);
    EXPECT_FALSE(opens(bad)) << "byte " << at;
  }
}

TEST_F(SavedPlans, L3ADamagedWeightIsFound) {
  const std::string model = small_net().bytes();
  save(model, kFakeAllowed);
  std::string bad = read(plan());
  ASSERT_GT(bad.size(), 4096u);
  bad[bad.size() - 1] = static_cast<char>(bad.back() ^ 1);
  write(file("bad.new"), bad);
  std::filesystem::rename(file("bad.new"), plan());
  const Failure failure = refusal(model, kFakeAllowed);
  EXPECT_HOLDS(failure.text, "a weight is not what was written");
}

TEST_F(SavedPlans, L3HostileTextsAreRefusedAndNeverCrash) {
  const std::string model = small_net().bytes();
  save(model, kFakeAllowed);
  const std::string good = read(plan());
  std::mt19937 random(1);
  const std::vector<std::string> pieces = {"[]",   "{}",  "null", "-1",    "18446744073709551615",
                                           "\"\"", "1e9", "[[]]", "\"x\"", "true"};
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    const std::string bad = with_text(good, [&](std::string& text) {
      for (unsigned edits = random() % 3 + 1; edits > 0; --edits) {
        const std::size_t at = random() % text.size();
        const std::size_t length = std::min<std::size_t>(random() % 24, text.size() - at);
        switch (random() % 4) {
          case 0:
            text[at] = static_cast<char>(random());
            break;
          case 1:
            text.erase(at, length);
            break;
          case 2:
            text.replace(at, length, pieces[random() % pieces.size()]);
            break;
          default:
            text.insert(at, text.substr(random() % text.size(), length));
        }
      }
    });
    write(file("bad.new"), bad);
    std::filesystem::rename(file("bad.new"), plan());
    const Failure failure = failure_of([&] {
      TestSession session(model, reopening(kFakeAllowed));
      session.run(numbers(8, 3), {2, 4});
    });
    if (failure.code != 0) ++refused;
  }
  EXPECT_GT(refused, 200);
  const std::string deep = with_text(good, [](std::string& text) { text.assign(1'000'000, '['); });
  write(file("bad.new"), deep);
  std::filesystem::rename(file("bad.new"), plan());
  EXPECT_HOLDS(refusal(model, kFakeAllowed).text, "is damaged");
}

}  // namespace
}  // namespace backplane::session_test
