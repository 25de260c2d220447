// SPDX-License-Identifier: Apache-2.0
// Background handles and lists of local stores, which never wait, and stores that are made in the
// background.
#include <poll.h>

#include <thread>
#include <vector>

#include "tests/worker/capi/c_api_fixture.h"
#include "worker/capi/background_call.h"

namespace {

using ::testing::Each;
using ::testing::SizeIs;

class CApiLocalBackground : public CApi {
 protected:
  const Call call_ = MakeCall();
  const Store background_ = InBackground(store_, call_);
  slimps_store* const far_ = background_.get();
};

TEST_F(CApiLocalBackground, NothingIsEverUnderWay) {
  const Optimizer sgd = MakeOptimizer("sgd");
  Values out(2);
  int64_t row = 0;
  size_t count = 0;
  void* content = nullptr;
  ASSERT_C_OK(slimps_set_optimizer(far_, sgd.get()));
  EXPECT_C_OK(InitKey(background_, slimps_text_key("v"), {3}));
  EXPECT_C_OK(slimps_push(far_, kW, gradient_.data(), 2, 0));
  EXPECT_C_OK(slimps_push_nothing(far_, kW));
  EXPECT_C_OK(slimps_pull(far_, kW, out.data(), 2, 0));
  EXPECT_C_OK(slimps_pushpull(far_, kW, gradient_.data(), out.data(), 2, 0));
  EXPECT_C_OK(slimps_push_row_sparse(far_, kW, &row, 1, gradient_.data(), 1, 0));
  EXPECT_C_OK(slimps_pull_rows(far_, kW, &row, 1, &row, out.data(), 2, &count, 0));
  EXPECT_C_OK(slimps_save_optimizer_states(far_, &content, &count));
  EXPECT_C_OK(slimps_load_optimizer_states(far_, content, count));
  slimps_free(content);
  slimps_optimizer_state state = {.struct_size = sizeof(state), .key = kW};
  EXPECT_EQ(slimps_pull_optimizer_states(far_, &state, 1), SLIMPS_UNIMPLEMENTED);
  EXPECT_EQ(slimps_put_optimizer_states(far_, &state, 1), SLIMPS_UNIMPLEMENTED);
  double sum = 2;
  EXPECT_C_OK(slimps_all_reduce_sum(far_, &sum, 1));
  EXPECT_C_OK(slimps_barrier(far_));
  EXPECT_C_OK(slimps_wait(far_));
  EXPECT_C_OK(slimps_leave(far_));
  EXPECT_C_OK(slimps_close(far_));
  EXPECT_EQ(slimps_call_finish(call_.get()), SLIMPS_FAILED_PRECONDITION);
}

TEST_F(CApiLocalBackground, AnUpdaterRunsOnTheThreadThatPushes) {
  std::vector<std::thread::id> threads;
  const auto note = [](void* user_data, slimps_key, const float*, float*, size_t) {
    static_cast<decltype(threads)*>(user_data)->push_back(std::this_thread::get_id());
    return slimps_status{SLIMPS_OK};
  };
  ASSERT_C_OK(slimps_set_updater(far_, note, &threads));
  Values out(2);
  const int64_t row = 0;
  const float* const devices[] = {gradient_.data(), gradient_.data()};
  const Items items = Items().Add(kW, {gradient_.data()}, out.data(), 2);
  EXPECT_C_OK(slimps_push(far_, kW, gradient_.data(), 2, 0));
  EXPECT_C_OK(slimps_push_sum(far_, kW, devices, 2, 2, 0));
  EXPECT_C_OK(slimps_pushpull(far_, kW, gradient_.data(), out.data(), 2, 0));
  EXPECT_C_OK(slimps_push_list(far_, items.data(), 1, 0));
  EXPECT_C_OK(slimps_pushpull_list(far_, items.data(), 1, 0));
  EXPECT_C_OK(slimps_push_row_sparse(far_, kW, &row, 1, gradient_.data(), 1, 0));
  EXPECT_THAT(threads, SizeIs(6));
  EXPECT_THAT(threads, Each(std::this_thread::get_id()));
}

TEST_F(CApiLocalBackground, AnUpdaterMayPushToAnotherStoreByTheSameCall) {
  const Store other = Make();
  ASSERT_C_OK(InitKey(other, kW, {0, 0}));
  const Store far_other = InBackground(other, call_);
  const auto push_on = [](void* other_store, slimps_key key, const float* gradient, float*,
                          size_t elements) {
    return slimps_push(static_cast<slimps_store*>(other_store), key, gradient, elements, 0);
  };
  ASSERT_C_OK(slimps_set_updater(far_, push_on, far_other.get()));
  Values out(2);
  const Items items = Items().Add(kW, {gradient_.data()}, out.data(), 2);
  ASSERT_C_OK(slimps_pushpull_list(far_, items.data(), 1, 0));
  EXPECT_EQ(PullOf(other, kW, 2), gradient_);
  // Its own store refuses it.
  ASSERT_C_OK(slimps_set_updater(far_, push_on, far_));
  EXPECT_C_FAILS(slimps_pushpull_list(far_, items.data(), 1, 0), SLIMPS_FAILED_PRECONDITION,
                 "the updater returned FAILED_PRECONDITION");
}

TEST_F(CApiLocalBackground, ListsPushAndPull) {
  ASSERT_C_OK(InitKey(store_, slimps_text_key("v"), {3}));
  const float one[] = {5, 6}, two[] = {7, 8}, nine = 9;
  Values w(2), v(1);
  for (slimps_store* const store : {raw_, far_}) {
    const Items items = Items().Add(kW, {one, two}, w.data(), 2).Add("v", {&nine}, v.data());
    EXPECT_C_OK(slimps_push_list(store, items.data(), 2, 0));
    EXPECT_C_OK(slimps_pull_list(store, items.data(), 2, 0));
    EXPECT_EQ(w, (Values{12, 14}));
    EXPECT_EQ(v, Values{9});
    const Items again = Items().Add(kW, {two}, w.data(), 2).Add("v", {one}, v.data());
    EXPECT_C_OK(slimps_pushpull_list(store, again.data(), 2, 0));
    EXPECT_EQ(w, (Values{7, 8}));
    EXPECT_EQ(v, Values{5});
  }
}

TEST_F(CApiLocalBackground, WhatIsPushedForOneKeyMayBePulledIntoForAnother) {
  ASSERT_C_OK(InitKey(store_, slimps_text_key("v"), {3}));
  float shared = 30, v = 0;
  Values w = {10, 20};
  const Items items = Items().Add("v", {&w[1]}, &shared).Add(kW, {w.data()}, w.data(), 2);
  ASSERT_C_OK(slimps_pushpull_list(far_, items.data(), 2, 0));
  EXPECT_EQ(shared, 20);
  // w's gradient is what v is pulled into.
  const Items crossed = Items().Add("v", {&shared}, w.data()).Add(kW, {w.data()}, w.data(), 2);
  shared = 99;
  w = {1, 2};
  ASSERT_C_OK(slimps_pushpull_list(far_, crossed.data(), 2, 0));
  EXPECT_EQ(Pulled(), (Values{1, 2})) << "and not 99";
  ASSERT_C_OK(slimps_pull(far_, slimps_text_key("v"), &v, 1, 0));
  EXPECT_EQ(v, 99);
}

TEST_F(CApiLocalBackground, AListReturnsTheFirstItemsError) {
  Values out(2);
  const Items items = Items()
                          .Add(kW, {gradient_.data()}, out.data(), 2)
                          .Add("x", {gradient_.data()}, out.data(), 2)
                          .Add("y", {gradient_.data()}, out.data(), 2);
  EXPECT_C_FAILS(slimps_pull_list(far_, items.data(), 3, 0), SLIMPS_NOT_FOUND,
                 "slimps_pull_list: key x");
  EXPECT_EQ(out, (Values{1, 2})) << "the others are pulled";
  EXPECT_C_FAILS(slimps_push_list(far_, items.data(), 3, 0), SLIMPS_NOT_FOUND, "key x");
  EXPECT_EQ(Pulled(), gradient_);
}

TEST(CApiCreateInBackground, ALocalStoreIsThereAtOnce) {
  const Call call = MakeCall();
  const Options options = MakeOptions("compression", "2bit");
  slimps_store* made = nullptr;
  ASSERT_C_OK(slimps_create_in_background("device", options.get(), call.get(), &made));
  const Store store(made);
  const char* type = nullptr;
  EXPECT_C_OK(slimps_type(made, &type));
  EXPECT_STREQ(type, "device");
  EXPECT_C_FAILS(slimps_create_in_background("local", options.get(), call.get(), &made),
                 SLIMPS_UNIMPLEMENTED, "slimps_create_in_background: gradient compression");
}

// The end of a create that is under way, and its message.
slimps_status EndOf(const Call& call) {
  int descriptor = -1;
  EXPECT_C_OK(slimps_call_descriptor(call.get(), &descriptor));
  pollfd ended = {descriptor, POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, 60000), 1);
  return slimps_call_finish(call.get());
}

TEST(CApiCreateInBackground, GivesUpWhenItIsCancelledAndTheNextOneDoesNot) {
  const Call call = MakeCall();
  const Options options = MakeOptions("scheduler", "127.0.0.1:1");  // nobody listens
  slimps_store* made = nullptr;
  EXPECT_C_OK(slimps_call_cancel(call.get())) << "nothing to cancel";
  ASSERT_EQ(slimps_create_in_background("dist_sync", options.get(), call.get(), &made),
            SLIMPS_UNDER_WAY);
  EXPECT_C_OK(slimps_call_cancel(call.get()));
  EXPECT_C_FAILS(EndOf(call), SLIMPS_CANCELLED, "slimps_create_in_background: ");
  ASSERT_C_OK(slimps_options_set(options.get(), "join_timeout_s", "0.01"));
  ASSERT_EQ(slimps_create_in_background("dist_sync", options.get(), call.get(), &made),
            SLIMPS_UNDER_WAY);
  EXPECT_C_FAILS(EndOf(call), SLIMPS_DEADLINE_EXCEEDED, "127.0.0.1:1");
  EXPECT_EQ(made, nullptr);
}

TEST(CApiCreateInBackground, WhatIsMadeIsKeptUnlessItWasCancelled) {
  slimps::BackgroundCall call;
  int kept = 0;
  const auto keep = [&] { ++kept; };
  const std::stop_token first = call.NewStop();
  EXPECT_TRUE(call.Keep(keep).ok());
  call.Cancel();
  EXPECT_FALSE(first.stop_requested()) << "what was made goes on";
  const std::stop_token second = call.NewStop();
  call.Cancel();
  EXPECT_TRUE(second.stop_requested());
  EXPECT_EQ(call.Keep(keep).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(kept, 1);
}

TEST(CApiCreateInBackground, OfNoTypeThereIsNone) {
  const Call call = MakeCall();
  slimps_store* made = nullptr;
  slimps_status status = slimps_create_in_background("locale", nullptr, call.get(), &made);
  if (status == SLIMPS_UNDER_WAY) status = EndOf(call);
  EXPECT_C_FAILS(status, SLIMPS_INVALID_ARGUMENT, "expected local, device, dist_sync");
  EXPECT_EQ(made, nullptr);
}

}  // namespace
