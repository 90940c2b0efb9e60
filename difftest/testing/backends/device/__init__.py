"""What stands between the harness and a NeuronCore: leases, processes, guards, faults, timing.

All of it is written from AWS's public documentation and tested against stand-ins. None of it has
run on a device: none is at hand where this project is developed.
"""
