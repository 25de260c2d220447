// SPDX-License-Identifier: Apache-2.0
// The C API on local stores: options, keys, tensors, the job, and what each refuses.
// Pushes and pulls: c_api_calls_test.cc. Distributed stores: tests/cluster/processes/c_api_test.py.
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/worker/capi/c_api_fixture.h"

namespace {

// ---- what it is ---------------------------------------------------------------------------------

TEST(CApiBasics, VersionAndStatusNames) {
  EXPECT_EQ(slimps_api_version(), SLIMPS_C_API_VERSION);
  EXPECT_EQ(SLIMPS_C_API_VERSION / 1000, SLIMPS_C_API_MAJOR);
  EXPECT_STREQ(slimps_status_name(SLIMPS_OK), "OK");
  EXPECT_STREQ(slimps_status_name(SLIMPS_INVALID_ARGUMENT), "INVALID_ARGUMENT");
  EXPECT_STREQ(slimps_status_name(SLIMPS_UNAUTHENTICATED), "UNAUTHENTICATED");
  EXPECT_STREQ(slimps_status_name(-1), "UNKNOWN");
  EXPECT_STREQ(slimps_status_name(17), "UNKNOWN");
  for (int32_t code = SLIMPS_OK; code <= SLIMPS_UNAUTHENTICATED; ++code) {
    EXPECT_EQ(slimps_status_name(code),
              absl::StatusCodeToString(static_cast<absl::StatusCode>(code)));
  }
}

TEST(CApiBasics, LayoutIsThatOfTheFirstVersion) {
  EXPECT_EQ(sizeof(slimps_key), 24u);
  EXPECT_EQ(offsetof(slimps_key, number), 8u);
  EXPECT_EQ(offsetof(slimps_tensor, shape), 32u);
  EXPECT_EQ(offsetof(slimps_tensor, dtype), 56u);
  EXPECT_EQ(sizeof(slimps_totals), 112u);
  EXPECT_EQ(offsetof(slimps_totals, copy_s), 56u);
  EXPECT_EQ(offsetof(slimps_decision, pull_threshold_bytes), 32u);
}

TEST(CApiBasics, LayoutIsThatOfVersion11) {
  EXPECT_EQ(offsetof(slimps_decision, codec), 40u);
  EXPECT_EQ(sizeof(slimps_threshold_row), 40u);
  EXPECT_EQ(offsetof(slimps_item, out), 48u);
  EXPECT_EQ(offsetof(slimps_item, elements), 56u);
  EXPECT_EQ(offsetof(slimps_parameter, layer), 40u);
  EXPECT_EQ(offsetof(slimps_parameter, spare), 44u);
  EXPECT_EQ(offsetof(slimps_exchange_settings, timeout_s), 24u);
  EXPECT_EQ(sizeof(slimps_exchange_times), 32u);
  EXPECT_EQ(SLIMPS_LAYER_OTHER, 6);
  EXPECT_EQ(SLIMPS_UNDER_WAY, -1);
}

TEST(CApiBasics, LayoutIsThatOfVersion18) {
  EXPECT_EQ(offsetof(slimps_tensor, place), 64u);
  EXPECT_EQ(sizeof(slimps_tensor), 72u);
}

TEST(CApiBasics, LayoutIsThatOfVersion12) {
  EXPECT_EQ(sizeof(slimps_decision), 72u);
  EXPECT_EQ(offsetof(slimps_decision, policy), 56u);
  EXPECT_EQ(sizeof(slimps_key_codec), 40u);
  EXPECT_EQ(offsetof(slimps_key_codec, codec), 24u);
}

TEST(CApiBasics, LayoutIsThatOfVersion13) {
  EXPECT_EQ(sizeof(slimps_item), 80u);
  EXPECT_EQ(offsetof(slimps_item, places), 64u);
  EXPECT_EQ(sizeof(slimps_place), 16u);
  EXPECT_EQ(offsetof(slimps_place, stream), 8u);
}

TEST(CApiBasics, LayoutIsThatOfVersion17) {
  EXPECT_EQ(sizeof(slimps_parameter), 56u);
  EXPECT_EQ(offsetof(slimps_parameter, place), 48u);
}

TEST(CApiBasics, LayoutIsThatOfVersion110) {
  EXPECT_EQ(offsetof(slimps_exchange_settings, clip_norm), 32u);
  EXPECT_EQ(offsetof(slimps_exchange_settings, overlap_forward), 40u);
  EXPECT_EQ(sizeof(slimps_exchange_settings), 48u);
  EXPECT_EQ(sizeof(slimps_clipping), 32u);
  EXPECT_EQ(sizeof(slimps_optimizer_state), 88u);
  EXPECT_EQ(offsetof(slimps_optimizer_state, tensors), 32u);
  EXPECT_EQ(offsetof(slimps_optimizer_state, elements), 56u);
  EXPECT_EQ(offsetof(slimps_optimizer_state, round), 80u);
}

// Copies from and to GPUs: tests/python/gpu/gpu_test.py.
TEST(CApiCopy, CopiesOnTheHostAndNamesWhatIsWrong) {
  const std::vector<float> from = {1, 2, 3};
  std::vector<float> to(3);
  const slimps_place host = {SLIMPS_HOST, 0, nullptr};
  const slimps_place lent = {SLIMPS_LENT, 0, nullptr};
  const slimps_place nowhere = {SLIMPS_CUDA, -2, nullptr};
  const slimps_place found = {SLIMPS_CUDA, -1, nullptr};
  EXPECT_EQ(slimps_copy(from.data(), nullptr, to.data(), &host, 3), SLIMPS_OK);
  EXPECT_EQ(to, from);
  EXPECT_EQ(slimps_copy(nullptr, nullptr, nullptr, nullptr, 0), SLIMPS_OK);
  EXPECT_EQ(slimps_copy(nullptr, nullptr, to.data(), nullptr, 3), SLIMPS_INVALID_ARGUMENT);
  EXPECT_EQ(slimps_copy(from.data(), &lent, to.data(), nullptr, 3), SLIMPS_INVALID_ARGUMENT);
  EXPECT_STREQ(slimps_last_error(), "slimps_copy: from_place.kind: expected 0 to 1, got 2");
  EXPECT_EQ(slimps_copy(from.data(), nullptr, to.data(), &nowhere, 3), SLIMPS_INVALID_ARGUMENT);
  EXPECT_STREQ(slimps_last_error(),
               "slimps_copy: to_place.device: expected a GPU's number or -1, got -2");
  EXPECT_NE(slimps_copy(from.data(), nullptr, to.data(), &found, 3), SLIMPS_OK)
      << "it is memory of the host";
}

TEST(CApiBasics, NothingIsDestroyedAsWell) {
  slimps_destroy(nullptr);
  slimps_options_destroy(nullptr);
  slimps_optimizer_destroy(nullptr);
  slimps_free(nullptr);
}

TEST_F(CApi, AStoreSaysWhatItIs) {
  uint32_t number = 77;
  ASSERT_C_OK(slimps_rank(raw_, &number));
  EXPECT_EQ(number, 0u);
  ASSERT_C_OK(slimps_num_workers(raw_, &number));
  EXPECT_EQ(number, 1u);
  const char* type = nullptr;
  ASSERT_C_OK(slimps_type(raw_, &type));
  EXPECT_STREQ(type, "local");
  int32_t capable = 7;
  ASSERT_C_OK(slimps_is_capable(raw_, "optimizer", &capable));
  EXPECT_EQ(capable, 1);
  ASSERT_C_OK(slimps_is_capable(raw_, "magic", &capable));
  EXPECT_EQ(capable, 0);
}

TEST_F(CApi, TheMessageIsOfThisThreadsLastFailure) {
  EXPECT_C_REFUSES(slimps_pull(raw_, kW, nullptr, 2, 0), "slimps_pull: out: expected 2 elements");
  EXPECT_C_OK(slimps_wait(raw_));
  EXPECT_THAT(slimps_last_error(), StartsWith("slimps_pull: ")) << "success leaves it";
  std::thread([this] {
    EXPECT_STREQ(slimps_last_error(), "");
    EXPECT_C_REFUSES(slimps_barrier(nullptr),
                     "slimps_barrier: store: expected a pointer, got NULL");
  }).join();
  EXPECT_THAT(slimps_last_error(), StartsWith("slimps_pull: "));
}

// ---- options ------------------------------------------------------------------------------------

TEST(CApiOptions, ReachTheStore) {
  const Options options = MakeOptions("compression", "2bit:threshold=0.5");
  EXPECT_C_FAILS(slimps_create("local", options.get(), nullptr), SLIMPS_INVALID_ARGUMENT, "store");
  slimps_store* refused = nullptr;
  EXPECT_C_FAILS(slimps_create("local", options.get(), &refused), SLIMPS_UNIMPLEMENTED,
                 "gradient compression is not supported for this type of kvstore: local");
  EXPECT_EQ(refused, nullptr);
  const Store store = Make("device", options.get());
  ASSERT_C_OK(InitKey(store, kW, {0, 0, 0}));
  ASSERT_C_OK(slimps_push(store.get(), kW, Values{0.7f, -0.6f, 0.1f}.data(), 3, 0));
  EXPECT_EQ(PullOf(store, kW, 3), (Values{0.5f, -0.5f, 0}));
}

TEST(CApiOptions, WhatIsWrongIsNamed) {
  const Options options = MakeOptions();
  EXPECT_C_REFUSES(slimps_options_set(options.get(), "threshold", "x"),
                   "slimps_options_set: option threshold: expected auto or a number of bytes");
  EXPECT_C_REFUSES(slimps_options_set(options.get(), "thresold", "1"), "no option \"thresold\"");
  EXPECT_C_REFUSES(slimps_options_set(options.get(), nullptr, "1"),
                   "name: expected text, got NULL");
  EXPECT_C_REFUSES(slimps_options_set(options.get(), "threshold", nullptr), "value: expected text");
  EXPECT_C_REFUSES(slimps_options_set(nullptr, "threshold", "1"), "options: expected a pointer");
  EXPECT_C_REFUSES(slimps_options_create(nullptr), "options: expected a pointer");
  EXPECT_C_REFUSES(slimps_options_from_environment(nullptr), "options: expected a pointer");
  EXPECT_C_REFUSES(slimps_options_set(options.get(), "job_id", "a\xff"),
                   "value: expected UTF-8, got byte 0xff at 1");
}

TEST(CApiOptions, AreGivenBackAsText) {
  const Options options = MakeOptions("threshold", "4096");
  const char* value = nullptr;
  EXPECT_C_OK(slimps_options_get(options.get(), "threshold", &value));
  EXPECT_STREQ(value, "4096");
  EXPECT_C_OK(slimps_options_get(options.get(), "pull_threshold", &value));
  EXPECT_STREQ(value, "auto");
  EXPECT_C_OK(slimps_options_get(options.get(), "scheduler", &value));
  EXPECT_STREQ(value, "");
  EXPECT_C_REFUSES(slimps_options_get(options.get(), "thresold", &value),
                   "slimps_options_get: no option \"thresold\"; there are compression, ");
  EXPECT_C_REFUSES(slimps_options_get(nullptr, "threshold", &value), "options: expected a pointer");
  EXPECT_C_REFUSES(slimps_options_get(options.get(), nullptr, &value), "name: expected text");
  EXPECT_C_REFUSES(slimps_options_get(options.get(), "threshold", nullptr), "value: expected a");
}

TEST(CApiOptions, TheEnvironmentIsAsked) {
  const Options options = MakeOptions();
  unsetenv("DMLC_PS_ROOT_URI");
  EXPECT_C_FAILS(slimps_options_from_environment(options.get()), SLIMPS_FAILED_PRECONDITION,
                 "scheduler is not known");
  setenv("DMLC_PS_ROOT_URI", "127.0.0.1", 1);
  setenv("DMLC_PS_ROOT_PORT", "1", 1);
  setenv("DMLC_NUM_WORKER", "1", 1);
  setenv("DMLC_NUM_SERVER", "1", 1);
  EXPECT_C_OK(slimps_options_from_environment(options.get()));
  EXPECT_C_OK(slimps_options_set(options.get(), "join_timeout_s", "0.01"));
  slimps_store* store = nullptr;
  EXPECT_C_FAILS(slimps_create("dist_sync", options.get(), &store), SLIMPS_DEADLINE_EXCEEDED,
                 "127.0.0.1:1");
}

TEST(CApiStore, OfNoTypeThereIsNone) {
  slimps_store* store = nullptr;
  EXPECT_C_REFUSES(slimps_create("locale", nullptr, &store), "expected local, device, dist_sync");
  EXPECT_C_REFUSES(slimps_create(nullptr, nullptr, &store), "type: expected text, got NULL");
  EXPECT_EQ(store, nullptr);
}

// ---- keys ---------------------------------------------------------------------------------------

TEST(CApiKeys, AreOfOneKindPerStore) {
  const Store store = Make();
  ASSERT_C_OK(InitKey(store, slimps_int_key(std::numeric_limits<int64_t>::min()), {1}));
  EXPECT_EQ(PullOf(store, slimps_int_key(std::numeric_limits<int64_t>::min()), 1), Values{1});
  EXPECT_C_REFUSES(InitKey(store, kW, {1}), "a store has one kind");
  float out = 0;
  EXPECT_C_FAILS(slimps_pull(store.get(), slimps_text_key("-5"), &out, 1, 0), SLIMPS_NOT_FOUND,
                 "key -5 was never initialised");
}

TEST_F(CApi, AKeyThatIsNoneIsRefusedEverywhere) {
  Values out(2);
  slimps_key zeros;
  std::memset(&zeros, 0, sizeof(zeros));
  slimps_key wrong = kW;
  wrong.kind = 3;
  for (const auto& [key, words] :
       {std::pair(zeros, "key: expected kind SLIMPS_KEY_INT (1) or SLIMPS_KEY_TEXT (2), got 0"),
        std::pair(wrong, "got 3"),
        std::pair(slimps_text_key(nullptr), "key: expected text, got NULL"),
        std::pair(slimps_text_key("\xc0\x80"), "key: expected UTF-8, got byte 0xc0 at 0")}) {
    EXPECT_C_REFUSES(InitKey(store_, key, out), words);
    EXPECT_C_REFUSES(slimps_push(raw_, key, out.data(), 2, 0), words);
    EXPECT_C_REFUSES(slimps_push_sum(raw_, key, nullptr, 0, 2, 0), words);
    EXPECT_C_REFUSES(slimps_push_nothing(raw_, key), words);
    EXPECT_C_REFUSES(slimps_pull(raw_, key, out.data(), 2, 0), words);
    EXPECT_C_REFUSES(slimps_pushpull(raw_, key, out.data(), out.data(), 2, 0), words);
    EXPECT_C_REFUSES(slimps_push_row_sparse(raw_, key, nullptr, 0, nullptr, 0, 0), words);
    EXPECT_C_REFUSES(slimps_pull_rows(raw_, key, nullptr, 0, nullptr, nullptr, 0, nullptr, 0),
                     words);
    EXPECT_C_REFUSES(slimps_pull_async(raw_, key, out.data(), 2, 0, nullptr, nullptr), words);
  }
  EXPECT_EQ(Pulled(), (Values{1, 2}));
}

TEST(CApiKeys, TextIsUtf8) {
  const Store store = Make();
  for (const char* good : {"", "conv1.weight", "\xc2\x80", "\xe2\x82\xac", "\xed\x9f\xbf",
                           "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_C_OK(InitKey(store, slimps_text_key(good), {1}));
  }
  for (const char* bad :
       {"\x80", "\xc1\xbf", "\xc2", "\xc2g", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe2\x82",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_C_REFUSES(InitKey(store, slimps_text_key(bad), {1}), "expected UTF-8");
  }
}

// ---- the job ------------------------------------------------------------------------------------

TEST_F(CApi, AloneEverythingIsTogether) {
  EXPECT_C_OK(slimps_barrier(raw_));
  EXPECT_C_OK(slimps_wait(raw_));
  EXPECT_C_OK(slimps_leave(raw_));
  double sums[] = {1.5, -2};
  EXPECT_C_OK(slimps_all_reduce_sum(raw_, sums, 2));
  EXPECT_EQ(sums[0], 1.5);
  EXPECT_C_REFUSES(slimps_all_reduce_sum(raw_, nullptr, 2), "values: expected 2 elements");
}

TEST(CApiTotals, AreFilledAsFarAsTheCallersStructGoes) {
  const Options options = MakeOptions("compression", "1bit");
  const Store store = Make("device", options.get());
  ASSERT_C_OK(InitKey(store, kW, {0, 0, 0, 0}));
  ASSERT_C_OK(slimps_push(store.get(), kW, Values{1, -1, 1, -1}.data(), 4, 0));
  struct {
    slimps_totals known;
    uint64_t added;
  } newer;
  std::memset(&newer, 0xff, sizeof(newer));
  newer.known.struct_size = sizeof(newer);
  ASSERT_C_OK(slimps_get_totals(store.get(), &newer.known));
  EXPECT_EQ(newer.known.struct_size, sizeof(newer));
  EXPECT_EQ(newer.known.elements_pushed, 4u);
  EXPECT_EQ(newer.known.elements_sent, 4u);
  EXPECT_EQ(newer.known.bytes_pulled, 0u);
  EXPECT_EQ(newer.known.compression_gain, 1.0) << "1bit says such a gradient exactly";
  EXPECT_EQ(newer.known.compression_error, 0.0);
  EXPECT_EQ(newer.added, 0u);
  newer.added = 5;
  newer.known.struct_size = sizeof(slimps_totals);
  ASSERT_C_OK(slimps_get_totals(store.get(), &newer.known));
  EXPECT_EQ(newer.added, 5u) << "behind the caller's struct";
  for (const size_t size : {size_t{0}, sizeof(slimps_totals) - 8, size_t{1} << 40}) {
    newer.known.struct_size = size;
    EXPECT_C_REFUSES(slimps_get_totals(store.get(), &newer.known), "totals.struct_size: expected");
  }
  EXPECT_C_REFUSES(slimps_get_totals(store.get(), nullptr), "totals: expected a pointer");
}

TEST_F(CApi, ClosedRefusesWithAReason) {
  ASSERT_C_OK(slimps_close(raw_));
  ASSERT_C_OK(slimps_close(raw_));
  EXPECT_C_FAILS(slimps_push(raw_, kW, gradient_.data(), 2, 0), SLIMPS_FAILED_PRECONDITION,
                 "slimps_push: the store was closed");
}

TEST_F(CApi, AbortedTellsWhy) {
  EXPECT_C_REFUSES(slimps_abort(raw_, nullptr), "why: expected text");
  ASSERT_C_OK(slimps_abort(raw_, "the data set is empty"));
  EXPECT_C_FAILS(slimps_wait(raw_), SLIMPS_ABORTED, "slimps_wait: the data set is empty");
}

TEST(CApiStore, IsNeededByEveryFunction) {
  uint32_t number = 0;
  int32_t capable = 0;
  const char* type = nullptr;
  slimps_totals totals = {};
  EXPECT_C_REFUSES(slimps_close(nullptr), "slimps_close: store: expected a pointer, got NULL");
  EXPECT_C_REFUSES(slimps_abort(nullptr, "x"), "slimps_abort: store");
  EXPECT_C_REFUSES(slimps_rank(nullptr, &number), "slimps_rank: store");
  EXPECT_C_REFUSES(slimps_num_workers(nullptr, &number), "slimps_num_workers: store");
  EXPECT_C_REFUSES(slimps_type(nullptr, &type), "slimps_type: store");
  EXPECT_C_REFUSES(slimps_is_capable(nullptr, "optimizer", &capable), "slimps_is_capable: store");
  EXPECT_C_REFUSES(slimps_broadcast(nullptr, nullptr, nullptr, 0), "slimps_broadcast: store");
  EXPECT_C_REFUSES(slimps_push(nullptr, kW, nullptr, 0, 0), "slimps_push: store");
  EXPECT_C_REFUSES(slimps_push_sum(nullptr, kW, nullptr, 0, 0, 0), "slimps_push_sum: store");
  EXPECT_C_REFUSES(slimps_push_nothing(nullptr, kW), "slimps_push_nothing: store");
  EXPECT_C_REFUSES(slimps_pull(nullptr, kW, nullptr, 0, 0), "slimps_pull: store");
  EXPECT_C_REFUSES(slimps_pushpull(nullptr, kW, nullptr, nullptr, 0, 0), "slimps_pushpull: store");
  EXPECT_C_REFUSES(slimps_push_row_sparse(nullptr, kW, nullptr, 0, nullptr, 0, 0),
                   "slimps_push_row_sparse: store");
  EXPECT_C_REFUSES(slimps_pull_rows(nullptr, kW, nullptr, 0, nullptr, nullptr, 0, nullptr, 0),
                   "slimps_pull_rows: store");
  EXPECT_C_REFUSES(slimps_set_optimizer(nullptr, nullptr), "slimps_set_optimizer: store");
  EXPECT_C_REFUSES(slimps_set_updater(nullptr, nullptr, nullptr), "slimps_set_updater: store");
  EXPECT_C_REFUSES(slimps_set_gradient_compression(nullptr, "1bit"),
                   "slimps_set_gradient_compression: store");
  EXPECT_C_REFUSES(slimps_set_gradient_compression_pairs(nullptr, nullptr, nullptr, 0),
                   "_pairs: store");
  EXPECT_C_REFUSES(slimps_save_optimizer_states(nullptr, nullptr, nullptr), "states: store");
  EXPECT_C_REFUSES(slimps_load_optimizer_states(nullptr, nullptr, 0), "states: store");
  EXPECT_C_REFUSES(slimps_all_reduce_sum(nullptr, nullptr, 0), "slimps_all_reduce_sum: store");
  EXPECT_C_REFUSES(slimps_wait(nullptr), "slimps_wait: store");
  EXPECT_C_REFUSES(slimps_leave(nullptr), "slimps_leave: store");
  EXPECT_C_REFUSES(slimps_get_totals(nullptr, &totals), "slimps_get_totals: store");
  EXPECT_C_REFUSES(slimps_get_decision(nullptr, nullptr), "slimps_get_decision: store");
  EXPECT_C_REFUSES(slimps_save_residuals(nullptr, nullptr, nullptr), "residuals: store");
  EXPECT_C_REFUSES(slimps_load_residuals(nullptr, nullptr, 0), "residuals: store");
  EXPECT_C_REFUSES(slimps_save(nullptr, "x", nullptr, 0), "slimps_save: store");
  EXPECT_C_REFUSES(slimps_await_saved(nullptr), "slimps_await_saved: store");
  EXPECT_C_REFUSES(slimps_load(nullptr, "x", nullptr, nullptr, nullptr), "slimps_load: store");
  EXPECT_C_REFUSES(slimps_set_hyper(nullptr, kW, 1, 0), "slimps_set_hyper: store");
  EXPECT_C_REFUSES(slimps_reset_hyper(nullptr, kW), "slimps_reset_hyper: store");
  const Store store = Make();
  EXPECT_C_REFUSES(slimps_rank(store.get(), nullptr), "rank: expected a pointer");
  EXPECT_C_REFUSES(slimps_num_workers(store.get(), nullptr), "num_workers: expected a pointer");
  EXPECT_C_REFUSES(slimps_type(store.get(), nullptr), "type: expected a pointer");
  EXPECT_C_REFUSES(slimps_is_capable(store.get(), "optimizer", nullptr),
                   "capable: expected a pointer");
  EXPECT_C_REFUSES(slimps_is_capable(store.get(), nullptr, &capable), "capability: expected text");
}

}  // namespace
