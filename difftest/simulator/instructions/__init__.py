"""The machine's instructions: one record and one short function each."""
