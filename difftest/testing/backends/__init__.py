"""What runs kernels: the embedded simulator, the SDK's simulators, the device."""
