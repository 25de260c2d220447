// SPDX-License-Identifier: Apache-2.0
// Calls in the background and lists, over a store that waits until the test lets it go. Distributed
// stores: tests/cluster/processes/c_api_test.py.
#include <poll.h>
#include <unistd.h>

#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/worker/capi/c_api_fixture.h"
#include "tests/worker/capi/held_store.h"

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class CApiBackground : public ::testing::Test {
 protected:
  bool Readable(int timeout_ms) const {
    pollfd ended = {descriptor_, POLLIN, 0};
    return poll(&ended, 1, timeout_ms) == 1;
  }
  // Waits for the end of the call under way.
  slimps_status Finish() {
    EXPECT_TRUE(Readable(60000));
    return slimps_call_finish(call_.get());
  }
  void SetUp() override { ASSERT_C_OK(slimps_call_descriptor(call_.get(), &descriptor_)); }
  void TearDown() override {
    if (store_ != nullptr) held_->Release(absl::OkStatus());
  }

  const std::shared_ptr<slimps::Notes> notes_ = std::make_shared<slimps::Notes>();
  slimps::HeldStore* held_ = nullptr;
  Store store_ = slimps::MakeHeld(notes_, &held_);
  Call call_ = MakeCall();
  Store background_ = InBackground(store_, call_);
  int descriptor_ = -1;
  float one_[2] = {1, 1}, two_[2] = {2, 2}, out_[2] = {};
};

// ---- one call -----------------------------------------------------------------------------------

TEST_F(CApiBackground, ACallIsUnderWayUntilItHasEndedAndIsFinished) {
  EXPECT_C_FAILS(slimps_call_finish(call_.get()), SLIMPS_FAILED_PRECONDITION,
                 "slimps_call_finish: expected a call under way, got none");
  ASSERT_EQ(slimps_barrier(background_.get()), SLIMPS_UNDER_WAY);
  EXPECT_FALSE(Readable(0));
  held_->Release(absl::OkStatus());
  EXPECT_TRUE(Readable(60000));
  EXPECT_TRUE(Readable(0)) << "until it is finished";
  EXPECT_C_OK(slimps_call_finish(call_.get()));
  EXPECT_FALSE(Readable(0));
  EXPECT_EQ(slimps_call_finish(call_.get()), SLIMPS_FAILED_PRECONDITION);
  EXPECT_THAT(notes_->on_threads(), ElementsAre("barrier", "barrier ends"));
}

TEST_F(CApiBackground, FinishWaitsWithoutADescriptorToo) {
  ASSERT_EQ(slimps_barrier(background_.get()), SLIMPS_UNDER_WAY);
  std::thread release([this] { held_->Release(absl::NotFoundError("who")); });
  EXPECT_C_FAILS(slimps_call_finish(call_.get()), SLIMPS_NOT_FOUND, "slimps_barrier: who");
  release.join();
}

TEST_F(CApiBackground, OneCallAtATimeIsUnderWay) {
  ASSERT_EQ(slimps_pull(background_.get(), kW, out_, 2, 0), SLIMPS_UNDER_WAY);
  const Items item = Items().Add("w", {one_}, out_);
  slimps_store* made = nullptr;
  const char* const busy = "the call is under way";
  EXPECT_C_FAILS(slimps_barrier(background_.get()), SLIMPS_FAILED_PRECONDITION, busy);
  EXPECT_C_FAILS(slimps_push(background_.get(), kW, one_, 2, 0), SLIMPS_FAILED_PRECONDITION, busy);
  EXPECT_C_FAILS(slimps_pull(background_.get(), kW, out_, 2, 0), SLIMPS_FAILED_PRECONDITION, busy);
  EXPECT_C_FAILS(slimps_pushpull_list(background_.get(), item.data(), 1, 0),
                 SLIMPS_FAILED_PRECONDITION, busy);
  EXPECT_C_FAILS(slimps_create_in_background("local", nullptr, call_.get(), &made),
                 SLIMPS_FAILED_PRECONDITION, busy);
  EXPECT_THAT(notes_->all(), ElementsAre("pull w")) << "nothing else was started";
  uint32_t rank = 0;
  EXPECT_C_OK(slimps_rank(background_.get(), &rank)) << "it does not wait";
  EXPECT_EQ(rank, 3u);
  EXPECT_C_OK(slimps_push(store_.get(), kW, one_, 2, 0)) << "another handle";
  held_->Answer("w", absl::OkStatus());
  EXPECT_C_OK(Finish());
  EXPECT_C_OK(slimps_push(background_.get(), kW, one_, 2, 0));
}

TEST_F(CApiBackground, AnAbortEndsABarrierUnderWay) {
  ASSERT_EQ(slimps_barrier(background_.get()), SLIMPS_UNDER_WAY);
  EXPECT_C_OK(slimps_abort(background_.get(), "no more data"));
  EXPECT_C_FAILS(Finish(), SLIMPS_ABORTED, "slimps_barrier: no more data");
}

TEST_F(CApiBackground, AnAbortEndsAPullUnderWay) {
  ASSERT_EQ(slimps_pull(background_.get(), kW, out_, 2, 0), SLIMPS_UNDER_WAY);
  EXPECT_C_OK(slimps_abort(store_.get(), "no more data"));
  EXPECT_C_FAILS(Finish(), SLIMPS_ABORTED, "slimps_pull: no more data");
}

TEST_F(CApiBackground, WhatALibrarysThreadThrowsIsAStatus) {
  const std::vector<std::pair<std::function<void()>, slimps_status>> all = {
      {[] { throw std::bad_alloc(); }, SLIMPS_RESOURCE_EXHAUSTED},
      {[] { throw std::runtime_error("no way"); }, SLIMPS_INTERNAL},
      {[] { throw 42; }, SLIMPS_INTERNAL}};
  const std::vector<std::string> words = {"out of memory", "no way", "of unknown type"};
  for (size_t i = 0; i < all.size(); ++i) {
    held_->ThrowAtBarriers(all[i].first);
    slimps_status status = slimps_barrier(background_.get());
    if (status == SLIMPS_UNDER_WAY) status = Finish();
    EXPECT_C_FAILS(status, all[i].second, words[i]);
    EXPECT_THAT(slimps_last_error(), StartsWith("slimps_barrier: "));
  }
}

TEST_F(CApiBackground, WhatMustNotBeIsRefusedAtOnce) {
  slimps_store* made = nullptr;
  slimps_call* call = nullptr;
  int descriptor = 0;
  EXPECT_C_REFUSES(slimps_call_create(nullptr), "call: expected a pointer");
  EXPECT_C_REFUSES(slimps_call_descriptor(nullptr, &descriptor), "call: expected a pointer");
  EXPECT_C_REFUSES(slimps_call_descriptor(call_.get(), nullptr), "descriptor: expected a pointer");
  EXPECT_C_REFUSES(slimps_call_finish(call), "call: expected a pointer");
  EXPECT_C_REFUSES(slimps_call_cancel(call), "call: expected a pointer");
  slimps_call_destroy(call);
  EXPECT_C_REFUSES(slimps_in_background(nullptr, call_.get(), &made), "store: expected a pointer");
  EXPECT_C_REFUSES(slimps_in_background(store_.get(), nullptr, &made), "call: expected a pointer");
  EXPECT_C_REFUSES(slimps_in_background(store_.get(), call_.get(), nullptr),
                   "background: expected a pointer");
  EXPECT_C_REFUSES(slimps_create_in_background(nullptr, nullptr, call_.get(), &made),
                   "type: expected text");
  EXPECT_C_REFUSES(slimps_create_in_background("local", nullptr, nullptr, &made),
                   "call: expected a pointer");
  EXPECT_C_REFUSES(slimps_create_in_background("local", nullptr, call_.get(), nullptr),
                   "store: expected a pointer");
  EXPECT_C_REFUSES(slimps_pull(background_.get(), kW, nullptr, 2, 0), "out: expected 2 elements");
  EXPECT_C_REFUSES(slimps_push(background_.get(), slimps_text_key(nullptr), one_, 2, 0), "key");
  EXPECT_THAT(notes_->all(), IsEmpty());
}

// ---- handles ------------------------------------------------------------------------------------

TEST_F(CApiBackground, TheStoreClosesWithItsLastHandle) {
  store_.reset();
  EXPECT_C_OK(slimps_push(background_.get(), kW, one_, 2, 0));
  EXPECT_THAT(notes_->all(), ElementsAre("push w"));
  background_.reset();
  EXPECT_THAT(notes_->all(), ElementsAre("push w", "closed"));
}

TEST_F(CApiBackground, TheLastHandleWaitsForThreadsOfCallsUnderWay) {
  ASSERT_EQ(slimps_barrier(background_.get()), SLIMPS_UNDER_WAY);
  background_.reset();
  std::thread release([this] { held_->Release(absl::OkStatus()); });
  store_.reset();
  release.join();
  EXPECT_THAT(notes_->all(), ElementsAre("barrier", "barrier ends", "closed"));
  EXPECT_C_OK(Finish());
}

TEST_F(CApiBackground, TheLastHandleEndsPullsUnderWay) {
  ASSERT_EQ(slimps_pull(background_.get(), kW, out_, 2, 0), SLIMPS_UNDER_WAY);
  background_.reset();
  store_.reset();
  EXPECT_C_FAILS(Finish(), SLIMPS_UNAVAILABLE, "slimps_pull: closed");
}

TEST_F(CApiBackground, ACallThatIsDestroyedGoesOn) {
  ASSERT_EQ(slimps_pull(background_.get(), kW, out_, 2, 0), SLIMPS_UNDER_WAY);
  call_.reset();
  background_.reset();
  held_->Answer("w", absl::OkStatus());
  call_ = MakeCall();
  background_ = InBackground(store_, call_);
  ASSERT_EQ(slimps_barrier(background_.get()), SLIMPS_UNDER_WAY);
  call_.reset();
  held_->Release(absl::OkStatus());
}

// Here and not beside other creates: ThreadSanitizer sees no order between the end of this one,
// which only a descriptor tells, and the start of a later one.
TEST_F(CApiBackground, ACreateWhoseCallIsDestroyedGivesUp) {
  const Options options = MakeOptions("scheduler", "127.0.0.1:1");  // nobody listens
  ASSERT_C_OK(slimps_options_set(options.get(), "join_timeout_s", "3600"));
  pollfd ended = {dup(descriptor_), POLLIN, 0};
  slimps_store* made = nullptr;
  ASSERT_EQ(slimps_create_in_background("dist_sync", options.get(), call_.get(), &made),
            SLIMPS_UNDER_WAY);
  call_.reset();
  background_.reset();
  EXPECT_EQ(poll(&ended, 1, 30000), 1) << "it goes on";
  EXPECT_EQ(made, nullptr);
  close(ended.fd);
}

// ---- pulls --------------------------------------------------------------------------------------

TEST_F(CApiBackground, APullNeedsNoThread) {
  ASSERT_EQ(slimps_pull(background_.get(), kW, out_, 2, 0), SLIMPS_UNDER_WAY);
  EXPECT_FALSE(Readable(0));
  held_->Answer("w", absl::DataLossError("torn"));
  EXPECT_C_FAILS(Finish(), SLIMPS_DATA_LOSS, "slimps_pull: torn");
  EXPECT_THAT(notes_->on_threads(), IsEmpty());
}

TEST_F(CApiBackground, AListEndsWithItsLastPullAndTheFirstItemsError) {
  const Items items = Items().Add("a", {}, out_).Add("b", {}, out_).Add("c", {}, out_);
  ASSERT_EQ(slimps_pull_list(background_.get(), items.data(), 3, 0), SLIMPS_UNDER_WAY);
  held_->Answer("c", absl::NotFoundError("c first"));
  held_->Answer("b", absl::DataLossError("b then"));
  EXPECT_FALSE(Readable(0)) << "a is still under way";
  held_->Answer("a", absl::OkStatus());
  EXPECT_C_FAILS(Finish(), SLIMPS_DATA_LOSS, "slimps_pull_list: b then");
  EXPECT_C_OK(slimps_pull_list(background_.get(), nullptr, 0, 0)) << "nothing to wait for";
}

TEST_F(CApiBackground, AListOnAPlainHandleWaits) {
  const Items items = Items().Add("a", {one_}, out_).Add("b", {one_}, out_);
  std::thread answers([this] {
    held_->Answer("b", absl::NotFoundError("b"));
    held_->Answer("a", absl::OkStatus());
  });
  EXPECT_C_FAILS(slimps_pushpull_list(store_.get(), items.data(), 2, 0), SLIMPS_NOT_FOUND,
                 "slimps_pushpull_list: b");
  answers.join();
}

// ---- pushes -------------------------------------------------------------------------------------

TEST_F(CApiBackground, EachKeyIsPulledAsSoonAsItIsPushed) {
  const Items items = Items().Add("a", {one_}, one_, 2).Add("b", {two_}, out_, 2);
  ASSERT_EQ(slimps_pushpull_list(background_.get(), items.data(), 2, 0), SLIMPS_UNDER_WAY);
  EXPECT_THAT(notes_->all(), ElementsAre("push a", "pull a", "push b", "pull b"));
}

TEST_F(CApiBackground, AnArrayOfTwoKeysIsPushedBeforeAnythingIsPulled) {
  float both[3] = {};
  for (const auto& [out, gradient] :
       {std::pair(both, both + 1), std::pair(both + 1, both), std::pair(both, both)}) {
    const Items items = Items().Add("a", {one_}, out, 2).Add("b", {two_, gradient}, out_, 2);
    notes_->Clear();
    ASSERT_EQ(slimps_pushpull_list(background_.get(), items.data(), 2, 0), SLIMPS_UNDER_WAY);
    EXPECT_THAT(notes_->all(), ElementsAre("push a", "push b", "pull a", "pull b"));
    held_->Answer("a", absl::OkStatus());
    held_->Answer("b", absl::OkStatus());
    EXPECT_C_OK(Finish());
  }
}

TEST_F(CApiBackground, BehindARefusedPushNothingIsPushedOrPulled) {
  held_->RefusePushes("b", absl::InvalidArgumentError("nan"));
  const Items items = Items().Add("a", {one_}, one_).Add("b", {two_}, two_).Add("c", {out_}, out_);
  EXPECT_C_REFUSES(slimps_push_list(background_.get(), items.data(), 3, 0),
                   "slimps_push_list: nan");
  EXPECT_THAT(notes_->all(), ElementsAre("push a", "push b"));
  notes_->Clear();
  ASSERT_EQ(slimps_pushpull_list(background_.get(), items.data(), 3, 0), SLIMPS_UNDER_WAY);
  EXPECT_THAT(notes_->all(), ElementsAre("push a", "pull a", "push b"));
  held_->Answer("a", absl::OkStatus());
  EXPECT_C_REFUSES(Finish(), "slimps_pushpull_list: nan");
  const Items overlap = Items().Add("a", {one_}, two_).Add("b", {two_}, two_);
  notes_->Clear();
  EXPECT_C_REFUSES(slimps_pushpull_list(background_.get(), overlap.data(), 2, 0), "nan");
  EXPECT_THAT(notes_->all(), ElementsAre("push a", "push b"));
}

TEST_F(CApiBackground, PushesUseAThreadOnlyIfTheyMayHaveToWait) {
  held_->SetRoom(2 * sizeof(float));
  const Items one = Items().Add("a", {one_}, out_, 2);
  const Items two = Items().Add("a", {one_, one_}, out_, 2).Add("b", {two_}, out_, 1);
  EXPECT_C_OK(slimps_push(background_.get(), kW, one_, 2, 0));
  EXPECT_C_OK(slimps_push_list(background_.get(), one.data(), 1, 0));
  const auto finished = [&](slimps_status status) {  // a thread may be done at once
    return status == SLIMPS_UNDER_WAY ? Finish() : status;
  };
  EXPECT_C_OK(finished(slimps_push_list(background_.get(), two.data(), 2, 0)));
  EXPECT_C_OK(slimps_push_list(store_.get(), two.data(), 2, 0)) << "this handle waits";
  held_->SetRoom(0);
  EXPECT_C_OK(finished(slimps_push(background_.get(), kW, one_, 2, 0)));
  EXPECT_THAT(notes_->on_threads(), ElementsAre("push a", "push b", "push w"));
}

TEST_F(CApiBackground, AListWhosePushesMayWaitIsPushedAndPulledOnAThread) {
  held_->SetRoom(2 * sizeof(float));
  const Items items = Items().Add("a", {one_}, out_).Add("w", {two_}, one_, 2);
  ASSERT_EQ(slimps_pushpull_list(background_.get(), items.data(), 2, 0), SLIMPS_UNDER_WAY);
  held_->Answer("w", absl::OkStatus());
  held_->Answer("a", absl::OkStatus());
  EXPECT_C_OK(Finish());
  EXPECT_THAT(notes_->on_threads(), ElementsAre("push a", "push w", "pull a", "pull w"))
      << "w is pulled into what is pushed of a";
}

TEST_F(CApiBackground, ListsThatMakeNoSenseAreRefused) {
  const Items items = Items().Add("a", {one_}, out_).Add("b", {two_}, out_);
  const auto refused = [&](auto change, const char* words) {
    Items changed = items;
    change(changed.at(1));
    EXPECT_C_REFUSES(slimps_pushpull_list(background_.get(), changed.data(), 2, 0), words);
  };
  refused([](auto& item) { item.struct_size = 0; },
          "items[1].struct_size: expected that of items[0], 80, got 0");
  refused([](auto& item) { item.key.kind = 9; }, "items[1].key: expected kind");
  refused([](auto& item) { item.gradients = nullptr; },
          "items[1].gradients: expected 1 elements, got NULL");
  refused([](auto& item) { item.out = nullptr; }, "items[1].out: expected 1 elements, got NULL");
  static const slimps_place nowhere = {3, 0, nullptr}, no_gpu = {SLIMPS_CUDA, -2, nullptr};
  refused([](auto& item) { item.places = &nowhere; }, "items[1].places.kind: expected");
  refused([](auto& item) { item.out_place = &no_gpu; },
          "items[1].out_place.device: expected a GPU's number or -1, got -2");
  EXPECT_C_REFUSES(slimps_push_list(background_.get(), nullptr, 1, 0),
                   "items: expected 1 elements, got NULL");
  EXPECT_C_REFUSES(slimps_push_list(background_.get(), items.data(), SIZE_MAX, 0),
                   "items: expected an array that fits into memory, got 18446744073709551615");
  EXPECT_C_REFUSES(slimps_pull_list(nullptr, items.data(), 1, 0), "store: expected a pointer");
  EXPECT_THAT(notes_->all(), IsEmpty());
}

}  // namespace
