"""What a kernel imports: the classic ``neuronxcc.nki`` API over the instruction table."""
