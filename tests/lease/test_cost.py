"""What a lease costs, counted on the server. How long it takes is for `benchmarks/commands.py` to say."""

from benchmarks.commands import cost_of, tasks_of
from tests.support.servers import Server


def test_a_leased_run_costs_exactly_two_script_calls_and_nothing_else(server: Server) -> None:
    _, leased = tasks_of(server.url)
    cost = cost_of(leased, server, runs=100)
    assert cost.scripts == 2 * 100
    assert cost.others == 0


def test_what_the_renewer_sends_does_not_grow_with_the_number_of_runs(server: Server) -> None:
    _, leased = tasks_of(server.url)
    assert cost_of(leased, server, runs=300).background <= 10
