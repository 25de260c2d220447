# SPDX-License-Identifier: Apache-2.0
"""The C API as programs outside this tree get it: the library's exports, and the header under C and
C++ compilers."""

import os
import re
import subprocess
import tempfile
import unittest

PACKAGE = os.path.abspath("worker/c_api_package")
INCLUDE = os.path.join(PACKAGE, "include")
LIB = os.path.join(PACKAGE, "lib")
LIBRARY = os.path.join(LIB, "libslimps.so.1")
STRICT = ["-pedantic", "-Wall", "-Wextra", "-Werror"]


def run(*command):
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        raise AssertionError(
            "%s: status %d\n%s" % (" ".join(command), done.returncode, done.stdout)
        )
    return done.stdout


def header():
    with open(os.path.join(INCLUDE, "slimps", "c_api.h"), encoding="utf-8") as text:
        return text.read()


def first_program():
    """Returns the one whole program in the header's opening comment, from its first include to
    main's end."""
    comment = header().split("*/")[0].splitlines()
    first = next(i for i, line in enumerate(comment) if "#include <slimps/c_api.h>" in line)
    end = max(i for i, line in enumerate(comment) if line == " *   }")
    return "\n".join(line[len(" *   ") :] for line in comment[first : end + 1]) + "\n"


class Package(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name, content=None):
        path = os.path.join(self.folder, name)
        if content is not None:
            with open(path, "w", encoding="utf-8") as out:
                out.write(content)
        return path

    def test_exports_what_the_header_declares_and_nothing_else(self):
        exported = [
            line.split()[-1] for line in run("nm", "-D", "--defined-only", LIBRARY).splitlines()
        ]
        code = re.sub(r"/\*.*?\*/", "", header(), flags=re.DOTALL)
        declared = re.findall(r"^SLIMPS_API [^;(]*?(slimps_\w+)\(", code, re.MULTILINE)
        self.assertGreater(len(declared), 35)
        self.assertEqual(
            sorted("%s@@SLIMPS_1" % name for name in declared),
            sorted(name for name in exported if name != "SLIMPS_1"),
        )

    def test_the_name_of_the_library_has_the_major_version(self):
        major = re.search(r"#define SLIMPS_C_API_MAJOR (\d+)", header()).group(1)
        self.assertIn("Library soname: [libslimps.so.%s]" % major, run("readelf", "-d", LIBRARY))

    def test_the_headers_program_runs_as_it_stands(self):
        source = self.path("program.c", first_program())
        program = self.path("program")
        run(
            "cc",
            "-std=c99",
            *STRICT,
            source,
            "-I" + INCLUDE,
            "-L" + LIB,
            "-lslimps",
            "-Wl,-rpath," + LIB,
            "-o",
            program,
        )
        self.assertEqual("0.5 1.5 2.5\n", run(program))

    def test_the_header_stands_alone_in_every_language(self):
        for compiler, standard, name in [
            ("gcc", "c99", "a.c"),
            ("gcc", "c17", "b.c"),
            ("g++", "c++98", "c.cc"),
            ("g++", "c++20", "d.cc"),
        ]:
            with self.subTest(standard):
                # long long is not in C++98, but every compiler with C99's stdint.h has it.
                tolerated = ["-Wno-long-long"] if standard == "c++98" else []
                source = self.path(
                    name,
                    "#include <slimps/c_api.h>\nint main(void) {\n"
                    "  slimps_tensor t = SLIMPS_TENSOR(slimps_int_key(1), 0, 0, 0);\n"
                    "  return t.key.number == 1 ? 0 : 1;\n}\n",
                )
                run(
                    compiler,
                    "-std=" + standard,
                    *STRICT,
                    *tolerated,
                    source,
                    "-I" + INCLUDE,
                    "-o",
                    self.path("stands"),
                )
                run(self.path("stands"))

    def test_a_program_finds_functions_at_run_time(self):
        code = (
            "import ctypes, sys; lib = ctypes.CDLL(sys.argv[1]); "
            "lib.slimps_last_error.restype = ctypes.c_char_p; "
            "print(lib.slimps_barrier(None), lib.slimps_last_error().decode())"
        )
        self.assertEqual(
            "3 slimps_barrier: store: expected a pointer, got NULL\n",
            run("/usr/bin/python3", "-c", code, os.path.join(LIB, "libslimps.so")),
        )


if __name__ == "__main__":
    unittest.main()
