"""Work that may hang or heed no signal, in a thread."""

import threading
from collections.abc import Callable
from concurrent.futures import Future


def in_thread(act: Callable[[], object]) -> Future:
    """Run `act` in a daemon thread; the future of its result or exception."""
    done: Future = Future()

    def work() -> None:
        try:
            done.set_result(act())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return done
