import json
import sys

import numpy as np
import onnxruntime as ort

# A program as it is written for ONNX Runtime; scripts_test.py runs it with `import backplane as ort`, too.
ort.set_default_logger_severity(3)
options = ort.SessionOptions()
options.intra_op_num_threads = 1
options.inter_op_num_threads = 1
options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
options.enable_mem_pattern = True
options.enable_cpu_mem_arena = True
options.log_severity_level = 3
options.add_session_config_entry("session.intra_op.allow_spinning", "0")

providers = ["CPUExecutionProvider"]
if "CUDAExecutionProvider" in ort.get_available_providers():
    providers.insert(0, ("CUDAExecutionProvider", {"device_id": 0}))
session = ort.InferenceSession(sys.argv[1], sess_options=options, providers=providers)
assert session.get_providers()[-1] == "CPUExecutionProvider"
assert ort.get_device() in ("CPU", "GPU")

images = np.load(sys.argv[2])[:32]
input_name = session.get_inputs()[0].name
output_names = [output.name for output in session.get_outputs()]
found = {
    "inputs": [[one.name, one.type, one.shape] for one in session.get_inputs()],
    "outputs": [[one.name, one.type, one.shape] for one in session.get_outputs()],
    "metadata": session.get_modelmeta().custom_metadata_map,
}

first = session.run(None, {input_name: images})[0]
again = session.run(output_names, {input_name: images}, run_options=ort.RunOptions())[0]
assert np.array_equal(first, again)
found["digits"] = first.argmax(axis=1).tolist()
found["sums"] = first.sum(axis=1).round(3).tolist()

binding = session.io_binding()
binding.bind_cpu_input(input_name, images)
binding.bind_output(output_names[0])
session.run_with_iobinding(binding)
assert np.allclose(binding.copy_outputs_to_cpu()[0], first, atol=1e-5)
assert binding.get_outputs()[0].shape() == list(first.shape)

value = ort.OrtValue.ortvalue_from_numpy(images)
assert value.data_type() == "tensor(float)" and value.device_name() == "cpu" and value.is_tensor()
results = session.run_with_ort_values(output_names, {input_name: value})
assert np.allclose(results[0].numpy(), first, atol=1e-5)

written = ort.OrtValue.ortvalue_from_shape_and_type(list(first.shape), np.float32, "cpu", 0)
binding = session.io_binding()
binding.bind_ortvalue_input(input_name, value)
binding.bind_ortvalue_output(output_names[0], written)
session.run_with_iobinding(binding)
assert np.allclose(written.numpy(), first, atol=1e-5)

try:
    session.run(None, {})
except Exception as error:
    found["missing"] = isinstance(error, ValueError) and input_name in str(error)
try:
    session.run(None, {input_name: images.astype(np.float64)})
    found["wrong type"] = "taken"
except Exception as error:
    found["wrong type"] = "refused"
print(json.dumps(found))
