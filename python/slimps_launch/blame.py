# SPDX-License-Identifier: Apache-2.0
"""Who made a job fail, and what is said of it. Pure, but for the lines that it says.

Guilt follows from how processes ended, in which order, and from reports (job_node.Node.report). The
scheduler writes its report before any node learns that the job has failed. It has
    error    why, in one line;
    code     the name of a status code, as CANCELLED if somebody has stopped the scheduler;
    job      "failed";
    blames   the name of the node that failed, as "worker1", if it is one.
A daemon that ends with an error writes `error` and `code`. A Python with slimps that ends by an
exception writes `error` and `traceback`, and `code` and `cause` if an error of slimps led to it.
Lines that processes print only say more of the guilty one.
"""

import re
import signal

from slimps_launch import job_node

TRACEBACK = "Traceback (most recent call last):"
NOT_RAISED = "Exception ignored in"  # the line before a traceback that does not end the process
CHAINED = re.compile("During handling of the above|The above exception was the direct cause")
SPEAKER = re.compile(r"^[\w.]+: ")  # "slimps_worker: ", "slimps.errors.UnavailableError: "
MOST_ERRORS = 8  # different tracebacks that are shown beside the culprit's
MOST_LINES = 20  # of a process that has left no traceback


def failure(nodes):
    """Returns the scheduler's report of how the job failed; {}: there is none here."""
    reports = [node.report for node in nodes if node.role == "scheduler"]
    return next((report for report in reports if report.get("job") == "failed"), {})


def accused(nodes):
    """Returns the name of the node that ended the job, as the scheduler says; None: it says none.

    A scheduler that blames no node ends the job itself, as when it is stopped.
    """
    return failure(nodes) and failure(nodes).get("blames", "scheduler") or None


def is_late(node, nodes):
    """True if a node of `nodes` runs that has failed: it says so, or the scheduler does."""
    if node.status is not None or node.role == "carrier":
        return False
    return node.name == accused(nodes) or (node.role == "worker" and bool(node.report))


def was_stopped(nodes):
    """True if somebody has stopped the scheduler."""
    return failure(nodes).get("code") == "CANCELLED"


def last_traceback(lines):
    """Returns the last traceback among the lines, with those that it follows from; [] if none."""
    heads = [
        at
        for at, line in enumerate(lines)
        if line == TRACEBACK and not lines[max(at - 1, 0)].startswith(NOT_RAISED)
    ]
    if not heads:
        return []
    first = heads.pop()
    end = next(
        (at for at in range(first + 1, len(lines)) if not lines[at].startswith((" ", "\t"))),
        len(lines) - 1,
    )
    while heads and any(CHAINED.match(line) for line in lines[max(first - 2, 0) : first]):
        first = heads.pop()
    return lines[first : end + 1]


class Report:
    """Says why a job failed, through `say`. Made before the launcher ends the other nodes.

    `failed` are the nodes that ended by themselves, in this order. `is_shown` says whose lines the
    screen has already.
    """

    def __init__(self, nodes, failed, say, is_shown):
        self.nodes = nodes
        self.failed = failed
        self.say = say
        self.is_shown = is_shown
        self.culprit = self._find_culprit()

    def _find_culprit(self):
        """Returns the node that caused it; None: it is one of another launcher's."""
        name = accused(self.nodes)
        blamed = next((node for node in self.nodes if node.name == name), None)
        # A process aborts itself, too, when it learns that another one has failed.
        killed = (
            node
            for node in self.failed
            if node.status < 0
            and not node.stopped
            and (node.status != -signal.SIGABRT or node is blamed or name is None)
        )
        first = next(killed, None)
        if blamed is not None and self._is_lost(blamed):
            return blamed  # its machine, with others that its carrier has killed
        if first is not None or name is not None:
            return first or blamed
        failing = self.failed + [node for node in self.nodes if is_late(node, self.nodes)]
        return min(failing, key=self._innocence)

    @staticmethod
    def _is_lost(node):
        return node.status is None and node.where is not None and not node.report

    @staticmethod
    def _innocence(node):
        raised = bool(node.report) and "code" not in node.report  # an error of its own program
        return (node.stopped, node.status == 0, not raised)

    def why(self):
        """Returns in one line which process failed, and its error."""
        culprit = self.culprit
        told = failure(self.nodes).get("error", "")
        if culprit is None:
            return told
        if culprit not in self.failed:
            if self._is_lost(culprit):
                return "%s on %s is lost: %s" % (culprit.name, culprit.where, told)
            return "%s failed: %s" % (culprit.name, culprit.report.get("error", told))
        error = self._error(culprit)
        silent = not (culprit.last_lines or culprit.report)
        return "%s %s%s%s" % (
            culprit.name,
            culprit.describe_end(),
            " while workers were running" if culprit.status == 0 else "",
            ": " + error if error else "; it printed nothing" if silent else "",
        )

    def of(self):
        """Says which process failed, and returns the exit status.

        Its last traceback comes next, as a whole, then what the others say that failed.
        """
        self.say("slimps: the job failed: " + self.why())
        lines = []
        if self.culprit is not None:
            lines = self._traceback(self.culprit)
            shown = lines
            if not lines and not self.is_shown(self.culprit):
                shown = list(self.culprit.last_lines)[-MOST_LINES:]
            self._show(self.culprit, shown)
        self._others(lines)
        guilty = [self.culprit] if self.culprit in self.failed else self.failed
        statuses = (job_node.exit_status(node.status) for node in guilty if node.status)
        return next(statuses, 1)

    def _others(self, shown):
        """Says how the others failed: each error once, but none that repeats the culprit's."""
        followers = []
        others = {}  # nodes by their traceback and how they ended
        error = self._error(self.culprit) if self.culprit is not None else None
        for node in self.failed:
            lines = self._traceback(node)
            how = (tuple(lines), node.describe_end(), self._error(node))
            full = how not in others and len(others) == MOST_ERRORS
            if node is self.culprit:
                continue
            if full or node.stopped or lines and lines == shown or self._repeats(node, error):
                followers.append(node.name)
            else:
                others.setdefault(how, []).append(node)
        for (lines, end, own), nodes in others.items():
            names = ", ".join(node.name for node in nodes)
            self.say("slimps: %s then %s%s" % (names, end, ": " + own if own else ""))
            self._show(nodes[0], lines)
        if followers:
            self.say("slimps: with it ended %s" % ", ".join(sorted(followers)))

    def _repeats(self, node, error):
        """True if a node without a traceback only says that the job has failed, and why."""
        if node.status < 0 or self._traceback(node):
            return False
        own = self._error(node)
        told = failure(self.nodes).get("error")
        words = [SPEAKER.sub("", one) for one in (error, told) if one]
        return own is None or any(one in own for one in words)

    def _show(self, node, lines):
        for line in lines:
            self.say("  %s| %s" % (node.name, line))

    @staticmethod
    def _traceback(node):
        if node.report.get("traceback"):
            return node.report["traceback"].splitlines()
        return last_traceback(list(node.last_errors)) or last_traceback(list(node.last_lines))

    def _error(self, node):
        """Returns in one line why a node ended, as it says; None: it says nothing."""
        if node.status is not None and node.status < 0:
            return None
        traceback = self._traceback(node)
        own = traceback[-1:] or list(node.last_errors)[-1:] or list(node.last_lines)[-1:]
        return node.report.get("error") or next(iter(own), None)
