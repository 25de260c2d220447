# SPDX-License-Identifier: Apache-2.0
"""Stands in for a daemon: plays the script that its arguments spell.

say=TEXT  print it                    exit=N     exit with status N
err=TEXT  print it on stderr           raw=TEXT   print its bytes alone, after escapes
wait      until a signal ends it      kill=NAME  die by this signal
once=P    make the file P and die by SIGKILL, unless P exists
fail=P    make the file P and exit with an error, unless P exists
until=P   until the file P exists     touch=P    make the file P
child=P   start a sleeping child, write its pid to P, and go on
trap=P    on SIGINT or SIGTERM write the signal's name to P and exit 0
env=NAME  print NAME=value
pid=P     write its pid to P            arguments  print the last two
nested=P  start a child with trap=P, and wait until it makes the file P.ready
save=P    on SIGTERM make the file P, wait until the file P.go exists, and exit 0
noted=P   on SIGUSR1 write the signal's name to P
stdin=P   write the first line of stdin to P
stop=P    make the file P and stop by SIGSTOP, unless P exists
gone=P    exit with status 9 if the process whose pid is in P runs
report=J  report the JSON J to the launcher
"""

import os
import signal
import subprocess
import sys
import time

sys.path.insert(
    0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "repo")
)

import proc_files  # noqa: E402
from eventually import eventually  # noqa: E402


def write(path, text):
    new = "%s.%d" % (path, os.getpid())  # two nodes may write one file
    with open(new, "w", encoding="ascii") as out:
        out.write(text)
    os.rename(new, path)


def trap(path):
    def note(number, _):
        write(path, signal.Signals(number).name)
        sys.exit(0)

    signal.signal(signal.SIGINT, note)
    signal.signal(signal.SIGTERM, note)


def save(path):
    def note(*_):
        write(path, "")
        wait_for(path + ".go")
        sys.exit(0)

    signal.signal(signal.SIGTERM, note)


def wait_for(path):
    while not eventually(lambda: os.path.exists(path)):
        pass


def play(arguments):
    if "--port_file" in arguments:  # a scheduler
        at = arguments.index("--port_file")
        write(arguments[at + 1], "4711\n")
    for argument in arguments:
        verb, _, value = argument.partition("=")
        if verb == "say":
            print(value, flush=True)
        elif verb == "env":
            print("%s=%s" % (value, os.environ.get(value)), flush=True)
        elif verb == "exit":
            sys.exit(int(value))
        elif verb == "kill":
            os.kill(os.getpid(), getattr(signal, value))
        elif verb == "arguments":
            print(" ".join(arguments[-2:]), flush=True)
        elif verb == "once":
            try:
                os.close(os.open(value, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        elif verb == "fail":
            if not os.path.exists(value):
                write(value, "")
                sys.exit("slimps_fake: cannot go on")
        elif verb == "touch":
            write(value, "")
        elif verb == "pid":
            write(value, str(os.getpid()))
        elif verb == "report":
            write(os.environ["SLIMPS_REPORT_FILE"], value)
        elif verb == "err":
            print(value, file=sys.stderr, flush=True)
        elif verb == "raw":
            os.write(1, value.encode().decode("unicode_escape").encode("latin1"))
        elif verb == "until":
            wait_for(value)
        elif verb == "child":
            write(value, str(subprocess.Popen(["sleep", "600"]).pid))
        elif verb == "nested":
            own = ["trap=" + value, "touch=%s.ready" % value, "wait"]
            subprocess.Popen([sys.executable, __file__] + own)
            wait_for(value + ".ready")
        elif verb == "gone" and os.path.exists(value):
            with open(value, encoding="ascii") as pid:
                if proc_files.alive(int(pid.read())):
                    sys.exit(9)
        elif verb == "stop":
            try:
                os.close(os.open(value, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGSTOP)
        elif verb == "stdin":
            write(value, sys.stdin.readline())
        elif verb == "save":
            save(value)
        elif verb == "noted":
            signal.signal(signal.SIGUSR1, lambda *_: write(value, "SIGUSR1"))
        elif verb == "trap":
            trap(value)
        elif verb == "wait":
            while True:
                time.sleep(0.1)  # pause() would miss a signal just before it


play(sys.argv[1:])
