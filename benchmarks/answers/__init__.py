"""The answers profile of the bench as one command: does what was right stay right on a real server?"""
