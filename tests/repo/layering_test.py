# SPDX-License-Identifier: Apache-2.0
import collections
import os
import unittest

import layering
import source_tree


class Layering(unittest.TestCase):
    def test_no_file_includes_against_the_layers(self):
        files = source_tree.cpp_files()
        self.assertIn("proto/base/key.h", files)
        complaints = [
            line for path in files for line in layering.check_includes(path, source_tree.read(path))
        ]
        self.assertEqual([], complaints)

    def test_no_folder_has_more_than_30_files(self):
        files = collections.Counter(os.path.dirname(path) for path in source_tree.files())
        self.assertIn("worker/push", files)
        self.assertEqual({}, {folder: count for folder, count in files.items() if count > 30})

    def test_no_link_option_outside_third_party(self):
        files = source_tree.build_files()
        self.assertIn("third_party/BUILD", files)
        complaints = [
            line for path in files for line in layering.check_links(path, source_tree.read(path))
        ]
        self.assertEqual([], complaints)


class LayeringRules(unittest.TestCase):
    def refused(self, path, include):
        return layering.check_includes(path, "// first line\n#include %s\n" % include)

    def test_roles_do_not_include_each_other(self):
        for path, include in (
            ("server/shard/shard.cc", '"worker/kvstore.h"'),
            ("worker/a.cc", '"server/shard/shard.h"'),
            ("scheduler/a.cc", '"server/shard/shard.h"'),
            ("server/a.cc", '"scheduler/barrier.h"'),
            ("backup_model/a.cc", '"worker/kvstore.h"'),
        ):
            self.assertEqual(1, len(self.refused(path, include)), (path, include))

    def test_lower_layers_do_not_include_higher_ones(self):
        for path, include in (
            ("proto/base/a.h", '"proto/frame.h"'),
            ("proto/frame.cc", '"proto/net/transport.h"'),
            ("compress/format/a.cc", '"compress/codec/codec.h"'),
            ("compress/kernels/a.cc", '"compress/format/format.h"'),
            ("compress/codec/a.cc", '"proto/limits.h"'),
            ("proto/net/zmq/zmq_transport.cc", '"scheduler/barrier.h"'),
        ):
            self.assertEqual(1, len(self.refused(path, include)), (path, include))

    def test_permitted_includes_pass(self):
        for path, include in (
            ("scheduler/a.cc", '"compress/policy/threshold_table.h"'),
            ("scheduler/a.cc", '"proto/net/membership/membership.h"'),
            ("worker/trainer/a.cc", '"backup_model/backup_model.h"'),
            ("worker/trainer/a.cc", "<torch/torch.h>"),
            ("proto/net/zmq/zmq_socket.cc", "<zmq.hpp>"),
            ("tests/worker/device/cuda/libcuda_api_test.cc", "<cuda.h>"),
            ("tests/server/a.cc", '"worker/kvstore.h"'),
            ("compress/codec/a.cc", '"compress/format/format.h"'),
        ):
            self.assertEqual([], self.refused(path, include), (path, include))

    def test_nothing_depends_on_pythons_abi(self):
        for path in ("worker/a.cc", "worker/capi/a.cc", "python/slimps/a.cc"):
            for include in ("<pybind11/pybind11.h>", "<Python.h>", "<numpy/arrayobject.h>"):
                [complaint] = self.refused(path, include)
                self.assertIn("nothing depends on Python's or numpy's ABI", complaint)

    def test_a_room_includes_only_what_it_stands_on(self):
        for path, include in (
            ("server/round/a.cc", '"server/shard/shard.h"'),
            ("worker/push/a.cc", '"worker/pull/pull_merger.h"'),
            ("worker/tensor/a.cc", '"worker/kvstore.h"'),
            ("proto/net/queue/a.cc", '"proto/net/zmq/zmq_transport.h"'),
            ("compress/codec/a.cc", '"compress/codec/sparse/topk.h"'),
        ):
            self.assertEqual(1, len(self.refused(path, include)), (path, include))
        for path, include in (
            ("server/shard/a.cc", '"server/round/partition.h"'),
            ("worker/push/a.cc", '"worker/tensor/key_table.h"'),
            ("server/round/a.cc", '"compress/codec/catalogue/registry.h"'),
        ):
            self.assertEqual([], self.refused(path, include), (path, include))

    def test_scheduler_sees_no_codec(self):
        self.assertEqual(
            ["scheduler/a.cc:2: scheduler may not include compress/codec/codec.h"],
            self.refused("scheduler/a.cc", '"compress/codec/codec.h"'),
        )

    def test_libraries_have_one_home(self):
        for path, include in (
            ("server/a.cc", "<zmq.h>"),
            ("worker/a.cc", "<torch/torch.h>"),
            ("worker/device/host.cc", "<cuda_runtime_api.h>"),
            ("compress/codec/a.cc", "<glog/logging.h>"),
        ):
            self.assertEqual(1, len(self.refused(path, include)), (path, include))

    def test_a_link_option_is_found(self):
        self.assertEqual(
            ["server/BUILD:2: a -l option outside third_party"],
            layering.check_links("server/BUILD", 'cc_library(\n linkopts = ["-lzmq"])\n'),
        )
        self.assertEqual([], layering.check_links("third_party/BUILD", 'linkopts = ["-lzmq"]'))


if __name__ == "__main__":
    unittest.main()
