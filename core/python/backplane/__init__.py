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

from . import _library
from ._binding import IOBinding
from ._environment import (configure_environment, describe_plugins, get_all_providers, get_available_providers, get_device,
                           register_custom_ops_library, set_default_logger_severity)
from ._errors import (Cancelled, DeviceLost, Error, Failed, Incompatible, Internal, InvalidArgument, NotFound, OutOfMemory,
                      Timeout, Unimplemented, Unsupported)
from ._options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, RunOptions, SessionOptions
from ._session import InferenceSession, ModelMetadata, NodeArg
from ._values import Value

OrtValue = Value
__version__: str = _library.decode(_library.version())

__all__ = [
    "Cancelled", "DeviceLost", "Error", "ExecutionMode", "ExecutionOrder", "Failed", "GraphOptimizationLevel", "IOBinding",
    "Incompatible", "InferenceSession", "Internal", "InvalidArgument", "ModelMetadata", "NodeArg", "NotFound", "OrtValue",
    "OutOfMemory", "RunOptions", "SessionOptions", "Timeout", "Unimplemented", "Unsupported", "Value", "__version__",
    "configure_environment", "describe_plugins", "get_all_providers", "get_available_providers", "get_device",
    "register_custom_ops_library", "set_default_logger_severity"]
