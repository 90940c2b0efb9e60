"""An early plugin for runs of pytest itself: a computer with one Neuron device, and other cores.

Loaded with ``-p``, it takes the driver's folder from the environment before the session starts.
The embedded simulator does not run next to the device's runs: each is a process.
"""

import os
from pathlib import Path

from difftest.testing.backends import embedded
from difftest.testing.backends.device import core as device

device.DEVICE_NODES = Path(os.environ["STANDIN_DEV"])
embedded.run_beside_sdk = lambda call: "not in this test"
