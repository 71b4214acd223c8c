"""The use cases: one function a command, each reading as its story; the Python API.

Holds: `bench`, `timeit`, `repro`, `contract`, and what they share. Touches: every package below it;
starts workers through `conductor`, keeps results through `store`. Never imports torch.
"""
