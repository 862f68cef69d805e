"""The simulation of queues agrees with the formulas that have one."""

from __future__ import annotations

import math

import pytest

from lab.queueing import exponential, main, measured, quantile, simulate


def share_of_waiting(load: float, servers: int) -> float:
    """Return the share of requests that wait in an M/M/c queue (Erlang's C formula).

    Args:
        load: Arrival rate by mean service time.
        servers: Number of servers.
    """
    terms = [load**number / math.factorial(number) for number in range(servers)]
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    return last / (sum(terms) + last)


@pytest.mark.parametrize(("rate", "servers"), [(80, 1), (160, 2), (420, 5)])
def test_one_queue_is_an_m_m_c_queue(rate: float, servers: int) -> None:
    """Waiting requests, the mean wait and its p99 are within 6 % of the formulas.

    If this fails: the page on scaling gives numbers of replicas that do not hold.
    """
    mean = 0.01
    waits, _ = simulate(rate, servers, exponential(mean))
    share, spare = share_of_waiting(rate * mean, servers), servers / mean - rate
    assert sum(wait > 0 for wait in waits) / len(waits) == pytest.approx(share, rel=0.06)
    assert sum(waits) / len(waits) == pytest.approx(share / spare, rel=0.06)
    assert quantile(waits, 0.99) == pytest.approx(math.log(share / 0.01) / spare, rel=0.06)


def test_a_queue_for_each_replica_waits_longer() -> None:
    """Round-robin costs; equal seeds give equal results; no request ends before its service."""
    one, responses = simulate(160, 2, exponential(0.01))
    each, _ = simulate(160, 2, exponential(0.01), balancer="next")
    assert quantile(one, 0.99) < quantile(each, 0.99)
    assert simulate(160, 2, exponential(0.01)) == (one, responses)
    _, constant = simulate(1, 1, measured([0.02, 0.02]))
    assert constant[0] == pytest.approx(0.02)


def test_the_command_stops_at_the_first_number_that_holds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It prints a line for each number of replicas, and says if no number can hold the p99."""
    assert main(["--rate", "150", "--service-ms", "10", "--p99-ms", "60"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [line[0] for line in lines][:1] == ["2"]
    assert [float(line[3]) <= 60 for line in lines] == [False] * (len(lines) - 1) + [True]
    assert main(["--rate", "10", "--service-ms", "50", "--p99-ms", "10"]) == 1
