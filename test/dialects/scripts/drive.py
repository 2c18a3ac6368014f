"""Runs a launcher's command lines, which come as JSON, one a line: [{"argv": [...], "env": {...}, "log": FILE}, ...], one for each machine. Each is
the real launcher in a process of its own, forked from this one, so that its libraries are loaded once. What is answered is its exit
status."""
import json
import os
import signal
import sys
import traceback


def serve(version, main):
    """Has main do for each command what the launcher's program does, with sys.argv and os.environ as they were for it."""
    print(json.dumps({"ready": version}), flush=True)
    for line in sys.stdin:
        pids = []
        for case in json.loads(line):
            pid = os.fork()
            if pid == 0:
                run(case, main)
            pids.append(pid)
        print(json.dumps({"codes": [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]}), flush=True)


def run(case, main):
    signal.alarm(120)  # a machine that waits for one that failed ends
    try:
        log = os.open(case["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.clear()
        os.environ.update(case["env"])
        sys.argv = case["argv"]
        main()
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
