// Small models, and sessions over them through the public interface.
#pragma once

#include <cstdint>
#include <memory>
#include <onnx/onnx_pb.h>
#include <string>
#include <vector>

#include "backplane/backplane.hpp"
#include "tests/session/run/probe.hpp"

namespace backplane::session_test {

/// A dimension of a model: a size, or a symbol ("" : unknown without one).
struct Dim {
  Dim(int its_size) : size(its_size) {}
  Dim(const char* its_symbol) : size(-1), symbol(its_symbol) {}
  std::int64_t size;
  std::string symbol;
};

/// Writes a model of float tensors, opset 17.
class ModelMaker {
 public:
  ModelMaker();
  ModelMaker& input(const std::string& name, const std::vector<Dim>& dims,
                    ElementType type = ElementType::Float);
  ModelMaker& output(const std::string& name, ElementType type = ElementType::Float);
  ModelMaker& weight(const std::string& name, const std::vector<std::int64_t>& dims,
                     const std::vector<float>& elements);
  ModelMaker& ints(const std::string& name, const std::vector<std::int64_t>& elements);
  /// The node is called as its (first) output.
  ModelMaker& node(const std::string& op, const std::vector<std::string>& inputs,
                   const std::vector<std::string>& outputs);
  ModelMaker& probe(const std::string& input, const std::string& output, const Probe& probe);
  ::onnx::ModelProto& proto() { return model_; }
  std::string bytes() const { return model_.SerializeAsString(); }

 private:
  ::onnx::ModelProto model_;
};

/// One for the process: two threads, the cpu.
const Environment& environment();

/// Options with the cpu alone and the Probe operator.
Options cpu_options();

/// A session over bytes that it keeps.
class TestSession {
 public:
  explicit TestSession(const ModelMaker& model, const Options& options = cpu_options())
      : bytes_(model.bytes()), session_(environment(), bytes_.data(), bytes_.size(), options) {}
  Session* operator->() { return &session_; }
  Session& operator*() { return session_; }

 private:
  std::string bytes_;
  Session session_;
};

/// The code of what `body` throws, and its message; 0 when it throws nothing.
template <class Body>
std::pair<std::int32_t, std::string> failure_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {0, ""};
}

}  // namespace backplane::session_test
