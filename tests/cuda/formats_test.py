"""What values between nodes are stored as: 16 bits, and images channels last. Whole networks on the stand-in, whose
kernels the processor runs, against the CPU provider; and how many nodes stand at the edges."""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import program  # noqa: E402
from program import node, value  # noqa: E402

sys.path.insert(0, str(program.SOURCE / "tools/gpu"))
import networks  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from random_networks import RandomNetwork  # noqa: E402

DEVICE = ["--plugin-path", program.BUILD / "tests/cuda_on_stand_in", "--providers", "cuda,cpu"]
# Of the largest element: what the type rounds, over a dozen nodes.
TOLERANCES = {"fp32": 1e-4, "tf32": 1e-4, "fp16": 1e-2, "bf16": 8e-2}


class Formats(program.ProgramTest):
    def run_network(self, path, feeds, *arguments):
        """The outputs, by name."""
        words = []
        for name, array in feeds.items():
            words += ["--input", f"{name}={self.save(array, f'{name}.npy')}"]
        folder = self.folder / f"made{len(self.files())}"
        self.succeed("run", path, "--output-dir", folder, *words, *arguments)
        return {made.stem: np.load(made) for made in folder.glob("*.npy")}

    def check(self, path, feeds, precision, *arguments, what=""):
        want = self.run_network(path, feeds, "--providers", "cpu")
        made = self.run_network(path, feeds, *DEVICE, "--precision", precision, *arguments)
        self.assertEqual(want.keys(), made.keys())
        for name, array in want.items():
            self.assertEqual((array.shape, array.dtype), (made[name].shape, made[name].dtype), name)
            if array.size == 0:
                continue
            limit = TOLERANCES[precision] * max(1, np.abs(array).max())
            self.assertLessEqual(np.abs(array - made[name]).max(), limit, f"{name} in {precision}\n{what}")
        return made

    def nodes(self, path, precision, *more):
        return self.json_of("inspect", path, *DEVICE, "--set", f"precision={precision}", *more)

    def edges(self, path, precision, *more):
        """Nodes that bring values into other forms: those of a rewrite, and the model's own."""
        made = self.nodes(path, precision, *more)
        self.assertEqual(made["remarks"], [])
        return [name for name in made["order"] if name.split("_")[0] in ("Reformat", "Cast")]

    def filled(self, path, precision):
        """How many channels images get that have fewer."""
        made = self.folder / "made.onnx"
        made.unlink(missing_ok=True)
        self.succeed("inspect", path, *DEVICE, "--set", f"precision={precision}", "--set", f"optimized_model_path={made}")
        return [attribute.i for each in onnx.load(made).graph.node if each.op_type == "Reformat"
                for attribute in each.attribute if attribute.name == "channels"]

    def check_saved(self, path, feeds, precision):
        """What is saved as the provider has made it is read again, and computes the same."""
        saved = self.folder / f"saved{len(self.files())}.onnx"
        made = self.run_network(path, feeds, *DEVICE, "--precision", precision, "--set", f"optimized_model_path={saved}")
        again = self.run_network(saved, feeds, *DEVICE, "--precision", precision)
        self.assertEqual(made.keys(), again.keys())
        for name, array in made.items():
            np.testing.assert_array_equal(array, again[name])


class Networks(Formats):
    def test_a_residual_network_has_edges_at_its_ends_alone(self):
        path = self.folder / "residual.onnx"
        networks.residual_network(path, size=32, classes=10)
        x = np.random.default_rng(1).standard_normal((1, 3, 32, 32)).astype(np.float32)
        for precision in ("fp16", "bf16", "tf32"):
            with self.subTest(precision):
                # The input, the mean's [1, 1, 1, c] seen as [1, c, 1, 1], which costs nothing, and the output.
                self.assertEqual(len(self.edges(path, precision)), 2 if precision == "tf32" else 3)
        self.assertEqual(self.edges(path, "fp32"), [])
        self.assertEqual(len(self.edges(path, "fp16", "--set", "provider.cuda.layout=channels_first")), 2)
        self.check(path, {"x": x}, "fp16")
        self.check(path, {"x": x}, "tf32")

    def test_what_was_laid_out_is_saved_and_read_again(self):
        random = np.random.default_rng(10)
        feeds = {"x": random.standard_normal((2, 8, 6, 5)).astype(np.float32)}
        weights = numpy_helper.from_array(random.standard_normal((16, 8, 3, 3)).astype(np.float32) / 9, "w")
        axes = numpy_helper.from_array(np.array([2, 3]), "axes")
        for op_type, opset, inputs, attributes in (
                ("GlobalAveragePool", 17, [], {}), ("GlobalMaxPool", 22, [], {}), ("ReduceMean", 13, [], {"axes": [2, 3]}),
                ("ReduceMean", 18, ["axes"], {}), ("ReduceMax", 20, ["axes"], {}), ("AveragePool", 19, [], {"kernel_shape": [2, 2]}),
                ("MaxPool", 12, [], {"kernel_shape": [2, 2]})):
            with self.subTest(op_type, opset=opset):
                nodes = [node("Conv", ["x", "w"], ["c"], name="conv"), node(op_type, ["c", *inputs], ["p"], name="pool", **attributes),
                         node("Sigmoid", ["p"], ["y"], name="end")]
                sizes = (3, 2) if "kernel_shape" in attributes else (1, 1)
                path = self.save(program.model(nodes, [value("x", shape=(2, 8, 6, 5))], [value("y", shape=(2, 16, *sizes))],
                                               [weights, axes][:1 + len(inputs)], opset=opset))
                self.check(path, feeds, "fp16")
                self.check_saved(path, feeds, "fp16")

    def test_images_are_sampled_in_16_bits_at_places_of_32(self):
        random = np.random.default_rng(11)
        feeds = {"x": random.standard_normal((2, 8, 6, 5)).astype(np.float32),
                 "grid": random.uniform(-1.1, 1.1, (2, 7, 4, 2)).astype(np.float32)}
        weights = [numpy_helper.from_array(random.standard_normal((8, 8, 1, 1)).astype(np.float32) / 3, name) for name in "wv"]
        nodes = [node("Conv", ["x", "w"], ["c"], name="conv"), node("GridSample", ["c", "grid"], ["s"], name="sample"),
                 node("Conv", ["s", "v"], ["y"], name="end")]
        path = self.save(program.model(nodes, [value("x", shape=(2, 8, 6, 5)), value("grid", shape=(2, 7, 4, 2))],
                                       [value("y", shape=(2, 8, 7, 4))], weights, opset=20))
        for precision in ("fp16", "bf16"):
            with self.subTest(precision):
                made = self.folder / "made.onnx"
                made.unlink(missing_ok=True)
                self.succeed("inspect", path, *DEVICE, "--set", f"precision={precision}",
                             "--set", f"optimized_model_path={made}")
                graph = onnx.load(made).graph
                # Another type for the input and the output, another layout alone around the sampling, and the grid as it is.
                edges = [len(each.attribute) for each in graph.node if each.op_type == "Reformat"]
                self.assertEqual(edges, [2, 1, 1, 2])
                self.assertEqual([each.input[1] for each in graph.node if each.op_type == "GridSample"], ["grid"])
                self.check(path, feeds, precision)

    def test_images_of_few_channels_are_filled_up_where_they_are_brought_into_another_form_anyway(self):
        random = np.random.default_rng(8)
        for shape, kernel in (((2, 3, 9, 7), (3, 2)), ((1, 1, 33), (5,)), ((1, 2, 3, 4, 5), (2, 1, 3)), ((3, 7, 5, 5), (3, 3)),
                              ((0, 3, 9, 7), (3, 2))):
            weights = {"w": (4, shape[1], *kernel), "one": (2, shape[1], *(1 for _ in kernel)), "row": (4,)}
            constants = [numpy_helper.from_array(random.standard_normal(dims).astype(np.float32) / 3, name)
                         for name, dims in weights.items()]
            # The second has no window, so that its image is as the model's; the third reads what the first wrote.
            nodes = [node("Conv", ["x", "w", "row"], ["a"], name="few"), node("Relu", ["a"], ["y"]),
                     node("Conv", ["x", "one"], ["z"], name="pixels")]
            out = (shape[0], 4, *(size - taps + 1 for size, taps in zip(shape[2:], kernel)))
            path = self.save(program.model(nodes, [value("x", shape=shape)],
                                           [value("y", shape=out), value("z", shape=(shape[0], 2, *shape[2:]))], constants))
            for precision in ("fp16", "bf16", "tf32"):
                with self.subTest(shape=shape, precision=precision):
                    wanted = 4 if shape[1] < 4 else 8 if precision != "tf32" else None
                    self.assertEqual(self.filled(path, precision), [wanted] if wanted else [])
                    self.check(path, {"x": random.standard_normal(shape).astype(np.float32)}, precision)
            self.assertEqual(self.edges(path, "fp32"), [])

    def test_a_first_layer_is_the_providers_own_kernels(self):
        random = np.random.default_rng(12)
        constants = [numpy_helper.from_array(random.standard_normal(dims).astype(np.float32) / 3, name)
                     for name, dims in {"w": (24, 3, 5, 3), "row": (24,), "v": (4, 24, 1, 1)}.items()]
        nodes = [node("Conv", ["x", "w", "row"], ["a"], name="first", pads=[2, 1, 1, 1], strides=[1, 2]), node("Relu", ["a"], ["b"]),
                 node("Conv", ["b", "v"], ["y"])]
        x = random.standard_normal((2, 3, 41, 60)).astype(np.float32)
        path = self.save(program.model(nodes, [value("x", shape=x.shape)], [value("y", shape=(2, 4, 40, 30))], constants))
        for precision in ("fp16", "bf16"):
            # Where nothing is compared it is the first of all ways.
            for options in ([], ["--set", "provider.cuda.tuning=off"]):
                self.check(path, {"x": x}, precision, *options)
            rows = {row["name"]: row for row in self.nodes(path, precision, *options)["nodes"]}
            self.assertEqual(rows["first"]["kernel"], "cuda:conv tensor cores, few channels, fused, channels last")

    def test_an_image_of_too_few_channels_is_refused_and_not_filled_up(self):
        random = np.random.default_rng(10)
        constants = [numpy_helper.from_array(random.standard_normal((4, 3, 3, 3)).astype(np.float32), "w")]
        path = self.save(program.model([node("Conv", ["x", "w"], ["y"], name="few")], [value("x", shape=(1, "c", 8, 8))],
                                       [value("y", shape=(1, 4, 6, 6))], constants))
        for channels in (2, 4):
            x = self.save(np.ones((1, channels, 8, 8), np.float32), "x.npy")
            made = self.run_program("run", path, "--input", f"x={x}", "--output-dir", self.folder / "out", *DEVICE, "--precision", "fp16")
            self.assertNotEqual(made.returncode, 0)
            self.assertIn(f"an image of dims [1,{channels},8,8] for a convolution of 3 channels", made.stderr.decode())
        self.check(path, {"x": random.standard_normal((1, 3, 8, 8)).astype(np.float32)}, "fp16")

    def test_groups_and_images_that_lie_channels_last_are_not_filled_up(self):
        random = np.random.default_rng(9)
        constants = [numpy_helper.from_array(random.standard_normal(dims).astype(np.float32) / 3, name)
                     for name, dims in {"w": (4, 2, 3, 3), "v": (6, 4, 3, 3), "u": (3, 6, 3, 3)}.items()]
        nodes = [node("Conv", ["x", "w"], ["a"], group=2), node("Conv", ["a", "v"], ["b"]), node("Conv", ["b", "u"], ["y"])]
        path = self.save(program.model(nodes, [value("x", shape=(1, 4, 9, 9))], [value("y", shape=(1, 3, 3, 3))], constants))
        for precision in ("fp16", "tf32"):
            self.assertEqual(self.filled(path, precision), [])
            self.check(path, {"x": random.standard_normal((1, 4, 9, 9)).astype(np.float32)}, precision)

    def test_a_network_that_scales_up_again_has_edges_at_its_ends_alone(self):
        random = np.random.default_rng(5)
        weights = {"down": (4, 3, 3, 3), "up": (4, 2, 2, 2), "last": (1, 2, 1, 1)}
        constants = [numpy_helper.from_array(random.standard_normal(shape).astype(np.float32) / 5, name)
                     for name, shape in weights.items()]
        nodes = [node("Conv", ["x", "down"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]), node("Relu", ["a"], ["b"]),
                 node("ConvTranspose", ["b", "up"], ["c"], name="up", strides=[2, 2]),
                 node("Conv", ["c", "last"], ["y"])]
        path = self.save(program.model(nodes, [value("x", shape=(1, 3, 8, 8))], [value("y", shape=(1, 1, 8, 8))], constants))
        for precision in ("fp16", "bf16", "tf32"):
            with self.subTest(precision):
                self.assertEqual(len(self.edges(path, precision)), 2)
                rows = {row["name"]: row for row in self.nodes(path, precision)["nodes"]}
                self.assertIn("channels last", rows["up"]["kernel"])
                self.check(path, {"x": random.standard_normal((1, 3, 8, 8)).astype(np.float32)}, precision)

    def test_a_product_of_bytes_makes_16_bits(self):
        random = np.random.default_rng(6)
        constants = [numpy_helper.from_array(array, name) for name, array in
                     {"scale": np.float32(0.05), "zero": np.int8(3), "w": random.integers(-9, 9, (8, 6)).astype(np.int8),
                      "row": random.standard_normal(6).astype(np.float32)}.items()]
        nodes = [node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
                 node("DequantizeLinear", ["q", "scale", "zero"], ["a"]),
                 node("DequantizeLinear", ["w", "scale"], ["b"]), node("MatMul", ["a", "b"], ["p"], name="product"),
                 node("Add", ["p", "row"], ["s"]), node("Softmax", ["s"], ["y"])]
        path = self.save(program.model(nodes, [value("x", shape=(5, 8))], [value("y", shape=(5, 6))], constants))
        rows = {row["name"]: row for row in self.nodes(path, "fp16")["nodes"]}
        self.assertIn("makes fp16", [reason["text"] for reason in rows["product"]["reasons"]])
        self.assertEqual(len(self.edges(path, "fp16")), 1)
        self.check(path, {"x": random.standard_normal((5, 8)).astype(np.float32)}, "fp16")

    def test_a_convolution_of_bytes_is_the_librarys(self):
        random = np.random.default_rng(7)
        # More channels than a tile has, and both kinds of weights.
        for kind, zero, groups in ((np.int8, 0, 1), (np.uint8, 131, 2)):
            weights = np.clip(random.integers(-9, 9, (10, 38 // groups, 3, 2)) + zero, np.iinfo(kind).min, None).astype(kind)
            constants = [numpy_helper.from_array(np.array(array), name) for name, array in
                         {"scale": np.float32(0.05), "zero": np.uint8(119), "w": weights, "wz": kind(zero),
                          "bias": random.standard_normal(10).astype(np.float32)}.items()]
            nodes = [node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
                     node("DequantizeLinear", ["q", "scale", "zero"], ["a"]),
                     node("DequantizeLinear", ["w", "scale", "wz"], ["b"]),
                     node("Conv", ["a", "b", "bias"], ["c"], name="convolution", pads=[1, 0, 2, 1], strides=[1, 2],
                          group=groups),
                     node("Relu", ["c"], ["y"])]
            path = self.save(program.model(nodes, [value("x", shape=(2, 38, 9, 8))], [value("y", shape=(2, 10, 10, 4))],
                                           constants))
            for precision in ("fp32", "fp16"):
                with self.subTest(kind=kind, precision=precision):
                    rows = {row["name"]: row for row in self.nodes(path, precision)["nodes"]}
                    self.assertEqual(rows["convolution"]["kernel"], "cuda:int8 conv cudnn, int8")
                    x = random.standard_normal((2, 38, 9, 8)).astype(np.float32)
                    self.check(path, {"x": x}, precision)

    def test_an_encoder_has_edges_at_its_ends_alone(self):
        path = self.folder / "encoder.onnx"
        networks.encoder(path, batch=2, layers=3, tokens=5, width=24, heads=3)
        x = np.random.default_rng(1).standard_normal((2, 5, 24)).astype(np.float32)
        for precision in ("fp16", "bf16"):
            with self.subTest(precision):
                self.assertEqual(len(self.edges(path, precision)), 2)
                self.check(path, {"x": x}, precision)
        self.assertEqual(self.edges(path, "tf32"), [])

    def test_queries_keys_and_values_are_one_product_a_layer(self):
        path = self.folder / "encoder.onnx"
        networks.encoder(path, batch=2, layers=3, tokens=5, width=24, heads=3)
        for precision in ("fp32", "fp16"):
            rows = self.nodes(path, precision)["nodes"]
            said = [reason["text"] for row in rows for reason in row["reasons"] if "joined with" in reason["text"]]
            self.assertEqual(len(said), 9, said)
            self.assertRegex(said[0], "joined with 'MatMul_[0-9]+' and 'MatMul_[0-9]+', which multiply the same value")
            joined = {row["fused_into"] for row in rows if row["kernel"].startswith("cuda:joined products")}
            self.assertEqual(len(joined), 3)

    def test_attention_of_an_unknown_batch_is_one_node_a_layer(self):
        path = self.folder / "dynamic.onnx"
        networks.bert_dyn(path, layers=2, tokens=5, width=24, heads=3)
        for precision, how in (("fp16", "cudnn, float16"), ("fp32", "by parts: float32 with precision fp32")):
            rows = self.nodes(path, precision, "--dim", f"{networks.SYMBOL}=2")["nodes"]
            kernels = [row["kernel"] for row in rows if row["op"] == "Softmax"]
            self.assertEqual([kernel.startswith(f"cuda:attention {how}") for kernel in kernels], [True] * 2, kernels)
        for batch, precision in ((2, "fp16"), (0, "bf16"), (1, "bf16"), (5, "tf32"), (3, "fp32")):
            x = np.random.default_rng(batch).standard_normal((batch, 5, 24)).astype(np.float32)
            self.check(path, {"x": x}, precision)

    def test_attention_with_a_cache_keeps_the_caches_type(self):
        random = np.random.default_rng(8)
        heads, groups, width, past = 4, 2, 16, 37
        shapes = {"x": (1, 3, 24), "k": (1, groups, past, width), "v": (1, groups, past, width)}
        feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        constants = [numpy_helper.from_array(random.standard_normal((24, count * width)).astype(np.float32) / 5, name)
                     for name, count in (("wq", heads), ("wk", groups), ("wv", groups))]
        constants += [numpy_helper.from_array(np.array([past + 2], np.int32), "lengths"),
                      numpy_helper.from_array(np.array(past + 3, np.int32), "total")]
        products = [node("MatMul", ["x", f"w{name}"], [name.upper()]) for name in "qkv"]
        outputs = [value("y", shape=(1, 3, heads * width))]
        outputs += [value(name, shape=(1, groups, past + 3, width)) for name in ("present_k", "present_v")]
        for attention in (
                node("Attention", ["Q", "K", "V", "", "k", "v"], ["y", "present_k", "present_v"], name="attention",
                     q_num_heads=heads, kv_num_heads=groups, is_causal=1, softcap=4.0),
                node("GroupQueryAttention", ["Q", "K", "V", "k", "v", "lengths", "total"], ["y", "present_k", "present_v"],
                     name="attention", domain="com.microsoft", num_heads=heads, kv_num_heads=groups)):
            model = program.model([*products, attention], [value(name, shape=shape) for name, shape in shapes.items()], outputs,
                                  constants, opset=23)
            model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
            path = self.save(model)
            for precision in ("fp32", "fp16", "bf16"):
                with self.subTest(attention.op_type, precision=precision):
                    rows = {row["name"]: row for row in self.nodes(path, precision)["nodes"]}
                    self.assertTrue(rows["attention"]["kernel"].startswith("cuda:"), rows["attention"])
                    self.check(path, feeds, precision)

    def test_prompts_have_tensor_cores(self):
        random = np.random.default_rng(9)
        heads, groups, width, past, positions = 4, 2, 16, 30, 70
        for dtype, code, begins, way in ((np.float16, TensorProto.FLOAT16, True, "cudnn"),
                                         (np.float32, TensorProto.FLOAT, True, "by products"),
                                         (np.float16, TensorProto.FLOAT16, False, "by products")):
            shapes = {"q": (2, positions, heads * width), "k": (2, positions, groups * width), "v": (2, positions, groups * width)}
            if begins:
                constants = [numpy_helper.from_array(np.full(2, positions - 1, np.int32), "lengths"),
                             numpy_helper.from_array(np.array(positions, np.int32), "total")]
                constants += [numpy_helper.from_array(random.standard_normal((positions, width // 2)).astype(dtype), name)
                              for name in ("cos", "sin")]
                attention = node("GroupQueryAttention", ["q", "k", "v", "", "", "lengths", "total", "cos", "sin"], ["y", "pk", "pv"],
                                 domain="com.microsoft", num_heads=heads, kv_num_heads=groups, do_rotary=1)
            else:
                constants = [numpy_helper.from_array(random.standard_normal((2, groups, past, width)).astype(dtype), name)
                             for name in ("past_k", "past_v")]
                attention = node("Attention", ["q", "k", "v", "", "past_k", "past_v"], ["y", "pk", "pv"], q_num_heads=heads,
                                 kv_num_heads=groups, is_causal=1)
            attention.name = "attention"
            rows = positions + (0 if begins else past)
            outputs = [value("y", code, shapes["q"])] + [value(name, code, (2, groups, rows, width)) for name in ("pk", "pv")]
            model = program.model([attention], [value(name, code, shape) for name, shape in shapes.items()], outputs, constants, opset=23)
            model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
            path = self.save(model)
            with self.subTest(way, dtype=dtype.__name__):
                kernel = {row["name"]: row for row in self.nodes(path, "fp32")["nodes"]}["attention"]["kernel"]
                self.assertIn(way, kernel)
                self.check(path, {name: random.standard_normal(shape).astype(dtype) for name, shape in shapes.items()},
                           "fp32" if dtype is np.float32 else "fp16")

    def test_what_is_stored_otherwise_is_explained(self):
        path = self.folder / "residual.onnx"
        networks.residual_network(path, size=32, stages=(1, 1, 1, 1), classes=10)
        rows = {row["name"]: row for row in self.nodes(path, "bf16")["nodes"]}
        self.assertIn("makes bf16, channels last", [reason["text"] for reason in rows["Conv_0"]["reasons"]])
        self.assertIn("channels last", rows["Conv_0"]["kernel"])

    def test_a_node_whose_precision_is_another_keeps_float32(self):
        path = self.folder / "perceptron.onnx"
        networks.perceptron(path, width=16)
        of = "provider.cuda.precision_of=MatMul_3=fp32"
        rows = {row["name"]: row for row in self.nodes(path, "fp16", "--set", of)["nodes"]}
        texts = {name: [reason["text"] for reason in row["reasons"]] for name, row in rows.items()}
        self.assertIn("makes fp16", texts["MatMul_0"])
        self.assertFalse([text for text in texts["MatMul_3"] if "makes" in text])
        self.assertIn("makes fp16", texts["MatMul_6"])
        # Into the first, out of it, into the third, out of the last.
        self.assertEqual(len(self.edges(path, "fp16", "--set", of)), 4)
        self.check(path, {"x": np.ones((1, 16), np.float32)}, "fp16", "--set", of)

    def test_a_sensitive_node_stays_float32_and_says_why(self):
        weights = numpy_helper.from_array(np.full((4, 4), 8, np.float32), "w")
        made = program.model([node("MatMul", ["x", "w"], ["a"], name="product"), node("Exp", ["a"], ["y"], name="power")],
                             [value("x", shape=(2, 4))], [value("y", shape=(2, 4))], [weights])
        path = self.save(made)
        rows = {row["name"]: row for row in self.nodes(path, "fp16")["nodes"]}
        self.assertIn("stays float32: what it makes leaves the range of fp16",
                      [reason["text"] for reason in rows["power"]["reasons"]])
        x = np.full((2, 4), 0.5, np.float32)  # exp(16) is no fp16
        self.check(path, {"x": x}, "fp16")

    def test_an_einsum_that_is_a_product_makes_16_bits_and_one_of_sums_does_not(self):
        random = np.random.default_rng(9)
        weights = numpy_helper.from_array(random.standard_normal((8, 3, 4)).astype(np.float32), "w")
        nodes = [node("Einsum", ["x", "w"], ["p"], name="product", equation="btd,dhk->bthk"),
                 node("Einsum", ["p"], ["y"], name="sums", equation="bthk->bk")]
        path = self.save(program.model(nodes, [value("x", shape=(2, 5, 8))], [value("y", shape=(2, 4))], [weights]))
        rows = {row["name"]: row for row in self.nodes(path, "fp16")["nodes"]}
        said = {name: [reason["text"] for reason in row["reasons"]] for name, row in rows.items()}
        self.assertIn("makes fp16", said["product"])
        self.assertNotIn("makes fp16", said["sums"])
        for precision in ("fp16", "tf32"):
            self.check(path, {"x": random.standard_normal((2, 5, 8)).astype(np.float32)}, precision)


class Rows(Formats):
    """Rows that take over what is element-wise before them."""

    def rows_of(self, path, precision):
        return {row["name"]: row for row in self.nodes(path, precision)["nodes"]}

    def test_a_sum_that_others_read_is_stored_as_the_rows_are(self):
        random = np.random.default_rng(5)
        weights = [numpy_helper.from_array(random.standard_normal(dims).astype(np.float32) / 4, name)
                   for name, dims in (("w", (24, 24)), ("scale", (24,)), ("bias", (24,)))]
        made = program.model(
            [node("MatMul", ["x", "w"], ["a"], name="product"), node("Sigmoid", ["a"], ["b"], name="gate"),
             node("Add", ["b", "x"], ["sum"], name="residual"),
             node("LayerNormalization", ["sum", "scale", "bias"], ["n"], name="rows"),
             node("MatMul", ["n", "w"], ["c"], name="next"), node("Sub", ["c", "sum"], ["y"], name="end")],
            [value("x", shape=(2, 5, 24))], [value("y", shape=(2, 5, 24)), value("sum", shape=(2, 5, 24))], weights, opset=17)
        path = self.save(made)
        x = random.standard_normal((2, 5, 24)).astype(np.float32)
        for precision in ("fp32", "fp16", "bf16"):
            with self.subTest(precision):
                rows = self.rows_of(path, precision)
                self.assertEqual([rows[name]["fused_into"] for name in ("gate", "residual")], ["rows", "rows"])
                texts = [reason["text"] for reason in rows["rows"]["reasons"]]
                self.assertEqual(f"makes {precision}" in texts, precision != "fp32", texts)
                self.check(path, {"x": x}, precision)

    def test_means_of_powers_stay_float32(self):
        weights = numpy_helper.from_array(np.full((4, 4), 0.001, np.float32), "w")
        two = numpy_helper.from_array(np.array(2, np.float32), "two")
        made = program.model(
            [node("MatMul", ["x", "w"], ["a"], name="product"), node("Pow", ["a", "two"], ["p"], name="power"),
             node("ReduceMean", ["p"], ["m"], name="mean", axes=[-1]), node("Add", ["m", "two"], ["s"], name="sum"),
             node("Relu", ["s"], ["y"], name="end")],
            [value("x", shape=(2, 4))], [value("y", shape=(2, 1))], [weights, two])
        path = self.save(made)
        rows = self.rows_of(path, "fp16")
        self.assertEqual([rows[name]["fused_into"] for name in ("power", "sum", "end")], ["mean"] * 3)
        self.assertFalse([reason for reason in rows["mean"]["reasons"] if reason["text"] == "makes fp16"])
        self.check(path, {"x": np.full((2, 4), 0.5, np.float32)}, "fp16")


class ControlFlow(Formats):
    def branch(self, name, op):
        nodes = [node("Conv", ["image", "w"], [f"{name}_a"], pads=[1, 1, 1, 1]), node(op, [f"{name}_a"], [f"{name}_y"])]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)])

    def test_bodies_read_what_is_stored_otherwise_outside(self):
        w = numpy_helper.from_array(np.random.default_rng(3).standard_normal((3, 3, 3, 3)).astype(np.float32) / 5, "w")
        body = helper.make_graph(
            [node("Conv", ["carried", "w"], ["c"], pads=[1, 1, 1, 1]), node("Tanh", ["c"], ["next"]),
             node("Identity", ["go"], ["on"]), node("GlobalAveragePool", ["next"], ["mean"])], "turn",
            [value("i", TensorProto.INT64, ()), value("go", TensorProto.BOOL, ()), value("carried", shape=(1, 3, 5, 4))],
            [value("on", TensorProto.BOOL, ()), value("next", shape=(1, 3, 5, 4)), value("mean", shape=(1, 3, 1, 1))])
        nodes = [node("Conv", ["x", "w"], ["image"], pads=[1, 1, 1, 1]),
                 node("If", ["which"], ["chosen"], then_branch=self.branch("then", "Relu"),
                      else_branch=self.branch("else", "Sigmoid")),
                 node("Loop", ["turns", "", "chosen"], ["last", "means"], body=body),
                 node("Add", ["last", "image"], ["y"])]
        made = program.model(nodes, [value("x", shape=(1, 3, 5, 4)), value("which", TensorProto.BOOL, ()),
                                     value("turns", TensorProto.INT64, ())],
                             [value("y", shape=(1, 3, 5, 4)), value("means", shape=("t", 1, 3, 1, 1))], [w])
        path = self.save(made)
        for which in (True, False):
            feeds = {"x": np.random.default_rng(4).standard_normal((1, 3, 5, 4)).astype(np.float32),
                     "which": np.array(which), "turns": np.array(3)}
            self.check(path, feeds, "fp16")


class Random(Formats):
    """Odd sizes, one to three spatial axes, values that several read and that are outputs, nothing at all."""

    def test_networks_are_what_they_are_on_the_processor(self):
        full = os.environ.get("BACKPLANE_TEST_FULL") is not None
        for seed in range(200 if full else 7):
            precision = ("fp16", "bf16", "tf32", "fp16")[seed % 4]
            network = RandomNetwork(seed, nodes=9, dynamic=seed % 3 == 1, axes=(2, 2, 1, 2, 3)[seed % 5])
            path = self.save(network.model())
            what = f"seed {seed}\n{network}"
            with self.subTest(seed=seed, precision=precision):
                self.edges(path, precision, *(["--dim", "n=2"] if seed % 3 == 1 else []))
                feed = network.feed(2 if seed % 3 == 1 else None)
                self.check(path, {"x": feed}, precision, what=what)
                if seed % 6 == 1:
                    self.check(path, {"x": network.feed(0)}, precision, what=f"no image, {what}")


if __name__ == "__main__":
    program.main()
