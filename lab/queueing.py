"""Simulates the queues of replicas: how many hold a p99 at a rate of requests?

    python -m lab.queueing --rate 200 --service-ms 10 --p99-ms 60

Requests arrive at random, independently of each other, as from many users. A replica works on one
request at a time, because a process of Python uses one core. Service times are exponential around
a mean, or drawn from measured ones (`--service-times FILE`, milliseconds, one a line). A balancer
gives each request to the replica with the least to do (`least`) or to the next one (`next`).
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

COUNT = 100_000
"""Requests of a simulation. The first tenth fills the queues, and is not counted."""
MAX_REPLICAS = 200

Draw = Callable[[random.Random], float]


def exponential(mean: float) -> Draw:
    """Return service times around a mean, in seconds."""
    return lambda numbers: numbers.expovariate(1 / mean)


def measured(seconds: Sequence[float]) -> Draw:
    """Return service times drawn from measured ones, in seconds."""
    return lambda numbers: numbers.choice(seconds)


def simulate(
    rate: float, replicas: int, service: Draw, *, balancer: str = "least", seed: int = 1
) -> tuple[list[float], list[float]]:
    """Return the waiting times and the response times of requests, in seconds, each sorted.

    Args:
        rate: Requests a second.
        replicas: Number of replicas.
        service: Draws a service time.
        balancer: "least", as one queue for all replicas, or "next".
        seed: Of the random numbers; equal seeds give equal results.
    """
    numbers = random.Random(seed)
    free = [0.0] * replicas
    now, waits, responses = 0.0, [], []
    for number in range(COUNT):
        now += numbers.expovariate(rate)
        time = service(numbers)
        if balancer == "least":
            start = max(now, heapq.heappop(free))
            heapq.heappush(free, start + time)
        else:
            start = max(now, free[number % replicas])
            free[number % replicas] = start + time
        if number >= COUNT // 10:
            waits.append(start - now)
            responses.append(start - now + time)
    return sorted(waits), sorted(responses)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value that a share of the values does not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main(words: list[str]) -> int:
    """Print p50 and p99 by number of replicas, until the p99 holds; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, required=True, help="Requests a second.")
    parser.add_argument("--service-ms", type=float, default=10.0, help="Mean service time.")
    parser.add_argument("--service-times", type=Path, help="File of measured service times.")
    parser.add_argument("--p99-ms", type=float, default=100.0, help="The p99 to hold.")
    parser.add_argument("--balancer", choices=["least", "next"], default="least")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(words)
    mean, draw = options.service_ms / 1000, exponential(options.service_ms / 1000)
    if options.service_times:
        times = [float(line) / 1000 for line in options.service_times.read_text().split()]
        mean, draw = sum(times) / len(times), measured(times)
    numbers = random.Random(options.seed)
    alone = quantile(sorted(draw(numbers) for _ in range(COUNT)), 0.99) * 1000
    if alone > options.p99_ms:
        print(f"The p99 of the service times alone is {alone:.1f} ms.")
        return 1
    print("replicas  busy  p50 ms  p99 ms")
    for replicas in range(int(options.rate * mean) + 1, MAX_REPLICAS + 1):
        _, responses = simulate(
            options.rate, replicas, draw, balancer=options.balancer, seed=options.seed
        )
        p50, p99 = (quantile(responses, share) * 1000 for share in (0.5, 0.99))
        busy = options.rate * mean / replicas
        print(f"{replicas:8}  {busy:4.0%}  {p50:6.1f}  {p99:6.1f}")
        if p99 <= options.p99_ms:
            return 0
    print(f"{MAX_REPLICAS} replicas do not hold it.")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
