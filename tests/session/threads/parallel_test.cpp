// T3: execution mode parallel gives the bits of sequential.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>

#include "tests/session/threads/generated_graph.hpp"

namespace backplane::session_test {
namespace {

namespace fs = std::filesystem;

class Parallel : public ::testing::Test {
 protected:
  const Environment environment_ = threaded_environment(BACKPLANE_TEST_PLUGIN_DIR);
};

TEST_F(Parallel, T3TwoHundredGeneratedGraphsGiveTheSameBits) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const GeneratedGraph graph(seed, false);
    EXPECT_EQ(difference_of_modes(environment_, graph, "cpu"), "") << "seed " << seed;
  }
}

TEST_F(Parallel, T3AThreadThatStepsHaveAloneIsTheCallers) {
  ModelMaker model = ModelMaker().input("x", {64, 64});
  for (int i = 0; i < 40; ++i) {
    const std::string name = "y" + std::to_string(i);
    model.node("MatMul", {"x", "x"}, {name}).output(name);
  }
  const std::string bytes = model.bytes();
  const Session session(environment_, bytes.data(), bytes.size(),
                        Options()
                            .set("providers", "cpu")
                            .set("optimization", "none")
                            .set("execution_mode", "parallel")
                            .set("threads", "4")
                            .set("inter_op_threads", "1")
                            .set("profile", "true"));
  const Value x = Value::tensor<float>({64, 64}, std::vector<float>(64 * 64, 0.5f));
  for (int i = 0; i < 8; ++i) session.run({{"x", x}});
  const std::string trace = session.trace();
  EXPECT_NE(trace.find("MatMul"), std::string::npos);
  EXPECT_EQ(trace.find(", thread "), std::string::npos) << "lanes of other threads";
}

/// The networks of $BACKPLANE_SHARED_DATA, and the models of the folder $BACKPLANE_BENCH_MODELS.
std::vector<fs::path> models_present() {
  std::vector<fs::path> models;
  if (const char* shared = std::getenv("BACKPLANE_SHARED_DATA")) {
    const fs::path cases = fs::path(shared) / "data/cases";
    if (fs::is_directory(cases)) {
      for (const auto& entry : fs::directory_iterator(cases)) {
        if (fs::exists(entry.path() / "model.onnx")) models.push_back(entry.path() / "model.onnx");
      }
    }
  }
  if (const char* bench = std::getenv("BACKPLANE_BENCH_MODELS")) {
    for (const auto& entry : fs::directory_iterator(bench)) {
      if (entry.path().extension() == ".onnx") models.push_back(entry.path());
    }
  }
  std::sort(models.begin(), models.end());
  return models;
}

/// Numbers between 0 and 1 (so 0 where they are indices); unknown dimensions are 1, or 16 where they are no batch.
Value value_for(const ValueInfo& input, int run) {
  std::vector<std::int64_t> dims = input.dims;
  std::uint64_t count = 1;
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    if (dims[axis] < 0) dims[axis] = axis == 0 ? 1 : 16;
    count *= static_cast<std::uint64_t>(dims[axis]);
  }
  const ElementType type = input.type == "tensor(float)"   ? ElementType::Float
                           : input.type == "tensor(int64)" ? ElementType::Int64
                                                           : ElementType::None;
  Value value = Value::tensor(type, dims);
  std::vector<double> numbers(count);
  for (std::uint64_t i = 0; i < count; ++i)
    numbers[i] = static_cast<double>((i * 37 + static_cast<std::uint64_t>(run) * 11) % 97) / 97;
  if (type == ElementType::Int64)
    std::for_each(numbers.begin(), numbers.end(), [](double& number) { number = number < 0.5; });
  value.write_numbers(numbers);
  return value;
}

TEST_F(Parallel, T3NetworksGiveTheSameBits) {
  const std::vector<fs::path> models = models_present();
  if (models.empty()) GTEST_SKIP() << "neither BACKPLANE_SHARED_DATA nor BACKPLANE_BENCH_MODELS";
  for (const fs::path& model : models) {
    const auto open = [&](const char* mode) {
      Options options;
      options.set("providers", "cpu").set("execution_mode", mode).set("threads", "2");
      return Session(environment_, model.string(), options);
    };
    const Session sequential = open("sequential"), parallel = open("parallel");
    const auto inputs = [&](int run) {
      Inputs values;
      for (const ValueInfo& input : sequential.inputs())
        values.emplace_back(input.name, value_for(input, run));
      return values;
    };
    EXPECT_EQ(difference_of(sequential, parallel, 4, inputs), "") << model;
  }
}

}  // namespace
}  // namespace backplane::session_test
