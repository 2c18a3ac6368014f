"""Tells muster's agent, on the page that MUSTER_PAGE names, how far a PyTorch training is. Under another launcher, which knows of no
pages, MUSTER_PAGES names a directory where each rank has one.

The program must not notice: nothing here raises or prints, what is changed for the program is changed back in its children, and
whatever fails means that less is told. docs/heartbeat.md of muster explains the page and what is seen of which PyTorch.
"""

import os
import sys

# The layout of the page's part that is ours; page/layout.go has the same.
SIZE, VERSION = 4096, 1
ASK_TRACE_AT, ASK_STACKS_AT, HOOK_AT, LANES_AT, LANE, MAX_LANES = 16, 24, 256, 768, 104, 32
RECORDER, HOOKS, STACK, EXITING, GROUPED, MET, OVER, SPAWNED, TELLS = 1, 2, 4, 8, 16, 32, 64, 128, 256
BLIND, MIXED, BEGUN, QUEUED, HOST = 1, 2, 4, 8, 16
OP_SIZE = 32  # of a lane, with its length
STACK_SIGNAL = 52
FOREVER = 1 << 63
MAX_RECORDING = 2 << 20
MAX_THREADS = MAX_FRAMES = 100  # as faulthandler has them
MAX_STACKS = 192 << 10
SIZES = "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"

HERE = os.path.dirname(os.path.abspath(__file__))


def watch():
    """Waits for PyTorch to be imported in this process."""
    if wanted():
        sys.meta_path.insert(0, Watch("torch", lambda module: arrived()))


def wanted():
    return bool(os.environ.get("MUSTER_PAGE") or os.environ.get("MUSTER_PAGES")) and os.environ.get("MUSTER_HOOK") != "off"


LAUNCHERS = "torchrun", "accelerate", "accelerate-launch", "deepspeed", "deepspeed.pt", "ds", "fleetrun"
MODULES = (
    "torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch",
    "deepspeed.launcher.runner", "deepspeed.launcher.launch",
    "paddle.distributed.launch", "paddle.distributed.run", "paddle.distributed.fleet.launch",
)  # fmt: skip


def refuse_launcher():
    """Ends a process that is another launcher, called in one of several workers: it would start workers in each of them. In a shell script
    that muster runs it becomes muster, as it would have by the links in PATH, which the script may have lost."""
    links = not wanted() and os.environ.get("MUSTER_SHELL_LINKS")
    if not (several() or links) or bypassed():
        return
    with open("/proc/self/cmdline", "rb") as f:
        args = [os.fsdecode(a) for a in f.read().split(b"\0")[1:-1]]
    name = launcher(args)
    if name and several():
        refuse(name, "it (muster run -- %s ...)" % name + (", or make %s a link to muster" % name if name in LAUNCHERS else ""))
    if name:
        os.execv(os.path.join(links, "muster"), ["muster", sys.executable or "python3"] + args)


def several():
    """Whether this is in one of several workers. Who only looks on refuses nothing."""
    return wanted() and "MUSTER_PAGE" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"


def bypassed():
    return os.environ.get("MUSTER_BYPASS", "0") not in ("", "0")


def refuse(name, instead):
    """Ends a process that would start workers in a worker."""
    text = "%s in a worker would start workers in each of the job's %s; let muster start %s; MUSTER_BYPASS=1 allows it"
    text = text % (name, os.environ.get("WORLD_SIZE", "several"), instead)
    os.write(2, b"muster: %s\n" % text.encode())
    leave_refusal(text)
    os._exit(2)


def refuse_call(api):
    """PyTorch's launcher is a function, too, which others call that are launchers by another name (tune run, fabric run, notebook_launcher). Who
    trains already may start something else beside."""
    import functools

    launch = api.launch_agent

    @functools.wraps(launch)
    def launch_agent(*args, **kwargs):
        noted(refuse_untrained)
        return launch(*args, **kwargs)

    api.launch_agent = launch_agent


def refuse_untrained():
    hook, dist = getattr(sys, "_muster_hook", None), sys.modules.get("torch.distributed")
    trains = hook and (hook.steps or hook.groups.known or hook.groups.met) or dist and dist.is_available() and dist.is_initialized()
    if not trains and not bypassed():
        refuse("PyTorch's launcher, which %s calls," % os.path.basename(sys.argv[0] or "it"), "the script itself (muster run -- script.py ...)")


def leave_refusal(text):
    """Leaves for the agent why a launcher was refused in this worker: what lies around it, a pipe or a program, may end well all the same."""
    beside = os.path.dirname(os.environ.get("TORCHELASTIC_ERROR_FILE", ""))
    if not beside:
        return
    try:
        with open(os.path.join(beside, "refused.json"), "w") as f:
            f.write('{"message": "%s"}' % text.replace("\\", "").replace('"', ""))
    except OSError:
        pass


def launcher(args):
    """Which launcher Python was called for; None if for something else. args are Python's own."""
    args = list(args)
    while args:
        arg = args.pop(0)
        if arg == "-":
            return None
        if arg == "--check-hash-based-pycs":
            args[:1] = []
        elif not arg.startswith("-") or arg == "--":
            return script(([arg] if arg != "--" else []) + args)
        elif not arg.startswith("--"):
            letter = ([c for c in arg if c in "cmWX"] or [""])[0]
            value = letter and (arg.partition(letter)[2] or (args.pop(0) if args else ""))
            if letter == "m":
                known = value in MODULES or value == "accelerate.commands.accelerate_cli" and args[:1] == ["launch"]
                return "python -m " + value if known else None
            if letter == "c":
                return None
    return None


def script(args):
    """Which launcher a script is, with its arguments: its program, or its module by path."""
    name = os.path.basename(args[0]) if args else ""
    if name == "ds" and not os.path.exists(os.path.join(os.path.dirname(args[0]), "deepspeed")):
        return None  # many call a tool of their own so; DeepSpeed's lies beside its deepspeed
    if name in LAUNCHERS and (name != "accelerate" or args[1:2] == ["launch"]):
        return name
    by_path = [m for m in MODULES if name and args[0].endswith("/" + m.replace(".", "/") + ".py")]
    return by_path[0] if by_path else None


class Watch:
    """A finder that finds only one module, where the others find it, to learn when it has been imported."""

    def __init__(self, name, then):
        self.name, self.then = name, then

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find and find(name, path, target)
            if spec:
                announce(spec.loader, self.then)
                return spec
        return None


def announce(loader, then):
    """Makes the loader say once that it has loaded. It stays what it is, for there are programs that look."""

    def exec_module(module):
        del loader.exec_module
        loader.exec_module(module)
        noted(then, module)

    try:
        loader.exec_module = exec_module
    except Exception:
        pass  # the entry point will do


def arrived():
    """PyTorch is there. Of all processes of a worker the first to come here has the page until it ends."""
    try:
        if wanted() and not hasattr(sys, "_muster_hook"):
            sys._muster_hook = None  # once, whatever comes
            if "MUSTER_SPAWNED" in os.environ:
                follow(*os.environ.pop("MUSTER_SPAWNED").split(" ", 1))
                return
            many = several()
            if many:
                sys.meta_path.insert(0, Watch("torch.distributed.launcher.api", refuse_call))
            if os.environ.get("MUSTER_PAGE") or "LOCAL_RANK" in os.environ:
                claim(place_by_environment()[0])
            else:
                claim_at_step()
            if many:
                sys._muster_hook.attempt(sys._muster_hook.watch_spawned)
    except Exception:
        pass


def claim(rank):
    """Takes this process for the worker of a rank, if no other is."""
    take_out_of_environment()
    page = Page(os.environ.get("MUSTER_PAGE") or page_of(rank))
    os.environ["MUSTER_PAGE"] = page.path  # for the program's own beats
    os.environ.pop("MUSTER_PAGES", None)
    sys._muster_hook = Hook(page)
    sys._muster_hook.begin()


def follow(number, path):
    """In one of a number of processes that a worker started at once: leaves word there if they train in a process group that they alone are."""
    take_out_of_environment()
    steps = []

    def stepped():
        if len(steps) < 3:
            steps.append(1)
            if len(steps) == 3:
                noted(leave_word)

    def leave_word():
        dist = sys.modules["torch.distributed"]
        if dist.is_initialized() and dist.get_world_size() == int(number):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))

    after_steps(stepped)


def claim_at_step():
    """Of a process that nobody calls a rank it shows when it trains: launchers and data loaders import PyTorch, and step no optimizer."""

    def stepped():
        try:
            if sys._muster_hook is None:
                sys._muster_hook = False
                dist = sys.modules.get("torch.distributed")
                claim(dist.get_rank() if dist and dist.is_available() and dist.is_initialized() else 0)
        except Exception:
            pass

    after_steps(stepped)


def page_of(rank):
    """The page of a rank in the directory for all. Whatever the rank runs has it one after the other."""
    path = os.path.join(os.environ["MUSTER_PAGES"], "rank-%d" % rank)
    new = "%s.%d" % (path, os.getpid())
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.write(fd, (b"MUSTERPG" + bytes([VERSION, 0, 0, 0]) + SIZE.to_bytes(4, "little")).ljust(SIZE, b"\0"))
        os.link(new, path)  # whole, or not at all
    except FileExistsError:
        pass
    finally:
        os.close(fd)
        os.unlink(new)
    return path


def place_by_environment():
    """Rank and world size; 0 and 0 if that does not say."""
    try:
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        return (rank, world) if 0 <= rank < world < 1 << 31 else (0, 0)
    except (KeyError, ValueError):
        return 0, 0


class Page:
    """The page, held by a lock as long as this process lives and no child of it."""

    def __init__(self, path):
        import fcntl
        import mmap
        import struct

        self.path, self.pack, self.mem = path, struct.pack_into, None
        # The lock goes with a description of its own: a forked child can let go of it, and keep the memory.
        self.lock = File(path, os.O_RDWR)
        try:
            fcntl.flock(self.lock.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                self.mem = mmap.mmap(fd, SIZE)
            finally:
                os.close(fd)
            magic, version, size = struct.unpack_from("<8sII", self.mem)
            if (magic, version, size) != (b"MUSTERPG", VERSION, SIZE):
                raise ValueError("no page of ours")
            self.turn, self.claims = struct.unpack_from("<Q24xI", self.mem, HOOK_AT)
            self.claims += 1
        except BaseException:
            self.lock.close()
            raise

    def asked(self, at):
        """A number that is another one when the agent wants something anew: the recorders' content, or the threads' stacks."""
        return bytes(self.mem[at : at + 8])

    def write(self, part):
        """Puts a new content in place of our part. Its first word is odd meanwhile."""
        self.turn |= 1
        self.pack("<Q", self.mem, HOOK_AT, self.turn)
        self.mem[HOOK_AT + 8 : SIZE] = bytes(part[8:])
        self.turn += 1
        self.pack("<Q", self.mem, HOOK_AT, self.turn)


class Hook:
    """What is seen in this process, and the thread that tells it."""

    def __init__(self, page):
        import time

        self.page, self.pid, self.off = page, os.getpid(), False
        self.answers = {ASK_TRACE_AT: self.leave_recordings, ASK_STACKS_AT: self.leave_stacks}
        self.asked, self.wall = {at: page.asked(at) for at in self.answers}, time.time
        self.now = getattr(time, "clock_gettime_ns", None) and (lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC))
        self.now = self.now or (lambda: int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e9))
        self.start = start_time()
        self.flags, self.stack, self.failed, self.raised = 0, None, {}, ""
        self.spared, self.over, self.sends = False, None, False
        self.steps, self.calls, self.inside, self.works, self.who = 0, 0, {}, None, thread_of()
        self.moment, self.entered, self.due = 0, [], FOREVER
        self.spent, self.clock = 0, getattr(time, "thread_time_ns", int)
        self.groups = Groups(self.now)
        self.running, self.thread, self.ident = None, 0, 0
        self.spawned = ""  # where processes leave word that are a process group of their own

    def begin(self):
        import atexit

        os.register_at_fork(before=self.rest, after_in_parent=self.go_on, after_in_child=self.let_go)
        atexit.register(self.finish)
        for part in (take_old_names, self.listen, self.count_steps, self.count_calls, self.stay_over_exec):
            self.attempt(part)
        self.tell()
        self.go_on()

    # The thread. It is none of the threading module's, which programs count and wait for.

    def go_on(self):
        if self.off or self.running:
            return
        import _thread

        wake, done = _thread.allocate_lock(), _thread.allocate_lock()
        wake.acquire()
        done.acquire()
        self.running = wake, done
        try:
            _thread.start_new_thread(self.run, (wake, done))
        except Exception:
            self.running = None

    def rest(self):
        """Ends the thread: a lock that it holds while the process forks would be held for ever in the child."""
        running, self.running = self.running, None
        if running:
            import time

            running[0].release()
            running[1].acquire(True, 1)
            task = "/proc/self/task/%d" % self.thread
            for _ in range(100):  # Python counts the kernel's threads when it forks, of which this is one for a moment more
                if not os.path.exists(task):
                    break
                time.sleep(0.0005)

    def let_go(self):
        """A forked child is not the worker."""
        self.off, self.running = True, None
        self.page.lock.close()

    def finish(self):
        if not self.off:
            self.rest()
            self.flags |= EXITING
            if not self.spared:
                self.stack = None
            self.attempt(self.remember_exception)
            self.tell()
            self.off = True

    def look_for_end(self):
        """Notices that the script is over: what its main thread does from now on, such as to wait for other threads, or to call handlers of
        atexit, is no training, unless one of the others goes on with that. Nothing is called, only looked at, in this moment least of all."""
        threading = sys.modules.get("threading")
        if getattr(threading, "_SHUTTING_DOWN", False) or threading and getattr(threading.main_thread(), "_is_stopped", False):
            if self.over is None:
                self.over = self.steps
                self.remember_exception()
            self.flags = self.flags | OVER if self.over == self.steps else self.flags & ~OVER

    def remember_exception(self):
        """Python has printed the one that ends the program, and keeps it."""
        e = getattr(sys, "last_value", None)
        if isinstance(e, BaseException):
            kind, text = type(e), str(e)
            name = kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else "%s.%s" % (kind.__module__, kind.__qualname__)
            self.raised = (name + ": " + text if text else name)[:1024].splitlines()[0]

    def run(self, wake, done):
        try:
            import _thread

            self.thread, self.ident = getattr(_thread, "get_native_id", int)(), _thread.get_ident()  # the first since Python 3.8
            before = self.spent
            while not self.wait(wake):
                self.turn()
                self.spent = before + self.clock()
        except BaseException:
            pass  # at the interpreter's end anything may be gone
        finally:
            done.release()

    def wait(self, wake):
        """Waits for the next turn, and reports whether there is to be none."""
        self.due = self.now() + int(5e9)
        woken = wake.acquire(True, self.pause())
        self.due = FOREVER
        return woken

    def awake(self):
        """Has the thread begin anew that has missed its turns: many builds of Python wait by the clock on the wall, which was set back then."""
        self.due = FOREVER
        self.rest()
        self.go_on()

    def pause(self):
        """Until the next whole second by the clock on the wall, or quarter: ranks whose counters are read at the same moment can be told
        apart by who is ahead."""
        each = self.groups.pause
        left = each - self.wall() % each
        return left if left > each / 20 else left + each

    def turn(self):
        first = self.wall() % 1 < 0.1
        if self.spawned and os.path.exists(self.spawned):
            self.flags |= SPAWNED
        self.groups.steps = self.steps
        for part in (self.groups.look, self.listen_again, self.try_answer, self.look_for_end):
            self.attempt(part)
        self.remember(first)
        self.tell()

    def remember(self, first):
        """What was read at the beginning of a second holds as long as nothing else is read."""
        entered = sorted((lane.group, lane.entered) for lane in self.groups.lanes)
        if first:
            self.moment = self.now()
        elif entered != self.entered:
            self.moment = 0
        self.entered = entered

    def attempt(self, part):
        """Of what fails the page says so until it works again, and the rest is told all the same."""
        try:
            part()
            self.failed.pop(part.__name__, None)
        except Exception as e:
            self.failed[part.__name__] = "the hook failed to %s: %r" % (part.__name__.replace("_", " "), e)

    def why_mute(self):
        """Each cause once."""
        causes = list(self.failed.values()) + [self.groups.mute]
        return "; ".join(cause for cause in causes if cause)

    def listen_again(self):
        if self.stack:
            read, ours = self.handler
            if read(STACK_SIGNAL) is not ours:
                self.stack = None  # the program has a handler of its own by now
            elif not self.stack.there():
                self.listen()

    def try_answer(self):
        """What fails, as in a memory that is full, says nothing of what else is told."""
        for at, answer in self.answers.items():
            if self.asked[at] != self.page.asked(at):
                self.asked[at] = self.page.asked(at)
                try:
                    answer()
                except Exception:
                    pass

    def leave_recordings(self):
        """Leaves what the recorders hold in a file, all at once. There it takes little of the memory that is left."""
        text = self.groups.recordings().encode()
        to = self.page.path + ".trace"
        room = os.statvfs(os.path.dirname(to))
        if len(text) * 8 > room.f_bavail * room.f_frsize:
            text = b'{"error": "no room in memory for %d bytes"}' % len(text)
        try:
            fd = os.open(to + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(fd, "wb") as f:
                f.write(text)
            os.rename(to + ".new", to)
        except Exception:
            os.unlink(to + ".new")
            raise

    def leave_stacks(self):
        """Appends all threads' stacks but our own to the file that the signal's handler writes to, in its words. It walks the frames of threads
        that run, of which Python may die (3.13 within seconds); what holds Python's lock, as this does, may look at them."""
        stacks = [item for item in sys._current_frames().items() if item[0] != self.ident]
        stacks[MAX_THREADS - 1 : -1] = []  # the oldest is the main one
        threads = getattr(sys.modules.get("threading"), "_active", {})
        texts = [stack_of(ident, getattr(threads.get(ident), "name", ""), frame) for ident, frame in stacks]
        while len(texts) > 1 and sum(map(len, texts)) > MAX_STACKS:  # the agent reads no more
            del texts[-2]
        file = File(self.page.path + ".stack", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(file.fd, "".join(texts).encode("ascii", "backslashreplace"))
        finally:
            file.close()

    # What is told.

    def tell(self):
        part = bytearray(SIZE - HOOK_AT)
        pack, groups = self.page.pack, self.groups
        flags = self.flags | (HOOKS if self.sends else 0) | (RECORDER if groups.recorded else 0) | (STACK if self.stack else 0)
        flags |= TELLS | (GROUPED if groups.known else 0) | (MET if groups.met else 0)
        pack("<II", part, 8, self.pid, flags)
        pack("<Q", part, 16, self.start)
        pack("<ii", part, 24, *groups.place())
        lanes = groups.lanes[:MAX_LANES]
        pack("<II", part, 32, self.page.claims, len(lanes))
        pack("<QQQQQ", part, 40, self.steps, self.now(), groups.limit, self.spent, self.moment)
        put_lane(pack, part, 128, self.call())
        put_text(part, 256, 128, self.why_mute())
        raised = self.raised.encode("utf-8", "replace")
        put_text(part, 384, 128, raised)
        if len(lanes) <= MAX_LANES - 2:  # whose room has what is longer
            put_text(part, LANES_AT - HOOK_AT + (MAX_LANES - 2) * LANE, 2 * LANE, raised[127:])
        for i, lane in enumerate(lanes):
            put_lane(pack, part, LANES_AT - HOOK_AT + i * LANE, lane)
        self.page.write(part)

    def call(self):
        """The calls into the framework, as a lane: those that are complete are all but the ones we are inside."""
        inside = list(self.inside.values())
        lane = Lane(0, "")
        lane.entered, lane.completed = self.calls, self.calls - len(inside)
        lane.op = inside[-1] if inside else ""
        return lane

    # Where it comes from.

    def listen(self):
        """Lets the signal write all threads' stacks, if nobody else uses it."""
        stack, self.stack = self.stack, None
        if stack is None and caught(STACK_SIGNAL):
            return
        import faulthandler
        import signal

        if signal.getsignal(STACK_SIGNAL) is signal.SIG_DFL:
            try:
                signal.signal(STACK_SIGNAL, signal.SIG_IGN)  # what is left when the interpreter ends: the default kills
            except ValueError:
                pass  # PyTorch was imported by another thread than the main one
        stack = File(self.page.path + ".stack", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        faulthandler.register(STACK_SIGNAL, file=stack.fd, all_threads=True, chain=False)
        self.stack, self.handler = stack, (signal.getsignal, signal.getsignal(STACK_SIGNAL))
        self.spared = self.handler[1] is signal.SIG_IGN  # which the signal is again when the handler is gone

    def count_steps(self):
        def stepped():
            self.steps += 1
            if self.now() > self.due:
                noted(self.awake)

        after_steps(stepped)

    def count_calls(self):
        """Counts sends and receives, of which recorders tell nothing, or too little, and what makes groups; where PyTorch has no recorder,
        all calls."""
        torch, compiling, names = sys.modules["torch"], is_compiling(), JOINS + TRANSFERS
        dist, c10d = sys.modules.get("torch.distributed"), sys.modules.get("torch.distributed.distributed_c10d")
        if not self.groups.can_record():
            around(torch.autograd, "backward", self, compiling)
            self.flags |= HOOKS
            names = CALLS + TRANSFERS
        if hasattr(c10d, "destroy_process_group"):
            before(c10d, dist, "destroy_process_group", self.groups.part)
        for name in names if c10d else ():
            if hasattr(c10d, name):
                around(c10d, name, self, compiling, self.transferred if name in TRANSFERS else None)
                if hasattr(dist, name):
                    setattr(dist, name, getattr(c10d, name))

    def watch_spawned(self):
        """Has processes that torch.multiprocessing starts from here look whether they train without the job's other workers."""
        module, package = sys.modules["torch.multiprocessing.spawn"], sys.modules["torch.multiprocessing"]
        start = module.start_processes

        def start_processes(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn", **more):
            if start_method == "fork" or nprocs < 2 or self.off:
                return start(fn, args, nprocs, join, daemon, start_method, **more)
            self.spawned = self.page.path + ".spawned"
            os.environ["MUSTER_SPAWNED"] = "%d %s" % (nprocs, self.spawned)
            put_into_environment(os.environ)
            try:
                context = start(fn, args, nprocs, False, daemon, start_method, **more)
            finally:
                take_out_of_environment()
                os.environ.pop("MUSTER_SPAWNED", None)
            while join and not context.join():
                pass
            return None if join else context

        module.start_processes = package.start_processes = start_processes

    def enter(self, name):
        """Says that the calling thread is inside a call, and returns the one around."""
        if self.now() > self.due:
            noted(self.awake)
        me = self.who()
        outer = self.inside.get(me)
        self.calls += 1
        self.sends = self.sends or name in TRANSFERS
        self.inside[me] = name
        if name == "init_process_group":  # in which older versions wait with Python's lock held
            noted(self.tell_now)
        return outer

    def tell_now(self):
        """Tells of this moment, between two turns of the helper thread."""
        running = self.running
        self.rest()
        self.tell()
        if running:
            self.go_on()

    def leave(self, outer):
        if outer is None:
            self.inside.pop(self.who(), None)
        else:
            self.inside[self.who()] = outer

    def transferred(self, args, kwargs, result):
        """Notes which group sends and receives, and what of it a program may wait for."""
        group = kwargs.get("group", args[2] if len(args) > 2 else None)
        ops = args[0] if args else kwargs.get("p2p_op_list")
        if isinstance(ops, list) and ops:
            group = ops[0].group
        self.groups.mixed.add(None if group is None else id(group))
        if self.works is None:
            import weakref

            self.works = weakref.WeakSet()
            count_waits(self, is_compiling())
        for work in result if isinstance(result, (list, tuple)) else [result]:
            if hasattr(work, "wait"):
                self.works.add(work)

    def stay_over_exec(self):
        """A program that replaces itself takes us along, though its children do not get to know of us."""
        execv, execve = os.execv, os.execve

        def over(call, *args):
            if self.off:
                return call(*args)
            self.rest()
            stack, self.stack = self.stack, None  # until the next program has a handler, the signal would kill it
            self.tell()
            put_into_environment(os.environ)
            try:
                return call(*args)
            finally:  # it could not be replaced
                take_out_of_environment()
                self.stack = stack
                self.go_on()

        def exec_with(path, args, env):
            if not self.off and type(env) in (dict, type(os.environ)) and env.get("MUSTER_PAGE") == self.page.path:
                env = dict(env)
                put_into_environment(env)
            return over(execve, path, args, env)

        os.execv = lambda path, args: over(execv, path, args)
        os.execve = exec_with


CALLS = (
    "init_process_group destroy_process_group new_group barrier monitored_barrier all_reduce broadcast reduce all_gather"
    " all_gather_into_tensor _all_gather_base gather scatter reduce_scatter reduce_scatter_tensor _reduce_scatter_base"
    " all_to_all all_to_all_single broadcast_object_list all_gather_object gather_object scatter_object_list"
).split()
TRANSFERS = "send recv isend irecv batch_isend_irecv".split()
JOINS = ["init_process_group", "new_group"]  # in which all wait for all, before anything can be recorded


class File:
    """An open file of ours."""

    def __init__(self, path, flags):
        self.fd = os.open(path, flags | os.O_NOFOLLOW, 0o600)
        self.id = self.who()

    def who(self):
        info = os.fstat(self.fd)
        return info.st_dev, info.st_ino

    def there(self):
        """Whether the descriptor is still ours: a program may close all that it does not know."""
        try:
            return self.who() == self.id
        except OSError:
            return False

    def close(self):
        if self.there():
            os.close(self.fd)


def stack_of(ident, name, frame):
    """A thread's stack as faulthandler writes it, which tells of names since Python 3.14."""
    lines = ["Thread 0x%016x%s (most recent call first):" % (ident, " [%s]" % str(name)[:64].replace("\n", " ") if name else "")]
    while frame and len(lines) <= MAX_FRAMES:
        code = frame.f_code
        lines.append('  File "%s", line %s in %s' % (code.co_filename, frame.f_lineno or "???", code.co_name))
        frame = frame.f_back
    return "\n".join(lines + ["", ""])


class Lane:
    """A process group; see page.Lane."""

    def __init__(self, group, name, members=0):
        self.group, self.name, self.members = group, name, members
        self.entered = self.completed = self.bytes = self.flags = self.mark = 0
        self.op = ""
        self.since = self.asked = 0  # when it last moved; which collective's name we know
        self.claim = Claim()

    def move(self, entered, completed, now):
        if (entered, completed) != (self.entered, self.completed):
            self.since = now
            if completed != self.completed:
                self.op, self.bytes, self.mark = "", 0, 0
        self.entered, self.completed = entered, completed

    def waits(self):
        return self.entered > self.completed and not self.flags & BLIND

    def unused(self):
        return not self.entered and not self.flags


class Claim:
    """That the host waits inside NCCL with the collective that has a group's own number, where the recorder does not count that as enqueued.
    A number alone does not prove it: those of collectives that a CUDA graph has captured are counted by nobody. Who waits there does nothing else."""

    def __init__(self):
        self.number, self.past, self.went_on, self.proved, self.at, self.wait = 0, None, False, False, 0, 0

    def holds(self, number, past, now, proof):
        """past is what the process has done otherwise. The proof is asked for when that has been the same for a second, and then less and
        less often."""
        if (number, past) != (self.number, self.past):
            self.went_on = number == self.number
            self.number, self.past, self.proved, self.at, self.wait = number, past, False, now + 1e9, 1e9
        if not self.proved and now >= self.at:
            self.wait = min(2 * self.wait, 60e9)
            self.at, self.proved = now + self.wait, calls_torch() and proof()
        return self.proved


class Groups:
    """The process groups of this process, by what PyTorch's own records say of them."""

    def __init__(self, now):
        self.now, self.pause = now, 1.0
        self.lanes, self.known, self.ids = [], {}, {}
        self.recorded, self.limit, self.mute = False, 0, ""
        self.learn_at = {}
        self.met = False  # whether any collective was entered, or something sent, in a group that may be gone
        self.steps, self.past = 0, ()  # of optimizers; and with them, what all recorders said last
        self.timed = self.unnamed = False  # whether PyTorch looks at when collectives begin
        self.mixed, self.unrecorded = set(), {}  # groups that send and receive; what groups count of which no recorder tells
        self.sources = recorders()

    def can_record(self):
        return bool(self.sources)

    def place(self):
        """Rank and world size, by the environment or, later, the default group."""
        try:
            return self.rank, self.world
        except AttributeError:
            pass
        return place_by_environment()

    def look(self):
        """Reads all counters anew."""
        c10d = sys.modules.get("torch.distributed.distributed_c10d")
        groups = list(getattr(c10d, "_pg_names", {}).items()) if c10d else []
        now, found, self.mute = self.now(), [], "" if groups else "no process group yet"
        self.survey(c10d, groups)
        backends = {name: backends_of(c10d, pg) for pg, name in groups}
        used = set().union(*backends.values())
        numbers = {name: number_of(pg) for pg, name in groups if "nccl" in backends[name]}
        sources = [source for source in recorders_for(used, self.sources) if source.label in used]
        statuses = [(source, source.dump(False).get("pg_status", {})) for source in sources]
        self.past = self.steps, [[s.get("last_enqueued_collective") for s in status.values()] for _, status in statuses]
        known, self.unnamed = set(), False  # groups that NCCL's recorder has; whether a recorder has one of which it is not known which it is
        for source, status in statuses:
            lanes = self.recorded_lanes(source, status, numbers if source.label == "nccl" else {}, now)
            known |= {lane.name for lane in lanes if source.label == "nccl"}
            found += lanes
        self.recorded = bool(found)
        told = {lane.name for lane in found}
        for pg, name in groups:
            first = numbers.get(name) == 1 and name not in known and self.first_lane(name, now)
            if first:
                found.append(first)
            elif not any(s.records and s.label in backends[name] for s in self.sources):
                found.append(self.counted_lane(pg, name, now, " and ".join(sorted(backends[name]))))
            elif name not in told:
                lane = self.unrecorded_lane(pg, name, now)
                found += [lane] if lane else self.unused_lanes(name, backends[name])
        found = [lane for lane in found if lane]
        if self.mixed:
            self.mix(c10d, groups, found)
        self.met = self.met or any(lane.entered or lane.flags & MIXED for lane in found)
        found.sort(key=lambda lane: (not lane.waits(), -lane.since))
        used = sum(1 for lane in found if not lane.unused())
        self.lanes = found[: max(used, MAX_LANES - 2)]  # who uses few has room for more than lanes
        if used > MAX_LANES:
            self.mute = "%d process groups, of which the page holds %d" % (used, MAX_LANES)
        waiting = [now - lane.since for lane in found if lane.waits()]
        self.pause = 0.25 if waiting and max(waiting) > 1e9 else 1.0

    def part(self, group=None, *_):
        """Notes, before a program destroys its groups, that they were in use: they may have come after the last look."""
        c10d = sys.modules["torch.distributed.distributed_c10d"]
        for pg in list(c10d._pg_names) if group is None else [group]:
            try:
                self.met = self.met or pg.size() > 1 and pg._get_sequence_number_for_group() > 0
            except Exception:
                pass  # not every backend numbers its collectives

    def survey(self, c10d, groups):
        """Learns who the members of new groups are."""
        names = {name: pg for pg, name in groups}
        for name in [n for n in self.known if n not in names]:
            del self.known[name]
        for pg, name in groups:
            if name in self.known and self.known[name][0] == id(pg):
                continue
            for names_by_id in self.ids.values():  # those of a group that is gone
                names_by_id.update({old: None for old, of in names_by_id.items() if of == name})
            ranks = sorted(getattr(c10d, "_pg_group_ranks", {}).get(pg, {}))
            self.known[name] = id(pg), ranks, {}
            if len(self.known) == 1 or name == "0":
                self.limit = time_out(pg)
                self.rank, self.world = pg.rank(), pg.size()

    def lane(self, name, label):
        """The lane of a group in one recorder; all members give it the same number."""
        _, ranks, lanes = self.known[name]
        if label not in lanes:
            import hashlib

            text = "%s %s %s" % (name, label, ",".join(map(str, ranks)))
            sum = hashlib.sha256(text.encode()).digest()
            lanes[label] = Lane(int.from_bytes(sum[:8], "little"), name, len(ranks))
        return lanes[label]

    def counted_lane(self, pg, name, now, backend):
        """A group without a recorder numbers its collectives all the same, those of C++ included; only their ends are not seen."""
        try:
            number = pg._get_sequence_number_for_group()
        except Exception:
            self.mute = "group %s (%s) has no recorder and no sequence number" % (name, backend)
            return None
        lane = self.lane(name, "sequence")
        lane.flags = BLIND
        lane.move(number, 0, now)
        self.mute = "PyTorch %s has no recorder for %s" % (sys.modules["torch"].__version__, backend)
        return lane

    def first_lane(self, name, now):
        """A group that has entered its first collective, for which NCCL makes connections, and waits for all: the recorder has nothing of it yet."""
        lane = self.lane(name, "nccl")
        if not lane.claim.holds(1, self.past, now, lambda: not self.unnamed and not lane.claim.went_on):
            return None
        lane.move(1, 0, now)
        return lane

    def unrecorded_lane(self, pg, name, now):
        """A group that is in use, though its recorder tells nothing of it: of gloo's it records no sends and receives. A collective may
        have begun just now, behind the recorder's answer."""
        try:
            number = pg._get_sequence_number_for_group()
        except Exception:
            number, self.mute = 0, "no recorder tells of group %s, and it has no sequence number" % name
        before, self.unrecorded[name] = self.unrecorded.get(name, 0), number
        if not before and not self.mixes(pg):
            return None
        lane = self.lane(name, "sequence")
        lane.flags = BLIND
        lane.move(number, 0, now)
        return lane

    def unused_lanes(self, name, backends):
        """A group of some ranks that this one is a member of, and has not used, if so: who is none has no lanes for it."""
        if self.unrecorded.get(name) or not 1 < len(self.known[name][1]) < self.place()[1]:
            return []
        return [self.lane(name, s.label) for s in self.sources if s.records and s.label in backends]

    def mixes(self, pg):
        """Whether sends and receives went through a group."""
        c10d = sys.modules["torch.distributed.distributed_c10d"]
        return id(pg) in self.mixed or None in self.mixed and pg is c10d.GroupMember.WORLD

    def mix(self, c10d, groups, lanes):
        """Says so of its lanes: what they number is not the same for all members."""
        mixed = {name for pg, name in groups if self.mixes(pg)}
        for lane in lanes:
            lane.flags |= MIXED if lane.name in mixed else 0

    def recorded_lanes(self, source, status, numbers, now):
        """The lanes of the groups in one recorder. numbers are what the groups count themselves, from just before its answer."""
        source.records = source.records or bool(status)
        names = self.names(source, status, now)
        newest, lanes = {}, []
        for id in sorted(status, key=int):
            if names.get(id) in self.known:  # a group that took over the name of a destroyed one has a higher id
                newest[names[id]] = id
        for name, id in newest.items():
            lane = self.lane(name, source.label)
            s = status[id]
            entered, begun, completed = (max(0, int(s.get("last_%s_collective" % k, 0))) for k in ("enqueued", "started", "completed"))
            self.timed = self.timed or begun > 0
            lane.flags = (BEGUN if begun > completed else QUEUED) if self.timed and entered > completed else 0
            lane.flags |= HOST if source.label == "gloo" else 0
            number = numbers.get(name, 0)
            if number > entered == completed and lane.claim.holds(number, self.past, now, lambda: enqueues(source, id, number)):
                entered = number
            lane.move(entered, completed, now)
            lanes.append(lane)
            if lane.waits() and now - lane.since > 3e9 and lane.asked != (id, completed):
                lane.asked = id, completed
                name_pending(source, id, lane)
        return lanes

    def recordings(self):
        """What all recorders hold, as the text of one JSON object."""
        parts = []
        for source in self.sources:
            if source.records:
                try:
                    text = source.text(MAX_RECORDING // len(self.sources))
                except Exception as e:
                    text = source.form({"error": repr(e)})
                parts.append('"%s": %s' % (source.label, text))
        return "{%s}" % ",\n".join(parts)

    def names(self, source, status, now):
        """Which group the recorder means by its ids: its entries say so. Reading them all costs milliseconds, so it is done seldom."""
        names = self.ids.setdefault(source.label, {})
        new = [id for id, s in status.items() if id not in names and int(s.get("last_enqueued_collective", 0)) > 0]
        at, wait = self.learn_at.get(source.label, (0, 1e9))
        if new and now >= at:
            for entry in source.dump(True).get("entries", []):
                names[str(entry["pg_id"])] = entry["process_group"][0]
            self.learn_at[source.label] = now + wait, min(wait * 2, 60e9)
        self.unnamed = self.unnamed or any(id not in names for id in new)
        return names


def calls_torch():
    """Whether a thread is in a function of PyTorch's, and none that replays a graph or waits for the GPU."""
    files = [frame.f_code.co_filename for frame in sys._current_frames().values()]
    return any("/torch/" in f and "/torch/cuda/" not in f for f in files)


def enqueues(source, id, number):
    """Whether a recorder has the collective of that number. Of those that a CUDA graph has captured it has none, but for parts of some."""
    return any(e["collective_seq_id"] == number for e in recorded(source, id, False))


def recorded(source, id, active):
    """What a recorder has of a group's collectives; active: of those that it takes for pending."""
    entries = source.dump(True, active).get("entries", [])
    return [e for e in entries if str(e["pg_id"]) == id and not e.get("is_p2p")]


def name_pending(source, id, lane):
    """Says of which kind the oldest collective is that is not complete: members that disagree on it have lost each other. To the recorder one
    is complete that is not enqueued yet. Numbers may be left out; but where older entries than the pending ones are gone the oldest of these may be, too."""
    number = lambda entry: entry["collective_seq_id"]
    for active in True, False:
        entries = recorded(source, id, active)
        first = min((e for e in entries if number(e) > lane.completed), key=number, default=None)
        if first and (number(first) == lane.completed + 1 or min(map(number, entries)) <= lane.completed):
            break
    else:
        first = None
    if first:
        lane.op, lane.bytes = kind_of(first)
    past = next((e for e in recorded(source, id, False) if number(e) == lane.completed), None)
    lane.mark = mark_of(*kind_of(past)) if past and past.get("profiling_name") else 0


def kind_of(entry):
    op = entry.get("profiling_name", "").split(":")[-1]
    return op, sum(map(bytes_of, entry.get("input_sizes", []), entry.get("input_dtypes", [])))


def mark_of(op, bytes):
    """A number for what must be alike in all members: the judge makes it of what is on the page of another."""
    from binascii import crc32

    alike = "all_reduce" in op or "allreduce" in op
    return crc32(b"%s %d" % (op.encode("utf-8", "replace")[: OP_SIZE - 1], bytes if alike else 0)) & 0xFFFF or 1


WIDTHS = {"Double": 8, "Long": 8, "ComplexFloat": 8, "ComplexDouble": 16, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2}


def bytes_of(shape, dtype):
    n = WIDTHS.get(dtype, 1)
    for side in shape:
        n *= side
    return n


class Recorder:
    """One of PyTorch's flight recorders: each backend, or kind of backend, has its own."""

    def __init__(self, label, dump, records, **more):
        import json

        self.label, self.read, self.records, self.more = label, dump, records, more
        self.parse, self.form = json.loads, json.dumps

    def dump(self, entries, active=False):
        return self.parse(self.read(entries, active, **self.more))

    def text(self, size):
        """All that it holds; of what is longer the newest entries."""
        raw = self.read(True, False, **self.more)
        if len(raw) <= size:
            return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
        all = self.parse(raw)
        entries = all.get("entries", [])
        keep = len(entries) * size // len(raw) * 3 // 4
        all["entries"], all["left_out"] = entries[len(entries) - keep :], len(entries) - keep
        text = self.form(all)
        return text if len(text) <= size else self.form({"error": "%d bytes" % len(raw), "pg_status": all.get("pg_status")})[:size]


def recorders():
    """The recorders that this PyTorch is known to have, by what can be called."""
    sizes = [os.environ.get(n) for n in SIZES]
    lib = sys.modules.get("torch._C._distributed_c10d")
    if lib is None or "0" in sizes:
        return []
    ways = (("nccl", "_dump_nccl_trace_json"), ("gloo", "_dump_fr_trace_json"))
    return [Recorder(label, getattr(lib, name), True) for label, name in ways if hasattr(lib, name)]


def recorders_for(backends, sources):
    """Adds to sources what may be recorders of other backends: since 2.15 they can be asked for by name, and those that are none
    answer with nothing."""
    dump = next((s.read for s in sources if s.label == "gloo"), None)
    if dump and "backend: str" in (dump.__doc__ or ""):
        known = {s.label for s in sources}
        sources += [Recorder(b, dump, False, backend=b) for b in sorted(backends - known)]
    return sources


def backends_of(c10d, pg):
    """The names of a group's backends: "gloo", or those of "cpu:gloo,cuda:nccl"."""
    text = str(getattr(c10d, "_pg_map", {}).get(pg, ("",))[0])
    names = {part.split(":")[-1] for part in text.split(",")}
    return names | {"gloo", "nccl"} if "undefined" in names else names


def number_of(pg):
    """The number of the collective that this process was the last to enter in a group's NCCL; 0 if it does not say."""
    try:
        return pg._get_backend(sys.modules["torch"].device("cuda"))._get_sequence_number_for_group()
    except Exception:
        return 0


def time_out(pg):
    """When the framework gives up on a collective of this group, in nanoseconds; 0 if it does not say."""
    try:
        backend = pg._get_backend(sys.modules["torch"].device("cpu")) if hasattr(pg, "_get_backend") else pg
    except Exception:
        try:
            backend = pg._get_backend(sys.modules["torch"].device("cuda"))
        except Exception:
            return 0
    try:
        return max(0, int(backend.options._timeout.total_seconds() * 1e9))
    except Exception:
        return 0


def is_compiling():
    """A function that is true while PyTorch's compiler reads a program, and which the compiler knows."""
    compiler = getattr(sys.modules["torch"], "compiler", None)
    return getattr(compiler, "is_compiling", None) or (lambda: False)


def around(module, name, hook, compiling, transferred=None):
    """Makes hook know when a function of module runs, and of one that sends or receives which group it did so in."""
    import functools

    function, short = getattr(module, name), name.strip("_")

    @functools.wraps(function)
    def call(*args, **kwargs):
        if compiling():
            return function(*args, **kwargs)
        outer = hook.enter(short)
        try:
            result = function(*args, **kwargs)
        finally:
            hook.leave(outer)
        if transferred:
            noted(transferred, args, kwargs, result)
        return result

    call.__code__ = call.__code__.replace(co_name=name)  # by which PyTorch's compiler tells isend from irecv
    noted(leave_uncompiled, call)
    setattr(module, name, call)


def noted(do, *args):
    """The program goes on, whatever we cannot note."""
    try:
        do(*args)
    except Exception:
        pass


def leave_uncompiled(function):
    """Keeps PyTorch's compiler from compiling a call of ours for itself, as it would do with a program's. What it compiles that calls us it
    reads through us."""
    frames = getattr(getattr(sys.modules["torch"]._C, "_dynamo", None), "eval_frame", None)
    if hasattr(frames, "set_code_exec_strategy"):
        action = frames._FrameAction
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(action.SKIP, action.DEFAULT))
    elif hasattr(frames, "skip_code"):
        frames.skip_code(function.__code__)


def before(module, other, name, do):
    """Calls do before each call of a function, which two modules have, with what that is given."""
    import functools

    function = getattr(module, name)

    @functools.wraps(function)
    def call(*args, **kwargs):
        noted(do, *args, *kwargs.values())
        return function(*args, **kwargs)

    setattr(module, name, call)
    setattr(other, name, call)


def count_waits(hook, compiling):
    """Makes hook know when a program waits for what it sends or receives."""
    kind = sys.modules["torch._C._distributed_c10d"].Work
    waits = kind.wait

    def wait(work, *args, **kwargs):  # so named, and with the work first: PyTorch takes what is not for an override, and calls it again
        if compiling() or work not in hook.works:
            return waits(work, *args, **kwargs)
        outer = hook.enter(hook.inside.get(hook.who(), "isend/irecv"))
        try:
            return waits(work, *args, **kwargs)
        finally:
            hook.leave(outer)

    noted(leave_uncompiled, wait)
    kind.wait = wait


STEPPED = []  # what is called after each step of an optimizer


def after_steps(do):
    """Calls do after each step of an optimizer from now on, the one that ends included. PyTorch is told of us only once: its hooks may be
    running, and an optimizer is changed but once."""
    STEPPED.append(do)
    if len(STEPPED) == 1:
        hook_steps()


def hook_steps():
    """Newer versions of PyTorch offer to call us, in older ones each class is changed when it is used."""
    compiling = is_compiling()

    def stepped(*_):
        if not compiling():  # the compiler would compile us, and compile again whenever a count has changed
            for do in STEPPED:  # who is added by one of them sees this step, too
                do()

    optim = sys.modules.get("torch.optim.optimizer") or sys.modules["torch.optim"].optimizer
    if hasattr(optim, "register_optimizer_step_post_hook"):
        optim.register_optimizer_step_post_hook(stepped)
        return
    prepare = optim.Optimizer._hook_for_profile

    def hook_for_profile(optimizer):
        prepare(optimizer)
        after(type(optimizer), "step", stepped)

    optim.Optimizer._hook_for_profile = hook_for_profile


def after(cls, name, do):
    """Calls do after each call of a method."""
    import functools

    method = getattr(cls, name)
    if hasattr(method, "_muster"):
        return

    @functools.wraps(method)
    def call(*args, **kwargs):
        result = method(*args, **kwargs)
        do()
        return result

    call._muster = True
    setattr(cls, name, call)


def caught(number):
    """Whether this process has a handler for a signal, Python's or not."""
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return True


def thread_of():
    """A function that says which thread calls it."""
    import _thread

    return _thread.get_ident


def start_time():
    """Field 22 of this process's stat. Its name, the second one, may hold anything."""
    with open("/proc/self/stat", "rb") as f:
        return int(f.read().rpartition(b")")[2].split()[19])


RENAMED = (2, 9, SIZES), (2, 2, ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING"))


def take_old_names():
    """Some things are set by two names, of which newer versions of PyTorch know both, and warn of the older one."""
    version = sys.modules["torch"].__version__.split(".")
    for major, minor, names in RENAMED:
        new, old = (os.environ.get(n) for n in names)
        if new is not None and new == old and (int(version[0]), int(version[1])) >= (major, minor):
            del os.environ[names[1]]


def take_out_of_environment():
    """Our children's Python does not load us; what the user put into PYTHONPATH stays as it was, byte for byte."""
    way = os.environ.get("PYTHONPATH")
    if way is None:
        return
    rest = [d for d in way.split(os.pathsep) if os.path.abspath(d) != HERE or not d]
    if rest:
        os.environ["PYTHONPATH"] = os.pathsep.join(rest)
    else:
        del os.environ["PYTHONPATH"]


def put_into_environment(env):
    way = env.get("PYTHONPATH")
    env["PYTHONPATH"] = HERE + (os.pathsep + way if way else "")


def put_text(part, at, size, text):
    raw = (text if isinstance(text, bytes) else text.encode("utf-8", "replace"))[: size - 1]
    part[at : at + 1 + len(raw)] = bytes([len(raw)]) + raw


def put_lane(pack, part, at, lane):
    pack("<QQQQHHI", part, at, lane.group, lane.entered, lane.completed, lane.bytes, lane.flags, lane.mark, lane.members)
    put_text(part, at + 40, 32, lane.name)
    put_text(part, at + 72, OP_SIZE, lane.op)
