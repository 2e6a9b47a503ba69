#include "core/plan/constant_store.hpp"

#include <gtest/gtest.h>
#include <vector>

namespace backplane::core {
namespace {

constexpr std::int64_t kCount = 1024;

ConstantPtr owned(float value) {
  const std::vector<float> values(kCount, value);
  return Constant::copy_of(DataType::Float, {kCount}, std::as_bytes(std::span(values)));
}

TEST(ConstantStore, EqualContentsAreOneConstant) {
  ConstantStore store;
  const ConstantPtr first = store.share(owned(1));
  EXPECT_EQ(store.share(owned(1)), first);
  EXPECT_NE(store.share(owned(2)), first);
}

TEST(ConstantStore, EqualContentsOfAnotherTypeAreNot) {
  ConstantStore store;
  const ConstantPtr first = store.share(owned(1));
  const auto other = Constant::copy_of(DataType::Int32, {kCount}, first->stored_bytes());
  EXPECT_EQ(store.share(other), other);
}

TEST(ConstantStore, BorrowedBytesAreKnownByTheirPlace) {
  ConstantStore store;
  const std::vector<float> here(kCount, 1), there(kCount, 1);
  const auto borrow = [](const std::vector<float>& values) {
    return std::make_shared<const Constant>(DataType::Float, std::vector<std::int64_t>{kCount},
                                            std::as_bytes(std::span(values)), nullptr);
  };
  const ConstantStore::Lent lent = {std::as_bytes(std::span(here)),
                                    std::as_bytes(std::span(there))};
  const ConstantPtr first = store.share(borrow(here), lent);
  EXPECT_EQ(store.share(borrow(here), lent), first);
  // Equal contents, but these bytes may end before those.
  EXPECT_NE(store.share(borrow(there), lent), first);
  EXPECT_NE(store.share(owned(1)), first);
}

TEST(ConstantStore, BorrowedBytesOfAnotherTypeOrShapeAreNotShared) {
  ConstantStore store;
  const std::vector<float> values(kCount, 1);
  const auto borrow = [&](DataType type, const std::vector<std::int64_t>& dims) {
    return std::make_shared<const Constant>(type, dims, std::as_bytes(std::span(values)), nullptr);
  };
  const ConstantStore::Lent lent = {std::as_bytes(std::span(values))};
  const ConstantPtr first = store.share(borrow(DataType::Float, {kCount}), lent);
  for (const ConstantPtr& other :
       {borrow(DataType::Int32, {kCount}), borrow(DataType::Float, {2, kCount / 2}),
        borrow(DataType::Float, {kCount, 1})})
    EXPECT_EQ(store.share(other, lent), other);
  EXPECT_EQ(store.share(borrow(DataType::Float, {kCount}), lent), first);
}

TEST(ConstantStore, KeepsNothingAlive) {
  ConstantStore store;
  std::weak_ptr<const Constant> watched;
  {
    const ConstantPtr constant = store.share(owned(1));
    watched = constant;
  }
  EXPECT_TRUE(watched.expired());
  EXPECT_NE(store.share(owned(1)), nullptr);
}

TEST(ConstantStore, ReachesIntoBodies) {
  Graph graph;
  auto body = std::make_shared<Graph>();
  for (Graph* scope : {&graph, body.get()})
    scope->add_initializer(scope->value_named("w"), owned(1));
  Node node;
  node.op_type = "If";
  node.attributes["then_branch"].type = Attribute::Type::Graph;
  node.attributes["then_branch"].graphs = {body};
  node.outputs = {graph.value_named("y")};
  graph.add_node(node);
  ConstantStore store;
  store.share_all(graph, {});
  EXPECT_EQ(graph.value(graph.find_value("w")).constant,
            body->value(body->find_value("w")).constant);
}

}  // namespace
}  // namespace backplane::core
