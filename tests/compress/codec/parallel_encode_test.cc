// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/parallel_encode.h"

#include <sched.h>

#include <cmath>
#include <limits>
#include <new>
#include <string>
#include <thread>

#include "compress/codec/encode_run.h"
#include "compress/kernels/kernels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/codec/make_codec.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr size_t kLarge = 70 * 4096 + 17;  // several chunks and a partial block

// One tensor with all that a job needs.
struct Tensor {
  Tensor(const std::string& spec, size_t n, uint64_t seed)
      : codec(MakeCodecOrDie(spec)),
        gradient(RandomFloats(n, seed)),
        residual(RandomFloats(n, seed + 1)),
        payload(codec->MaxPayloadBytes(n)) {}
  EncodeJob job() {
    return {.codec = codec.get(),
            .input = {.gradient = gradient, .residual = residual},
            .payload = payload};
  }

  std::unique_ptr<Codec> codec;
  std::vector<float> gradient, residual;
  std::vector<std::byte> payload;
};

TEST(ParallelEncoder, ResultIsTheSameForAnyNumberOfThreads) {
  for (const char* spec : {"none", "1bit", "1bit:scaling=two_mean", "2bit"}) {
    for (size_t n : {size_t{0}, size_t{100}, size_t{16384}, size_t{16385}, kLarge}) {
      Tensor alone(spec, n, 5);
      ASSERT_TRUE(alone.codec->Encode(alone.job().input, alone.payload).ok());
      for (int threads : {1, 2, 3, 8}) {
        Tensor tensor(spec, n, 5);
        const ParallelEncoder encoder(threads);
        const auto result = encoder.Encode(tensor.job());
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_EQ(result->payload_bytes, alone.payload.size());
        EXPECT_EQ(tensor.payload, alone.payload) << spec << " " << threads;
        EXPECT_EQ(Difference(tensor.residual, alone.residual), "");
      }
    }
  }
}

TEST(ParallelEncoder, ByDefaultAllCoresEncode) {
  cpu_set_t cores;
  ASSERT_EQ(sched_getaffinity(0, sizeof(cores), &cores), 0);
  EXPECT_EQ(ParallelEncoder(0).threads(), CPU_COUNT(&cores));
  EXPECT_EQ(ParallelEncoder(3).threads(), 3);
}

TEST(ParallelEncoder, ErrorNamesTheFirstBadElementAndChangesNothing) {
  for (int threads : {1, 4}) {
    Tensor tensor("1bit", kLarge, 6);
    tensor.gradient[kLarge - 1] = NAN;
    tensor.gradient[40 * 4096] = INFINITY;
    tensor.gradient[20 * 4096 + 1] = NAN;
    const std::vector<float> before = tensor.residual;
    const auto result = ParallelEncoder(threads).Encode(tensor.job());
    ASSERT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()),
                HasSubstr(absl::StrCat("element ", 20 * 4096 + 1, " of ")));
    EXPECT_EQ(tensor.residual, before);
  }
}

TEST(ParallelEncoder, AJobThatFailsLeavesTheNextOnesAlone) {
  for (int threads : {1, 3}) {
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < 12; ++i) tensors.emplace_back(i % 2 == 0 ? "1bit" : "2bit", i * 9000, i);
    tensors[3].gradient[100] = NAN;
    tensors[7].residual.pop_back();
    const ParallelEncoder encoder(threads);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const absl::Status status = encoder.Encode(tensors[i].job()).status();
      if (i == 3 || i == 7) {
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
        continue;
      }
      ASSERT_TRUE(status.ok()) << status;
      Tensor alone(i % 2 == 0 ? "1bit" : "2bit", i * 9000, i);
      ASSERT_TRUE(alone.codec->Encode(alone.job().input, alone.payload).ok());
      EXPECT_EQ(tensors[i].payload, alone.payload) << i;
      EXPECT_EQ(Difference(tensors[i].residual, alone.residual), "");
    }
  }
}

// A codec that runs out of memory when an encoding begins.
class StarvedCodec final : public Codec {
 public:
  StarvedCodec() : Codec({"starved", {}}, BestKernels(), std::numeric_limits<float>::max()) {}
  PayloadFormat format() const override { return PayloadFormat::kRawF32; }
  bool wants_residual() const override { return false; }
  size_t MaxPayloadBytes(size_t elements) const override { return 4 * elements; }
  std::unique_ptr<EncodeRun> Begin(const EncodeInput&, std::span<std::byte>,
                                   EncodeWorkspace&) const override {
    throw std::bad_alloc();
  }
};

TEST(ParallelEncoder, OutOfMemoryIsAnErrorOfThatJobAlone) {
  const StarvedCodec starved;
  for (int threads : {1, 3}) {
    const ParallelEncoder encoder(threads);
    std::vector<Tensor> tensors;
    for (size_t n : {size_t{100}, kLarge, size_t{100}, kLarge}) tensors.emplace_back("none", n, n);
    for (size_t i = 0; i < tensors.size(); ++i) {
      EncodeJob job = tensors[i].job();
      if (i < 2) job.codec = &starved;
      EXPECT_EQ(encoder.Encode(job).status().code(),
                i < 2 ? absl::StatusCode::kInternal : absl::StatusCode::kOk);
    }
  }
}

TEST(ParallelEncoder, ManyCallersShareIt) {
  const ParallelEncoder encoder(2);
  Tensor alone("1bit", kLarge, 8);
  ASSERT_TRUE(alone.codec->Encode(alone.job().input, alone.payload).ok());
  std::vector<Tensor> tensors;
  for (int i = 0; i < 4; ++i) tensors.emplace_back("1bit", kLarge, 8);
  std::vector<std::thread> callers;
  std::vector<absl::Status> statuses(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    callers.emplace_back([&, i] { statuses[i] = encoder.Encode(tensors[i].job()).status(); });
  }
  for (std::thread& caller : callers) caller.join();
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(statuses[i].ok()) << statuses[i];
    EXPECT_EQ(tensors[i].payload, alone.payload);
  }
}

}  // namespace
}  // namespace slimps
