"""The colours of figures; those of schemes are in results/published.yaml."""

INK, GREY, GRID = "#1b1d21", "#8b919b", "#e6e8ec"
LIGHT_INK, DARK_GRID = "#e6edf3", "#3d444d"  # on a dark page
PAIRED = "#8c959f"  # lines that join two runs of a seed

TWO_RUNS = {"A": "#0072b2", "B": "#d55e00"}
CURVES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#8C510A")
SIZES = ("#88CCEE", "#44AA99", "#4477AA", "#332288", "#882255", INK)  # from the smallest
# Of the ways to read longer texts, in the order of tables; more than there are.
WAYS = (
    *(INK, "#4477AA", "#66CCEE", "#228833", "#CCBB44", "#EE6677", "#AA3377"),
    *("#882255", "#EE7733", "#CC3311", "#009988", "#332288", "#999933"),
)

# Verdicts: ahead, behind, neither.
GOOD, BAD, UNDECIDED = "#126B3A", "#9B1C1C", "#666C76"

# From the worst to the best; from no attention to all.
GREENS = ("#ffffe5", "#f7fcb9", "#d9f0a3", "#addd8e", "#78c679", "#41ab5d", "#238443", "#005a32")
BLUES = ("#fff", "#08306b")
