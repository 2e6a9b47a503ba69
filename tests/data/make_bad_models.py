#!/usr/bin/env python3
"""Write the models of the import tests: broken ones, and good ones that importers stumble on.

  make_bad_models.py OUT

Writes OUT/models/*.onnx with the files beside them, OUT/outside.bin (which no model may reach), and
OUT/manifest.json:

  {"models/NAME.onnx": {"expect": "error", "must_mention": [TEXT...], "needs_kernel": true (rarely)}}
  {"models/NAME.onnx": {"expect": "ok", "must_mention": [], "needs_op": OP (rarely),
                        "runs": [{"feeds": {NAME: VALUE}, "outputs": {NAME: VALUE}}]}}

An error is one line that holds every TEXT (compare without regard to case); with `needs_kernel` it is
the node's kernel that finds what is wrong, and reading the model does not. VALUE is {"type",
"shape", "values"}. A model with `needs_op` is good once a custom operator of that name, which
returns its input plus one, is registered in the default domain, and an error that names it before.
Needs: onnx, numpy.
"""
import argparse
import json
import os
import pathlib
import random
import shutil

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
OPSET, IR_VERSION = 17, 8
NODE = "the_node"  # the name of the node that is wrong
WEIGHT = "the_weight"  # the name of the initializer that is wrong
VALUE = "the_value"  # the name of the value that is wrong
X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)  # what the good models are fed with


class Folder:
    """OUT, and the manifest of what has been written there."""

    def __init__(self, out):
        self.out = out
        self.models = out / "models"
        shutil.rmtree(self.models, ignore_errors=True)
        self.models.mkdir(parents=True)
        self.manifest = {}

    def add(self, name, content, entry):
        data = content if isinstance(content, bytes) else content.SerializeToString()
        (self.models / f"{name}.onnx").write_bytes(data)
        key = f"models/{name}.onnx"
        assert key not in self.manifest, key
        self.manifest[key] = entry

    def bad(self, name, content, *must_mention, **more):
        mentions = [f"{name}.onnx", *must_mention]
        self.add(name, content, {"expect": "error", "must_mention": mentions, **more})

    def good(self, name, content, *runs, **more):
        """`runs` are pairs (feeds, outputs) of dicts of arrays."""
        described = [{"feeds": values(f), "outputs": values(o)} for f, o in runs]
        self.add(name, content, {"expect": "ok", "must_mention": [], "runs": described, **more})

    def finish(self):
        text = json.dumps(self.manifest, indent=1)
        (self.out / "manifest.json").write_text(text + "\n")


def values(arrays):
    names = {np.dtype(np.float32): "float", np.dtype(np.int64): "int64"}
    return {
        name: {"type": names[a.dtype], "shape": list(a.shape), "values": a.ravel().tolist()}
        for name, a in arrays.items()
    }


def info(name, shape=(2, 3), element_type=FLOAT):
    return helper.make_tensor_value_info(name, element_type, shape)


def node(op_type, inputs, outputs, name=NODE, **attributes):
    return helper.make_node(op_type, inputs, outputs, name=name, **attributes)


def model(nodes, weights=(), inputs=None, outputs=None, functions=(), opsets=None, ir=IR_VERSION):
    """A model of x float [2, 3] to y float [2, 3], unless said otherwise; nothing is checked."""
    tensors = [numpy_helper.from_array(w[1], w[0]) if isinstance(w, tuple) else w for w in weights]
    inputs = [info("x")] if inputs is None else inputs
    outputs = [info("y")] if outputs is None else outputs
    graph = helper.make_graph(nodes, "main", inputs, outputs, tensors)
    imports = {"": OPSET} if opsets is None else opsets
    proto = helper.make_model(
        graph,
        functions=list(functions),
        opset_imports=[helper.make_opsetid(d, v) for d, v in imports.items()],
    )
    proto.ir_version = ir
    return proto


def relu_model(**more):
    return model([node("Relu", ["x"], ["y"])], **more)


def add_weight(tensor, **more):
    """y = x + the tensor, however that is stored."""
    return model([node("Add", ["x", tensor.name], ["y"])], [tensor], **more)


def pass_weight(tensor):
    """y = relu x, and the tensor as it is for z: only reading the tensor can find what is wrong."""
    outputs = [info("y"), info("z", [f"size_{k}" for k in range(len(tensor.dims))])]
    nodes = [node("Relu", ["x"], ["y"]), node("Identity", [tensor.name], ["z"], "pass_weight")]
    return model(nodes, [tensor], outputs=outputs)


def raw_tensor(dims, data, data_type=FLOAT, name=WEIGHT):
    """A tensor whose fields need not fit each other."""
    tensor = TensorProto(name=name, data_type=data_type, dims=dims)
    tensor.raw_data = data
    return tensor


def external_tensor(dims=(3,), **fields):
    tensor = TensorProto(name=WEIGHT, data_type=FLOAT, dims=dims)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in fields.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


# Broken models


def add_files_that_are_no_models(folder):
    whole = relu_model().SerializeToString()
    folder.bad("empty", b"", "empty")
    folder.bad("truncated_half", whole[: len(whole) // 2])
    folder.bad("truncated_by_one", whole[:-1])
    folder.bad("text", b"This is a letter, and not a model.\n" * 40)
    folder.bad("json", b'{"ir_version": 8, "graph": {"node": []}}\n')
    folder.bad("png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0:~\x9bU")
    folder.bad("random_bytes", random.Random(1).randbytes(4096))
    folder.bad("zeros", bytes(4096))
    folder.bad("tensor_file", numpy_helper.from_array(X, "x").SerializeToString())
    folder.bad("no_graph", onnx.ModelProto(ir_version=IR_VERSION), "graph")
    folder.bad("nested_too_deep", nested_bytes(5000))


def nested_bytes(depth):
    """A model of an If in an If in an If ...: a reader must not run out of stack.

    Written byte by byte, since the protobuf library refuses to make such a thing.
    """

    def field(number, data):
        size, length = len(data), b""
        while size > 127:
            length += bytes([size & 127 | 128])
            size >>= 7
        return bytes([number << 3 | 2]) + length + bytes([size]) + data

    data = b""
    for _ in range(depth):
        attribute = field(1, b"then_branch") + field(6, data)  # AttributeProto.name, .g
        data = field(1, field(4, b"If") + field(5, attribute))  # GraphProto.node
    return relu_model().SerializeToString() + field(7, data)  # ModelProto.graph, merged


def add_broken_versions(folder):
    folder.bad("ir_version_zero", relu_model(ir=0))
    folder.bad("ir_version_too_new", relu_model(ir=1_000_000), "1000000")
    folder.bad("opset_too_new", relu_model(opsets={"": 999}), "999")
    folder.bad("opset_zero", relu_model(opsets={"": 0}), "opset")
    folder.bad("opset_missing", relu_model(opsets={}), "opset")
    too_old = model([node("HardSwish", ["x"], ["y"])], opsets={"": 13})  # the operator came with opset 14
    folder.bad("op_newer_than_opset", too_old, "HardSwish", NODE)


def add_broken_graphs(folder):
    v = VALUE

    def bad(name, nodes, *mentions, outputs=(v,), **more):
        infos = [o if isinstance(o, onnx.ValueInfoProto) else info(o) for o in outputs]
        folder.bad(name, model(nodes, outputs=infos, **more), *mentions)

    a = node("Add", ["x", "b"], ["a"], "loop_a")
    b = node("Relu", ["a"], ["b"], "loop_b")
    bad("cycle", [a, b, node("Neg", ["b"], [v])], "cycl", "loop_")
    bad("cycle_of_one", [node("Add", ["x", v], [v], "loop_self")], "cycl", "loop_self")
    relu = node("Relu", ["x"], [v])
    bad("value_made_twice", [relu, node("Neg", ["x"], [v], "other")], v)
    bad("value_is_input_too", [relu], v, inputs=[info("x"), info(v)])
    bad("value_is_initializer_too", [relu], v, weights=[(v, X)])
    bad("output_twice_in_node", [node("Dropout", ["x"], [v, v])], v)
    again = node("Relu", [v], ["y"])
    bad("input_twice", [again], v, inputs=[info(v), info(v)], outputs=["y"])
    bad("initializer_twice", [again], v, weights=[(v, X), (v, X)], outputs=["y"])
    bad("value_undefined", [node("Add", ["x", v], ["y"])], v, NODE, outputs=["y"])
    bad("output_never_made", [node("Relu", ["x"], ["z"])], v)
    bad("output_type_wrong", [relu], v, outputs=[info(v, element_type=INT64)])
    branch = helper.make_graph([node("Relu", [v], ["z"])], "b", [], [info("z")])
    choice = node("If", ["condition"], ["y"], "choice", then_branch=branch, else_branch=branch)
    condition = ("condition", np.array(True))
    bad("branch_reads_undefined", [choice], v, weights=[condition], outputs=["y"])


def add_broken_nodes(folder):
    def bad(name, wrong, *mentions, **more):
        folder.bad(name, model([wrong], **more), NODE, *mentions)

    bad("unknown_op", node("NoSuchOp", ["x"], ["y"]), "NoSuchOp")
    no_such = node("NoSuchOp", ["x"], ["y"], domain="com.example.absent")
    both = {"": OPSET, "com.example.absent": 1}
    bad("unknown_domain", no_such, "com.example.absent", "NoSuchOp", opsets=both)
    bad("domain_not_imported", no_such, "com.example.absent")
    bad("op_type_empty", node("", ["x"], ["y"]))
    bad("attribute_missing", node("Concat", ["x", "x"], ["y"]), "axis")
    bad("attribute_type_wrong", node("Concat", ["x"], ["y"], axis=1.0), "axis")
    bad("attribute_unknown", node("Relu", ["x"], ["y"], no_such_attribute=1), "no_such_attribute")
    twice = node("Concat", ["x"], ["y"], axis=0)
    twice.attribute.append(helper.make_attribute("axis", 1))
    bad("attribute_twice", twice, "axis")
    bad("attribute_out_of_range", node("Concat", ["x", "x"], ["y"], axis=7), "axis")
    bad("too_many_inputs", node("Relu", ["x", "x"], ["y"]))
    bad("too_few_inputs", node("Add", ["x"], ["y"]))
    bad("required_input_empty", node("Add", ["x", ""], ["y"]))
    for op_type in ("Sum", "Max", "Min", "Mean"):  # whose inputs are variadic
        for place, inputs in enumerate((["", "x"], ["x", ""], ["x", "x", "", "x"])):
            left_out = f"input {inputs.index('')} is left out"
            bad(f"{op_type.lower()}_input_empty_{place}", node(op_type, inputs, ["y"]), left_out)
    bad("concat_input_empty", node("Concat", ["x", ""], ["y"], axis=0), "input 1 is left out")
    einsum = node("Einsum", ["x", ""], ["y"], equation="ij,ij->ij")
    bad("einsum_input_empty", einsum, "input 1 is left out")
    bad("too_many_outputs", node("Relu", ["x"], ["y", "z"]))
    weights = [(WEIGHT, np.ones((2, 3), np.int64))]
    bad("input_types_differ", node("Add", ["x", WEIGHT], ["y"]), weights=weights)
    integers = {"inputs": [info("x", (2, 3), INT64)], "outputs": [info("y", (2, 3), INT64)]}
    bad("input_type_wrong", node("Sqrt", ["x"], ["y"]), **integers)
    wrong_shape = [(WEIGHT, np.ones((5, 2), np.float32))]
    bad("shapes_do_not_fit", node("MatMul", ["x", WEIGHT], ["y"]), weights=wrong_shape)
    wrong_rows = [(WEIGHT, np.ones((4, 3), np.float32))]
    bad("shapes_do_not_broadcast", node("Add", ["x", WEIGHT], ["y"]), weights=wrong_rows)
    broken_name = node("NoSuchOp", ["x"], ["y"], "first line\nsecond line\x1b[31m")
    folder.bad("line_break_in_name", model([broken_name]), "NoSuchOp")


def add_sizes_out_of_range(folder):
    """Numbers that no memory and no time suffice for, in a few bytes of a file."""

    def bad(name, wrong, *mentions, inputs=None, weights=(), opsets=None, **more):
        proto = model([wrong], weights, inputs, [info("y", None)], opsets=opsets)
        folder.bad(name, proto, *mentions, **more)

    signal = {"inputs": [info("x", (1, 4, 1))], "needs_kernel": True}
    length = (WEIGHT, np.array(2**36, np.int64))
    dft = node("DFT", ["x", WEIGHT], ["y"])
    bad("dft_too_long", dft, NODE, "length is too large: 68719476736", weights=[length], **signal)
    frames = [("step", np.array(1, np.int64)), length]
    stft = node("STFT", ["x", "step", "", WEIGHT], ["y"])
    bad("stft_too_long", stft, NODE, "frame_length is too large", weights=frames, **signal)
    rank = {"weights": [(WEIGHT, np.ones(68, np.int64))], "inputs": [info("x", (1,))]}
    reshape = node("Reshape", ["x", WEIGHT], ["y"])
    huge = [info("x", (2**40, 2**40))]
    bad("input_too_large", node("Relu", ["x"], ["y"]), "the input 'x'", inputs=huge, needs_kernel=True)
    bad("rank_too_high", reshape, NODE, "rank 68", "up to 64", needs_kernel=True, **rank)
    both = {"": 18, "com.microsoft": 1}
    tokens = [info("x", ("rows", "tokens"), INT64), info("scores", ("rows", 6))]
    repeat = node("NGramRepeatBlock", ["x", "scores"], ["y"], domain="com.microsoft", ngram_size=10**9)
    bad("ngram_too_long", repeat, NODE, "ngram_size is 1000000000", "up to 256", needs_kernel=True, inputs=tokens, opsets=both)
    weights = [("codes", np.zeros((1, 1, 8), np.uint8)), ("scales", np.ones(1, np.float32))]
    inner = {"weights": weights, "inputs": [info("x", (1, 16))], "opsets": both}
    sizes = {"K": 16, "N": 2**40, "block_size": 16}
    for op_type, more in (("MatMulNBits", {"bits": 4}), ("MatMulBnb4", {"quant_type": 0})):
        product = node(op_type, ["x", "codes", "scales"], ["y"], domain="com.microsoft", **sizes, **more)
        limit = "N is 1099511627776; both must be from 1 to 2147483648"
        bad(f"{op_type.lower()}_too_wide", product, NODE, limit, **inner)


def add_unknown_types_and_patterns(folder):
    relu = node("Relu", ["x"], ["y"])
    unknown = model([relu], inputs=[info("x", element_type=99)])
    folder.bad("input_type_unknown", unknown, "the value 'x'", "number 99")
    pattern = node("RegexFullMatch", [WEIGHT], ["y"], pattern="\\p{Greek}")
    text = helper.make_tensor(WEIGHT, TensorProto.STRING, [1], [b"a"])
    outputs = [info("y", (1,), TensorProto.BOOL)]
    proto = model([pattern], [text], [], outputs, opsets={"": 20})
    once = f"node '{NODE}' (RegexFullMatch): no provider takes it: "
    folder.bad("pattern_refused", proto, once, "Greek", needs_kernel=True)


def add_broken_classic_models(folder):
    """Attributes of trees, support vectors and linear models that contradict each other."""
    imports = {"": OPSET, "ai.onnx.ml": 3}

    def bad(name, op_type, attributes, *mentions):
        wrong = node(op_type, ["x"], ["y"], domain="ai.onnx.ml", **attributes)
        proto = model([wrong], outputs=[info("y", ("rows", "targets"))], opsets=imports)
        folder.bad(name, proto, NODE, *mentions, needs_kernel=True)

    def bad_tree(name, mention, **changes):
        stump = {
            "n_targets": 1,
            "nodes_treeids": [0, 0, 0],
            "nodes_nodeids": [0, 1, 2],
            "nodes_featureids": [0, 0, 0],
            "nodes_values": [0.5, 0.0, 0.0],
            "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
            "nodes_truenodeids": [1, 0, 0],
            "nodes_falsenodeids": [2, 0, 0],
            "target_treeids": [0, 0],
            "target_nodeids": [1, 2],
            "target_ids": [0, 0],
            "target_weights": [1.0, 2.0],
        }
        bad(f"tree_{name}", "TreeEnsembleRegressor", stump | changes, mention)

    bad_tree("of_itself", "no trees", nodes_truenodeids=[0, 0, 0])
    bad_tree("of_one_cycle", "no trees", nodes_modes=["BRANCH_LEQ", "BRANCH_GT", "LEAF"])
    bad_tree("that_meets_again", "no trees", nodes_falsenodeids=[1, 0, 0])
    bad_tree("without_a_child", "no node 9", nodes_falsenodeids=[9, 0, 0])
    bad_tree("with_a_node_twice", "twice", nodes_nodeids=[0, 1, 1])
    bad_tree("of_an_unknown_mode", "BRANCH_NO", nodes_modes=["BRANCH_NO", "LEAF", "LEAF"])
    bad_tree("of_a_negative_feature", "feature -1", nodes_featureids=[-1, 0, 0])
    bad_tree("of_a_feature_beyond", "features", nodes_featureids=[2**31 - 2, 0, 0])
    bad_tree("of_a_target_beyond", "target 5 of 1", target_ids=[5, 0])
    bad_tree("of_no_target", "of -1", n_targets=-1)
    bad_tree("without_values", "nodes_values", nodes_values=[0.5])
    bad_tree("with_two_bases", "base_values", base_values=[1.0, 2.0])
    support = {"n_supports": 2, "support_vectors": [1.0] * 6, "coefficients": [1.0, 1.0]}
    bad("svm_of_too_many_vectors", "SVMRegressor", support | {"n_supports": 2**62}, "vectors")
    bad("svm_of_few_weights", "SVMRegressor", support | {"coefficients": [1.0]}, "coefficients")
    bad("svm_of_no_kernel", "SVMRegressor", support | {"kernel_type": "NONE"}, "kernel_type")
    bad("linear_of_odd_weights", "LinearRegressor", {"coefficients": [1.0] * 5, "targets": 2}, "coefficients")


def add_broken_tensors(folder):
    def bad(name, tensor, *mentions):
        folder.bad(name, pass_weight(tensor), WEIGHT, *mentions)

    bad("raw_data_short", raw_tensor([2, 3], bytes(20)))
    bad("raw_data_long", raw_tensor([2, 3], bytes(28)))
    bad("raw_data_odd", raw_tensor([2, 3], bytes(23)))
    bad("raw_data_none", TensorProto(name=WEIGHT, data_type=FLOAT, dims=[2, 3]))
    short = TensorProto(name=WEIGHT, data_type=FLOAT, dims=[2, 3], float_data=[1, 2])
    bad("float_data_short", short)
    wrong_field = TensorProto(name=WEIGHT, data_type=FLOAT, dims=[3], int64_data=[1, 2, 3])
    bad("data_in_wrong_field", wrong_field)
    twice = raw_tensor([3], bytes(12))
    twice.float_data.extend([1, 2, 3])
    bad("data_in_two_fields", twice)
    bad("dims_negative", raw_tensor([-2, -3], bytes(24)))
    bad("dims_huge", raw_tensor([2**40], bytes(24)))
    bad("dims_overflow_to_zero", raw_tensor([2**32, 2**32], b""))
    bad("dims_overflow_to_fit", raw_tensor([2**32, 2**32, 3], bytes(12)))
    bad("bytes_overflow_to_zero", raw_tensor([2**62], b""))
    bad("data_type_undefined", raw_tensor([2, 3], bytes(24), 0))
    bad("data_type_unknown", raw_tensor([2, 3], bytes(24), 99))
    bad("strings_as_raw_data", raw_tensor([2, 3], bytes(24), TensorProto.STRING))
    unnamed = model([node("Relu", ["x"], ["y"])], [raw_tensor([3], bytes(12), name="")])
    folder.bad("initializer_without_name", unnamed)


def add_broken_external_data(folder):
    outside = folder.out / "outside.bin"
    outside.write_bytes(np.arange(8, dtype=np.float32).tobytes())
    models = folder.models
    os.symlink(os.path.join("..", outside.name), models / "link.bin")
    os.symlink("..", models / "linked_folder")
    (models / "folder.bin").mkdir()
    os.mkfifo(models / "pipe.bin")  # opening it to read would wait for ever
    (models / "three.bin").write_bytes(np.array([1, 2, 3], np.float32).tobytes())

    def bad(name, *mentions, **fields):
        folder.bad(f"external_{name}", pass_weight(external_tensor(**fields)), WEIGHT, *mentions)

    bad("parent", "../outside.bin", location="../outside.bin")
    inside_out = "folder.bin/../../outside.bin"
    bad("parent_inside", inside_out, location=inside_out)
    bad("absolute", "outside.bin", location=outside.resolve())
    bad("symlink", "link.bin", location="link.bin")
    bad("symlinked_folder", "linked_folder/outside.bin", location="linked_folder/outside.bin")
    bad("missing", "absent.bin", location="absent.bin")
    bad("folder", "folder.bin", location="folder.bin")
    bad("pipe", "pipe.bin", location="pipe.bin")
    bad("nul_in_location", location="three.bin\0.txt")
    bad("location_empty", location="")
    bad("location_absent", "location", offset=0)
    bad("offset_beyond", "three.bin", location="three.bin", offset=4096, length=12)
    bad("length_beyond", "three.bin", location="three.bin", offset=4, length=12)
    bad("length_wrong", location="three.bin", offset=0, length=8)
    bad("rest_too_short", location="three.bin", offset=4)
    bad("offset_negative", "-4", location="three.bin", offset=-4, length=12)
    bad("offset_no_number", "twelve", location="three.bin", offset="twelve")
    bad("offset_overflow", location="three.bin", offset=2**64, length=12)
    bad("sum_overflow", location="three.bin", offset=2**63 - 4, length=12)
    bad("dims_huge", dims=(2**40,), location="three.bin")


def add_broken_functions(folder):
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid("local", 1)]
    opsets = {"": OPSET, "local": 1}

    def function(name, *nodes):
        return helper.make_function("local", name, ["a"], ["b"], list(nodes), imports)

    call = node("Twice", ["x"], ["y"], domain="local")
    again = function("Twice", node("Twice", ["a"], ["b"], "inner", domain="local"))
    folder.bad("function_calls_itself", model([call], functions=[again], opsets=opsets), "Twice")
    first = function("Twice", node("Other", ["a"], ["b"], "inner", domain="local"))
    second = function("Other", node("Twice", ["a"], ["b"], "inner", domain="local"))
    both = model([call], functions=[first, second], opsets=opsets)
    folder.bad("functions_call_each_other", both, "Twice")
    empty = function("Twice", node("Relu", ["a"], ["c"], "inner"))
    folder.bad("function_output_unmade", model([call], functions=[empty], opsets=opsets), "Twice")


# Good models


def add_good_orders_and_names(folder):
    relu_minus_one = np.maximum(X, 0) - 1
    one = ("one", np.array(1, np.float32))
    chain = [node("Sub", ["r", "one"], ["y"], "sub"), node("Relu", ["x"], ["r"], "relu")]
    run = ({"x": X}, {"y": relu_minus_one})
    folder.good("nodes_reversed", model(chain, [one]), run)
    unnamed = [node("Relu", ["x"], ["r"], ""), node("Sub", ["r", "one"], ["y"], "")]
    folder.good("nodes_without_names", model(unnamed, [one]), run)
    same = [node("Relu", ["x"], ["r"], "n"), node("Sub", ["r", "one"], ["y"], "n")]
    folder.good("nodes_of_one_name", model(same, [one]), run)
    strange = model(
        [node("Neg", ["in/put:0"], ["größe \"1\" {}%s"], "a\\b")],
        inputs=[info("in/put:0")],
        outputs=[info("größe \"1\" {}%s")],
    )
    folder.good("names_strange", strange, ({"in/put:0": X}, {"größe \"1\" {}%s": -X}))
    count = 20_000
    names = ["x", *(f"v{k}" for k in range(1, count)), "y"]
    links = [node("Neg", [names[k]], [names[k + 1]], f"n{k}") for k in range(count)]
    folder.good("long_chain_reversed", model(links[::-1]), ({"x": X}, {"y": X}))
    folder.good("input_is_output", model([], outputs=[info("x")]), ({"x": X}, {"x": X}))
    constant = model([], [("w", X)], inputs=[], outputs=[info("w")])
    folder.good("initializer_is_output", constant, ({}, {"w": X}))
    two = [info("y"), info("r")]
    nodes = [node("Relu", ["x"], ["r"], "relu"), node("Neg", ["r"], ["y"])]
    positive = np.maximum(X, 0)
    run_of_two = ({"x": X}, {"y": -positive, "r": positive})
    folder.good("inner_value_is_output", model(nodes, outputs=two), run_of_two)
    unread = model([node("Neg", ["x"], ["y"])], [("unread", X)], inputs=[info("x"), info("spare")])
    folder.good("input_unread", unread, ({"x": X, "spare": X}, {"y": -X}))
    many = {"": OPSET, "com.example.absent": 3, "ai.onnx.ml": 3}
    folder.good("domain_imported_unused", relu_model(opsets=many), ({"x": X}, {"y": positive}))
    alias = model([node("Relu", ["x"], ["y"], domain="ai.onnx")])
    folder.good("default_domain_by_name", alias, ({"x": X}, {"y": positive}))


def add_good_optional_parts(folder):
    greatest = ("greatest", np.array(2, np.float32))
    clip = model([node("Clip", ["x", "", "greatest"], ["y"])], [greatest])
    folder.good("optional_input_empty", clip, ({"x": X}, {"y": np.minimum(X, 2)}))
    bare = model([node("Clip", ["x"], ["y"])])
    folder.good("optional_inputs_left_out", bare, ({"x": X}, {"y": X}))
    dropout = model([node("Dropout", ["x"], ["y", ""])])
    folder.good("optional_output_empty", dropout, ({"x": X}, {"y": X}))
    custom = model([node("ExampleOp", ["x"], ["y"])])
    folder.good("custom_op_default_domain", custom, ({"x": X}, {"y": X + 1}), needs_op="ExampleOp")
    nothing = np.zeros((0, 3), np.float32)
    symbolic = {"inputs": [info("x", ("rows", 3))], "outputs": [info("y", ("rows", 3))]}
    runs = [({"x": a}, {"y": -a}) for a in (X, X[:1], nothing)]
    folder.good("rows_symbolic", model([node("Neg", ["x"], ["y"])], **symbolic), *runs)
    three = np.array(3, np.float32)
    point = {"inputs": [info("x", ())], "outputs": [info("y", ())]}
    scalar_run = ({"x": three}, {"y": np.negative(three)})
    folder.good("scalar", model([node("Neg", ["x"], ["y"])], **point), scalar_run)
    unknown = {"outputs": [info("y", None)]}
    folder.good("output_shape_absent", model([node("Neg", ["x"], ["y"])], **unknown), runs[0])


def add_good_weights(folder):
    w = np.array([10, 20, 30], np.float32)
    other = np.array([7, 8, 9], np.float32)
    tensor = numpy_helper.from_array(w, "w")
    run = ({"x": X}, {"y": X + w})
    listed = [info("x"), info("w", (3,))]
    # Before IR 4 every initializer is listed as an input, and none of them is one.
    old = add_weight(tensor, inputs=listed, ir=3, opsets={"": 8})
    folder.good("initializer_listed_ir3", old, run)
    overriding = ({"x": X, "w": other}, {"y": X + other})
    folder.good("initializer_overridable", add_weight(tensor, inputs=listed), run, overriding)
    folder.good("initializer_overridable_first", add_weight(tensor, inputs=listed[::-1]), run)
    typed = TensorProto(name="w", data_type=FLOAT, dims=[3], float_data=w.tolist())
    folder.good("initializer_typed_field", add_weight(typed), run)
    none = raw_tensor([0, 3], b"", name="w")
    joined = model([node("Concat", ["x", "w"], ["y"], axis=0)], [none])
    folder.good("initializer_of_no_elements", joined, ({"x": X}, {"y": X}))

    (folder.models / "weights.bin").write_bytes(bytes(8) + w.tobytes() + other.tobytes())
    (folder.models / "weights").mkdir()
    (folder.models / "weights" / "inner.bin").write_bytes(w.tobytes())
    external_run = ({"x": X}, {"y": X + w})
    places = {
        "with_offset": {"location": "weights.bin", "offset": 8, "length": 12},
        "whole_file": {"location": "weights/inner.bin"},
        "dotted": {"location": "./weights/../weights/inner.bin", "offset": 0},
    }
    for name, fields in places.items():
        folder.good(f"external_{name}", add_weight(external_tensor(**fields)), external_run)


def add_good_functions(folder):
    """A function with an attribute of its own, called by another, and by nodes out of order."""
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid("local", 1)]
    slope = helper.make_node("LeakyRelu", ["a"], ["c"], "leak")
    slope.attribute.add(name="alpha", type=AttributeProto.FLOAT, ref_attr_name="slope")
    negative = helper.make_node("Neg", ["c"], ["b"], "negative")
    nodes = [slope, negative]
    leak = helper.make_function("local", "Leak", ["a"], ["b"], nodes, imports, ["slope"])
    call = helper.make_node("Leak", ["a"], ["b"], "call", domain="local", slope=0.5)
    outer = helper.make_function("local", "Outer", ["a"], ["b"], [call], imports)
    main = [
        node("Leak", ["h"], ["y"], "leak", domain="local", slope=0.25),
        node("Outer", ["x"], ["h"], "outer", domain="local"),
    ]
    proto = model(main, functions=[leak, outer], opsets={"": OPSET, "local": 1})

    def leaky(x, alpha):
        return -np.where(x < 0, x * np.float32(alpha), x)

    folder.good("functions", proto, ({"x": X}, {"y": leaky(leaky(X, 0.5), 0.25)}))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=pathlib.Path)
    folder = Folder(parser.parse_args().out)
    for add in (
        add_files_that_are_no_models,
        add_broken_versions,
        add_broken_graphs,
        add_broken_nodes,
        add_sizes_out_of_range,
        add_unknown_types_and_patterns,
        add_broken_classic_models,
        add_broken_tensors,
        add_broken_external_data,
        add_broken_functions,
        add_good_orders_and_names,
        add_good_optional_parts,
        add_good_weights,
        add_good_functions,
    ):
        add(folder)
    folder.finish()
    bad = sum(entry["expect"] == "error" for entry in folder.manifest.values())
    print(f"{bad} broken and {len(folder.manifest) - bad} good models in {folder.models}")


if __name__ == "__main__":
    main()
