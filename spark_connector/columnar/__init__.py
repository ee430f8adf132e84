"""Record batches as columns of Arrow and back, without a Python object for a record."""
