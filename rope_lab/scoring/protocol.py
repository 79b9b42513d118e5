"""The protocol of rope-lab score and of the map: conf/score.yaml."""

import yaml

from rope_lab.places import CONF

PROTOCOL = yaml.safe_load((CONF / "score.yaml").read_text("utf-8"))
