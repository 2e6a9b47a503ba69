#!/usr/bin/env python3
"""Quantize exported models dynamically, as the files model_quantized.onnx of model hubs are made.

  quantize_models.py MODELS OUT [NAME ...] [--weights int8|uint8]

MODELS holds NAME.onnx and NAME.inputs, as export_models.py writes them; OUT gets NAME_dq8.onnx and NAME_dq8.inputs.
Needs: onnx, onnxruntime (PyPI).
"""
import argparse
import pathlib
import shutil
import sys

from onnxruntime.quantization import QuantType, quantize_dynamic


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--weights", choices=("int8", "uint8"), default="int8")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    weight_type = QuantType.QInt8 if arguments.weights == "int8" else QuantType.QUInt8
    failed = 0
    for path in sorted(arguments.models.glob("*.onnx")):
        if arguments.names and path.stem not in arguments.names:
            continue
        name = path.stem + "_dq8"
        try:
            quantize_dynamic(path, arguments.out / f"{name}.onnx", weight_type=weight_type)
            shutil.copytree(path.with_suffix(".inputs"), arguments.out / f"{name}.inputs", dirs_exist_ok=True)
            print(f"{name}: made", flush=True)
        except Exception as error:  # the next model may be quantized
            failed += 1
            print(f"{name}: not quantized: {str(error).strip()[-200:]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
