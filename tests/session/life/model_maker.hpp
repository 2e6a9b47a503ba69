// Writes small ONNX models of float tensors, wire format by hand: the tests share no protobuf with the library.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace backplane::session_test {

using Dims = std::vector<std::int64_t>;

/// A dimension of an input: a size, or a symbol; perhaps with a denotation.
struct InputDim {
  std::int64_t size = -1;
  std::string symbol, denotation;

  InputDim(int fixed) : size(fixed) {}  // implicit: to be written as a list
  InputDim(std::string name) : symbol(std::move(name)) {}
  InputDim(const char* name) : symbol(name) {}
  InputDim(int fixed, std::string word) : size(fixed), denotation(std::move(word)) {}
  InputDim(std::string name, std::string word)
      : symbol(std::move(name)), denotation(std::move(word)) {}
};

class ModelMaker {
 public:
  ModelMaker& input(const std::string& name, const std::vector<InputDim>& dims);
  ModelMaker& output(const std::string& name);
  ModelMaker& weight(const std::string& name, const Dims& dims, const std::vector<float>& elements);
  /// A float tensor whose contents lie at `location`.
  ModelMaker& external_weight(const std::string& name, const Dims& dims,
                              const std::string& location);
  ModelMaker& node(const std::string& name, const std::string& op,
                   const std::vector<std::string>& inputs, const std::string& output,
                   const std::map<std::string, std::int64_t>& attributes = {},
                   const std::string& domain = "");
  ModelMaker& metadata(const std::string& key, const std::string& value);
  std::string bytes() const;

 private:
  std::string inputs_, outputs_, weights_, nodes_, metadata_;
  std::set<std::string> domains_;
};

/// Numbers in [-1, 1) that depend on `seed` alone.
std::vector<float> numbers(std::size_t count, std::uint32_t seed);

/// x [2,4] -> Gemm with w [4,3] and b [3] -> Relu -> y.
ModelMaker small_net();

}  // namespace backplane::session_test
