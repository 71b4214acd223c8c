"""The benchmarks themselves: do they count right, and do they survive a kill?"""
