#!/usr/bin/env python3
"""Writes smoothed_boxes/: a model with both libraries of custom_ops/, an input, and what NumPy makes of it.

    make_model.py [FOLDER]     default: smoothed_boxes beside this file

A tracker's tail: the deltas of a detector for a few frames become boxes (DecodeBoxes), boxes are smoothed over
the frames (WindowedMean), and standard nodes around them turn them into widths and heights. The expected
outputs come from the formulas, in double, and share no code with the libraries.
"""

import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

DOMAIN = "backplane.examples"
FRAMES, ANCHORS, WINDOW = 6, 20, 3
SEED = 1
CENTER_VARIANCE, SIZE_VARIANCE = 0.125, 0.25


def anchors():
    rng = np.random.default_rng(7)
    return np.concatenate([rng.uniform(0.1, 0.9, (ANCHORS, 2)), rng.uniform(0.05, 0.4, (ANCHORS, 2))],
                          axis=1).astype(np.float32)


def model():
    constants = [
        numpy_helper.from_array(anchors(), "anchors"),
        numpy_helper.from_array(np.array([2, 2], np.int64), "halves"),
        numpy_helper.from_array(np.array(1000, np.float32), "thousand"),
    ]
    nodes = [
        helper.make_node("DecodeBoxes", ["deltas", "anchors"], ["boxes"], "decode", domain=DOMAIN,
                         center_variance=CENTER_VARIANCE, size_variance=SIZE_VARIANCE, clip=1),
        helper.make_node("WindowedMean", ["boxes"], ["smoothed"], "smooth", domain=DOMAIN,
                         window=WINDOW, axis=0, border="shrink"),
        helper.make_node("Split", ["smoothed", "halves"], ["low", "high"], "corners", axis=-1),
        helper.make_node("Sub", ["high", "low"], ["sizes"], "sizes"),
        helper.make_node("Mul", ["sizes", "thousand"], ["scaled"], "scale"),
        helper.make_node("Cast", ["scaled"], ["pixels"], "to_pixels", to=TensorProto.INT32),
        helper.make_node("WindowedMean", ["pixels"], ["smoothed_pixels"], "smooth_pixels", domain=DOMAIN,
                         window=2, axis=0),
    ]
    graph = helper.make_graph(
        nodes, "smoothed_boxes",
        [helper.make_tensor_value_info("deltas", TensorProto.FLOAT, ["frames", ANCHORS, 4])],
        [helper.make_tensor_value_info("smoothed", TensorProto.FLOAT, ["frames", ANCHORS, 4]),
         helper.make_tensor_value_info("smoothed_pixels", TensorProto.INT32, ["means", ANCHORS, 2])],
        initializer=constants)
    return helper.make_model(graph, ir_version=10, producer_name="make_model.py",
                             opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)])


def decoded(deltas):
    anchor = anchors().astype(np.float64)
    centre = anchor[:, :2] + deltas[..., :2] * CENTER_VARIANCE * anchor[:, 2:]
    half = anchor[:, 2:] * np.exp(deltas[..., 2:] * SIZE_VARIANCE) / 2
    return np.clip(np.concatenate([centre - half, centre + half], axis=-1), 0, 1)


def smoothed(boxes):
    """Means over [i - window // 2, i - window // 2 + window), cut at the ends."""
    means = []
    for frame in range(len(boxes)):
        first = max(0, frame - WINDOW // 2)
        means.append(boxes[first : frame - WINDOW // 2 + WINDOW].mean(axis=0))
    return np.stack(means)


def expected(deltas):
    boxes = smoothed(decoded(deltas.astype(np.float64)))
    scaled = (boxes[..., 2:] - boxes[..., :2]) * 1000
    # float and double must agree on every truncation, or the case would test luck.
    # Corners that were clipped in all frames are exact in both.
    doubtful = scaled[(scaled != 0) & (scaled != 1000)]
    assert np.abs(doubtful - np.round(doubtful)).min() > 1e-3, "choose another seed"
    pixels = scaled.astype(np.int32)
    pairs = pixels[:-1].astype(np.int64) + pixels[1:]
    return boxes.astype(np.float32), (np.sign(pairs) * (np.abs(pairs) // 2)).astype(np.int32)


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "smoothed_boxes")
    data = folder / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    deltas = np.random.default_rng(SEED).normal(0, 0.7, (FRAMES, ANCHORS, 4)).astype(np.float32)
    boxes, pixels = expected(deltas)
    onnx.save(model(), folder / "model.onnx")
    for name, value_name, value in [("input_0", "deltas", deltas), ("output_0", "smoothed", boxes),
                                    ("output_1", "smoothed_pixels", pixels)]:
        (data / f"{name}.pb").write_bytes(numpy_helper.from_array(value, value_name).SerializeToString())
    (folder / "data.json").write_text('{"rtol": 1e-5, "atol": 1e-6}\n')


if __name__ == "__main__":
    main()
