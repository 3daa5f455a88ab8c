"""Running a command under the samplers, and the directory of what they recorded."""
