"""Models for other software: ONNX and PMML, from what dana.model holds of a model. No rule, no worker, no training."""
