"""What a thread of its own does for as long as a `with` block lasts. Standard library only."""
import threading


class Meanwhile:
    """`go` is called once, and returns soon after `over` is set. What goes wrong in it is told at the block's end: nobody else would."""

    def __init__(self):
        self.over, self.fault = threading.Event(), None
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        try:
            self.go()
        except BaseException as fault:
            self.fault = fault

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.over.set()
        self.thread.join()
        if self.fault and not kind:
            raise RuntimeError("what ran meanwhile failed") from self.fault
