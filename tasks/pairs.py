"""Learns byte pairs: `python tasks/pairs.py VOCABULARY < TEXT`, which prints them as the package tokenizers does."""

import os
import sys
import threading
import time

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

LONGEST = 256  # characters of a word; longer ones are cut, or each pair would take a pass over them


def watch(parent: int) -> None:
    """End with the process that asked for this one, whatever ended that."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


threading.Thread(target=watch, args=[os.getppid()], daemon=True).start()
pairs, bytes_ = Tokenizer(models.BPE()), pre_tokenizers.ByteLevel(add_prefix_space=False)
cut = pre_tokenizers.Split(Regex(rf"\S{{{LONGEST}}}"), "isolated")
pairs.pre_tokenizer, pairs.decoder = pre_tokenizers.Sequence([cut, bytes_]), decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=int(sys.argv[1]), initial_alphabet=sorted(bytes_.alphabet()), show_progress=False
)
lines = (line for block in sys.stdin.buffer for line in block.decode().splitlines(keepends=True))
pairs.train_from_iterator(lines, trainer)
sys.stdout.buffer.write(pairs.to_str().encode())
