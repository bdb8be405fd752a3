"""Finished models for other programs: ONNX, TorchScript, scikit-learn, and folders for a model hub."""
