"""Numbers as pages print them."""


def is_rounded(text: str, number: float) -> bool:
    """Whether a text is a number, rounded to as many digits as it shows."""
    digits = len(text.partition(".")[2])
    return abs(float(text.replace("−", "-")) - number) <= 0.5001 * 10**-digits
