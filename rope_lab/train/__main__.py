"""`python -m rope_lab.train …`, as torchrun and W&B's agents call it: `rope-lab train …`."""

import sys

from rope_lab.__main__ import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])
