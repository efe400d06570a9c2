"""Text and pages for people, and files for other tools. Nothing here decides, calls a port or reads a clock."""
