"""The README's example of the Python package; scripts_test.py runs it."""

import sys

# [example]
import backplane
import numpy as np

session = backplane.InferenceSession("digits.onnx")  # a path, or the bytes of a model
images = np.load("images.npy")  # float32 [359, 1, 8, 8]
probabilities = session.run(None, {"image": images})[0]
print(probabilities.argmax(axis=1)[:10])

for node in session.explain()["nodes"]:  # where every node went
    print(node["name"], node["op"], node["provider"])
# [/example]
sys.exit(0 if probabilities.shape == (len(images), 10) else 1)
