"""What the hook makes of a recorder of NCCL's, of which this is a model: what it tells of a group is printed for one scene after the other."""
import json
import sys
import types

sys.path.insert(0, sys.argv[1])
import _muster_hook as hook

c10d = sys.modules["torch.distributed.distributed_c10d"] = types.SimpleNamespace(_pg_map={}, _pg_names={}, _pg_group_ranks={})
c10d.GroupMember = types.SimpleNamespace(WORLD=None)
sys.modules["torch"] = types.SimpleNamespace(__version__="2.11.0", device=str)


class Group:
    def __init__(self, name, backend="nccl"):
        self.number = 0
        c10d._pg_map[self], c10d._pg_names[self], c10d._pg_group_ranks[self] = (backend, None), name, dict.fromkeys(range(4))

    def rank(self):
        return 1

    def size(self):
        return 4

    def _get_backend(self, device):
        return self

    def _get_sequence_number_for_group(self):
        return self.number


class Recorder:
    """A ring of entries, and what it says of each group once it has one."""

    def __init__(self, size=2000):
        self.size, self.ring, self.status = size, [], {}

    def has(self, id, group, op="all_reduce", numbered=False, enqueued=True, completed=True, started=-1, p2p=False):
        """A collective of a group. An entry that is not enqueued has an end that says it is there."""
        group.number += not numbered
        entry = {"pg_id": id, "process_group": [c10d._pg_names.get(group), ""], "collective_seq_id": group.number, "is_p2p": p2p,
            "profiling_name": "nccl:" + op, "input_sizes": [[4]], "input_dtypes": ["Float"], "completed": completed or not enqueued}  # fmt: skip
        self.ring = (self.ring + [entry])[-self.size :]
        s = self.status.setdefault(str(id), {"last_%s_collective" % k: -1 for k in ("enqueued", "started", "completed")})
        s["last_started_collective"] = max(s["last_started_collective"], started)
        if enqueued:
            s["last_enqueued_collective"] = group.number
            if completed:
                s["last_completed_collective"] = group.number

    def dump(self, entries, active):
        return json.dumps({"pg_status": self.status, "entries": [e for e in self.ring if not (active and e["completed"])] if entries else []})


def scene(f):
    """Has it told what it looks like after each pause in seconds that the scene yields."""
    for table in c10d._pg_map, c10d._pg_names, c10d._pg_group_ranks:
        table.clear()
    recorder, clock, inside = Recorder(), [10**12], [True]
    sys.modules["torch._C._distributed_c10d"] = types.SimpleNamespace(_dump_nccl_trace_json=recorder.dump)
    groups = hook.Groups(lambda: clock[0])
    hook.calls_torch = lambda: inside[0]
    world = Group("0")
    recorder.has(0, world)
    groups.look()
    for pause in f(recorder, world, groups, inside):
        for _ in range(pause):
            clock[0] += 10**9
            groups.look()
    marks = {hook.BLIND: " blind", hook.MIXED: " mixed", hook.BEGUN: " begun", hook.QUEUED: " queued"}
    lanes = sorted(groups.lanes, key=lambda lane: lane.name)
    told = ["%s: %d of %d %s" % (l.name, l.completed, l.entered, l.op) + "".join(m for bit, m in marks.items() if l.flags & bit) for l in lanes]
    print(f.__name__ + ": " + "; ".join(t.strip() for t in told))


@scene
def pending(recorder, world, groups, inside):
    recorder.has(0, world, "broadcast", completed=False)
    recorder.has(0, world, completed=False)
    yield 5


@scene
def inside_nccl(recorder, world, groups, inside):
    recorder.has(0, world, "broadcast", enqueued=False)
    yield 6


@scene
def inside_nccl_and_recorded_late(recorder, world, groups, inside):
    world.number += 1
    yield 3
    recorder.has(0, world, "broadcast", numbered=True, enqueued=False)
    yield 9


@scene
def inside_nccl_for_a_moment(recorder, world, groups, inside):
    recorder.has(0, world, "broadcast", enqueued=False)
    yield 1


@scene
def inside_nccl_with_one_that_sends(recorder, world, groups, inside):
    groups.mixed.add(id(world))
    recorder.has(0, world, "broadcast", enqueued=False)
    yield 6


@scene
def captured(recorder, world, groups, inside):
    world.number += 2
    yield 20


@scene
def part_of_what_is_captured(recorder, world, groups, inside):
    inside[0] = False
    recorder.has(0, world, "all_gather", enqueued=False)
    yield 20


@scene
def inside_nccl_after_captured(recorder, world, groups, inside):
    world.number += 2
    yield 5
    recorder.has(0, world, "broadcast", enqueued=False)
    yield 6


@scene
def pending_after_captured(recorder, world, groups, inside):
    world.number += 2
    yield 5
    recorder.has(0, world, "broadcast", completed=False)
    yield 6


@scene
def pending_and_older_entries_gone(recorder, world, groups, inside):
    other = Group("a")
    recorder.has(1, other)
    yield 2
    world.number += 1
    for _ in range(2500):
        recorder.has(1, other)
    recorder.has(0, world, completed=False)
    yield 6


@scene
def first_of_a_group(recorder, world, groups, inside):
    Group("a").number = 1
    yield 5


@scene
def first_of_a_group_of_several_backends(recorder, world, groups, inside):
    Group("a", "cpu:gloo,cuda:nccl").number = 1
    yield 5


@scene
def first_of_a_group_that_is_made_again(recorder, world, groups, inside):
    gone = Group("a")
    recorder.has(1, gone)
    yield 3
    del c10d._pg_names[gone]
    Group("a").number = 1
    yield 5


@scene
def once_used_and_not_known_yet(recorder, world, groups, inside):
    for i in range(1, 5):
        recorder.has(i, Group("a%d" % i))
        yield 1


@scene
def once_used_and_never_known(recorder, world, groups, inside):
    recorder.has(1, Group("a"))
    for _ in range(2500):
        recorder.has(0, world)
    yield 300


@scene
def used_in_a_graph_alone(recorder, world, groups, inside):
    graph = Group("a")
    graph.number = 1
    for _ in range(5):
        recorder.has(0, world)
        yield 1
    yield 20


@scene
def blocking_wait(recorder, world, groups, inside):
    recorder.status.clear()
    for _ in range(20):
        recorder.has(0, world, enqueued=False)
        yield 1
    yield 10


@scene
def begun(recorder, world, groups, inside):
    recorder.has(0, world, completed=False, started=2)
    yield 5


@scene
def queued(recorder, world, groups, inside):
    recorder.has(0, world, started=2)
    recorder.has(0, world, completed=False)
    yield 5


@scene
def first_of_a_group_queued(recorder, world, groups, inside):
    recorder.has(0, world, started=2)
    yield 1
    recorder.has(1, Group("a"), completed=False)
    yield 5
