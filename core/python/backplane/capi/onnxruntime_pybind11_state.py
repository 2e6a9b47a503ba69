"""onnxruntime.capi.onnxruntime_pybind11_state: what sessions are made with, and ONNX Runtime's names of exceptions. Each name is the
class here that is raised where ONNX Runtime raises that one; several of its names may be one class."""

from backplane._environment import get_all_providers, get_available_providers, get_build_info, get_device, get_version_string
from backplane._errors import DeviceLost, Error, Failed, InvalidArgument, NotFound, Unsupported
from backplane._options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, RunOptions, SessionOptions
from backplane._session import ModelMetadata, NodeArg

Fail = Error
RuntimeException = Failed
NoSuchFile = NotFound
NoModel = InvalidProtobuf = InvalidGraph = InvalidArgument
NotImplemented = Unsupported  # noqa: A001
EPFail = DeviceLost

__all__ = [
    "EPFail", "ExecutionMode", "ExecutionOrder", "Fail", "GraphOptimizationLevel", "InvalidArgument", "InvalidGraph",
    "InvalidProtobuf", "ModelMetadata", "NoModel", "NoSuchFile", "NodeArg", "NotImplemented", "RunOptions", "RuntimeException",
    "SessionOptions", "get_all_providers", "get_available_providers", "get_build_info", "get_device", "get_version_string"]
