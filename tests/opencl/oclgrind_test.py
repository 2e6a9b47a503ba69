"""A selection of kernels under oclgrind: every access lies inside of its buffer, and no two items race.

Cases are ONNX's own, one or a few per kind of kernel, and products large enough for the tiles of local memory, which
processors do not use by themselves, rows that a group shares, and items that do several elements at once. Not looked for are values
that nobody wrote: oclgrind 21.10 takes what the host writes past the beginning of a buffer for such.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.loader import load_model_tests

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "onnx"))
import pointwise_cases  # noqa: E402
import row_cases  # noqa: E402
from node_cases_test import PROGRAM, write_case  # noqa: E402

CASES = """
argmax_default_axis_example averagepool_2d_pads averagepool_3d_dilations_small basic_conv_with_padding batchnorm_example
cast_FLOAT_to_FLOAT16 concat_2d_axis_0 constant_pad conv_with_strides_padding convtranspose convtranspose_1d
cumsum_2d_axis_0 gather_0 gather_elements_1 gathernd_example_float32 gemm_all_attributes gru_seq_length instancenorm_example
layer_normalization_2d_axis0 lrn lstm_with_peepholes matmul_2d matmul_4d maxpool_2d_ceil maxpool_2d_default pow qlinearconv
qlinearmatmul_2D_uint8_float32 reduce_log_sum_exp_negative_axes_keepdims_random reduce_sum_default_axes_keepdims_random
reflect_pad relu resize_downsample_scales_cubic resize_upsample_scales_linear scatter_elements_with_axis
scatternd_add simple_rnn_with_initial_bias slice_neg_steps softmax_default_axis split_equal_parts_2d tile top_k
transpose_default tril where_example
""".split()

SKIPPED = 77  # as CTest is told

# Kernels are compiled without optimisation: oclgrind does not know all that the optimiser makes.
GRIND = ["oclgrind", "--data-races", "--build-options", "-cl-opt-disable"]


def save_product(folder, name, node, inputs, expected, constants=None):
    infos = [helper.make_tensor_value_info(key, TensorProto.FLOAT, x.shape) for key, x in inputs.items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, expected.shape)
    weights = [numpy_helper.from_array(array, key) for key, array in (constants or {}).items()]
    model = helper.make_model(helper.make_graph([node], name, infos, [result], weights), ir_version=8,
                              opset_imports=[helper.make_opsetid("", 17)])
    data = folder / name / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / name / "model.onnx").write_bytes(model.SerializeToString())
    for k, x in enumerate(inputs.values()):
        (data / f"input_{k}.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    (data / "output_0.pb").write_bytes(numpy_helper.from_array(expected).SerializeToString())


def write_products(folder):
    random = np.random.default_rng(1)
    a, b = (random.integers(-3, 4, dims).astype(np.float32) for dims in ((2, 67, 19), (2, 19, 70)))
    save_product(folder, "matmul", helper.make_node("MatMul", ["a", "b"], ["y"]), {"a": a, "b": b}, a @ b)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    # The second is large enough for Winograd's transforms, which want weights that are constant.
    for name, image, filters in (("conv", (1, 3, 18, 17), 33), ("winograd", (1, 16, 26, 25), 17)):
        x, w = (random.integers(-3, 4, dims).astype(np.float32) for dims in (image, (filters, image[1], 3, 3)))
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
        expected = np.einsum("nchwij,mcij->nmhw", windows, w).astype(np.float32)
        constants = {"w": w} if name == "winograd" else {}
        inputs = {"x": x} if constants else {"x": x, "w": w}
        save_product(folder, name, node, inputs, expected, constants)


def run(folder, *options):
    """The number of cases that are not right, after what oclgrind found was printed."""
    command = [*GRIND, PROGRAM, "verify", folder, "--providers", "opencl", "--fallback", "forbid", "--set",
               "provider.opencl.cache_dir=off", "--json", "report.json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    results = json.loads((folder / "report.json").read_text())
    findings = [line for line in (done.stderr + done.stdout).splitlines()
                if line.startswith(("Invalid", "Read-write", "Write-write", "OCLGRIND", "Oclgrind", "Work-item"))]
    for line in findings[:10]:
        print(line)
    wrong = {case: result for case, result in results.items() if result["status"] != "pass"}
    for case, result in wrong.items():
        print(f"{case}: {result['status']}: {result['reason']}")
    return len(results), len(wrong) + bool(findings)


def main():
    if shutil.which("oclgrind") is None:
        print("oclgrind is not installed: tools/setup does it")
        sys.exit(SKIPPED)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="backplane_oclgrind_") as parent:
        cases, products, shared = (pathlib.Path(parent) / name for name in ("cases", "products", "shared"))
        cases.mkdir()
        for case in load_model_tests(kind="node"):
            if case.name.removeprefix("test_") in CASES:
                write_case(case, cases / case.name)
        write_products(products)
        count, failed = run(cases)
        if count != len(CASES):
            print(f"{len(CASES)} cases are listed and {count} were run")
            failed += 1
        for tiles in ("vector", "local"):
            # Winograd's transforms go through numbers a hundred times as large as these integers.
            more, wrong = run(products, "--set", f"provider.opencl.tiles={tiles}", "--atol", "2e-3")
            count, failed = count + more, failed + wrong
        row_cases.write_few(shared)
        pointwise_cases.write_few(shared)
        for case in cases.iterdir():
            if any(word in case.name for word in ("_gru_", "_lstm_", "_rnn_")):
                shutil.copytree(case, shared / case.name)
        more, wrong = run(shared, "--set", "provider.opencl.tiles=local")
        count, failed = count + more, failed + wrong
    print(f"{count - failed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
