"""Colours that can be told from what is behind them."""

PAPER, NIGHT = "#ffffff", "#14161a"  # behind the charts, in light and in dark; also in page.css
CONTRAST = {PAPER: 3.0, NIGHT: 4.5}  # least of a line against it; WCAG 2.2 asks for 3 (1.4.11)


def readable(color: str, behind: str) -> str:
    """`#rrggbb`, moved away from PAPER or NIGHT behind it, no further than it takes to be seen there as a line."""
    rgb, other = _rgb(color), _rgb(behind)
    far = 0.0 if _luminance(other) > 0.5 else 1.0
    while _contrast(rgb, other) < CONTRAST[behind]:
        rgb = [c + 0.05 * (far - c) for c in rgb]
    return "#" + "".join(f"{round(255 * c):02x}" for c in rgb)


def _rgb(color: str) -> list[float]:
    return [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def _luminance(rgb: list[float]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _contrast(one: list[float], other: list[float]) -> float:
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)
