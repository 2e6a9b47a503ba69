#!/usr/bin/env python3
"""Values between Python and a session: every element type, strings, containers, shapes and strides, and what is refused."""

import unittest

import suite
from suite import TensorProto, helper, identity, model, np, one_node, tensor, value

import backplane
import ml_dtypes
from backplane import InferenceSession, InvalidArgument, Value, _types

PLAIN = [np.float32, np.uint8, np.int8, np.uint16, np.int16, np.int32, np.int64, np.bool_, np.float16, np.float64, np.uint32,
         np.uint64, np.complex64, np.complex128]
SMALL = {"bfloat16": ml_dtypes.bfloat16, "float8e4m3fn": ml_dtypes.float8_e4m3fn, "float8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
         "float8e5m2": ml_dtypes.float8_e5m2, "float8e5m2fnuz": ml_dtypes.float8_e5m2fnuz, "uint4": ml_dtypes.uint4,
         "int4": ml_dtypes.int4, "float4e2m1": ml_dtypes.float4_e2m1fn, "float8e8m0": ml_dtypes.float8_e8m0fnu,
         "uint2": ml_dtypes.uint2, "int2": ml_dtypes.int2}


def numbers(dtype, count):
    random = np.random.default_rng(3)
    if dtype == np.bool_:
        return random.integers(0, 2, count).astype(bool)
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return random.integers(info.min, info.max, count, dtype, endpoint=True)
    if np.dtype(dtype).kind == "c":
        return (random.standard_normal(count) + 1j * random.standard_normal(count)).astype(dtype)
    return random.standard_normal(count).astype(dtype)


def run_identity(x, number, shape=None):
    session = InferenceSession(identity(number, list(x.shape) if shape is None else shape, 26))
    return session.run(None, {"x": x})[0]


class ElementTypes(unittest.TestCase):
    def test_numpys_own_types_go_in_and_out(self):
        for dtype in PLAIN:
            number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            for shape in [(), (1,), (3, 5), (2, 0, 4), (2, 1, 3, 2)]:
                with self.subTest(dtype=np.dtype(dtype).name, shape=shape):
                    x = numbers(dtype, int(np.prod(shape))).reshape(shape)
                    y = run_identity(x, number)
                    self.assertEqual((y.dtype, y.shape), (x.dtype, x.shape))
                    np.testing.assert_array_equal(y, x)

    def test_types_of_ml_dtypes_go_in_and_out(self):
        for name, dtype in SMALL.items():
            number = _types.BY_NAME[name].number
            for shape in [(), (5,), (3, 5)]:
                with self.subTest(name=name, shape=shape):
                    count = int(np.prod(shape))
                    bits = _types.BY_NAME[name].bits
                    raw = (np.arange(count) * 7 % 2 ** min(bits, 7)).astype(np.uint8)
                    if "int" in name:  # numbers, not bits, are what such arrays hold
                        x = _types.BY_NAME[name].unpacked(_types.BY_NAME[name].packed(raw), count).reshape(shape)
                    elif bits == 16:
                        x = (raw.astype(np.float32) / 3).astype(dtype).reshape(shape)
                    else:
                        x = raw.view(dtype).reshape(shape)
                    y = run_identity(x, number)
                    self.assertEqual((y.dtype, y.shape), (np.dtype(dtype), shape))
                    wide = np.float32
                    np.testing.assert_array_equal(y.astype(wide), x.astype(wide))

    def test_numbers_of_four_bits_are_those_that_onnx_packs(self):
        for name in ("int4", "uint4", "int2", "uint2"):
            with self.subTest(name=name):
                element = _types.BY_NAME[name]
                low = -(2 ** (element.bits - 1)) if element.signed else 0
                x = (np.arange(9) % 2**element.bits + low).astype(element.dtype)
                proto = suite.numpy_helper.from_array(x, "t")
                self.assertEqual(element.packed(x).tobytes(), proto.raw_data)
                np.testing.assert_array_equal(Value.from_numpy(x).numpy().astype(int), x.astype(int))

    def test_casts_see_the_right_numbers(self):
        for name, dtype in SMALL.items():
            if "8e8m0" in name:
                continue
            with self.subTest(name=name):
                session = InferenceSession(one_node(
                    "Cast", [tensor("x", _types.BY_NAME[name].number, [3])], [tensor("y", TensorProto.FLOAT, [3])], 25, to=1))
                x = np.array([0, 1, 1], np.float32).astype(dtype)
                np.testing.assert_array_equal(session.run(None, {"x": x})[0], [0, 1, 1])

    def test_bits_are_taken_when_the_element_type_is_named(self):
        session = InferenceSession(identity(TensorProto.BFLOAT16, [2]))
        bits = np.array([0x3F80, 0xC000], np.uint16)
        y = session.run(None, {"x": Value.from_numpy(bits, "bfloat16")})[0]
        np.testing.assert_array_equal(y.astype(np.float32), [1, -2])
        with self.assertRaisesRegex(InvalidArgument, r"'x' is a tensor\(bfloat16\).*uint16"):
            session.run(None, {"x": bits})

    def test_without_ml_dtypes_arrays_have_the_bits(self):
        code = ("import sys; sys.modules['ml_dtypes'] = None; import numpy as np, backplane\n"
                f"s = backplane.InferenceSession({identity(TensorProto.BFLOAT16, [2])!r})\n"
                "y = s.run(None, {'x': np.array([0x3F80, 0xC000], np.uint16)})[0]\n"
                "assert y.dtype == np.uint16 and y.dtype.metadata['element_type'] == 'bfloat16', y.dtype\n"
                "assert y.tolist() == [0x3F80, 0xC000]\n"
                f"s = backplane.InferenceSession({identity(TensorProto.INT4, [3])!r})\n"
                "y = s.run(None, {'x': np.array([-8, 7, -1], np.int8)})[0]\n"
                "assert y.tolist() == [-8, 7, -1] and y.dtype == np.int8, y\n"
                "v = s.run_with_values(None, {'x': np.array([-8, 7, -1], np.int8)})[0]\n"
                "assert v.type() == 'tensor(int4)' and v.element_type() == 22, v\n")
        suite.run_python(code)

    def test_big_endian_arrays_are_read_as_numbers(self):
        x = np.array([1, 2, 300], ">i4")
        np.testing.assert_array_equal(run_identity(x, TensorProto.INT32), [1, 2, 300])


class Strings(unittest.TestCase):
    def test_strings_of_every_kind(self):
        texts = ["", "plain", "ä € 𝄞", "with\0zero", "x" * 1000]
        plain = np.array(["", "a", "bc\0", "", "d" * 100, ""], object)  # of which a character is a byte
        for x in (np.array(texts, object), np.array([text.encode() for text in texts], object), np.array(texts[1:3]), plain):
            y = run_identity(x, TensorProto.STRING, ["N"])
            self.assertEqual(y.tolist(), [text.decode() if isinstance(text, bytes) else text for text in x.tolist()])
        self.assertEqual(run_identity(np.array([[b"a", b"b"]]), TensorProto.STRING).tolist(), [["a", "b"]])
        self.assertEqual(run_identity(np.array("one"), TensorProto.STRING).shape, ())
        self.assertEqual(run_identity(np.empty((0, 2), object), TensorProto.STRING).shape, (0, 2))

    def test_bytes_that_are_no_utf8_come_back_as_they_were(self):
        y = run_identity(np.array([b"\xff\xfe"], object), TensorProto.STRING)
        self.assertEqual(y[0].encode("utf-8", "surrogateescape"), b"\xff\xfe")

    def test_what_is_no_text_is_refused(self):
        session = InferenceSession(identity(TensorProto.STRING, [2]))
        self.assertEqual(session.run(None, {"x": ["a", "b"]})[0].tolist(), ["a", "b"])
        with self.assertRaisesRegex(InvalidArgument, "element 1 of the input 'x' is int"):
            session.run(None, {"x": np.array(["a", 3], object)})
        with self.assertRaisesRegex(InvalidArgument, r"'x' is a tensor\(string\)"):
            session.run(None, {"x": np.zeros(2)})


class Containers(unittest.TestCase):
    def setUp(self):
        self.sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))

    def test_sequences_are_lists(self):
        session = InferenceSession(one_node("Identity", [value("x", self.sequence)], [value("y", self.sequence)]))
        self.assertEqual(session.get_inputs()[0].type, "seq(tensor(float))")
        given = [np.ones((2, 3), np.float32), np.zeros(0, np.float32), [1.5, 2]]
        made = session.run(None, {"x": given})[0]
        self.assertIsInstance(made, list)
        self.assertEqual([one.tolist() for one in made], [[[1, 1, 1]] * 2, [], [1.5, 2]])
        self.assertEqual(session.run(None, {"x": []})[0], [])
        with self.assertRaisesRegex(InvalidArgument, r"element 1 of the input 'x' is a tensor\(float\).*float64"):
            session.run(None, {"x": [given[0], np.zeros(3)]})
        with self.assertRaisesRegex(InvalidArgument, "give a list"):
            session.run(None, {"x": 3})

    def test_elements_outlive_the_sequence(self):
        node = [helper.make_node("SplitToSequence", ["x"], ["s"], axis=0, keepdims=0)]
        session = InferenceSession(model(node, [tensor("x", 1, ["N", 70000])], [value("s", self.sequence)]))
        x = np.random.default_rng(0).standard_normal((3, 70000)).astype(np.float32)
        last = session.run(None, {"x": x})[0][2]
        del session
        for _ in range(3):
            np.full((3, 70000), 9, np.float32)
        np.testing.assert_array_equal(last, x[2])

    def test_results_share_no_elements(self):
        """Neither with values that were fed, nor with each other."""
        body = helper.make_graph(
            [helper.make_node("SequenceInsert", ["before", "x"], ["after"]), helper.make_node("Identity", ["c"], ["c_after"])], "body",
            [tensor("i", 7, []), tensor("c", 9, []), value("before", self.sequence)],
            [tensor("c_after", 9, []), value("after", self.sequence)])
        nodes = [helper.make_node("Identity", ["q"], ["same"]), helper.make_node("Identity", ["q"], ["again"]),
                 helper.make_node("SequenceInsert", ["q", "x"], ["longer"]), helper.make_node("SequenceConstruct", ["x", "x"], ["pair"]),
                 helper.make_node("Loop", ["n", "", "q"], ["looped"], body=body)]
        names = ["same", "again", "longer", "pair", "looped"]
        session = InferenceSession(model(nodes, [value("q", self.sequence), tensor("x", 1, ["N"]), tensor("n", 7, [])],
                                         [value(name, self.sequence) for name in names]))
        for count in (3, 50000):
            x = np.full(count, 5, np.float32)
            fed = Value.of([x + 1, x + 2], "seq(tensor(float))")
            results = dict(zip(names, session.run(None, {"q": fed, "x": x, "n": 2})))
            self.assertEqual({name: [one[0] for one in made] for name, made in results.items()},
                             {"same": [6, 7], "again": [6, 7], "longer": [6, 7, 5], "pair": [5, 5], "looped": [6, 7, 5, 5]})
            arrays = [x, *fed.numpy(), *(one for made in results.values() for one in made)]
            for place, one in enumerate(arrays):
                self.assertTrue(one.flags.writeable)
                for other in arrays[:place]:
                    self.assertFalse(np.shares_memory(one, other))
        binding = session.io_binding()
        for name, data in (("q", fed), ("x", x), ("n", np.array(1))):
            binding.bind_cpu_input(name, data)
        binding.bind_output("same")
        binding.run()
        output = binding.get_outputs()[0]
        arrays = [fed.numpy()[0], output.numpy()[0], output.numpy()[0], binding.copy_outputs_to_cpu()[0][0]]
        for place, one in enumerate(arrays):
            self.assertEqual(one[0], 6)
            self.assertFalse(any(np.shares_memory(one, other) for other in arrays[:place]))

    def test_large_elements_that_nobody_else_has_are_not_copied(self):
        session = InferenceSession(model([helper.make_node("SplitToSequence", ["x"], ["s"], axis=0, keepdims=0)],
                                         [tensor("x", 1, ["N", 70000])], [value("s", self.sequence)]))
        for one in session.run(None, {"x": np.zeros((3, 70000), np.float32)})[0]:
            self.assertIsNotNone(one.base)

    def test_optionals_are_none_or_their_element(self):
        optional = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
        session = InferenceSession(one_node("Identity", [value("x", optional)], [value("y", optional)]))
        self.assertIsNone(session.run(None, {"x": None})[0])
        self.assertEqual(session.run(None, {"x": np.array([1, 2], np.float32)})[0].tolist(), [1, 2])
        self.assertFalse(Value.of(None, "optional(tensor(float))").has_value())

    def test_maps_are_dicts(self):
        type_proto = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
        session = InferenceSession(model(
            [helper.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", string_vocabulary=["a", "b", "c"])],
            [value("x", type_proto)], [tensor("y", TensorProto.FLOAT, [1, 3])], domains=[("ai.onnx.ml", 1)]))
        self.assertEqual(session.run(None, {"x": {"c": 3.5, "a": np.float32(1)}})[0].ravel().tolist(), [1, 0, 3.5])
        with self.assertRaisesRegex(InvalidArgument, "give a dict"):
            session.run(None, {"x": [1]})
        with self.assertRaisesRegex(InvalidArgument, "value of 'a' in the input 'x'.*float64"):
            session.run(None, {"x": {"a": np.float64(1)}})

    def test_zip_maps_are_lists_of_dicts(self):
        made = helper.make_sequence_type_proto(
            helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, [])))
        session = InferenceSession(model(
            [helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[10, 20])],
            [tensor("x", TensorProto.FLOAT, ["N", 2])], [value("y", made)], domains=[("ai.onnx.ml", 1)]))
        x = np.array([[0.25, 0.75], [1, 0]], np.float32)
        self.assertEqual(session.run(None, {"x": x})[0], [{10: 0.25, 20: 0.75}, {10: 1.0, 20: 0.0}])

    def test_values_of_every_kind_are_made_of_python(self):
        self.assertEqual(Value.of({1: 2, 3: 4}, "map(int64,tensor(int64))").numpy(), {1: 2, 3: 4})
        self.assertEqual(Value.of([{"a": 1.0}], "seq(map(string,tensor(float)))").numpy(), [{"a": 1.0}])
        self.assertEqual(Value.of([["a"], []], "seq(tensor(string))").numpy()[0].tolist(), ["a"])


class Feeds(unittest.TestCase):
    def setUp(self):
        self.session = InferenceSession(identity(TensorProto.FLOAT, ["N", "M"]))
        self.wide = np.arange(24, dtype=np.float32).reshape(4, 6)

    def test_strides_of_every_kind(self):
        read_only = self.wide.copy()
        read_only.flags.writeable = False
        for x in (self.wide.T, self.wide[::2, 1::2], self.wide[::-1], np.asfortranarray(self.wide), read_only,
                  np.broadcast_to(np.float32(3), (2, 2)), self.wide[1:, :], np.lib.stride_tricks.as_strided(self.wide, (3, 2), (4, 4))):
            for _ in range(4):  # by name, and then by a binding
                np.testing.assert_array_equal(self.session.run(None, {"x": x})[0], x)

    def test_memory_that_is_not_aligned(self):
        for dtype in (np.float32, np.float16, np.int64, np.complex64, np.complex128, ml_dtypes.bfloat16):
            element = _types.element_of(dtype)
            session = InferenceSession(identity(element.number, ["N"]))
            size = np.dtype(dtype).itemsize
            for count in (1, 10, 9000, 300000):
                record = np.zeros(2, np.dtype([("tag", "u1"), ("x", dtype, (count,))]))["x"][1]
                memory = bytearray(count * size + 16)
                for offset in (1, size // 2, 4):  # where it is off by four, NumPy calls an array of complex64 aligned
                    x = np.frombuffer(memory, dtype, count, offset)
                    for run in range(4):  # by name, and then by a binding
                        x[:] = (np.arange(count) + run) % 100
                        y = session.run(None, {"x": x})[0]
                        self.assertEqual((y.dtype, y.tobytes()), (x.dtype, x.tobytes()))
                    frozen = np.frombuffer(bytes(memory), dtype, count, offset)
                    self.assertEqual(session.run(None, {"x": frozen})[0].tobytes(), x.tobytes())
                    self.assertEqual(Value.from_numpy(x).numpy().tobytes(), x.tobytes())
                record[:] = 7
                self.assertEqual(session.run(None, {"x": record})[0].tobytes(), record.tobytes())

    def test_memory_that_is_aligned_is_not_copied(self):
        memory = np.zeros(200, np.uint8)
        begin = -memory.ctypes.data % 8
        for dtype in (np.float32, np.float16, np.int64, np.complex64, np.complex128, np.bool_):
            x = memory[begin + 8 : begin + 8 + 4 * np.dtype(dtype).itemsize].view(dtype)
            self.assertEqual(Value.from_numpy(x).data_ptr(), x.ctypes.data)

    def test_lists_and_numbers_take_the_type_of_the_input(self):
        np.testing.assert_array_equal(self.session.run(None, {"x": [[1, 2.5]]})[0], [[1, 2.5]])
        scalar = InferenceSession(identity(TensorProto.INT64, []))
        self.assertEqual(scalar.run(None, {"x": 5})[0], 5)
        self.assertEqual(scalar.run(None, {"x": np.int64(-1)})[0], -1)
        for wrong in (1.5, True, np.int32(1), "a", 2**70):
            with self.subTest(wrong=wrong), self.assertRaises((InvalidArgument, OverflowError)):
                scalar.run(None, {"x": wrong})
        with self.assertRaisesRegex(InvalidArgument, "out of its range"):
            InferenceSession(identity(TensorProto.UINT8, [])).run(None, {"x": 300})
        for number, least, most in ((TensorProto.INT64, -(2**63), 2**63 - 1), (TensorProto.UINT64, 0, 2**64 - 1)):
            whole = InferenceSession(identity(number, ["N"]))
            self.assertEqual(whole.run(None, {"x": [most]})[0].tolist(), [most])
            self.assertEqual(whole.run(None, {"x": [least]})[0].tolist(), [least])
            for wrong in (least - 1, most + 1, -(2**63) if least == 0 else 2**64 - 1):
                with self.subTest(number=number, wrong=wrong), self.assertRaisesRegex(InvalidArgument, r"'x' is a tensor\(u?int64\)"):
                    whole.run(None, {"x": [wrong]})
        for number in (TensorProto.INT4, TensorProto.UINT4):
            small = InferenceSession(identity(number, [2]))
            self.assertEqual(small.run(None, {"x": [0, 7]})[0].astype(int).tolist(), [0, 7])
            with self.assertRaisesRegex(InvalidArgument, "out of its range"):
                small.run(None, {"x": [0, -9]})
        with self.assertRaises(InvalidArgument):
            self.session.run(None, {"x": [[1, 2], [3]]})

    def test_a_wrong_dtype_names_the_input_and_both_types(self):
        for _ in range(4):  # until quick runs are ready
            self.session.run(None, {"x": np.zeros((2, 2), np.float32)})
        for wrong in (np.zeros((2, 2)), np.zeros((2, 2), np.int32), np.zeros((2, 2), np.float16), np.zeros((2, 2), bool)):
            with self.assertRaises(InvalidArgument) as caught:
                self.session.run(None, {"x": wrong})
            for word in ("'x'", "tensor(float)", str(wrong.dtype), "astype('float32')"):
                self.assertIn(word, str(caught.exception))
        with self.assertRaises(ValueError):  # as programs for other runtimes catch it
            self.session.run(None, {"x": np.zeros((2, 2))})

    def test_other_libraries_arrays_are_taken(self):
        class Other:  # as torch's and jax's tensors offer themselves
            def __array__(self, dtype=None, copy=None):
                return np.ones((1, 2), np.float32)

        np.testing.assert_array_equal(self.session.run(None, {"x": Other()})[0], [[1, 1]])

    def test_outputs_can_be_written(self):
        weights = suite.numpy_helper.from_array(np.ones(100000, np.float32), "w")
        session = InferenceSession(model([helper.make_node("Identity", ["w"], ["y"])], [], [tensor("y", 1, [100000])], [weights]))
        first = session.run(None, {})[0]
        first[:] = 5  # the weights stay as they are
        np.testing.assert_array_equal(session.run(None, {})[0], np.ones(100000))


class Values(unittest.TestCase):
    def test_a_value_shares_the_arrays_memory(self):
        array = np.zeros((2, 3), np.float32)
        made = Value.from_numpy(array)
        array[1, 2] = 7
        self.assertEqual(made.numpy()[1, 2], 7)
        made.numpy()[0, 0] = 3
        self.assertEqual(array[0, 0], 3)
        self.assertEqual((made.shape(), made.type(), made.element_type(), made.device_name()), ([2, 3], "tensor(float)", 1, "cpu"))
        self.assertEqual((made.data_ptr(), made.tensor_size_in_bytes()), (array.ctypes.data, 24))
        self.assertTrue(made.is_tensor() and made.has_value() and not made.is_tensor_sequence())

    def test_what_cannot_be_written_stays_so(self):
        array = np.zeros(3, np.float32)
        array.flags.writeable = False
        made = Value.from_numpy(array)
        self.assertFalse(made.numpy().flags.writeable)
        with self.assertRaisesRegex(InvalidArgument, "cannot be written"):
            made.update_inplace(np.ones(3, np.float32))

    def test_update_in_place(self):
        for dtype in (np.float32, ml_dtypes.int4, ml_dtypes.bfloat16):
            made = Value.zeros([3], dtype)
            made.update_inplace(np.array([1, 2, 3]).astype(dtype))
            self.assertEqual(made.numpy().astype(int).tolist(), [1, 2, 3])
            with self.assertRaisesRegex(InvalidArgument, "cannot take an array"):
                made.update_inplace(np.zeros(4, dtype))

    def test_dlpack_goes_both_ways(self):
        array = np.arange(6, dtype=np.float32).reshape(2, 3)
        made = Value.from_dlpack(array)
        self.assertEqual(made.data_ptr(), array.ctypes.data)
        other = np.from_dlpack(made)
        del made
        np.testing.assert_array_equal(other, array)

    def test_onnx_runtimes_names(self):
        made = backplane.OrtValue.ortvalue_from_numpy(np.ones(2, np.int64))
        self.assertEqual(made.data_type(), "tensor(int64)")
        self.assertEqual(backplane.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32).shape(), [2, 3])
        with self.assertRaisesRegex(InvalidArgument, "host's memory, not on 'cuda'"):
            backplane.OrtValue.ortvalue_from_numpy(np.ones(2), "cuda", 0)


if __name__ == "__main__":
    suite.main()
