"""Generated algorithmic tasks: packed training text, evaluation problems and their grading (numpy
only).
"""
