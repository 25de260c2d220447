# SPDX-License-Identifier: Apache-2.0
"""Files that a command writes: refuses bad paths before the work, writes whole files or none.

    out_files.refuse_unwritable(parser, "--json", options.json)   # before the work
    out_files.save_json(options.json, figures)                    # after it

Thread-safe: nothing is kept between calls.
"""

import json
import os
import shutil

from slimps_launch import errors


def draft_of(path):
    """Returns the path at which a file is written before it is moved into place."""
    return "%s.%d.tmp" % (os.path.realpath(path), os.getpid())


def is_special(path):
    """True for a terminal, a pipe or /dev/null, which is written directly and never replaced."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def why_not_writable(path):
    """Returns the reason why `path` cannot be written, or None. Changes nothing there."""
    if os.path.isdir(path) or not os.path.basename(path):
        return "not a file"
    if os.path.exists(path) and not os.access(path, os.W_OK):
        return "Permission denied"
    if is_special(path):
        return None
    try:
        with open(draft_of(path), "w", encoding="utf-8"):
            pass
        os.unlink(draft_of(path))
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        return getattr(error, "strerror", None) or str(error)
    return None


def refuse_unwritable(parser, flag, path):
    """Ends the program with a usage error if `path` is given and cannot be written."""
    complaint = path is not None and why_not_writable(path)
    if complaint:
        parser.error("%s: cannot write %s: %s" % (flag, path, complaint))


def save(path, write):
    """Calls write(file) to write `path`, as a whole or not at all.

    OSError: the file could not be written; the old file, if any, is still there.
    """
    if is_special(path):
        with open(path, "w", encoding="utf-8") as out:
            write(out)
        return
    draft = draft_of(path)
    try:
        with open(draft, "w", encoding="utf-8") as out:
            write(out)
            out.flush()
            os.fsync(out.fileno())
        if os.path.exists(path):
            shutil.copymode(path, draft)
        real = os.path.realpath(path)
        os.replace(draft, real)
        sync_folder(os.path.dirname(real))
    except BaseException:
        if os.path.exists(draft):
            os.unlink(draft)
        raise


def sync_folder(path):
    """Waits until the names in the folder are on the disk."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def save_text(path, text):
    """Writes a text file as a whole. LaunchError: it could not be written."""
    try:
        save(path, lambda out: out.write(text))
    except OSError as error:
        raise errors.LaunchError("cannot write %s: %s" % (path, error.strerror)) from error


def save_json(path, value, **layout):
    """Writes a JSON file as a whole. LaunchError: it could not be written."""
    save_text(path, json.dumps(value, **(layout or {"indent": 1})) + "\n")


def load_json(path):
    """Returns the content of a JSON file. ValueError: it cannot be read or is no JSON; says why."""
    try:
        with open(path, encoding="utf-8") as text:
            return json.load(text)
    except OSError as error:
        raise ValueError("cannot read it: %s" % error.strerror) from error
    except UnicodeDecodeError as error:
        raise ValueError("not JSON: byte %d is no UTF-8" % error.start) from error
    except RecursionError as error:
        raise ValueError("not JSON: nested too deep") from error
    except ValueError as error:
        raise ValueError("not JSON: %s" % error) from error
