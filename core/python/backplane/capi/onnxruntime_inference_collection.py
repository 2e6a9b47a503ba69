"""onnxruntime.capi.onnxruntime_inference_collection"""

from backplane._binding import IOBinding
from backplane._session import InferenceSession
from backplane._values import Value as OrtValue

__all__ = ["IOBinding", "InferenceSession", "OrtValue"]
