"""The backends that run kernels: the embedded simulator, the SDK's simulators, the device."""
