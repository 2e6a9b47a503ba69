#!/usr/bin/env python3
"""ONNX's node cases through the Python package: every case of tests/onnx/node_cases.txt, whose inputs and expected outputs are what
ONNX's own evaluation has. Each is run three times, by name and by a quick run where there is one."""

import sys
import warnings

import suite
from suite import SOURCE, np, numpy_helper, onnx

from onnx.backend.test.loader import load_model_tests

import backplane


# Results that chance decides: their types and shapes are compared.
RANDOM = ("test_bernoulli", "test_training_dropout_default", "test_training_dropout_mask")


def of_python(value):
    """A tensor that the case gives as a proto."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def compare(made, expected, case, where):
    """Raises where a result is of another kind, type or shape, or differs by more than the case allows."""
    expected = of_python(expected)
    if expected is None or isinstance(made, dict):
        assert made == expected, f"{where}: {made} instead of {expected}"
    elif isinstance(expected, list):
        assert isinstance(made, list) and len(made) == len(expected), f"{where}: {made} instead of {expected}"
        for place, (one, other) in enumerate(zip(made, expected)):
            compare(one, other, case, f"{where}[{place}]")
    else:
        expected = np.asarray(expected)
        assert made.shape == expected.shape, f"{where}: shape {made.shape} instead of {expected.shape}"
        if expected.dtype.kind in "OUST":
            assert made.dtype == object and [str(one) for one in made.ravel()] == [
                one.decode() if isinstance(one, bytes) else str(one) for one in expected.ravel()], f"{where}: {made}"
            return
        assert made.dtype == expected.dtype, f"{where}: {made.dtype} instead of {expected.dtype}"
        if case.name.startswith(RANDOM) or case.name == "test_training_dropout":
            return
        if made.dtype.kind == "V" or made.dtype.isbuiltin != 1:  # ml_dtypes'
            made, expected = made.astype(np.float32), expected.astype(np.float32)
        np.testing.assert_allclose(made, expected, rtol=case.rtol, atol=case.atol, err_msg=where)


def check(case):
    session = backplane.InferenceSession(case.model, providers=["cpu"])
    names = [one.name for one in case.model.graph.input]
    for inputs, outputs in case.data_sets:
        feed = {name: of_python(value) for name, value in zip(names, inputs)}
        for _ in range(3):
            results = session.run(None, feed)
            assert len(results) == len(outputs), f"{len(results)} outputs instead of {len(outputs)}"
            for place, (made, expected) in enumerate(zip(results, outputs)):
                compare(made, expected, case, f"output {place}")


def main():
    warnings.simplefilter("ignore")
    listed = set((SOURCE / "tests/onnx/node_cases.txt").read_text(encoding="utf-8").split())
    passed, failed = 0, []
    for case in load_model_tests(kind="node"):
        if case.name not in listed:
            continue
        try:
            check(case)
            passed += 1
        except (AssertionError, backplane.Error, TypeError, ValueError, KeyError) as error:
            failed.append(case.name)
            print(f"{case.name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    print(f"{passed} passed, {len(failed)} failed, 0 skipped")
    sys.exit(1 if failed or passed < 1800 else 0)


if __name__ == "__main__":
    assert suite.BUILD.exists()
    main()
