"""What a program that runs has said so far."""
import os
import tempfile


class ProcessLog:
    """A file for Popen's stderr. Reading leaves its offset alone, which the writing process shares: after a seek to
    the beginning its next words would be written over its first."""

    def __init__(self):
        self.file = tempfile.TemporaryFile()
        self.fileno = self.file.fileno

    def read(self):
        return os.pread(self.fileno(), os.fstat(self.fileno()).st_size, 0).decode()
