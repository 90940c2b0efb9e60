"""The access to a NeuronCore: leases, processes, guards, faults, timing.

The code follows AWS's public documentation and is tested against stubs. It has not run on a device,
because none is available to this project.
"""
