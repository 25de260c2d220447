// SPDX-License-Identifier: Apache-2.0
// Checkpoints that are refused or cannot be written: nothing is changed, and training goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/file.h"
#include "proto/base/mutex.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/recovery/saved_job.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void WriteAll(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

// Tries to load, and expects a refusal of all workers that changes nothing.
void ExpectRefused(Job job, const std::string& folder, absl::StatusCode code,
                   const std::string& words) {
  SCOPED_TRACE(words);
  const End calm = Train(job);
  InProcessCluster cluster(job.cluster);
  Mutex mutex;
  End end;
  std::vector<absl::Status> refusals;
  cluster.RunWorkers([&](KVStore& store) {
    std::vector<std::vector<float>> weights;
    ASSERT_NO_FATAL_FAILURE(Begin(store, job, &weights));
    const auto loaded = store.Load(folder);
    for (int round = 1; round <= job.to; ++round) {
      ASSERT_NO_FATAL_FAILURE(Step(store, job, round, &weights));
    }
    const auto residuals = store.SaveResiduals();
    const auto states = store.SaveOptimizerStates();
    ASSERT_STATUS_OK(residuals.status());
    ASSERT_STATUS_OK(states.status());
    MutexLock lock(&mutex);
    refusals.push_back(loaded.status());
    end.weights = weights;
    end.states = *states;
    end.residuals[store.rank()] = *residuals;
  });
  bool said = false;
  for (const absl::Status& refused : refusals) {
    EXPECT_FALSE(refused.ok());
    if (refused.code() != code) continue;
    said = true;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(words));
  }
  EXPECT_TRUE(said) << refusals[0] << "\n" << refusals.back();
  EXPECT_TRUE(end == calm) << "the refused load has changed something";
}

TEST(Checkpoint, WhatDoesNotFitIsRefusedAndChangesNothing) {
  using Code = absl::StatusCode;
  const Job job = MakeJob("1bit", "1bit");
  const std::string folder = NewFolder("fits");
  SaveJob(job, folder);
  ExpectRefused(job, NewFolder("none"), Code::kNotFound, "without a manifest.json");

  Job other = job;
  other.shapes = {{7}, {30, 31}, {60, 50}};
  ExpectRefused(other, folder, Code::kInvalidArgument, "key s:w1: expected shape [30, 31]");
  other.shapes = {{7}, {30, 30}};
  ExpectRefused(other, folder, Code::kInvalidArgument, "key s:w2: expected a key of this store");
  other.shapes = {{7}, {30, 30}, {60, 50}, {3}};
  ExpectRefused(other, folder, Code::kInvalidArgument, "number of keys: expected 4, got 3");
  ExpectRefused(MakeJob("2bit", "1bit"), folder, Code::kInvalidArgument,
                "compression: expected 2bit");
  other = job;
  UseMoments(wire::OptimizerSpec::ADAM, &other.optimizer);
  ExpectRefused(other, folder, Code::kInvalidArgument, "optimizer: expected ADAM, got SGD");
  other = job;
  other.cluster.workers = 1;
  ExpectRefused(other, folder, Code::kInvalidArgument, "expected 1, got 2");
  other = job;
  other.cluster.store.checksums = false;
  ExpectRefused(other, folder, Code::kInvalidArgument, "checksums off, got one with");
  other = job;
  other.cluster.mode = wire::DIST_ASYNC;
  other.cluster.store.pull_compression = "none";
  other.cluster.workers = 1;
  ExpectRefused(other, folder, Code::kInvalidArgument, "kind of store: expected dist_async");
}

TEST(Checkpoint, ADamagedFileIsRefusedAndChangesNothing) {
  using Code = absl::StatusCode;
  const Job job = MakeJob("1bit", "1bit");
  const std::string folder = NewFolder("damaged");
  SaveJob(job, folder);
  const auto with = [&](const std::string& name, const std::string& content, Code code,
                        const std::string& words) {
    const std::string path = absl::StrCat(folder, "/", name);
    const std::string whole = ReadAll(path);
    ASSERT_FALSE(whole.empty());
    if (content.empty()) {
      std::filesystem::remove(path);
    } else {
      WriteAll(path, content);
    }
    ExpectRefused(job, folder, code, words);
    WriteAll(path, whole);
  };
  const auto flipped = [&](const std::string& name) {
    std::string content = ReadAll(absl::StrCat(folder, "/", name));
    content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 4);
    return content;
  };
  for (const char* name : {"server-0.images", "server-1.images", "worker-0.state", "worker-1.state",
                           "manifest.json"}) {
    with(name, flipped(name), Code::kDataLoss, name);
  }
  with("server-1.images", "", Code::kDataLoss, "server-1.images");
  const std::string pipe = folder + "/server-0.images";
  std::filesystem::rename(pipe, pipe + "-kept");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ExpectRefused(job, folder, Code::kDataLoss, "expected a regular file");
  std::filesystem::rename(pipe + "-kept", pipe);
  const std::string other = NewFolder("another");
  SaveJob(job, other);
  with("server-1.images", ReadAll(other + "/server-1.images"), Code::kDataLoss,
       "expected a file of checkpoint");
  with("worker-1.state", ReadAll(other + "/worker-1.state"), Code::kDataLoss, "of checkpoint");
  with("server-1.images", ReadAll(folder + "/server-0.images"), Code::kInvalidArgument,
       "the checkpoint lacks it");
}

// Each node has a folder of its own, where all should see the same.
TEST(Checkpoint, WorkersThatFindDifferentOnesRefuseBoth) {
  Job job = MakeJob("none");
  const std::vector<std::string> folders = {NewFolder("one"), NewFolder("two")};
  for (const std::string& folder : folders) SaveJob(job, folder);
  job.load = "none";
  InProcessCluster cluster(job.cluster);
  cluster.RunWorkers([&](KVStore& store) {
    std::vector<std::vector<float>> weights;
    ASSERT_NO_FATAL_FAILURE(Begin(store, job, &weights));
    const absl::Status refused = store.Load(folders[store.rank()]).status();
    if (store.rank() == 0) {
      EXPECT_EQ(refused.code(), absl::StatusCode::kAborted) << refused;
    } else {
      EXPECT_THAT(std::string(refused.message()),
                  HasSubstr("workers found different checkpoints: " + folders[1]));
    }
    ASSERT_NO_FATAL_FAILURE(Step(store, job, 1, &weights));
  });
}

TEST(Checkpoint, AFolderWithACheckpointIsNotWrittenOver) {
  Job job = MakeJob("none");
  job.save = NewFolder("twice");
  SaveJob(job, job.save);
  const std::string before = ReadAll(job.save + "/manifest.json");
  InProcessCluster cluster(job.cluster);
  cluster.RunWorkers([&](KVStore& store) {
    std::vector<std::vector<float>> weights;
    ASSERT_NO_FATAL_FAILURE(Begin(store, job, &weights));
    const absl::Status refused = store.Save(job.save);
    if (store.rank() == 0) {
      EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
    } else {
      EXPECT_EQ(refused.code(), absl::StatusCode::kAborted) << refused;
    }
    ASSERT_NO_FATAL_FAILURE(Step(store, job, 1, &weights));
    const absl::Status late = store.Load(job.save).status();
    EXPECT_THAT(std::string(late.message()), HasSubstr("before the first push"));
  });
  EXPECT_EQ(ReadAll(job.save + "/manifest.json"), before);
}

// Each node has a folder of its own, where all should see the same.
TEST(Checkpoint, AFolderThatIsNotTheSameForAllIsNoCheckpoint) {
  const Job job = MakeJob("none");
  const std::vector<std::string> folders = {NewFolder("first"), NewFolder("second")};
  std::filesystem::create_directories(folders[1]);
  InProcessCluster cluster(job.cluster);
  cluster.RunWorkers([&](KVStore& store) {
    std::vector<std::vector<float>> weights;
    ASSERT_NO_FATAL_FAILURE(Begin(store, job, &weights));
    ASSERT_NO_FATAL_FAILURE(Step(store, job, 1, &weights));
    ASSERT_STATUS_OK(store.Save(folders[store.rank()]));
    const absl::Status saved = store.AwaitSaved();
    if (store.rank() == 0) {
      EXPECT_THAT(std::string(saved.message()),
                  HasSubstr(folders[0] + "/worker-1.state: expected"));
    } else {
      EXPECT_EQ(saved.code(), absl::StatusCode::kAborted) << saved;
    }
  });
  EXPECT_FALSE(std::filesystem::exists(folders[0] + "/manifest.json"));
}

// The rounds go on without it, and a job that resumes would have it again.
TEST(Checkpoint, AJobThatAWorkerHasLeftIsNotSaved) {
  const Job job = MakeJob("none");
  const std::string folder = NewFolder("left");
  InProcessCluster cluster(job.cluster);
  cluster.RunWorkers([&](KVStore& store) {
    std::vector<std::vector<float>> weights;
    ASSERT_NO_FATAL_FAILURE(Begin(store, job, &weights));
    ASSERT_NO_FATAL_FAILURE(Step(store, job, 1, &weights));
    if (store.rank() == 1) ASSERT_STATUS_OK(store.Leave());
    const absl::Status refused = store.Save(folder);
    const auto code =
        store.rank() == 1 ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kAborted;
    EXPECT_EQ(refused.code(), code) << refused;
    EXPECT_EQ(store.AwaitSaved().code(), absl::StatusCode::kAborted);
    ASSERT_STATUS_OK(store.Barrier());
  });
  EXPECT_FALSE(std::filesystem::exists(folder + "/manifest.json"));
}

// A server's disk that is full.
class FullDisk final : public Disk {
 public:
  int Create(const std::string& path, int* file) const override {
    return MachineDisk()->Create(path, file);
  }
  int Write(int, std::string_view) const override { return ENOSPC; }
  int Sync(int file) const override { return MachineDisk()->Sync(file); }
  int Close(int file) const override { return MachineDisk()->Close(file); }
  int Rename(const std::string& from, const std::string& to) const override {
    return MachineDisk()->Rename(from, to);
  }
  int SyncFolder(const std::string& folder) const override {
    return MachineDisk()->SyncFolder(folder);
  }
  int Remove(const std::string& path) const override { return MachineDisk()->Remove(path); }
};

TEST(Checkpoint, AFullDiskIsToldAndTrainingGoesOn) {
  Job job = MakeJob("1bit");
  const End calm = Train(job);
  const FullDisk disk;
  job.cluster.server.checkpoint_disk = &disk;
  const std::string folder = NewFolder("full");
  InProcessCluster cluster(job.cluster);
  Mutex mutex;
  std::vector<std::vector<float>> end;
  cluster.RunWorkers([&](KVStore& store) {
    std::vector<std::vector<float>> weights;
    ASSERT_NO_FATAL_FAILURE(Begin(store, job, &weights));
    for (int round = 1; round <= job.to; ++round) {
      ASSERT_NO_FATAL_FAILURE(Step(store, job, round, &weights));
      if (round == 4) ASSERT_STATUS_OK(store.Save(folder));
    }
    const absl::Status full = store.AwaitSaved();
    if (store.rank() == 0) {
      EXPECT_THAT(std::string(full.message()), HasSubstr("server-0.images: No space left"));
    } else {
      EXPECT_EQ(full.code(), absl::StatusCode::kAborted) << full;
    }
    MutexLock lock(&mutex);
    end = weights;
  });
  EXPECT_TRUE(end == calm.weights);
  EXPECT_FALSE(std::filesystem::exists(folder + "/manifest.json"));
}

}  // namespace
}  // namespace slimps
