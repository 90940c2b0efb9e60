"""The instructions of a NeuronCore: one record and one short function each."""
