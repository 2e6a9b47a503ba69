"""The places inside ONNX Runtime's package that programs import from, though they are nobody's interface: names of this package
stand there, too. They are imported absolutely: the package may stand in the place of `onnxruntime`, under that name."""

from . import _pybind_state, onnxruntime_inference_collection, onnxruntime_pybind11_state

__all__ = ["_pybind_state", "onnxruntime_inference_collection", "onnxruntime_pybind11_state"]
