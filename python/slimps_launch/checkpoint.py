# SPDX-License-Identifier: Apache-2.0
"""slimps checkpoint: what a checkpoint of a job holds, and whether its files are whole; and
--checkpoint of launch and run: a folder of checkpoints, to whose newest one a job may go back.

    SLIMPS_CHECKPOINT   the folder, in which the job's program saves (slimps_worker: --checkpoint)
    SLIMPS_RESUME       the checkpoint that it loads (--resume); "" or not set: none
"""

import argparse
import collections
import json
import glob
import os
import zlib

from slimps_launch import errors

MANIFEST = "manifest.json"
FORMAT = "slimps checkpoint 1"
SEAL = b',\n "crc32_of_the_above": "'
PIECE = 1 << 24  # bytes read at a time

DESCRIPTION = """Shows what a checkpoint of a job holds, or verifies every byte of its files. A
folder of several (slimps_worker --checkpoint) stands for its newest whole one."""


def find(folder):
    """Returns the folder of a checkpoint: `folder`, or the newest whole one in it.

    LaunchError: there is none.
    """
    if os.path.exists(os.path.join(folder, MANIFEST)):
        return folder
    try:
        steps = sorted((n for n in os.listdir(folder) if n.startswith("step-")), reverse=True)
    except OSError as error:
        raise errors.LaunchError("%s: %s" % (folder, error.strerror)) from error
    for name in steps:
        if os.path.exists(os.path.join(folder, name, MANIFEST)):
            return os.path.join(folder, name)
    raise errors.LaunchError(
        "%s: expected a checkpoint, or a folder with some; got no %s" % (folder, MANIFEST)
    )


Found = collections.namedtuple("Found", "folder rounds")


class Folder:
    """A folder for a job's checkpoints, each in a folder of its own with any name."""

    def __init__(self, folder):
        self.folder = os.path.abspath(folder)

    def newest(self):
        """Returns the whole checkpoint of the most rounds, or None."""
        found = []
        for path in sorted(glob.glob(os.path.join(glob.escape(self.folder), "*", MANIFEST))):
            try:
                found.append(
                    Found(os.path.dirname(path), read_manifest(os.path.dirname(path))["rounds"])
                )
            except errors.LaunchError:  # a damaged one is no checkpoint
                pass
        return max(found, key=lambda one: one.rounds, default=None)

    def variables(self, found):
        """Returns the variables of a job that begins at `found`, or, if that is None, anew."""
        return {"SLIMPS_CHECKPOINT": self.folder, "SLIMPS_RESUME": found.folder if found else ""}


def add_flags(parser):
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="the folder in which the program saves the job, told in SLIMPS_CHECKPOINT: every "
        "machine sees it; launch --restart goes back to the newest one in it",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="begin at the newest checkpoint in --checkpoint, told in SLIMPS_RESUME, if there is "
        "one",
    )


def check(parser, options):
    if options.resume and options.checkpoint is None:
        parser.error("--resume goes with --checkpoint DIR")


def prepare(job, options):
    """Makes a job save and resume as the flags say.

    LaunchError: the folder has checkpoints, and the job is to begin anew.
    """
    if options.checkpoint is None:
        return
    job.checkpoints = Folder(options.checkpoint)
    found = job.checkpoints.newest()
    if found and not options.resume:
        raise errors.LaunchError(
            "--checkpoint %s: expected a folder without checkpoints, got %s (round %d): give "
            "--resume to go on from it, or another folder"
            % (options.checkpoint, os.path.basename(found.folder), found.rounds)
        )
    job.environment.update(job.checkpoints.variables(found))


def check_seal(content):
    """Returns what is wrong with the bytes of a manifest, or None."""
    cut = content.rfind(SEAL)
    if cut < 0:
        return "%s: expected a last line with a CRC-32, got none" % MANIFEST
    expected = SEAL + b'%08x"\n}\n' % zlib.crc32(content[:cut])
    if content[cut:] == expected:
        return None
    return "%s: expected %r after its other lines, got %r" % (
        MANIFEST,
        expected.decode(),
        content[cut:].decode("utf-8", "replace"),
    )


def read_manifest(folder):
    """Returns the manifest of the checkpoint.

    LaunchError: it cannot be read, is damaged, or none of this format.
    """
    try:
        with open(os.path.join(folder, MANIFEST), "rb") as file:
            content = file.read()
    except OSError as error:
        raise errors.LaunchError("%s: %s: %s" % (folder, MANIFEST, error.strerror)) from error
    wrong = check_seal(content)
    if wrong:
        raise errors.LaunchError("%s: %s" % (folder, wrong))
    try:
        manifest = json.loads(content)
        found = manifest["format"]
    except (ValueError, TypeError, KeyError) as error:
        raise errors.LaunchError(
            '%s: %s: expected JSON of format "%s", got none' % (folder, MANIFEST, FORMAT)
        ) from error
    if found != FORMAT:
        raise errors.LaunchError('%s: expected format "%s", got "%s"' % (folder, FORMAT, found))
    return manifest


def crc32_of(path):
    """Returns the length and the CRC-32 of a file."""
    length = crc = 0
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            length += len(piece)
            crc = zlib.crc32(piece, crc)
    return length, crc


def damage(folder, manifest):
    """Yields a line for each file that is not as the manifest says."""
    for file in manifest["files"]:
        try:
            length, crc = crc32_of(os.path.join(folder, file["name"]))
        except OSError as error:
            yield "%s: %s" % (file["name"], error.strerror)
            continue
        if length != file["bytes"]:
            yield "%s: expected %d bytes, got %d" % (file["name"], file["bytes"], length)
        elif "%08x" % crc != file["crc32"]:
            yield "%s: expected CRC-32 %s, got %08x" % (file["name"], file["crc32"], crc)


def in_words(size):
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return "%d bytes" % size if unit == "bytes" else "%.1f %s" % (size, unit)
        size /= 1024
    raise AssertionError("no unit is left")


def show(folder, manifest):
    files = manifest["files"]
    print("checkpoint   %s" % folder)
    print("rounds       %d" % manifest["rounds"])
    print(
        "store        %s, %d workers, %d servers"
        % (manifest["kvstore"], manifest["workers"], manifest["servers"])
    )
    print("compression  %s" % manifest["compression"])
    print("optimizer    %s" % manifest["optimizer"])
    tensors = manifest["tensors"]
    print("\n%-50s %-20s %s" % ("tensor", "shape", "bytes in fp32"))
    total = 0
    for tensor in tensors:
        size = 4
        for extent in tensor["shape"]:
            size *= extent
        total += size
        print("%-50s %-20s %d" % (tensor["name"], tensor["shape"], size))
    print("%-50s %-20s %d" % ("%d tensors" % len(tensors), "", total))
    print("\n%-50s %-20s %s" % ("file", "bytes", "CRC-32"))
    for file in files:
        print("%-50s %-20d %s" % (file["name"], file["bytes"], file["crc32"]))
    print("%-50s %s" % ("%d files" % len(files), in_words(sum(file["bytes"] for file in files))))


def main(arguments):
    parser = argparse.ArgumentParser(prog="slimps checkpoint", description=DESCRIPTION)
    parser.add_argument("what", choices=("show", "verify"))
    parser.add_argument("folder", metavar="DIRECTORY")
    options = parser.parse_args(arguments)
    folder = find(options.folder)
    manifest = read_manifest(folder)
    if options.what == "show":
        show(folder, manifest)
        return 0
    found = list(damage(folder, manifest))
    for line in found:
        print("%s: %s" % (folder, line))
    if not found:
        print("%s: %d files are whole" % (folder, 1 + len(manifest["files"])))
    return 1 if found else 0
