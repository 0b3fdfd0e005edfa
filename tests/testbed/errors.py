"""What goes wrong in the test bed, as sentences for the person at the terminal.

TestbedError              shown as one line, exit code 1
+-- MissingToolError      this machine cannot run that part: fixtures turn it into a skip (a failure in CI)
+-- InUseError            the state directory belongs to a run that is still alive
"""


class TestbedError(Exception):
    """The test bed could not do what was asked; the message says what to do about it."""

    __test__ = False  # pytest would collect the class for its name


class MissingToolError(TestbedError):
    """Go, root or a package is not there; nothing was started."""


class InUseError(TestbedError):
    """Somebody alive owns what was asked for; nothing was touched."""
