#!/usr/bin/env python3
"""Row D1 of core/SESSION.md: tools/detect, a picture in, a list and the picture with boxes out.

Networks that are made here give known boxes; the trained ones of $BACKPLANE_SHARED_DATA, where they are, are compared
with ONNX Runtime and this file's own resizing, decoding and suppression.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

BUILD = pathlib.Path(os.environ["BACKPLANE_BUILD_DIR"])
PROGRAM = BUILD / "bin/backplane_detect"
OVERLAP = 0.45


def detect(*arguments):
    made = subprocess.run([str(PROGRAM), *map(str, arguments), "--json", "--providers", "cpu"], capture_output=True,
                          text=True, check=False)
    return made


def found(*arguments):
    made = detect(*arguments)
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout)


def write_ppm(file, pixels):
    height, width, _ = pixels.shape
    file.write_bytes(b"P6\n# made for a test\n%d %d\n255\n" % (width, height) + pixels.astype(np.uint8).tobytes())


def read_ppm(file):
    magic, size, most, data = file.read_bytes().split(b"\n", 3)
    assert (magic, most) == (b"P6", b"255")
    width, height = map(int, size.split())
    return np.frombuffer(data, np.uint8).reshape(height, width, 3)


def save(file, nodes, outputs, constants, size):
    graph = helper.make_graph(nodes, "made", [helper.make_tensor_value_info("picture", TensorProto.FLOAT, [1, 3, *size])],
                              [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs],
                              initializer=[numpy_helper.from_array(np.asarray(array, np.float32), name)
                                           for name, array in constants.items()])
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)]), file)


def made_faces(folder):
    """Three boxes; the second shares most of the first one's place, and the third one's score is the picture's mean."""
    model = folder / "faces.onnx"
    corners = [[[0.1, 0.2, 0.5, 0.6], [0.12, 0.2, 0.5, 0.6], [0.6, 0.1, 0.9, 0.5], [0, 0, 1, 1]]]
    scores = [[[0.1, 0.9], [0.2, 0.8], [0, 0], [0.7, 0.3]]]
    pick = [[[0, 0], [0, 0], [0, 1], [0, 0]]]
    save(model, [helper.make_node("ReduceMean", ["picture"], ["mean"], axes=[0, 1, 2, 3], keepdims=0),
                 helper.make_node("Mul", ["pick", "mean"], ["third"]), helper.make_node("Add", ["fixed", "third"], ["scores"]),
                 helper.make_node("Identity", ["corners"], ["boxes"])],
         [("scores", [1, 4, 2]), ("boxes", [1, 4, 4])], {"pick": pick, "fixed": scores, "corners": corners}, (8, 12))
    return model


def d1_faces_are_decoded_suppressed_listed_and_drawn(folder):
    picture = folder / "grey.ppm"
    write_ppm(picture, np.full((100, 200, 3), 207))
    rows = found(made_faces(folder), picture, "--output", folder / "out.ppm")
    assert [row["box"] for row in rows] == [[20, 20, 100, 60], [120, 10, 180, 50]], rows
    assert abs(rows[0]["score"] - 0.9) < 1e-6 and abs(rows[1]["score"] - (207 - 127) / 128) < 1e-6, rows
    assert {row["what"] for row in rows} == {"face"}
    drawn = read_ppm(folder / "out.ppm")
    changed = (drawn != 207).any(axis=2)
    assert changed[20, 20] and changed[60, 100] and changed[10:51, 120].all() and changed[50, 120:181].all()
    assert not changed[40, 60] and not changed[0].any() and changed.sum() == 2 * (81 + 41) - 4 + 2 * (61 + 41) - 4


def d1_a_lower_threshold_finds_more(folder):
    picture = folder / "grey.ppm"
    write_ppm(picture, np.full((100, 200, 3), 127))  # the third box is then none
    assert len(found(made_faces(folder), picture)) == 1
    assert len(found(made_faces(folder), picture, "--threshold", "0.25")) == 2


def d1_things_have_classes_and_are_suppressed_within_one(folder):
    model = folder / "things.onnx"
    rows = np.zeros((1, 4, 85), np.float32)
    rows[0, :, :5] = [[32, 16, 32, 16, 0.9], [33, 16, 32, 16, 0.8], [32, 16, 32, 16, 0.7], [60, 30, 4, 4, 0.1]]
    for row, kind in enumerate([2, 2, 0, 5]):
        rows[0, row, 5 + kind] = 1
    save(model, [helper.make_node("ReduceMax", ["picture"], ["most"], axes=[0, 1, 2, 3], keepdims=0),
                 helper.make_node("Mul", ["rows", "most"], ["output"])], [("output", [1, 4, 85])], {"rows": rows}, (32, 64))
    picture = folder / "white.ppm"
    write_ppm(picture, np.full((64, 128, 3), 255))  # 1 after division by 255
    rows = found(model, picture)
    assert [(row["what"], row["box"]) for row in rows] == [("car", [32, 16, 96, 48]), ("person", [32, 16, 96, 48])], rows


def d1_wrong_requests_say_what_is_wrong(folder):
    model, picture = made_faces(folder), folder / "p.ppm"
    write_ppm(picture, np.zeros((4, 4, 3)))
    (folder / "short.ppm").write_bytes(b"P6\n4 4\n255\nabc")
    (folder / "text.txt").write_text("no picture")
    other = folder / "other.onnx"
    save(other, [helper.make_node("Neg", ["picture"], ["y"])], [("y", [1, 3, 8, 8])], {}, (8, 8))
    for arguments, word in [((model,), "use:"), ((model, folder / "none.ppm"), "none.ppm"),
                            ((model, folder / "short.ppm"), "cut off"), ((model, folder / "text.txt"), "neither"),
                            ((folder / "none.onnx", picture), "none.onnx"), ((other, picture), "no detector"),
                            ((model, picture, "--threshold", "much"), "much"), ((model, picture, "--wrong"), "--wrong"),
                            ((model, picture, "--output", folder / "o.gif"), ".ppm, .jpg")]:
        made = detect(*arguments)
        assert made.returncode == 2 and word in made.stderr and made.stderr.count("\n") == 1, (arguments, made)


def resized(pixels, width, height):
    """Bilinear between the centres of pixels, as tools/detect says."""
    def places(size, to):
        at = np.clip((np.arange(to) + 0.5) * size / to - 0.5, 0, size - 1)
        first = np.floor(at).astype(int)
        return first, np.minimum(first + 1, size - 1), at - first
    top, bottom, down = places(pixels.shape[0], height)
    left, right, across = places(pixels.shape[1], width)
    down, across, pixels = down[:, None, None], across[None, :, None], pixels.astype(np.float64)
    upper = pixels[top][:, left] * (1 - across) + pixels[top][:, right] * across
    lower = pixels[bottom][:, left] * (1 - across) + pixels[bottom][:, right] * across
    return (upper * (1 - down) + lower * down).transpose(2, 0, 1)[None]


def best(boxes):
    """Non-maximum suppression of rows (score, kind, left, top, right, bottom)."""
    kept = []
    for box in sorted(boxes, key=lambda row: -row[0]):
        for other in kept:
            width = max(0, min(box[4], other[4]) - max(box[2], other[2]))
            height = max(0, min(box[5], other[5]) - max(box[3], other[3]))
            areas = sum((row[4] - row[2]) * (row[5] - row[3]) for row in (box, other))
            if box[1] == other[1] and width * height > OVERLAP * (areas - width * height):
                break
        else:
            kept.append(box)
    return kept


def expected(model, pixels, faces, threshold):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    _, _, height, width = session.get_inputs()[0].shape
    planes = resized(pixels, width, height)
    planes = (planes - 127) / 128 if faces else planes / 255
    outputs = session.run(None, {session.get_inputs()[0].name: planes.astype(np.float32)})
    if faces:
        return best([(score, 0, *box) for (_, score), box in zip(outputs[0][0], outputs[1][0]) if score >= threshold])
    boxes = []
    for row in outputs[0][0]:
        kind = int(row[5:].argmax())
        if row[4] * row[5 + kind] >= threshold:
            x, y, half_width, half_height = row[0] / width, row[1] / height, row[2] / 2 / width, row[3] / 2 / height
            boxes.append((row[4] * row[5 + kind], kind, x - half_width, y - half_height, x + half_width, y + half_height))
    return best(boxes)


def d1_trained_networks_find_what_onnx_runtime_finds(folder):
    shared = os.environ.get("BACKPLANE_SHARED_DATA")
    if not shared or not (pathlib.Path(shared) / "data/real").is_dir():
        print("BACKPLANE_SHARED_DATA is not set: the trained networks are left out")
        return
    real = pathlib.Path(shared) / "data/real"
    for network, faces, picture in [("fastestdet", False, "street.jpg"), ("ultraface_rfb_320", True, "street.jpg"),
                                    ("fastestdet", False, "wolves.jpg")]:
        model = real / f"{network}.onnx"
        # The picture as this program reads it: drawn into with a threshold that nothing passes.
        assert found(model, real / picture, "--threshold", "2", "--output", folder / "plain.ppm") == []
        pixels = read_ppm(folder / "plain.ppm")
        rows = found(model, real / picture, "--threshold", "0.4", "--output", folder / "boxes.ppm")
        assert found(model, real / picture, "--threshold", "0.4", "--output", folder / "boxes.jpg") == rows
        assert (folder / "boxes.jpg").read_bytes().startswith(b"\xff\xd8")
        wanted = expected(str(model), pixels, faces, 0.4)
        assert len(rows) == len(wanted), (network, rows, wanted)
        for row, (score, _, *corners) in zip(rows, wanted):
            assert abs(row["score"] - score) < 1e-3, (network, row, score)
            scale = np.array([pixels.shape[1], pixels.shape[0]] * 2)
            assert np.abs(row["box"] - corners * scale).max() <= 1, (network, row, corners)
        assert (read_ppm(folder / "boxes.ppm") != pixels).any() == bool(rows)
        print(f"      {network} on {picture}: {', '.join(sorted(row['what'] for row in rows)) or 'nothing'}")


def main():
    cases = [function for name, function in globals().items() if name.startswith("d1_")]
    failed = 0
    for case in cases:
        with tempfile.TemporaryDirectory() as name:
            try:
                case(pathlib.Path(name))
                print(f"ok     {case.__name__}")
            except AssertionError as error:
                failed += 1
                print(f"FAILED {case.__name__}: {error}")
    print(f"{len(cases) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
