"""Backplane: an ONNX runtime in which every device is a plugin, with the interface that users of ONNX Runtime know.

    import backplane
    session = backplane.InferenceSession("model.onnx")
    outputs = session.run(None, {"image": images})

`import backplane as ort` serves programs that were written for ONNX Runtime. Where they differ: providers are "cpu", "opencl" and
"cuda", each of them a plugin (ONNX Runtime's names are taken, too); attributes and options that do not exist are errors; results
that are large are not copied; `InferenceSession.explain()` says where every node went, and why.

The library is found inside the package (a wheel), beside it (an installed tree), in the source tree's release build, or at
BACKPLANE_LIBRARY, a file or a folder.
"""

from . import _library, capi
from ._binding import IOBinding
from ._environment import (configure_environment, describe_plugins, disable_telemetry_events, get_all_providers,
                           get_available_providers, get_build_info, get_device, get_version_string, has_collective_ops, preload_dlls,
                           register_custom_ops_library, set_default_logger_callback, set_default_logger_severity,
                           set_default_logger_verbosity)
from ._errors import (Cancelled, DeviceLost, Error, Failed, FileFailed, Incompatible, Internal, InvalidArgument, NotFound,
                      OutOfMemory, Timeout, Unimplemented, Unsupported)
from ._errors import refusal as _refusal
from ._options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, RunOptions, SessionOptions
from ._session import InferenceSession, ModelMetadata, NodeArg
from ._values import Value

OrtValue = Value
SessionIOBinding = IOBinding
__version__: str = _library.decode(_library.version())

__all__ = [
    "Cancelled", "DeviceLost", "Error", "ExecutionMode", "ExecutionOrder", "Failed", "FileFailed", "GraphOptimizationLevel",
    "IOBinding", "Incompatible", "InferenceSession", "Internal", "InvalidArgument", "ModelMetadata", "NodeArg", "NotFound", "OrtValue",
    "OutOfMemory", "RunOptions", "SessionIOBinding", "SessionOptions", "Timeout", "Unimplemented", "Unsupported", "Value",
    "__version__", "capi", "configure_environment", "describe_plugins", "disable_telemetry_events", "get_all_providers",
    "get_available_providers", "get_build_info", "get_device", "get_version_string", "has_collective_ops", "preload_dlls",
    "register_custom_ops_library", "set_default_logger_callback", "set_default_logger_severity", "set_default_logger_verbosity"]


def __getattr__(name: str):
    raise AttributeError(_refusal("backplane", name))
