"""Finished models for other programs: ONNX, scikit-learn, and folders for a model hub."""
