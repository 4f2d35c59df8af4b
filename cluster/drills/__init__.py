"""Drills: harm a real system on this machine while it serves, and see that its promises hold.

One file a drill in ``faults``; the file's name with dashes is the drill's.
"""
