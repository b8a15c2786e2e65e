"""In which order the mutants of several draws are judged, many at once."""

import threading
from concurrent.futures import ThreadPoolExecutor

import trial


class Turns:
    """Mutants of the first seed come before those of the next, and the modules in turn. When the
    quick parts of the tests judged the first `count` that count of each draw, those that none of
    these parts saw come before the others, but not before the times of the slow parts are known.
    """

    def __init__(self, draws, count):
        self.draws, self.count = draws, count
        self.slow_timed = False
        seeds = dict.fromkeys(draw.seed for draw in draws)
        self.rank = {seed: number for number, seed in enumerate(seeds)}
        self.turn = threading.Condition()

    def next(self):
        """(draw, place in it, whether the quick parts judge), or None."""
        fresh = [draw for draw in self.draws if draw.wants(self.count)]
        if fresh:
            draw = min(fresh, key=lambda draw: (self.rank[draw.seed], draw.next))
            draw.next += 1
            return draw, draw.next - 1, True
        unseen = [draw for draw in self.draws if draw.unseen]
        if not unseen or not self.slow_timed:
            return None
        draw = max(unseen, key=lambda draw: (-self.rank[draw.seed], len(draw.unseen)))
        return draw, draw.unseen.pop(0), False

    def take(self):
        """Returns what next() does, and waits for others that may leave something to do."""
        with self.turn:
            while (taken := self.next()) is None:
                if self.slow_timed and not any(draw.busy for draw in self.draws):
                    return None
                self.turn.wait()
            taken[0].busy += 1
            return taken

    def end(self, draw, place, quick, entry):
        with self.turn:
            draw.busy -= 1
            draw.entries[place] = entry
            if quick and entry and entry["outcome"] == "unseen":
                draw.unseen.append(place)
            self.turn.notify_all()


def run(draws, count, jobs, work, deadline, time_slow):
    """Judges mutants of the draws until all are decided or the deadline comes; each worker has a
    folder in `work`. Besides, `time_slow` times the slow parts of the tests."""
    turns = Turns(draws, count)

    def time_besides():
        try:
            time_slow()
        finally:
            with turns.turn:
                turns.slow_timed = True
                turns.turn.notify_all()

    def judge_all(worker):
        while (taken := turns.take()) is not None:
            draw, place, quick = taken
            entry = None
            try:
                entry = draw.judge(draw.drawn[place], work / f"worker{worker}", deadline, quick)
            finally:
                turns.end(draw, place, quick, entry)
    with trial.workers(jobs) as pool, ThreadPoolExecutor(1) as besides:
        timing = besides.submit(time_besides)
        list(pool.map(judge_all, range(jobs)))
        timing.result()
