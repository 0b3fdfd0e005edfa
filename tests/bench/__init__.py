"""Benches: asyncop beside the least that any program could do, on the same objects, in turns."""
