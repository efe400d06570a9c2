"""Text for other tools and for people, made from data. Nothing here decides, asks a port or reads a clock."""
