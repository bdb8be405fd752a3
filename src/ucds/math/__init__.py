"""Mathematics of the methods: functions of arrays and tensors, without devices, processes or settings."""
