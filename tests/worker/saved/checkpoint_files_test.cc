// SPDX-License-Identifier: Apache-2.0
// The files of a checkpoint that workers write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "worker/saved/checkpoint_manifest.h"
#include "worker/saved/safetensors.h"
#include "worker/saved/worker_state.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

CheckpointManifest Manifest() {
  CheckpointManifest manifest{.id = 0xfedcba9876543210,
                              .rounds = 120,
                              .kvstore = "dist_sync",
                              .workers = 2,
                              .servers = 3,
                              .compression = "1bit",
                              .optimizer = "kind: SGD"};
  wire::KeyInfo& tensor = manifest.tensors.emplace_back();
  tensor.set_name("s:conv1.\"weight\"\n");
  tensor.add_shape(20);
  tensor.add_shape(5);
  tensor.set_dtype(wire::BFLOAT16);
  wire::CheckpointFile& file = manifest.files.emplace_back();
  file.set_name("server-0.images");
  file.set_bytes(4711);
  file.set_crc32(0x89abcdef);
  return manifest;
}

TEST(CheckpointManifest, ComesBackAsItWas) {
  const auto read = ParseManifest(BuildManifest(Manifest()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(BuildManifest(*read), BuildManifest(Manifest()));
  EXPECT_EQ(read->id, Manifest().id);
  EXPECT_EQ(read->tensors[0].name(), "s:conv1.\"weight\"\n");
  EXPECT_EQ(read->tensors[0].dtype(), wire::BFLOAT16);
  EXPECT_EQ(read->files[0].crc32(), 0x89abcdefu);
}

TEST(CheckpointManifest, EveryChangedByteAndEveryCutShows) {
  const std::string text = BuildManifest(Manifest());
  for (size_t at = 0; at < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    EXPECT_EQ(ParseManifest(damaged).status().code(), absl::StatusCode::kDataLoss) << at;
    EXPECT_EQ(ParseManifest(text.substr(0, at)).status().code(), absl::StatusCode::kDataLoss);
  }
}

TEST(WorkerStateFile, ComesBackAsItWas) {
  const std::string own("a\0b", 3);
  WorkerState state{.progress = {}, .own = own, .residuals = "residuals"};
  state.progress.set_id(7);
  state.progress.add_keys()->set_name("s:w");
  const std::string content = BuildWorkerState(state);
  const auto read = ParseWorkerState(content, "worker-0.state");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->own, own);
  EXPECT_EQ(read->residuals, "residuals");
  EXPECT_EQ(read->progress.SerializeAsString(), state.progress.SerializeAsString());
  std::string damaged = content;
  damaged[20] = static_cast<char>(damaged[20] ^ 1);
  const auto refused = ParseWorkerState(damaged, "worker-0.state");
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("worker-0.state: damaged"));
}

TEST(Safetensors, TheHeadSaysWhereEachTensorLies) {
  const std::string head = SafetensorsHead(
      {{.name = "w", .shape = {2, 3}, .elements = 6}, {.name = "b", .shape = {3}, .elements = 3}},
      /*rounds=*/5);
  uint64_t length = 0;
  std::memcpy(&length, head.data(), sizeof length);
  EXPECT_EQ(head.size(), sizeof length + length);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_THAT(head.substr(8),
              HasSubstr(R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                        R"("b":{"dtype":"F32","shape":[3],"data_offsets":[24,36]})"));
}

TEST(Safetensors, NamesThatWouldCollideKeepTheirTypes) {
  EXPECT_EQ(SafetensorsNames({"i:5", "s:5", "i:6", "s:w", "s:__metadata__", "s:i:5"}),
            (std::vector<std::string>{"i:5", "s:5", "6", "w", "s:__metadata__", "s:i:5"}));
}

}  // namespace
}  // namespace slimps
