// Einsum on the stand-in: what the common forms cost a plan. That they are right is tested with everybody's operators.
#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "tests/cuda/node_on_device.hpp"

namespace backplane::cuda {
namespace {

class CudaEinsum : public CudaTest {
 protected:
  struct Calls {
    std::int64_t products = 0, launches = 0;
    friend bool operator==(const Calls&, const Calls&) = default;
    friend std::ostream& operator<<(std::ostream& to, const Calls& calls) {
      return to << calls.products << " products and " << calls.launches << " launches";
    }
  };
  /// Of a run.
  static Calls calls(const OpenDevice& device, const std::string& equation,
                     const std::vector<Dims>& dims) {
    NodeUnderTest node("", "Einsum", 12);
    node.attribute("equation", equation);
    std::vector<HostTensor> inputs;
    for (const Dims& each : dims) {
      node.input(BP_FLOAT, each);
      inputs.push_back(numbers(each, 1));
    }
    node.outputs(1);
    NodeOnDevice(device, node, device.kernel("Einsum"), inputs).run();
    const auto began = stand_in().calls.begin() + static_cast<std::ptrdiff_t>(stand_in().run_began);
    const auto count = [&](const char* call) {
      return std::count(began, stand_in().calls.end(), call);
    };
    return {count("product"), count("launch")};
  }
};

TEST_F(CudaEinsum, CommonFormsAreOneCall) {
  struct Form {
    const char* equation;
    std::vector<Dims> dims;
    Calls want;
  };
  const std::vector<Form> forms = {
      {"ij,jk->ik", {{4, 5}, {5, 6}}, {1, 0}},
      {"bhid,bhjd->bhij", {{2, 3, 4, 8}, {2, 3, 5, 8}}, {1, 0}},
      {"bhij,bhjd->bhid", {{2, 3, 4, 5}, {2, 3, 5, 8}}, {1, 0}},
      {"btd,dhk->bthk", {{2, 3, 8}, {8, 2, 4}}, {1, 0}},
      {"bsd,od->bso", {{2, 3, 8}, {5, 8}}, {1, 0}},
      // Batches that merge into no axis: the longest is a call's, and each of the others has one.
      {"bnhd,bmhd->bnhm", {{1, 4, 3, 8}, {1, 5, 3, 8}}, {1, 0}},
      {"bnhd,bmhd->bnhm", {{12, 4, 3, 8}, {12, 5, 3, 8}}, {3, 0}},
      {"i,j->ij", {{4}, {5}}, {0, 1}},
      {"ii->i", {{4, 4}}, {0, 1}},
      {"bij->b", {{2, 3, 4}}, {0, 1}},
  };
  const OpenDevice device = open();
  for (const Form& form : forms)
    EXPECT_EQ(calls(device, form.equation, form.dims), form.want) << form.equation;
}

TEST_F(CudaEinsum, WhereBatchesWouldBeManyCallsOperandsAreCopied) {
  const OpenDevice device = open();
  EXPECT_EQ(calls(device, "bnhd,bmhd->bnhm", {{9, 4, 10, 8}, {9, 5, 10, 8}}), (Calls{1, 3}));
}

}  // namespace
}  // namespace backplane::cuda
