"""A made-up world for the core: disks that fail, and later clocks and networks that do."""
