// L3: what loading does, where it fails, and that a failure leaves nothing.
#include <cstddef>
#include <filesystem>

#include "backplane/plugin_api/optional/session.h"
#include "tests/session/life/fixture.hpp"

namespace backplane::session_test {
namespace {

// The layout of the optional interface is for ever, as that of plugin_api.h.
static_assert(sizeof(bp_session_events) == 24 && offsetof(bp_session_events, ready) == 8 &&
              offsetof(bp_session_events, ended) == 16);

class Loading : public SessionTest {};

TEST_F(Loading, L3StepsAreRunInTheirOrderOnce) {
  std::vector<std::string> steps;
  TestSession session(small_net().bytes(), kFake);
  const auto statistics = nlohmann::ordered_json::parse(session->statistics());
  for (const auto& [step, ms] : statistics["steps_ms"].items()) {
    EXPECT_GE(ms.get<double>(), 0) << step;
    steps.push_back(step);
  }
  EXPECT_EQ(steps, (std::vector<std::string>{
                       "opening the model", "reading options", "opening providers",
                       "registering operators", "reading the model", "optimizing the graph",
                       "placing nodes and creating kernels", "checking memory limits",
                       "planning and packing weights", "telling providers"}));
}

TEST_F(Loading, L3AFailureSaysAtWhichStep) {
  const std::string model = small_net().bytes();
  const auto step_of = [&](const std::string& bytes, const Settings& settings) {
    const Failure failure = failure_of([&] { TestSession(bytes, settings); });
    EXPECT_NE(failure.code, 0);
    return failure.text.substr(0, failure.text.find(':'));
  };
  EXPECT_EQ(step_of(model, {{"precision", "fp16"}, {"providers", "cpu"}}), "opening providers");
  EXPECT_EQ(step_of(model, {{"providers", "nobody"}}), "opening providers");
  EXPECT_EQ(step_of(model, {{"custom_ops", "/no/such.so"}}), "registering operators");
  EXPECT_EQ(step_of("no model", {}), "reading the model");
  EXPECT_EQ(step_of(model, {{"saved_plan", file("none")}}), "reading the saved plan");
  EXPECT_EQ(step_of(model, with(kFake, "place", "positive=nobody")),
            "placing nodes and creating kernels");
  EXPECT_EQ(step_of(model, {{"path.p.outputs", "nothing"}}), "making paths");
  EXPECT_EQ(step_of(model, {{"memory_limit.nobody", "1"}}), "checking memory limits");
  EXPECT_EQ(step_of(model, with(with(kFake, "fallback", "forbid"), "memory_limit.fakegpu", "1")),
            "planning and packing weights");
  EXPECT_EQ(step_of(model, {{"save_plan", file("no/such/folder")}}), "saving the plan");
  const Failure absent =
      failure_of([&] { Session session(environment(), file("absent.onnx"), options()); });
  EXPECT_EQ(absent.text.substr(0, 17), "opening the model");
  EXPECT_EQ(absent.code, BACKPLANE_NOT_FOUND);
}

TEST_F(Loading, L3NothingIsWrittenOverTheModel) {
  const std::string path = file("model.onnx");
  write(path, small_net().bytes());
  std::filesystem::create_symlink("model.onnx", file("link"));
  for (const char* option : {"save_plan", "optimized_model_path"}) {
    for (const std::string& written : {path, file("link")}) {
      const Failure refused = failure_of([&] {
        Session session(environment(), path, options({{option, written}}));
      });
      EXPECT_EQ(refused.code, BACKPLANE_INVALID_ARGUMENT) << option;
      EXPECT_HOLDS(refused.text, "is the model itself");
    }
  }
  Session session(environment(), path, options());
  EXPECT_HOLDS(failure_of([&] { session.save_plan(path); }).text, "is the model itself");
}

TEST_F(Loading, L3NothingIsWrittenOverAnotherFileOfTheSession) {
  ModelMaker maker;
  maker.input("x", {2, 3}).external_weight("w", {2, 3}, "w.bin");
  const std::string path = file("model.onnx"), weights(24, 'w');
  write(path, maker.node("sum", "Add", {"x", "w"}, "y").output("y").bytes());
  write(file("w.bin"), weights);
  write(file("options.toml"), "log_level = \"error\"\n");
  std::filesystem::create_hard_link(file("w.bin"), file("hard"));
  std::filesystem::create_symlink("new", file("link"));
  struct Row {
    const char* save_plan;
    const char* optimized;
    const char* told;
  };
  for (const Row& row :
       {Row{"w.bin", "", "a file of the model's weights"},
        Row{"", "hard", "a file of the model's weights"},
        Row{"options.toml", "", "the configuration"}, Row{"", "options.toml", "the configuration"},
        Row{"new", "new", "the optimized model that is saved"},
        Row{"new", "link", "the optimized model that is saved"}}) {
    Options given = options({{"providers", "cpu"}});
    given.read_file(file("options.toml"));
    if (*row.save_plan != 0) given.set("save_plan", file(row.save_plan));
    if (*row.optimized != 0) given.set("optimized_model_path", file(row.optimized));
    const Failure refused = failure_of([&] { Session(environment(), path, given); });
    EXPECT_EQ(refused.code, BACKPLANE_INVALID_ARGUMENT) << row.told;
    EXPECT_HOLDS(refused.text, row.told);
  }
  EXPECT_EQ(read(file("w.bin")), weights);
  EXPECT_FALSE(std::filesystem::exists(file("new")));
  Options given = options({{"providers", "cpu"}, {"save_plan", file("plan")}});
  Session first(environment(), path, given);
  EXPECT_HOLDS(failure_of([&] { first.save_plan(file("hard")); }).text, "weights");
  Session again(environment(), path, given.set("saved_plan", file("plan")));  // brought up to date
  bool is_listed = false;
  const Json statistics = Json::parse(again.statistics());
  for (const Json& row : statistics.at("files"))
    is_listed = is_listed || row["path"] == file("w.bin");
  EXPECT_TRUE(is_listed);
}

TEST_F(Loading, L3EveryCallThatFailsLeavesNothingBehind) {
  const std::string model = small_net().bytes();
  std::map<std::string, int> steps;
  for (const char* code : {"failed", "out_of_memory"}) {
    for (int call = 1;; ++call) {
      ASSERT_LT(call, 200);
      fakegpu().reset();
      const Failure failure = failure_of([&] {
        Settings settings = with(kFake, "provider.fakegpu.fail_at", std::to_string(call));
        TestSession session(model, with(settings, "provider.fakegpu.fail_code", code));
      });
      EXPECT_EQ(alive(), "") << "after " << failure.text;
      if (failure.code == 0) {
        if (counters().fallible_calls < static_cast<std::uint64_t>(call)) break;
        continue;  // a rewrite that fails is a remark
      }
      EXPECT_HOLDS(failure.text, "fakegpu");
      EXPECT_EQ(failure.code,
                std::string(code) == "failed" ? BACKPLANE_FAILED : BACKPLANE_OUT_OF_MEMORY);
      ++steps[failure.text.substr(0, failure.text.find(':'))];
    }
  }
  EXPECT_GT(steps["opening providers"], 0);
  EXPECT_GT(steps["placing nodes and creating kernels"], 0);
  EXPECT_GT(steps["planning and packing weights"], 0);
}

TEST_F(Loading, L3DevicesAreToldWhenASessionIsReadyAndWhenItEnded) {
  {
    TestSession first(small_net().bytes(), kFake);
    TestSession second(small_net().bytes(), with(kFake, "path.p.providers", "fakegpu:0"));
    EXPECT_EQ(counters().sessions_ready, 2u) << "once for each session and device";
    EXPECT_EQ(counters().sessions, 2u);
  }
  EXPECT_EQ(counters().sessions, 0u);
}

TEST_F(Loading, L3AFailedSessionDoesNotHinderTheNextOne) {
  const std::string model = small_net().bytes();
  EXPECT_NE(failure_of([&] { TestSession(model, with(kFake, "memory_limit", "1")); }).code, 0);
  TestSession session(model, kFake);
  EXPECT_EQ(session.run(numbers(8, 3), {2, 4}).size(), 6u);
}

TEST_F(Loading, L3TheCpuIsAppendedUnlessItIsForbidden) {
  ModelMaker maker;
  maker.input("x", {2, 3});
  maker.node("odd", "Softplus", {"x"}, "y").output("y");  // no kernel of fakegpu's
  TestSession session(maker.bytes(), {{"providers", "fakegpu:0"}, {"fallback", "allow"}});
  EXPECT_EQ(session.explain()["nodes"][0]["provider"], "cpu");
  const Failure refused = failure_of([&] {
    TestSession(maker.bytes(), {{"providers", "fakegpu:0"}, {"fallback", "forbid"}});
  });
  EXPECT_EQ(refused.code, BACKPLANE_UNSUPPORTED);
  EXPECT_HOLDS(refused.text, "node 'odd/");  // of its function body
  EXPECT_HOLDS(refused.text, "no_such_op");
}

ModelMaker external_model() {
  ModelMaker maker;
  maker.input("x", {2, 3}).external_weight("w", {2, 3}, "weights.bin");
  maker.node("sum", "Add", {"x", "w"}, "y").output("y");
  return maker;
}

std::string raw(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

TEST_F(Loading, L3ExternalDataFromTheGivenFolder) {
  write(file("weights.bin"), raw({1, 2, 3, 4, 5, 6}));
  TestSession session(external_model().bytes(), {{"external_data", folder_}});
  EXPECT_EQ(session.run({1, 1, 1, 1, 1, 1}, {2, 3}), (std::vector<float>{2, 3, 4, 5, 6, 7}));
  EXPECT_HOLDS(failure_of([&] { TestSession(external_model().bytes(), Settings{}); }).text,
               "weights.bin");
}

TEST_F(Loading, L3ExternalDataOfACacheOfDownloads) {
  namespace fs = std::filesystem;
  fs::create_directories(file("blobs"));
  fs::create_directories(file("snapshots/1"));
  write(file("blobs/a1"), external_model().bytes());
  write(file("blobs/b2"), raw({1, 2, 3, 4, 5, 6}));
  const std::string path = file("snapshots/1/model.onnx");
  fs::create_symlink("../../blobs/a1", path);
  fs::create_symlink("../../blobs/b2", file("snapshots/1/weights.bin"));
  const Value x = Value::tensor<float>({2, 3}, std::vector<float>{1, 1, 1, 1, 1, 1});
  Session session(environment(), path, options());
  EXPECT_EQ(elements(session.run({{"x", x}}, {"y"})[0]), (std::vector<float>{2, 3, 4, 5, 6, 7}));
  TestSession same(external_model().bytes(), {{"external_data", path}});
  EXPECT_EQ(same.run({1, 1, 1, 1, 1, 1}, {2, 3}), (std::vector<float>{2, 3, 4, 5, 6, 7}));
}

TEST_F(Loading, L3ExternalDataFromMemoryComesBeforeFiles) {
  write(file("weights.bin"), raw({9, 9, 9, 9, 9, 9}));
  const std::string contents = raw({1, 2, 3, 4, 5, 6});
  Options given = options({{"external_data", folder_}});
  given.add_external_data("weights.bin", contents.data(), contents.size());
  TestSession session(external_model().bytes(), given);
  EXPECT_EQ(session.run({0, 0, 0, 0, 0, 0}, {2, 3}), (std::vector<float>{1, 2, 3, 4, 5, 6}));

  Options shorter = options();
  shorter.add_external_data("weights.bin", contents.data(), 8);
  EXPECT_HOLDS(failure_of([&] { TestSession(external_model().bytes(), shorter); }).text,
               "weights.bin");
  EXPECT_EQ(failure_of([&] { shorter.add_external_data("", contents.data(), 8); }).code,
            BACKPLANE_INVALID_ARGUMENT);
}

TEST_F(Loading, L3SessionsOfTheSameBorrowedBytesEndInAnyOrder) {
  ModelMaker maker;
  maker.input("x", {64}).weight("w", {64}, numbers(64, 4));
  maker.weight("big", {64, 64}, numbers(4096, 5));
  maker.input("r", {1, 64});
  maker.node("sum", "Add", {"x", "w"}, "y").node("product", "MatMul", {"r", "big"}, "z");
  maker.output("y").output("z");
  auto bytes = std::make_unique<std::string>(maker.bytes());
  auto first = std::make_unique<Session>(environment(), bytes->data(), bytes->size(),
                                         options({{"providers", "cpu"}}));
  auto second = std::make_unique<Session>(environment(), bytes->data(), bytes->size(),
                                          options({{"providers", "cpu"}}));
  const Value x = Value::tensor<float>({64}, numbers(64, 6));
  const Value r = Value::tensor<float>({1, 64}, numbers(64, 7));
  const std::vector<float> want = elements(first->run({{"x", x}, {"r", r}}, {"z"})[0]);
  first.reset();
  EXPECT_EQ(elements(second->run({{"x", x}, {"r", r}}, {"z"})[0]), want);
  second.reset();
  bytes.reset();
  TestSession third(maker.bytes(), {{"providers", "cpu"}});
  EXPECT_EQ(elements(third->run({{"x", x}, {"r", r}}, {"z"})[0]), want);
}

}  // namespace
}  // namespace backplane::session_test
