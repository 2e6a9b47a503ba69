"""ONNX's node cases: those listed in node_cases.txt pass, and no case is wrong.

  node_cases_test.py            checks the list
  node_cases_test.py --update   writes it anew: it may only grow

Cases come out of the installed `onnx` package. A case that is refused with a reason is no failure unless it is listed;
a wrong result is one unless TOLERATED says why.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests

PROGRAM = pathlib.Path(os.environ["BACKPLANE_BUILD_DIR"]) / "bin/backplane"
LIST = pathlib.Path(__file__).resolve().with_name("node_cases.txt")

# Wrong by the cases' tolerance, and nearer to the exact result than what the cases expect.
# Attention: the expected outputs come from NumPy in 16 bits, rounded after the subtraction, after exp, at the sum
# (bfloat16: at each addition) and at the division; rounding so gives them bit for bit. Softmax here computes in float and
# rounds once, so that some elements differ by one unit of the last place: more than the tolerance of 1e-3. So do the
# function bodies that ONNX gives the operators, which round after every node.
ROUNDED = [
    "test_attention_3d_causal_bf16", "test_attention_4d_attn_mask_causal_bf16", "test_attention_4d_causal_bf16",
    "test_attention_4d_causal_padded_kv_bf16", "test_attention_4d_padded_kv_bf16",
]
# Transforms: expected are numbers up to 99 transformed in float; where the exact result is 0 they have rounding errors of
# 2e-7, beyond the absolute tolerance of 1e-7. The kernel computes in double and gives 0.
TOLERATED = {name + form for name in ROUNDED for form in ("", "_expanded")}
TOLERATED |= {"test_dft_inverse", "test_dft_inverse_opset19"}


def serialized(value, info):
    kind = info.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.from_list(value, info.name).SerializeToString()
    if kind == "optional_type":
        return numpy_helper.from_optional(value, info.name).SerializeToString()
    if kind == "map_type":
        return numpy_helper.from_dict(value, info.name).SerializeToString()
    tensor = value if isinstance(value, TensorProto) else numpy_helper.from_array(value, info.name)
    return tensor.SerializeToString()


def write_case(case, folder):
    folder.mkdir()
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    (folder / "data.json").write_text(json.dumps({"rtol": case.rtol, "atol": case.atol}))
    for number, (inputs, outputs) in enumerate(case.data_sets):
        data = folder / f"test_data_set_{number}"
        data.mkdir()
        for word, values, infos in (("input", inputs, case.model.graph.input), ("output", outputs, case.model.graph.output)):
            for k, (value, info) in enumerate(zip(values, infos)):
                (data / f"{word}_{k}.pb").write_bytes(serialized(value, info))


def write_cases(out):
    warnings.simplefilter("ignore")
    for case in load_model_tests(kind="node"):
        write_case(case, out / case.name)


def verify(folder):
    done = subprocess.run([PROGRAM, "verify", folder, "--jobs", "2", "--json", "-"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"verify ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def main():
    with tempfile.TemporaryDirectory(prefix="backplane_node_cases_") as folder:
        write_cases(pathlib.Path(folder))
        results = verify(folder)
    passing = sorted(case for case, result in results.items() if result["status"] == "pass")
    listed = set(LIST.read_text().split()) if LIST.exists() else set()
    if "--update" in sys.argv:
        LIST.write_text("\n".join(sorted(listed | set(passing))) + "\n")
    failed = 0
    for case, result in sorted(results.items()):
        bad = result["status"] != "pass" and case in listed
        bad = bad or (result["status"] not in ("pass", "refused") and case not in TOLERATED)
        if bad:
            failed += 1
            print(f"{case}: {result['status']}: {result['reason']}")
    missing = sorted(listed - set(results))
    failed += len(missing)
    for case in missing:
        print(f"{case}: listed, but there is no such case")
    print(f"{len(set(passing) - listed)} cases pass that are not listed (--update adds them)")
    print(f"{len(passing)} passed, {failed} failed, {len(results) - len(passing) - failed} skipped")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
