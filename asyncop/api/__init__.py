"""Pure values: resource names, models, requests, selectors, errors.

Nothing here does I/O, knows asyncio or reads a clock; every other layer may import it, and it imports none of them.
"""
