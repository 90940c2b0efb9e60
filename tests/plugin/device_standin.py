"""An early plugin for runs of pytest itself: a computer with one Neuron device, and other cores.

Loaded with ``-p``, it takes the driver's folder from the environment before the session starts.
"""

import os
from pathlib import Path

from difftest.backends.device import backend as device

device.DEVICE_NODES = Path(os.environ["STANDIN_DEV"])
