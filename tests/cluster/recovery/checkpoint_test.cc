// SPDX-License-Identifier: Apache-2.0
// Whole jobs that are saved in a folder and resumed by another cluster.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/recovery/saved_job.h"

namespace slimps {
namespace {

void ExpectResumes(Job job) {
  job.save = NewFolder("resumes");
  job.save_after = 4;
  const End whole = Train(job);
  for (const uint32_t servers : {2, 3, 1}) {
    SCOPED_TRACE(servers);
    Job second = job;
    second.cluster.servers = servers;
    second.save_after = 0;
    second.load = job.save;
    const End end = Train(second);
    EXPECT_TRUE(end.weights == whole.weights);
    EXPECT_TRUE(end.states == whole.states);
    // Their content names the cut, which for codecs with phases depends on the number of servers.
    if (job.cluster.store.compression == "powersgd" && servers != job.cluster.servers) continue;
    EXPECT_TRUE(end.residuals == whole.residuals);
  }
}

TEST(Checkpoint, PlainJobResumes) { ExpectResumes(MakeJob("none")); }

TEST(Checkpoint, CompressedBothWaysResumes) { ExpectResumes(MakeJob("1bit", "1bit")); }

TEST(Checkpoint, HalfPrecisionPullsResume) { ExpectResumes(MakeJob("fp16", "bf16")); }

TEST(Checkpoint, RandomAndStatefulCodecsResume) {
  ExpectResumes(MakeJob("randomk:ratio=0.1"));
  Job dgc = MakeJob("dgc");
  dgc.optimizer.set_momentum(0);
  ExpectResumes(dgc);
}

// Their codecs cut tensors by the number of servers, so images are cut anew.
TEST(Checkpoint, PhasesResume) { ExpectResumes(MakeJob("powersgd")); }

// Without codecs the bits do not depend on the cut.
TEST(Checkpoint, AMeasuredTableIsUsedAgain) {
  Job job = MakeJob("1bit");
  job.cluster.store.fixed_threshold_bytes = std::nullopt;
  job.cluster.store.pre_steps = 6;
  job.save = NewFolder("measured");
  job.save_after = job.to = 8;
  Train(job);
  job.load = job.save;
  InProcessCluster(job.cluster).RunWorkers([&](KVStore& store) {
    std::vector<std::vector<float>> weights;
    ASSERT_NO_FATAL_FAILURE(Begin(store, job, &weights));
    ASSERT_STATUS_OK(store.Load(job.load).status());
    EXPECT_TRUE(store.codec_map().has_value());
    EXPECT_FALSE(store.measuring());
    ASSERT_NO_FATAL_FAILURE(Step(store, job, /*round=*/9, &weights));
  });
}

TEST(Checkpoint, OtherPartitionsResume) {
  for (const uint32_t partition_bytes : {700, 1500, 100000}) {
    Job job = MakeJob("none");
    job.save = NewFolder("cut");
    job.save_after = 4;
    const End whole = Train(job);
    job.save_after = 0;
    job.load = job.save;
    job.cluster.store.partition_bytes = partition_bytes;
    job.cluster.servers = 3;
    const End resumed = Train(job);
    EXPECT_TRUE(resumed.weights == whole.weights);
    EXPECT_TRUE(resumed.states == whole.states);
  }
}

TEST(Checkpoint, AdamAndRoundsWithoutAPushResume) {
  Job job = MakeJob("topk:ratio=0.05", "1bit");
  UseMoments(wire::OptimizerSpec::ADAM, &job.optimizer);
  job.skips = 3;
  ExpectResumes(job);
}

TEST(Checkpoint, OneBitAdamResumesBeforeAndAfterItsFreeze) {
  for (const uint64_t freeze_after : {2, 6}) {
    Job job = MakeJob("1bit", "1bit");
    UseMoments(wire::OptimizerSpec::ONEBIT_ADAM, &job.optimizer);
    job.optimizer.set_freeze_after(freeze_after);
    ExpectResumes(job);
  }
}

TEST(Checkpoint, StoresWithoutRoundsResume) {
  Job job = MakeJob("1bit");
  job.cluster.mode = wire::DIST_ASYNC;
  job.cluster.workers = 1;
  ExpectResumes(job);
}

}  // namespace
}  // namespace slimps
