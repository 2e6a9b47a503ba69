// What a provider's rewrite may do, and that every kind of broken edit leaves the original graph and a remark.
#include "tests/unit/plan/stub_device.hpp"

namespace backplane::core {
namespace {

/// x -> relu -> neg (of another provider) -> y, and relu's value also goes to add.
class RewriteTest : public PlanTest {
 protected:
  RewriteTest() {
    input("x");
    constant("w", {1, 2, 3, 4});
    add("Add", {"x", "w"}, "a", "add");
    add("Relu", {"a"}, "b", "relu");
    add("Neg", {"b"}, "y", "neg", 13);
    output("y");
  }
  PlacedGraph rewritten(StubProvider::RewriteFunction function) {
    stub_.kernels = {kernel("Relu"), kernel("Add"), kernel("AddRelu", "backplane.stub"),
                     kernel("Reorder", "backplane.stub")};
    stub_.set_rewrite(std::move(function));
    other_.kernels = {kernel("Neg")};
    use(stub_);
    use(other_);
    PlacedGraph result = placed();
    rewrite_nodes(result, 0, devices_, cache_);
    verify_placed(result, "after the rewrite");
    return result;
  }
  void expect_refused(const std::string& sentence, StubProvider::RewriteFunction function) {
    const PlacedGraph result = rewritten(std::move(function));
    EXPECT_EQ(ops(*result.graph), (std::vector<std::string>{"Add", "Relu", "Neg"}))
        << "the original is kept";
    EXPECT_TRUE(result.formats.empty());
    ASSERT_EQ(result.remarks.size(), 1u);
    EXPECT_NE(result.remarks[0].find(sentence), std::string::npos) << result.remarks[0];
    EXPECT_NE(result.remarks[0].find("the rewrite of stub was dropped"), std::string::npos)
        << result.remarks[0];
  }
  static sdk::Node node(const sdk::Graph& graph, const std::string& name) {
    for (std::size_t i = 0; i < graph.node_count(); ++i) {
      if (graph.node(i).name() == name) return graph.node(i);
    }
    return sdk::Node();
  }
  /// The right edit, as a start for wrong ones.
  static sdk::NodeDraft fused(const sdk::Graph& graph, sdk::Rewrite& edit) {
    sdk::NodeDraft draft = edit.node("backplane.stub", "AddRelu");
    draft.input("x").input("w").replaces(node(graph, "add")).replaces(node(graph, "relu"));
    return draft;
  }
  StubProvider stub_{"stub"}, second_{"second"}, other_{"other"};
};

TEST_F(RewriteTest, AFusionIsTaken) {
  const PlacedGraph result = rewritten([](const sdk::Graph& graph, sdk::Rewrite& edit) {
    EXPECT_EQ(graph.node_count(), 2u) << "a provider sees its own nodes";
    fused(graph, edit).output("b").add();
    edit.note(node(graph, "add"), "fused");
  });
  EXPECT_EQ(ops(*result.graph), (std::vector<std::string>{"AddRelu", "Neg"}));
  EXPECT_TRUE(result.remarks.empty()) << result.remarks.front();
  const NodeId id = result.graph->value(result.graph->find_value("b")).producer;
  EXPECT_EQ(result.graph->node(id).origins, (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(result.placement[id].device, 0);
  EXPECT_FALSE(result.placement[id].kernels.empty());
  EXPECT_EQ(result.notes.at("add"), "fused");
}

/// As one that reads a value stored otherwise.
TEST_F(RewriteTest, AnOperatorOfTheModelsKeepsTheVersionOfTheNodeThatItReplaces) {
  const PlacedGraph result = rewritten([](const sdk::Graph& graph, sdk::Rewrite& edit) {
    edit.node("", "Relu").input("a").output("b").replaces(node(graph, "relu")).add();
    edit.node("backplane.stub", "Reorder").input("x").output("unread").add();
  });
  EXPECT_TRUE(result.remarks.empty()) << result.remarks.front();
  const auto version_of = [&result](const char* value) {
    const NodeId id = result.graph->value(result.graph->find_value(value)).producer;
    return result.graph->node(id).since_version;
  };
  EXPECT_EQ(version_of("b"), 14);
  EXPECT_EQ(version_of("unread"), 1);
}

TEST_F(RewriteTest, LazyConstantsAndFormatsInside) {
  bool dropped = false;
  {
    const auto alive = std::shared_ptr<bool>(&dropped, [](bool* flag) { *flag = true; });
    const PlacedGraph result = rewritten([alive](const sdk::Graph& graph, sdk::Rewrite& edit) {
      edit.lazy_constant("packed", sdk::DataType::Float, std::vector<std::int64_t>{4}, {"w"},
                         "reversed", [alive](const sdk::PackContext&) {});
      edit.node("backplane.stub", "AddRelu")
          .input("x")
          .input("packed")
          .output("private")
          .replaces(node(graph, "add"))
          .replaces(node(graph, "relu"))
          .add();
      edit.node("backplane.stub", "Reorder").input("private").output("b").add();
      edit.set_format("private", 7);
    });
    EXPECT_TRUE(result.remarks.empty()) << result.remarks.front();
    EXPECT_EQ(ops(*result.graph), (std::vector<std::string>{"AddRelu", "Reorder", "Neg"}));
    EXPECT_TRUE(result.is_constant(result.graph->find_value("packed")));
    EXPECT_EQ(result.formats.at(result.graph->find_value("private")), 7u);
    stub_.set_rewrite([](const sdk::Graph&, sdk::Rewrite&) {});
  }
  EXPECT_TRUE(dropped) << "the constant's function ends with the graph, computed or not";
}

TEST_F(RewriteTest, NotesOfARewriteThatChangesNothingAreKept) {
  const PlacedGraph result = rewritten([](const sdk::Graph& graph, sdk::Rewrite& edit) {
    edit.note(node(graph, "relu"), "nothing to fuse");
  });
  ASSERT_TRUE(result.notes.contains("relu"));
  EXPECT_EQ(result.notes.at("relu"), "nothing to fuse");
}

TEST_F(RewriteTest, AValueUsedOutsideMustStillBeMade) {
  expect_refused("nothing makes the value 'b', which node 'neg' reads",
                 [](const sdk::Graph& graph, sdk::Rewrite& edit) {
                   fused(graph, edit).output("other").add();
                 });
}

TEST_F(RewriteTest, AnOutputOfTheGraphMustStillBeMade) {
  output("b");
  graph().remove_node(NodeId(2));
  graph().outputs.erase(graph().outputs.begin());
  graph().value(graph().find_value("y")).is_output = false;
  const PlacedGraph result = rewritten([](const sdk::Graph& graph, sdk::Rewrite& edit) {
    fused(graph, edit).output("other").add();
  });
  EXPECT_EQ(ops(*result.graph), (std::vector<std::string>{"Add", "Relu"}));
  ASSERT_EQ(result.remarks.size(), 1u);
  EXPECT_NE(result.remarks[0].find("nothing makes the output 'b' any more"), std::string::npos)
      << result.remarks[0];
}

TEST_F(RewriteTest, AnInputMustBeThere) {
  expect_refused("nothing makes the value 'ghost'",
                 [](const sdk::Graph& graph, sdk::Rewrite& edit) {
                   edit.node("backplane.stub", "AddRelu")
                       .input("x")
                       .input("ghost")
                       .output("b")
                       .replaces(node(graph, "add"))
                       .replaces(node(graph, "relu"))
                       .add();
                 });
}

TEST_F(RewriteTest, ACycleIsRefused) {
  expect_refused("cycle", [](const sdk::Graph& graph, sdk::Rewrite& edit) {
    edit.node("backplane.stub", "AddRelu")
        .input("p")
        .input("w")
        .output("q")
        .replaces(node(graph, "add"))
        .replaces(node(graph, "relu"))
        .add();
    edit.node("backplane.stub", "AddRelu").input("q").input("x").output("p").add();
    edit.node("backplane.stub", "Reorder").input("q").output("b").add();
  });
}

TEST_F(RewriteTest, EveryNewNodeNeedsAKernel) {
  expect_refused("no kernel for the new node", [](const sdk::Graph& graph, sdk::Rewrite& edit) {
    edit.node("backplane.stub", "Nonsense")
        .input("x")
        .output("b")
        .replaces(node(graph, "add"))
        .replaces(node(graph, "relu"))
        .add();
  });
}

TEST_F(RewriteTest, OnlyNodesThatWereOfferedAreReplaced) {
  expect_refused("a node that was not offered", [](const sdk::Graph& graph, sdk::Rewrite& edit) {
    fused(graph, edit).output("b").replaces(sdk::Node()).add();
  });
}

TEST_F(RewriteTest, OnlyNodesThatWereOfferedGetNotes) {
  expect_refused("a node that was not offered", [](const sdk::Graph& graph, sdk::Rewrite& edit) {
    fused(graph, edit).output("b").add();
    edit.note(sdk::Node(), "of nothing");
  });
}

TEST_F(RewriteTest, ANodeIsReplacedOnce) {
  expect_refused("replaced twice", [](const sdk::Graph& graph, sdk::Rewrite& edit) {
    fused(graph, edit).output("b").add();
    edit.node("backplane.stub", "Reorder")
        .input("x")
        .output("c")
        .replaces(node(graph, "add"))
        .add();
  });
}

TEST_F(RewriteTest, NamesAreNotTakenTwice) {
  const std::vector<float> data(4);
  expect_refused("the name 'a' is taken", [&](const sdk::Graph&, sdk::Rewrite& edit) {
    edit.constant("a", sdk::DataType::Float, std::vector<std::int64_t>{4}, data.data(), 16);
  });
}

TEST_F(RewriteTest, StructsThatAreNotUnderstoodAreRefused) {
  const struct {
    const char* words;
    std::function<void(bp_node_desc&)> damage;
  } nodes[] = {{"a node of a rewrite uses a feature",
                [](bp_node_desc& node) { node.struct_flags = 1u << 16; }},
               {"a node of a rewrite: its struct_size is 8",
                [](bp_node_desc& node) { node.struct_size = 8; }},
               {"its inputs are said to be 3, but are NULL",
                [](bp_node_desc& node) { node.input_count = 3; }},
               {"its attributes are said to be 1, but are NULL",
                [](bp_node_desc& node) { node.attribute_count = 1; }},
               {"the nodes that it replaces are said to be 2, but are NULL",
                [](bp_node_desc& node) { node.replace_count = 2; }}};
  for (const auto& one : nodes) {
    devices_ = DeviceSet();
    expect_refused(one.words, [&](const sdk::Graph&, sdk::Rewrite& edit) {
      bp_node_desc node = sdk::abi_struct<bp_node_desc>();
      node.domain = "backplane.stub";
      node.op_type = "AddRelu";
      one.damage(node);
      edit.add(node);
    });
  }
  const struct {
    const char* words;
    std::function<void(bp_constant_desc&)> damage;
  } constants[] = {{"a constant of a rewrite uses a feature",
                    [](bp_constant_desc& constant) { constant.struct_flags = 1u << 31; }},
                   {"a constant of a rewrite: its struct_size is 16",
                    [](bp_constant_desc& constant) { constant.struct_size = 16; }},
                   {"has rank 65", [](bp_constant_desc& constant) { constant.rank = 65; }},
                   {"the element type 99", [](bp_constant_desc& constant) { constant.dtype = 99; }},
                   {"its sources are said to be 1, but are NULL",
                    [](bp_constant_desc& constant) { constant.source_count = 1; }}};
  for (const auto& one : constants) {
    devices_ = DeviceSet();
    expect_refused(one.words, [&](const sdk::Graph&, sdk::Rewrite& edit) {
      const float element = 1;
      bp_constant_desc constant = sdk::abi_struct<bp_constant_desc>();
      constant.name = "new";
      constant.dtype = BP_FLOAT;
      constant.data = &element;
      constant.bytes = sizeof(element);
      one.damage(constant);
      edit.add(constant);
    });
  }
}

TEST_F(RewriteTest, AValueThatAnotherNodeMakesIsRefused) {
  expect_refused("'y'", [](const sdk::Graph& graph, sdk::Rewrite& edit) {
    edit.node("backplane.stub", "AddRelu")
        .input("x")
        .input("w")
        .output("y")
        .replaces(node(graph, "add"))
        .replaces(node(graph, "relu"))
        .add();
  });
}

TEST_F(RewriteTest, AConstantHasConstantSources) {
  expect_refused("the source 'x' of the constant 'packed' is not a constant",
                 [](const sdk::Graph&, sdk::Rewrite& edit) {
                   edit.lazy_constant("packed", sdk::DataType::Float, std::vector<std::int64_t>{4},
                                      {"x"}, "", [](const sdk::PackContext&) {});
                 });
}

TEST_F(RewriteTest, ValuesThatOthersReadStayPlain) {
  expect_refused("the value 'b' is used outside and must keep the plain format",
                 [](const sdk::Graph& graph, sdk::Rewrite& edit) {
                   fused(graph, edit).output("b").add();
                   edit.set_format("b", 7);
                 });
}

TEST_F(RewriteTest, ValuesThatComeFromOutsideStayPlain) {
  expect_refused("'x'", [](const sdk::Graph& graph, sdk::Rewrite& edit) {
    fused(graph, edit).output("b").add();
    edit.set_format("x", 7);
  });
}

/// The formats of one device's values are no business of the next device's rewrite.
TEST_F(RewriteTest, TwoDevicesHavePrivateFormats) {
  add("Relu", {"y"}, "c", "relu2");
  add("Relu", {"c"}, "z", "relu3");
  output("z");
  second_.kernels = {kernel("Relu"), kernel("Pair", "backplane.second"),
                     kernel("Reorder", "backplane.second")};
  second_.set_rewrite([](const sdk::Graph& graph, sdk::Rewrite& edit) {
    edit.node("backplane.second", "Pair")
        .input("y")
        .output("hidden")
        .replaces(node(graph, "relu2"))
        .replaces(node(graph, "relu3"))
        .add();
    edit.node("backplane.second", "Reorder").input("hidden").output("z").add();
    edit.set_format("hidden", 3);
  });
  stub_.kernels = {kernel("Add"), kernel("Relu"), kernel("AddRelu", "backplane.stub"),
                   kernel("Reorder", "backplane.stub")};
  stub_.set_rewrite([](const sdk::Graph& graph, sdk::Rewrite& edit) {
    fused(graph, edit).output("private").add();
    edit.node("backplane.stub", "Reorder").input("private").output("b").add();
    edit.set_format("private", 7);
  });
  other_.kernels = {kernel("Neg")};
  use(stub_);
  use(second_);
  use(other_);
  PlacedGraph result = placed({{"relu2", "second"}, {"relu3", "second"}});
  rewrite_nodes(result, 0, devices_, cache_);
  rewrite_nodes(result, 1, devices_, cache_);
  verify_placed(result, "after the rewrites");
  EXPECT_TRUE(result.remarks.empty()) << result.remarks.front();
  EXPECT_EQ(ops(*result.graph),
            (std::vector<std::string>{"AddRelu", "Reorder", "Neg", "Pair", "Reorder"}));
}

TEST_F(RewriteTest, AFormatOfAnUnknownValueIsRefused) {
  expect_refused("set_format for the unknown value 'ghost'",
                 [](const sdk::Graph& graph, sdk::Rewrite& edit) {
                   fused(graph, edit).output("b").add();
                   edit.set_format("ghost", 7);
                 });
}

TEST_F(RewriteTest, AnErrorOfTheProviderIsARemark) {
  expect_refused("out of ideas", [](const sdk::Graph& graph, sdk::Rewrite& edit) {
    fused(graph, edit).output("b").add();
    sdk::invalid("out of ideas");
  });
}

}  // namespace
}  // namespace backplane::core
