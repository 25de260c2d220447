# SPDX-License-Identifier: Apache-2.0
"""The C API as programs outside this tree get it: the library's exports, the headers under C and
C++ compilers, and a program of version 1.0 with today's library."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

PACKAGE = os.path.abspath("worker/c_api_package")
INCLUDE = os.path.join(PACKAGE, "include")
LIB = os.path.join(PACKAGE, "lib")
LIBRARY = os.path.join(LIB, "libslimps.so.1")
HEADERS = [
    "c_api.h",
    "c_api_calls.h",
    "c_api_exchange.h",
    "c_api_figures.h",
    "c_api_gradients.h",
    "c_api_trace.h",
]
# What later versions than 1.1 added.
LATER = {
    "slimps_get_key_codecs": "2",
    "slimps_set_policy": "2",
    "slimps_exchange_gradient_at": "4",
    "slimps_copy": "5",
    "slimps_await_saved": "6",
    "slimps_former_rounds": "6",
    "slimps_load": "6",
    "slimps_save": "6",
    "slimps_exchange_is_read": "7",
    "slimps_note_position": "8",
    "slimps_timeout": "10",
    "slimps_trace_finish": "8",
    "slimps_trace_span": "8",
    "slimps_trace_start": "8",
    "slimps_broadcast_bytes": "10",
    "slimps_exchange_await_weights": "10",
    "slimps_exchange_set_memory": "10",
    "slimps_exchange_get_clipping": "10",
    "slimps_exchange_set_clip_norm": "10",
    "slimps_pull_optimizer_states": "10",
    "slimps_put_optimizer_states": "10",
}
# As version 1.0 was.
FIRST = os.path.abspath("tests/worker/capi/c_api_1_0")
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


def header(name="c_api.h"):
    with open(os.path.join(INCLUDE, "slimps", name), encoding="utf-8") as text:
        return text.read()


def declared_in(text):
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return set(re.findall(r"^SLIMPS_API [^;(]*?(slimps_\w+)\(", code, re.MULTILINE))


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

    def compile_and_link(self, source, include):
        program = self.path("program")
        run(
            "cc",
            "-std=c99",
            *STRICT,
            source,
            "-I" + include,
            "-L" + LIB,
            "-lslimps",
            "-Wl,-rpath," + LIB,
            "-o",
            program,
        )
        return program

    def test_exports_what_the_headers_declare_under_the_version_that_first_had_it(self):
        exported = [
            line.split()[-1] for line in run("nm", "-D", "--defined-only", LIBRARY).splitlines()
        ]
        with open(FIRST + ".h", encoding="utf-8") as text:
            first = declared_in(text.read())
        self.assertEqual(46, len(first))
        declared = set().union(*(declared_in(header(name)) for name in HEADERS))
        self.assertLess(first | set(LATER), declared)

        def version(name):
            return "SLIMPS_1" if name in first else "SLIMPS_1." + LATER.get(name, "1")

        self.assertEqual(
            sorted("%s@@%s" % (name, version(name)) for name in declared),
            sorted(name for name in exported if not name.startswith("SLIMPS_1")),
        )

    def test_a_program_of_the_first_version_runs_with_this_library(self):
        os.mkdir(self.path("slimps"))
        shutil.copy(FIRST + ".h", self.path("slimps/c_api.h"))
        program = self.compile_and_link(FIRST + ".c", self.folder)
        self.assertEqual("well\n", run(program))
        needed = run("objdump", "-p", program)
        self.assertIn(" SLIMPS_1\n", needed)
        self.assertNotIn("SLIMPS_1.1", needed)

    def test_the_name_of_the_library_has_the_major_version(self):
        major = re.search(r"#define SLIMPS_C_API_MAJOR (\d+)", header()).group(1)
        self.assertIn("Library soname: [libslimps.so.%s]" % major, run("readelf", "-d", LIBRARY))

    def test_the_headers_program_runs_as_it_stands(self):
        source = self.path("program.c", first_program())
        self.assertEqual("0.5 1.5 2.5\n", run(self.compile_and_link(source, INCLUDE)))

    def test_the_log_goes_to_stderr_in_its_own_form(self):
        program = (
            "#include <slimps/c_api.h>\nint main(void) {\n  slimps_store* store;\n"
            "  if (slimps_log_to_stderr() || slimps_log_to_stderr()) return 1;\n"
            '  if (slimps_create("device", 0, &store)) return 2;\n'
            '  return slimps_set_gradient_compression(store, "1bit:scaling=none,threshold=0.5");\n'
            "}\n"
        )
        said = run(self.compile_and_link(self.path("log.c", program), INCLUDE))
        self.assertRegex(said, r"\AW\d+ .*\] 1bit:scaling=none with threshold 0.5 .*\n\Z")

    def test_each_header_stands_alone_in_every_language(self):
        uses = {
            "c_api.h": "slimps_tensor used = SLIMPS_TENSOR(slimps_int_key(1), 0, 0, 0);",
            "c_api_calls.h": "slimps_item used;",
            "c_api_exchange.h": "slimps_exchange_settings used = SLIMPS_EXCHANGE_SETTINGS;",
            "c_api_figures.h": "slimps_decision used;",
            "c_api_gradients.h": "slimps_tensor used; slimps_updater none = 0; (void)none;",
            "c_api_trace.h": "slimps_totals used; int row = SLIMPS_TRACE_STEP; (void)row;",
        }
        self.assertEqual(HEADERS, sorted(uses))
        for compiler, standard, name in [
            ("gcc", "c99", "a.c"),
            ("gcc", "c17", "b.c"),
            ("g++", "c++98", "c.cc"),
            ("g++", "c++20", "d.cc"),
        ]:
            # long long is not in C++98, but every compiler with C99's stdint.h has it.
            tolerated = ["-Wno-long-long"] if standard == "c++98" else []
            for included, use in uses.items():
                with self.subTest(standard, header=included):
                    source = self.path(
                        name,
                        "#include <slimps/%s>\nint main(void) {\n  %s\n"
                        "  used.struct_size = sizeof(used);\n"
                        "  return used.struct_size == 0;\n}\n" % (included, use),
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
