"""ptxrun --orders all: how many classes of orders there are, and that all of them run."""

import math
import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.emulation import entry, ptxrun
from support.versions import Launch

START = """.reg .b64 %m, %o, %p;
.reg .b32 %t, %b, %v, %n, %s; .reg .pred %q;
ld.param.u64 %m, [memory]; ld.param.u64 %o, [out]; mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x;
mov.u32 %n, 0; setp.ne.u32 %q, %t, 0;
@%q bra end;
"""
TICKET = START + "atom.global.add.u32 %v, [%m], 1;\nmad.wide.u32 %p, %v, 4, %o;\nst.global.u32 [%p], WHAT;\nend:"
# A bulk reduction of a thread to 16 bytes, for which it waits until the source is read.
BULK = """st.shared.v4.u32 [%s], {{{value}, {none}, {none}, {none}}};
fence.proxy.async;
cp.reduce.async.bulk.global.shared::cta.bulk_group.{form} [%m+{at}], [%s], 16;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0;"""
# An agent is a CTA with a list of steps at words of `memory`; the results of the loads are thrown away. `land` sums
# small integers as f16, which is the same; `landed` waits for all that the agent has summed so.
STEPS = {
    "load": "ld.relaxed.gpu.global.u32 %v, [%m+{at}];\nadd.u32 %n, %n, %v;",
    "store": "st.relaxed.gpu.global.u32 [%m+{at}], {value};",
    "release": "st.release.gpu.global.u32 [%m+{at}], {value};",
    "fence": "fence.acq_rel.gpu;",
    "fence.sc": "fence.sc.gpu;",
    "add": "red.relaxed.gpu.global.add.u32 [%m+{at}], {value};",
    "draw": "atom.relaxed.gpu.global.add.u32 %v, [%m+{at}], {value};\nadd.u32 %n, %n, %v;",
    "await": "LABEL:\nld.relaxed.gpu.global.u32 %v, [%m+{at}];\nsetp.lt.u32 %q, %v, {value};\n@%q bra LABEL;",
    "land": BULK.replace("{form}", "add.noftz.f16"),
    "land integers": BULK.replace("{form}", "add.u32"),
    "landed": "cp.async.bulk.wait_group 0;",
}
STORES = ("store", "release")
LATE = ("land", "land integers", *STORES)
Step = tuple[str, int, int]  # what, at which word, the value
Agent = list[Step]
Events = frozenset[tuple[tuple[int, int], tuple[int, int]]]  # each by agent and index

DIFFERS = "other interleavings produce other results"


def program(agents: list[Agent]) -> str:
    uses = any(step[0] in LATE for agent in agents for step in agent)
    text = START + (".shared .align 16 .b8 from[16];\nmov.u32 %s, from;\n" if uses else "")
    for n in range(len(agents)):
        text += f"setp.eq.u32 %q, %b, {n};\n@%q bra agent{n};\n"
    for n, agent in enumerate(agents):
        text += f"bra.uni end;\nagent{n}:\n"
        for i, (what, word, value) in enumerate(agent):
            text += STEPS[what].format(at=16 * word, value=value, none=0).replace("LABEL", f"wait{n}_{i}") + "\n"
    return text + "end:"


SUMS = {"add": "u32", "land integers": "u32", "land": "f16"}


SILENT = ("landed", "fence", "fence.sc")


def conflict(a: Step, b: Step) -> bool:
    kinds = {"load" if each[0] == "await" else SUMS.get(each[0], each[0]) for each in (a, b)}
    return a[1] == b[1] and not kinds & set(SILENT) and kinds not in ({"load"}, {"u32"})


def after(what: str, now: int, value: int) -> int:
    return {"store": value, "release": value, "load": now, "await": now}.get(what, now + value)


def stored(agent: Agent, late: list[int], word: int = -1) -> list[int]:
    """The positions of stores that others do not see yet, to one word or all."""
    return [i for i in sorted(late) if agent[i][0] in STORES and agent[i][1] in (word, *([agent[i][1]] * (word < 0)))]


def fenced(agent: Agent, earlier: int, later: int) -> bool:
    return any(step[0] in ("fence", "fence.sc") for step in agent[earlier:later])


def is_due(agent: Agent, late: list[int], i: int) -> bool:
    """True if others can see a delayed write now: a store after others of its word, and of all after a fence."""
    what, word, _ = agent[i]
    before = [k for k in stored(agent, late) if k < i and what in STORES]
    return not any(what == "release" or agent[k][1] == word or fenced(agent, k, i) for k in before)


def holds(agent: Agent, late: list[int], i: int) -> bool:
    """True if a step waits for what the actor has written."""
    what, word, _ = agent[i]
    if what == "landed" and any(agent[k][0] not in STORES for k in late):
        return True
    if what in ("load", "await", "fence", *STORES):
        return False
    if what in ("add", "draw"):
        return any(agent[k][1] == word or fenced(agent, k, i) for k in stored(agent, late))
    return bool(stored(agent, late))


def count(agents: list[Agent]) -> tuple[int, int]:
    """The number of classes, by every interleaving: those that end, and those in which some threads wait forever."""
    ended: set[frozenset[object]] = set()
    stuck: set[frozenset[object]] = set()
    seen: set[object] = set()

    def go(
        positions: tuple[int, ...], late: frozenset[tuple[int, int]], words: tuple[int, ...], before: Events
    ) -> None:
        """late: what has been issued and not landed, and that by agent and index; before: pairs of such."""
        if (positions, late, words, before) in seen:
            return
        seen.add((positions, late, words, before))
        done = {(k, i) for k in range(len(agents)) for i in range(positions[k])} - late

        def happen(n: int, i: int, further: tuple[int, ...], later: frozenset[tuple[int, int]]) -> None:
            what, word, value = step = agents[n][i]
            then = tuple(after(what, now, value) if k == word else now for k, now in enumerate(words))
            ordered = {
                (each, (n, i))
                for each in done
                if (each[0] != n or {what, agents[n][each[1]][0]} & set(LATE))
                and conflict(agents[each[0]][each[1]], step)
            }
            go(further, later, then, before | ordered)

        moved = False
        for n, agent in enumerate(agents):
            further = tuple(index + (k == n) for k, index in enumerate(positions))
            what, word, value = agent[positions[n]] if positions[n] < len(agent) else ("", 0, 0)
            its = [i for k, i in late if k == n]
            own = stored(agent, its, word)
            waits = what == "await" and (agent[own[-1]][2] if own else words[word]) < value
            if not what or waits or holds(agent, its, positions[n]):
                continue
            moved = True
            if what in LATE:
                go(further, late | {(n, positions[n])}, words, before)
            elif what in SILENT:
                go(further, late, words, before)
            else:
                happen(n, positions[n], further, late)
        for k, i in late:
            if is_due(agents[k], [j for each, j in late if each == k], i):
                happen(k, i, positions, late - {(k, i)})
        if not moved and not late:
            (ended if all(index == len(agent) for index, agent in zip(positions, agents, strict=True)) else stuck).add(
                before
            )

    go(tuple(0 for _ in agents), frozenset(), (0, 0), frozenset())
    return len(ended), len(stuck)


def explore(body: str, ctas: int, folder: Path, *options: object, output: str = "buf:u32:8") -> tuple[int, str]:
    path = folder / "orders.ptx"
    path.write_text(entry(body, ".param .u64 memory, .param .u64 out"))
    arguments = ["--arg", "buf:u32:8", "--arg", output]
    done = ptxrun(path, "--grid", ctas, "--block", 32, *arguments, "--orders", "all", *options)
    return done.returncode, done.stderr


NO_OUTPUT = ["--ignore", "output-never-written"]  # what the words of `memory` hold may differ


def overtakes(agent: Agent) -> bool:
    """True if a step might come before a load that is before it, for all that PTX says."""
    loaded = -1
    for what, word, _ in agent:
        if what in ("fence", "fence.sc"):
            loaded = -1
        elif what not in (*SILENT, "land", "land integers"):
            if loaded not in (-1, word):
                return True
            loaded = word if what in ("load", "await") else loaded
    return False


def answer(classes: int, agents: Sequence[Agent] = ()) -> str:
    gap = "; not covered: loads that later accesses may overtake" if any(map(overtakes, agents)) else ""
    return f"orders: 1 class{gap}\n" if classes == 1 else f"orders: {classes} classes, all run{gap}\n"


KNOWN = {
    "two that draw": ([[("draw", 0, 1)]] * 2, 2),
    "three that draw": ([[("draw", 0, 1)]] * 3, 6),
    "sums that nobody looks at": ([[("add", 0, 1)]] * 3, 1),
    "a flag that is waited for": ([[("store", 0, 1)], [("await", 0, 1)], [("await", 0, 1)]], 1),
    "a flag that is looked at once": ([[("store", 0, 1)], [("load", 0, 0)]], 2),
    "a wait that either of two ends": ([[("add", 0, 1)], [("add", 0, 2)], [("await", 0, 1)]], 3),
    "a wait that both end": ([[("add", 0, 1)], [("add", 0, 2)], [("await", 0, 3)]], 1),
    "flags of their own": ([[("store", 0, 1)], [("store", 1, 1)]], 1),
    "turns that are not the first to exchange": (
        [
            [("draw", 1, 1), ("add", 1, 2)],
            [("load", 1, 2), ("store", 0, 2)],
            [("load", 0, 2), ("await", 1, 1)],
            [("load", 1, 1)],
        ],
        33,
    ),
    "sums of floats that land": ([[("land", 0, 1)]] * 3, 6),
    "sums of integers that land": ([[("land integers", 0, 1)], [("add", 0, 1)], [("land integers", 0, 2)]], 1),
    "sums that land after others of the thread": ([[("land", 0, 1), ("landed", 0, 0), ("land", 0, 1)]], 1),
    "two sums of a thread": ([[("land", 0, 1), ("land", 0, 1)]], 2),
    "a sum that lands after later steps of its thread": ([[("land", 0, 1), ("draw", 0, 1)], [("load", 0, 0)]], 6),
    "a flag after a sum": ([[("land", 0, 1), ("landed", 0, 0), ("store", 1, 1)], [("await", 1, 1), ("load", 0, 0)]], 1),
    "each stores one and loads the other": ([[("store", 0, 1), ("load", 1, 0)], [("store", 1, 1), ("load", 0, 0)]], 4),
    "each releases one and loads the other": (
        [[("release", 0, 1), ("fence", 0, 0), ("load", 1, 0)], [("store", 1, 1), ("load", 0, 0)]],
        4,
    ),
    "each stores one, and loads the other after fence.sc": (
        [[("store", 0, 1), ("fence.sc", 0, 0), ("load", 1, 0)], [("store", 1, 1), ("fence.sc", 0, 0), ("load", 0, 0)]],
        3,
    ),
    "one of two has a fence.sc": (
        [[("store", 0, 1), ("fence.sc", 0, 0), ("load", 1, 0)], [("store", 1, 1), ("load", 0, 0)]],
        4,
    ),
    "two stores": ([[("store", 0, 1), ("store", 1, 1)], [("load", 1, 0), ("load", 0, 0)]], 4),
    "two stores, the second a release": ([[("store", 0, 1), ("release", 1, 1)], [("load", 1, 0), ("load", 0, 0)]], 3),
    "two stores, and a fence": (
        [[("store", 0, 1), ("fence", 0, 0), ("store", 1, 1)], [("load", 1, 0), ("load", 0, 0)]],
        3,
    ),
    "what a thread has stored itself": ([[("store", 0, 1), ("load", 0, 0)], [("store", 0, 2)]], 6),
}


@pytest.mark.parametrize("name", KNOWN)
def test_the_classes_of_known_programs(name: str, tmp_path: Path) -> None:
    agents, classes = KNOWN[name]
    assert count(agents) == (classes, 0)
    seen = explore(program(agents), len(agents), tmp_path, *NO_OUTPUT, output="out:u32:1")
    assert seen == (0, answer(classes, agents))


def made_up(seed: int) -> list[Agent]:
    draw = random.Random(seed)
    whats = ["load", "store", "add", "draw", "await"]
    whats += [[], ["land", "land integers", "landed"], ["store", "release", "load", "fence", "fence.sc"]][seed % 3]
    return [
        [(draw.choice(whats), draw.randrange(2), draw.randrange(1, 3)) for _ in range(draw.randrange(1, 4))]
        for _ in range(draw.randrange(2, 5))
    ]


def check_made_up(seed: int, folder: Path) -> None:
    agents = made_up(seed)
    ended, stuck = count(agents)
    status, text = explore(program(agents), len(agents), folder, *NO_OUTPUT, output="out:u32:1")
    if stuck:
        assert status == 3 and "livelock" in text, (seed, agents, text)
    else:
        assert (status, text) == (0, answer(ended, agents)), (seed, agents)


@pytest.mark.parametrize("seed", range(8))
def test_the_classes_of_made_up_programs(seed: int, tmp_path: Path) -> None:
    check_made_up(seed, tmp_path)


@pytest.mark.first
@pytest.mark.long
def test_the_classes_of_many_made_up_programs(tmp_path: Path) -> None:
    programs = [seed for seed in range(8, 400) if sum(count(made_up(seed))) < 1000]
    assert len(programs) > 300
    for seed in programs:
        check_made_up(seed, tmp_path)


def test_results_that_differ_are_told(tmp_path: Path) -> None:
    status, text = explore(TICKET.replace("WHAT", "%b"), 2, tmp_path)
    assert status == 1 and re.search(
        r"^other interleavings produce other results: buffer 'argument 1' is 0x", text, re.M
    ), text
    assert re.search(r"run 2, where warp 0 of CTA 1 goes first at PTX line \d+, and not warp 0 of CTA 0", text), text
    assert explore(TICKET.replace("WHAT", "7"), 2, tmp_path) == (0, answer(2))


# CTAs draw until there is nothing left, and ticket %v is done by writing WHAT to its word of `out`.
DRAWS_ALL = (
    START
    + "again:\natom.global.add.u32 %v, [%m], 1;\nsetp.ge.u32 %q, %v, TICKETS;\n@%q bra end;\nWORK"
    + "mad.wide.u32 %p, %v, 4, %o;\nst.global.u32 [%p], WHAT;\nbra again;\nend:"
)


def draws_all(tickets: int, work: str, what: str) -> str:
    return DRAWS_ALL.replace("TICKETS", str(tickets)).replace("WORK", work).replace("WHAT", what)


@pytest.mark.parametrize("tickets", [1, 4, 8])
def test_two_ctas_draw_tickets_in_every_way(tickets: int, tmp_path: Path) -> None:
    """Each ticket, and which CTA is first to find nothing left."""
    body = draws_all(tickets, "", "%v")
    assert explore(body, 2, tmp_path, output=f"out:u32:{tickets}") == (0, answer(2 ** (tickets + 1)))


def parts(tickets: int, ctas: int) -> int:
    """Each CTA first draws any ticket, or one that ends it. It remembers only its ticket, then draws any later."""
    draws = tickets + ctas
    return ctas * draws + sum(draws - 1 - ticket for ticket in range(tickets))


def of_tickets(tickets: int, ctas: int) -> str:
    return f"orders: {parts(tickets, ctas)} classes of tickets, all run\n"


@pytest.mark.parametrize(("tickets", "ctas"), [(9, 2), (14, 2), (40, 2), (14, 3), (4, 8)])
def test_ctas_that_share_a_counter_alone_are_run_one_by_one(tickets: int, ctas: int, tmp_path: Path) -> None:
    seen = explore(draws_all(tickets, "", "7"), ctas, tmp_path, output=f"out:u32:{tickets}")
    assert seen == (0, of_tickets(tickets, ctas))


# %n is the ticket before, %b is 1 where that was 3 and this is 11.
AFTER = "setp.eq.u32 %q, %n, 3;\nsetp.eq.and.u32 %q, %v, 11, %q;\nselp.u32 %b, 1, 0, %q;\nmov.u32 %n, %v;\n"
# The count if shared memory holds the previous ticket.
SLOT = ".shared .b32 slot;\nld.shared.u32 %n, [slot];\nst.shared.u32 [slot], %v;\n"
WRONG = {
    "a result": (
        AFTER,
        r"other interleavings produce other results: .* 0x00 at byte 44 .* 0x01 in run \d+, where tickets go",
    ),
    "a result, by shared memory": (
        SLOT + AFTER.replace("mov.u32 %n, %v;\n", ""),
        "other interleavings produce other results",
    ),
    "a trap": (AFTER + "setp.eq.u32 %q, %b, 1;\n@%q trap;\nmov.u32 %b, 0;\n", "1 finding: trap"),
    "an access": (AFTER + "mad.wide.u32 %p, %b, 64, %m;\nld.global.u32 %t, [%p+4];\n", "out-of-bounds"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_behind_one_other_ticket_is_found(what: str, tmp_path: Path) -> None:
    """In a run of all CTAs, for what it is; and nothing where the ticket before is another."""
    work, found = WRONG[what]
    first = START + (".shared .b32 slot;\nst.shared.u32 [slot], 99;\n" if "slot" in work else "")
    body = draws_all(14, work.replace(".shared .b32 slot;\n", ""), "%b").replace(START, first)
    status, text = explore(body, 2, tmp_path, output="out:u32:14")
    assert status in (1, 3) and re.search(found, text), text
    answered = explore(body.replace("%q, %n, 3", "%q, %n, 12"), 2, tmp_path, output="out:u32:14")
    assert answered == (0, of_tickets(14, 2))


def test_what_the_checks_remember_counts(tmp_path: Path) -> None:
    """Lane 1 stores at ticket 3, lane 0 loads at ticket 11, and the lanes meet at each ticket but 5, and but 11 after
    it. After 5 the registers and the memory are the same, whether 3 came before or not."""
    start, end = START.split("setp.ne.u32 %q, %t, 0")[0], "\n@%q bra end;\n"
    body = start + ".shared .b32 x;\n.reg .pred %r;\nsetp.eq.u32 %q, %t, 1;\n@%q st.shared.u32 [x], 7;\n"
    body += "bar.warp.sync -1;\nagain:\nsetp.eq.u32 %q, %t, 0;\n@%q atom.global.add.u32 %v, [%m], 1;\n"
    body += f"shfl.sync.idx.b32 %v, %v, 0, 31, -1;\nsetp.ge.u32 %q, %v, 14;{end}"
    body += "setp.eq.u32 %q, %v, 11;\nsetp.eq.and.u32 %q, %n, 5, %q;\nsetp.eq.or.u32 %q, %v, 5, %q;\n@%q bra met;\n"
    body += "bar.warp.sync -1;\nmet:\nmov.u32 %n, %v;\nsetp.eq.u32 %q, %t, 1;\nsetp.eq.and.u32 %r, %v, STORES, %q;\n"
    body += "@%r st.shared.u32 [x], 7;\nsetp.eq.u32 %q, %t, 0;\nsetp.eq.and.u32 %r, %v, 11, %q;\n"
    body += "@%r ld.shared.u32 %b, [x];\nmad.wide.u32 %p, %v, 4, %o;\n@%q st.global.u32 [%p], 7;\nbra again;\nend:"
    status, text = explore(body.replace("STORES", "3"), 2, tmp_path, output="out:u32:14")
    assert status == 1 and "1 finding: race" in text, text
    status, text = explore(body.replace("STORES", "12"), 2, tmp_path, output="out:u32:14")
    assert status == 0 and re.fullmatch(r"orders: \d+ classes of tickets, all run\n", text), text


NOT_ALONE = {
    "another counter": "atom.global.add.u32 %n, [%m+4], 1;\n",
    "a look at the counter": "ld.volatile.global.u32 %n, [%m];\n",
    "a ticket that others read": "st.relaxed.gpu.global.u32 [%m+4], %v;\n",
    "work that asks for the ticket before": "mad.wide.u32 %p, %v, 4, %o;\nst.global.u32 [%p], %n;\nmov.u32 %n, %v;\n",
}


@pytest.mark.parametrize("what", NOT_ALONE)
def test_ctas_that_share_more_have_classes_of_orders(what: str, tmp_path: Path) -> None:
    """Here of the same results, as one more run of all CTAs shows."""
    options = ["--ignore", "output-written-twice", "--runs", 150]
    status, text = explore(draws_all(10, NOT_ALONE[what], "7"), 2, tmp_path, *options, output="out:u32:10")
    assert status == 0 and re.fullmatch(r"orders: \d+ run, [1-9]\d* left\n", text), text


def test_threads_that_meet_in_global_memory_have_classes_of_orders(tmp_path: Path) -> None:
    """Lane 1 stores for a ticket what lane 0 loads after the next draw; the lanes meet between."""
    body = START.split("setp.ne.u32 %q, %t, 0")[0] + ".reg .pred %r;\nmov.u32 %n, 10;\nagain:\n"
    body += "setp.eq.u32 %q, %t, 0;\nsetp.eq.u32 %r, %t, 1;\n@%q atom.global.add.u32 %v, [%m], 1;\n"
    body += "shfl.sync.idx.b32 %v, %v, 0, 31, -1;\nbar.warp.sync -1;\nmad.wide.u32 %p, %n, 4, %o;\n"
    body += "@%q ld.global.u32 %b, [%p+40];\nsetp.ge.u32 %q, %v, 10;\n@%q bra end;\nmov.u32 %n, %v;\n"
    body += "mad.wide.u32 %p, %v, 4, %o;\n@%r st.global.u32 [%p+40], 7;\nsetp.eq.u32 %q, %t, 0;\n"
    body += "@%q st.global.u32 [%p], 7;\nbra again;\nend:"
    options = [*NO_OUTPUT, "--runs", 150]
    status, text = explore(body, 2, tmp_path, *options, output="out:u32:21")
    assert status == 0 and re.fullmatch(r"orders: 150 run, [1-9]\d* left\n", text), text


def test_only_outputs_count_where_there_are_any(tmp_path: Path) -> None:
    body = START + "atom.global.add.u32 %v, [%m], 1;\nst.global.u32 [%o], 1;\nmad.wide.u32 %p, %b, 0, %m;\n"
    body += "atom.global.exch.b32 %v, [%p+4], %b;\nend:"
    assert explore(body, 2, tmp_path, "--ignore", "output-written-twice", output="out:u32:1")[0] == 0
    assert explore(body, 2, tmp_path)[0] == 1


def test_a_limit_is_no_proof(tmp_path: Path) -> None:
    status, text = explore(TICKET.replace("WHAT", "7"), 3, tmp_path, "--runs", 2)
    assert status == 0 and re.fullmatch(r"orders: 2 run, [1-9]\d* left\n", text), text


def test_a_finding_in_a_rare_order_ends_it(tmp_path: Path) -> None:
    """The CTA that draws last of three ends the program with a trap if CTA 0 does: not in the first order."""
    body = START + "atom.global.add.u32 %v, [%m], 1;\nor.b32 %v, %v, %b;\nsetp.eq.u32 %q, %v, 2;\n"
    body += "setp.eq.and.u32 %q, %b, 0, %q;\n@%q trap;\nend:"
    status, text = explore(body, 3, tmp_path)
    assert status == 3 and "trap" in text and re.search(r"orders: \d run, \d left", text), text


def test_a_run_with_findings_is_no_proof(tmp_path: Path) -> None:
    status, text = explore(START + "st.global.u32 [%m], %b;\nend:", 2, tmp_path)
    assert status == 1 and "1 finding: race" in text and "orders:" not in text


SPINS = "take:\natom.acquire.gpu.global.TAKE;\nsetp.ne.u32 %q, %v, 0;\n@%q bra take;\n"


@pytest.mark.parametrize("take", ["cas.b32 %v, [%m], 0, 1", "exch.b32 %v, [%m], 1"])
def test_a_lock_is_a_wait(take: str, tmp_path: Path) -> None:
    body = (
        START
        + SPINS.replace("TAKE", take)
        + "ld.global.u32 %v, [%m+4];\nadd.u32 %v, %v, 1;\nst.global.u32 [%m+4], %v;\n"
    )
    body += "atom.release.gpu.global.exch.b32 %v, [%m], 0;\nend:"
    assert explore(body, 2, tmp_path) == (0, answer(2))
    assert explore(body, 3, tmp_path) == (0, answer(6))


def test_sums_by_bulk_stores_that_differ_are_told(tmp_path: Path) -> None:
    """2^24, 1 and 1 as f32: a 1 is lost after 2^24."""
    work = "setp.eq.u32 %q, %b, 0;\nselp.u32 %v, 0x4b800000, 0x3f800000, %q;\n.shared .align 16 .b8 from[16];\n"
    work += (
        "mov.u32 %s, from;\n" + BULK.format(form="add.f32", value="%v", none="%v", at=0).replace("%m", "%o") + "\nend:"
    )
    status, text = explore(START + work, 3, tmp_path)
    assert status == 1 and DIFFERS in text and "a delayed access of warp 0" in text, text


def test_a_sum_that_lands_late_has_what_its_source_held(tmp_path: Path) -> None:
    lands = [BULK.format(form="add.noftz.f16", value=value, none=0, at=0).replace("%m", "%o") for value in (1, 4)]
    body = START + ".shared .align 16 .b8 from[16];\nmov.u32 %s, from;\n" + "\n".join([*lands, "end:"])
    assert explore(body, 1, tmp_path, "--dump", f"1={tmp_path / 'sum'}") == (0, answer(2))
    assert (tmp_path / "sum").read_bytes()[0] == 5


@pytest.mark.parametrize("option", [["--schedule", 3], ["--delay", "0@3"], ["--checks", "off"], ["--runs", 0]])
def test_an_order_that_is_asked_for_as_well_is_refused(option: list[object], tmp_path: Path) -> None:
    status, text = explore(START + "end:", 1, tmp_path, *option)
    assert status == 2 and "--orders all: needs checks and at least one run" in text


def test_more_ctas_than_fit_are_refused(tmp_path: Path) -> None:
    status, text = explore(START + "end:", 5000, tmp_path)
    assert status == 2 and "5000 CTAs, of which" in text and "take fewer" in text


# One warp of a CTA draws from a counter in the first CTA of its cluster, or in global memory.
MEET = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
COUNTS = ".shared .align 4 .b8 counter[4];\n.reg .b32 %c, %z;\nmov.u32 %z, 0;\nmov.u32 %c, counter;\n"
COUNTS += "st.shared.u32 [%c], 0;\nmapa.shared::cluster.u32 %c, %c, %z;\n" + MEET
DRAWS = {"atom.relaxed.cluster.shared::cluster.add.u32 %v, [%c], 1;": 2, "atom.global.add.u32 %v, [%m], 1;": 1}


@pytest.mark.parametrize(("draw", "counters"), DRAWS.items())
@pytest.mark.parametrize("ctas", [2, 4])
def test_ctas_of_clusters_draw(draw: str, counters: int, ctas: int, tmp_path: Path) -> None:
    """As many classes as orders in which the CTAs draw: those of one counter, or of one in each cluster of two."""
    start, _ = START.split("mov.u32 %t")
    body = f"{start}{COUNTS}{draw}\nadd.u32 %v, %v, 1;\n{MEET}"
    classes = math.factorial(ctas) if counters == 1 else 2 ** (ctas // 2)
    status, text = explore(body, ctas, tmp_path, "--block", 1, "--cluster", 2, *NO_OUTPUT, output="out:u32:1")
    assert (status, text) == (0, answer(classes))


DRAWN = {
    ("attention/wgmma", 256, 1): 2,
    ("attention/wgmma", 512, 1): 8,
    ("attention/wgmma", 128, 8): 128,
    ("attention/mma_sync", 512, 1): 2,
    ("v25", 256, 1): 1,
}


@pytest.mark.first
@pytest.mark.long
def test_wgmma_draws_sixteen_Q_blocks() -> None:
    """32768 ways to draw them."""
    done = Launch("attention/wgmma", 128, heads=16).run("--orders", "all")
    assert (done.returncode, done.stderr) == (0, "orders: 1362 classes of tickets, all run\n")


@pytest.mark.long
@pytest.mark.parametrize(("name", "seq", "heads"), DRAWN, ids=str)
def test_kernels_that_draw_tickets(name: str, seq: int, heads: int) -> None:
    """As many classes as there are ways to draw, and the same bits of O in each."""
    done = Launch(name, seq, heads).run("--orders", "all")
    assert (done.returncode, done.stderr) == (0, answer(DRAWN[name, seq, heads]))


def test_what_is_left_in_memory_is_of_the_first_run(tmp_path: Path) -> None:
    body = TICKET.replace("WHAT", "7") + "\n@!%q st.global.u32 [%m+4], %v;"
    path = tmp_path / "orders.ptx"
    path.write_text(entry(body, ".param .u64 memory, .param .u64 out"))
    arguments = ["--arg", "buf:u32:2", "--arg", "out:u32:3"]
    call = [path, "--grid", 3, *arguments, "--ignore", "race", "--threads", 1, "--print", 0]
    assert ptxrun(*call, "--orders", "all").stdout == ptxrun(*call).stdout
