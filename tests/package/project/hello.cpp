// The README's first program: tests/package runs it.
// [hello]
#include <cstdio>

#include "backplane/backplane.hpp"

int main() try {
  backplane::Environment environment;
  backplane::Session session(environment, "digits.onnx");
  auto image = backplane::Value::tensor<float>({1, 1, 8, 8});  // zeroed: a blank sheet
  image.data<float>()[3 * 8 + 4] = 1;
  const auto results = session.run({{"image", image}});
  for (const double probability : results[0].numbers()) std::printf("%.4f\n", probability);
} catch (const backplane::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
// [/hello]
