// SPDX-License-Identifier: Apache-2.0
// The C API on local stores: what pushes, pulls, optimizers, updaters and compression do, and what
// they refuse.
#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/mutex.h"
#include "tests/worker/capi/c_api_fixture.h"

namespace {

// ---- init ---------------------------------------------------------------------------------------

TEST(CApiInit, TakesAnArrayOfTensorsAsFarApartAsTheCallersHeaderHasThem) {
  struct Newer {  // a later header might have this
    slimps_tensor known;
    uint64_t added;
  };
  const int64_t shape[] = {2, 2};
  const Values values = {1, 2, 3, 4};
  Newer tensors[] = {{SLIMPS_TENSOR(slimps_int_key(0), shape, 2, values.data()), 0},
                     {SLIMPS_TENSOR(slimps_int_key(1), shape, 1, values.data()), 0},
                     {SLIMPS_TENSOR(slimps_int_key(2), nullptr, 0, values.data()), 0}};
  for (Newer& tensor : tensors) tensor.known.struct_size = sizeof(Newer);
  const Store store = Make();
  tensors[1].added = 1;
  EXPECT_C_REFUSES(slimps_init(store.get(), &tensors[0].known, 3),
                   "tensors[1]: has fields beyond the 72 bytes that this library knows");
  tensors[1].added = 0;
  ASSERT_C_OK(slimps_init(store.get(), &tensors[0].known, 3));
  EXPECT_EQ(PullOf(store, slimps_int_key(0), 4), values);
  EXPECT_EQ(PullOf(store, slimps_int_key(1), 2), (Values{1, 2}));
  EXPECT_EQ(PullOf(store, slimps_int_key(2), 1), (Values{1}));
  EXPECT_C_OK(slimps_init(store.get(), nullptr, 0));
}

TEST(CApiInit, WhatATensorCannotBeIsNamedAndMakesNoKey) {
  const int64_t shape[] = {2}, negative[] = {2, -1}, huge[] = {int64_t{1} << 40, int64_t{1} << 40};
  const Values values = {1, 2};
  const slimps_tensor good = SLIMPS_TENSOR(slimps_int_key(0), shape, 1, values.data());
  const auto refused = [&](auto change, const char* words) {
    const Store store = Make();
    slimps_tensor tensors[] = {good, good};
    tensors[1].key = slimps_int_key(1);
    change(tensors[1]);
    EXPECT_C_REFUSES(slimps_init(store.get(), tensors, 2), words);
    float out = 0;
    EXPECT_EQ(slimps_pull(store.get(), slimps_int_key(0), &out, 1, 0), SLIMPS_NOT_FOUND) << words;
  };
  refused([](auto& t) { t.struct_size = 0; },
          "tensors[1].struct_size: expected that of tensors[0], 72, got 0");
  refused([](auto& t) { t.struct_size = 80; },
          "tensors[1].struct_size: expected that of tensors[0], 72");
  refused([](auto& t) { t.key.kind = 9; }, "tensors[1].key: expected kind");
  refused([](auto& t) { t.shape = nullptr; }, "tensors[1].shape: expected 1 elements, got NULL");
  refused([&](auto& t) { t.shape = negative, t.dimensions = 2; },
          "from 1 that fit into memory, got -1");
  refused([&](auto& t) { t.shape = huge, t.dimensions = 2; }, "tensors[1].shape: expected extents");
  refused([](auto& t) { t.dimensions = SIZE_MAX; },
          "tensors[1].shape: expected an array that fits");
  refused([](auto& t) { t.dtype = 3; }, "tensors[1].dtype: expected 0 to 2, got 3");
  refused([](auto& t) { t.layer = -1; }, "tensors[1].layer: expected 0 to 6, got -1");
  refused([](auto& t) { t.values = nullptr; }, "initial value");
  const slimps_place lent = {SLIMPS_LENT, 0, nullptr};
  refused([&](auto& t) { t.place = &lent; }, "tensors[1].place.kind: expected 0 to 1, got 2");
  const Store store = Make();
  for (const size_t size : {size_t{0}, size_t{56}, sizeof(slimps_tensor) + 4, size_t{4104}}) {
    slimps_tensor tensor = good;
    tensor.struct_size = size;
    EXPECT_C_REFUSES(slimps_init(store.get(), &tensor, 1),
                     "tensors[0].struct_size: expected the struct's");
  }
  EXPECT_C_REFUSES(slimps_init(store.get(), nullptr, 1), "tensors: expected 1 elements, got NULL");
  EXPECT_C_REFUSES(slimps_init(nullptr, &good, 1), "store: expected a pointer");
  EXPECT_C_OK(slimps_init(store.get(), &good, 1));
  EXPECT_C_FAILS(slimps_init(store.get(), &good, 1), SLIMPS_ALREADY_EXISTS,
                 "key 0 was initialised before");
}

TEST(CApiInit, HalfPrecisionIsOfWhatIsPulled) {
  const Store store = Make();
  ASSERT_C_OK(InitKey(store, slimps_int_key(1), {1.0009765f, 1.0001f}, SLIMPS_FLOAT16));
  ASSERT_C_OK(InitKey(store, slimps_int_key(2), {1.0009765f, 1.0001f}, SLIMPS_BFLOAT16));
  EXPECT_EQ(PullOf(store, slimps_int_key(1), 2), (Values{1.0009765625f, 1.0f}));
  EXPECT_EQ(PullOf(store, slimps_int_key(2), 2), (Values{1.0f, 1.0f}));
}

TEST_F(CApi, BroadcastInitialisesAndPulls) {
  const int64_t shape[] = {2};
  slimps_tensor tensor = SLIMPS_TENSOR(slimps_text_key("v"), shape, 1, gradient_.data());
  Values out(2);
  EXPECT_C_REFUSES(slimps_broadcast(raw_, nullptr, out.data(), 2), "tensor: expected a pointer");
  EXPECT_C_REFUSES(slimps_broadcast(raw_, &tensor, nullptr, 2), "out: expected 2 elements");
  ASSERT_C_OK(slimps_broadcast(raw_, &tensor, out.data(), 2));
  EXPECT_EQ(out, gradient_);
}

// ---- push and pull ------------------------------------------------------------------------------

TEST_F(CApi, WithoutAnOptimizerAPushReplacesTheValue) {
  ASSERT_C_OK(slimps_push(raw_, kW, gradient_.data(), 2, 0));
  EXPECT_EQ(Pulled(), (Values{10, 20}));
  const float one[] = {1, 2}, two[] = {30, 40};
  const float* const devices[] = {one, two};
  ASSERT_C_OK(slimps_push_sum(raw_, kW, devices, 2, 2, 0));
  EXPECT_EQ(Pulled(), (Values{31, 42}));
  Values both = {5, 6};
  ASSERT_C_OK(slimps_pushpull(raw_, kW, both.data(), both.data(), 2, 0));
  EXPECT_EQ(both, (Values{5, 6}));
  ASSERT_C_OK(slimps_push_nothing(raw_, kW));
  EXPECT_EQ(Pulled(), (Values{0, 0})) << "nothing sums to zero";
}

TEST_F(CApi, GradientsOnLoanArePushedAndNothingIsPulledIntoALoan) {
  const float* const gradients[] = {gradient_.data()};
  const slimps_place on_loan = {SLIMPS_LENT, 0, nullptr};
  Values out(2);
  slimps_item item = {sizeof(slimps_item), kW, gradients, 1, out.data(), 2, &on_loan, nullptr};
  ASSERT_C_OK(slimps_pushpull_list(raw_, &item, 1, 0));
  EXPECT_EQ(out, gradient_);
  slimps_item both[] = {item, item};
  EXPECT_C_REFUSES(slimps_pushpull_list(raw_, both, 2, 0), "items: two share memory");
  item.out_place = &on_loan;
  EXPECT_C_REFUSES(slimps_pushpull_list(raw_, &item, 1, 0),
                   "items[0].out_place.kind: expected 0 to 1, got 2");
}

TEST_F(CApi, WrongArraysAreRefusedAndChangeNothing) {
  Values out(3);
  const float* const with_null[] = {out.data(), nullptr};
  const slimps_key unknown = slimps_text_key("u");
  EXPECT_C_REFUSES(slimps_push(raw_, kW, nullptr, 2, 0), "gradient: expected 2 elements, got NULL");
  EXPECT_C_REFUSES(slimps_push(raw_, kW, nullptr, 0, 0), "key w");
  EXPECT_C_REFUSES(slimps_push(raw_, kW, out.data(), 3, 0), "key w");
  EXPECT_C_REFUSES(slimps_push(raw_, kW, out.data(), SIZE_MAX, 0),
                   "expected an array that fits into memory");
  EXPECT_C_REFUSES(slimps_push(raw_, kW, Values{1, NAN}.data(), 2, 0), "nan");
  EXPECT_C_FAILS(slimps_push(raw_, unknown, out.data(), 3, 0), SLIMPS_NOT_FOUND, "key u");
  EXPECT_C_REFUSES(slimps_push_sum(raw_, kW, with_null, 2, 2, 0),
                   "gradients: expected 2 elements, got NULL");
  EXPECT_C_REFUSES(slimps_push_sum(raw_, kW, nullptr, 2, 2, 0),
                   "gradients: expected 2 elements, got NULL");
  EXPECT_EQ(slimps_push_sum(raw_, kW, with_null, 0, 2, 0), SLIMPS_INVALID_ARGUMENT);
  EXPECT_C_FAILS(slimps_push_nothing(raw_, unknown), SLIMPS_NOT_FOUND, "key u");
  EXPECT_C_REFUSES(slimps_pull(raw_, kW, out.data(), 3, 0), "key w");
  EXPECT_C_FAILS(slimps_pull(raw_, unknown, out.data(), 3, 0), SLIMPS_NOT_FOUND, "key u");
  EXPECT_C_REFUSES(slimps_pushpull(raw_, kW, out.data(), nullptr, 2, 0),
                   "out: expected 2 elements");
  EXPECT_C_REFUSES(slimps_pushpull(raw_, kW, nullptr, out.data(), 2, 0),
                   "gradient: expected 2 elements");
  EXPECT_EQ(Pulled(), (Values{1, 2}));
}

// Collects the answers of slimps_pull_async, and their threads.
struct Answers {
  slimps::Mutex mutex;
  slimps::CondVar changed;
  std::vector<slimps_status> statuses;
  std::vector<std::string> messages;
  std::thread::id thread;

  static void Take(void* user_data, slimps_status status, const char* message) {
    auto* answers = static_cast<Answers*>(user_data);
    slimps::MutexLock lock(&answers->mutex);
    answers->statuses.push_back(status);
    answers->messages.push_back(message);
    answers->thread = std::this_thread::get_id();
    answers->changed.NotifyAll();
  }
  bool Await(size_t count) {
    slimps::MutexLock lock(&mutex);
    return changed.Await(&mutex, absl::Seconds(60), [&] { return statuses.size() >= count; });
  }
};

TEST_F(CApi, AnAsynchronousPullAnswersOnAnotherThread) {
  Answers answers;
  Values first(2), second(2);
  {
    slimps::MutexLock held(&answers.mutex);  // an answer on this thread would wait for ever
    ASSERT_C_OK(slimps_pull_async(raw_, kW, first.data(), 2, 0, Answers::Take, &answers));
    ASSERT_C_OK(slimps_pull_async(raw_, kW, second.data(), 2, 0, Answers::Take, &answers));
  }
  ASSERT_TRUE(answers.Await(2));
  EXPECT_EQ(answers.statuses, (std::vector<slimps_status>{SLIMPS_OK, SLIMPS_OK}));
  EXPECT_EQ(answers.messages, (std::vector<std::string>{"", ""}));
  EXPECT_NE(answers.thread, std::this_thread::get_id());
  EXPECT_EQ(first, (Values{1, 2}));
  EXPECT_EQ(second, first);
}

TEST_F(CApi, AnAsynchronousPullThatCannotBeginAnswersAtOnceAndOnlyOnce) {
  Answers answers;
  Values out(2);
  EXPECT_C_FAILS(
      slimps_pull_async(raw_, slimps_text_key("u"), out.data(), 2, 0, Answers::Take, &answers),
      SLIMPS_NOT_FOUND, "slimps_pull_async: ");
  EXPECT_C_REFUSES(slimps_pull_async(raw_, kW, out.data(), 2, 0, nullptr, nullptr),
                   "done: expected a function, got NULL");
  EXPECT_C_REFUSES(slimps_pull_async(raw_, kW, nullptr, 2, 0, Answers::Take, &answers),
                   "out: expected");
  EXPECT_C_REFUSES(slimps_pull_async(nullptr, kW, out.data(), 2, 0, Answers::Take, &answers),
                   "store");
  store_.reset();  // answers all that is still open
  EXPECT_TRUE(answers.statuses.empty());
}

TEST_F(CApi, DestroyingWaitsForAnswers) {
  std::atomic<int> answered = 0;
  Values out(2);
  for (int i = 0; i < 50; ++i) {
    ASSERT_C_OK(slimps_pull_async(
        raw_, kW, out.data(), 2, 0,
        [](void* count, slimps_status, const char*) {
          static_cast<std::atomic<int>*>(count)->fetch_add(1);
        },
        &answered));
  }
  store_.reset();
  EXPECT_EQ(answered.load(), 50);
}

TEST_F(CApi, LocalStoresHaveRowsAndTheirOptimizersStates) {
  Values values = {5, 0};
  int64_t row = 1;
  size_t count = 7;
  void* content = nullptr;
  EXPECT_C_OK(slimps_push_row_sparse(raw_, kW, &row, 1, values.data(), 1, 0));
  values = {0, 0};
  EXPECT_C_OK(slimps_pull_rows(raw_, kW, &row, 1, &row, values.data(), 2, &count, 0));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(values[0], 5);
  count = 7;
  EXPECT_C_FAILS(slimps_save_optimizer_states(raw_, &content, &count), SLIMPS_FAILED_PRECONDITION,
                 "expected an optimizer, got none");
  EXPECT_EQ(count, 7u);
  EXPECT_EQ(content, nullptr);
  slimps_optimizer* adam = nullptr;
  EXPECT_C_OK(slimps_optimizer_create("adam", &adam));
  EXPECT_C_OK(slimps_set_optimizer(raw_, adam));
  slimps_optimizer_destroy(adam);
  EXPECT_C_OK(slimps_save_optimizer_states(raw_, &content, &count));
  EXPECT_C_OK(slimps_load_optimizer_states(raw_, content, count));
  slimps_free(content);
  EXPECT_C_FAILS(slimps_load_optimizer_states(raw_, "x", 1), SLIMPS_INVALID_ARGUMENT, "states");
  content = nullptr;
  EXPECT_C_REFUSES(slimps_push_row_sparse(raw_, kW, nullptr, 1, values.data(), 2, 0),
                   "rows: expected 1");
  EXPECT_C_REFUSES(slimps_push_row_sparse(raw_, kW, &row, 1, nullptr, 2, 0), "values: expected 2");
  EXPECT_C_REFUSES(slimps_pull_rows(raw_, kW, nullptr, 1, &row, values.data(), 2, &count, 0),
                   "row_ids: expected 1");
  EXPECT_C_REFUSES(slimps_pull_rows(raw_, kW, &row, 1, nullptr, values.data(), 2, &count, 0),
                   "rows: expected 1");
  EXPECT_C_REFUSES(slimps_pull_rows(raw_, kW, &row, 1, &row, nullptr, 2, &count, 0),
                   "values: expected 2");
  EXPECT_C_REFUSES(slimps_pull_rows(raw_, kW, &row, 1, &row, values.data(), 2, nullptr, 0),
                   "num_rows: expected");
  EXPECT_C_REFUSES(slimps_save_optimizer_states(raw_, nullptr, &count),
                   "content: expected a pointer");
  EXPECT_C_REFUSES(slimps_save_optimizer_states(raw_, &content, nullptr),
                   "bytes: expected a pointer");
  EXPECT_C_REFUSES(slimps_load_optimizer_states(raw_, nullptr, 1),
                   "content: expected 1 elements, got NULL");
}

// ---- what becomes of gradients ------------------------------------------------------------------

TEST_F(CApi, AnOptimizerSteps) {
  const Optimizer sgd = MakeOptimizer("sgd");
  ASSERT_C_OK(slimps_optimizer_set_number(sgd.get(), "learning_rate", 0.5));
  ASSERT_C_OK(slimps_optimizer_set(sgd.get(), "weight_decay", "0.25"));
  ASSERT_C_OK(slimps_set_optimizer(raw_, sgd.get()));
  ASSERT_C_OK(
      slimps_optimizer_set_number(sgd.get(), "learning_rate", 100));  // the store has its own copy
  ASSERT_C_OK(slimps_push(raw_, kW, gradient_.data(), 2, 0));
  EXPECT_EQ(Pulled(), (Values{1 - 0.5f * (10 + 0.25f * 1), 2 - 0.5f * (20 + 0.25f * 2)}));
}

TEST_F(CApi, OptimizersThatMakeNoSenseAreRefused) {
  const Optimizer sgd = MakeOptimizer("sgd");
  slimps_optimizer* none = nullptr;
  EXPECT_C_REFUSES(slimps_optimizer_create("lamb", &none),
                   "expected sgd, adam, adamw, onebit_adam, test or none");
  EXPECT_C_REFUSES(slimps_optimizer_create(nullptr, &none), "kind: expected text");
  EXPECT_C_REFUSES(slimps_optimizer_create("sgd", nullptr), "optimizer: expected a pointer");
  EXPECT_EQ(none, nullptr);
  EXPECT_C_REFUSES(slimps_optimizer_set_number(sgd.get(), "lr", 1), "no optimizer option \"lr\"");
  EXPECT_C_REFUSES(slimps_optimizer_set_number(sgd.get(), nullptr, 1), "name: expected text");
  EXPECT_C_REFUSES(slimps_optimizer_set_number(nullptr, "momentum", 1),
                   "optimizer: expected a pointer");
  EXPECT_C_REFUSES(slimps_optimizer_set(sgd.get(), "momentum", "x"), "momentum: expected a number");
  EXPECT_C_REFUSES(slimps_optimizer_set(sgd.get(), "momentum", nullptr), "value: expected text");
  EXPECT_C_REFUSES(slimps_optimizer_set(nullptr, "momentum", "1"), "optimizer: expected a pointer");
  EXPECT_C_REFUSES(slimps_set_optimizer(raw_, nullptr), "optimizer: expected a pointer");
  ASSERT_C_OK(slimps_optimizer_set_number(sgd.get(), "momentum", 2));
  EXPECT_C_REFUSES(slimps_set_optimizer(raw_, sgd.get()),
                   "momentum: expected at least 0 and at most 1, got 2");
}

struct Updates {
  std::vector<std::string> keys;
  slimps_status result = SLIMPS_OK;

  static slimps_status AddTo(void* user_data, slimps_key key, const float* gradient, float* weight,
                             size_t elements) {
    auto* updates = static_cast<Updates*>(user_data);
    updates->keys.push_back(key.kind == SLIMPS_KEY_INT ? std::to_string(key.number) : key.text);
    for (size_t k = 0; k < elements; ++k) weight[k] += gradient[k];
    return updates->result;
  }
};

TEST_F(CApi, AnUpdaterRunsOncePerPushAndKey) {
  Updates updates;
  ASSERT_C_OK(slimps_set_updater(raw_, Updates::AddTo, &updates));
  ASSERT_C_OK(slimps_push(raw_, kW, gradient_.data(), 2, 0));
  EXPECT_EQ(Pulled(), (Values{11, 22}));
  EXPECT_EQ(updates.keys, std::vector<std::string>{"w"});
  updates.result = SLIMPS_DATA_LOSS;
  EXPECT_C_FAILS(slimps_push(raw_, kW, gradient_.data(), 2, 0), SLIMPS_DATA_LOSS,
                 "slimps_push: the updater returned DATA_LOSS (15) for key w");
  updates.result = 99;
  EXPECT_C_FAILS(slimps_push(raw_, kW, gradient_.data(), 2, 0), SLIMPS_UNKNOWN, "UNKNOWN (99)");
  ASSERT_C_OK(slimps_set_updater(raw_, nullptr, nullptr));
  ASSERT_C_OK(slimps_push(raw_, kW, gradient_.data(), 2, 0));
  EXPECT_EQ(Pulled(), gradient_);

  const Store numbered = Make();
  ASSERT_C_OK(InitKey(numbered, slimps_int_key(-7), {0}));
  updates = {};
  ASSERT_C_OK(slimps_set_updater(numbered.get(), Updates::AddTo, &updates));
  ASSERT_C_OK(slimps_push(numbered.get(), slimps_int_key(-7), gradient_.data(), 1, 0));
  EXPECT_EQ(updates.keys, std::vector<std::string>{"-7"});
}

TEST_F(CApi, WhatAnUpdaterThrowsEndsInAStatus) {
  const auto throws = [](void* user_data, slimps_key, const float*, float*,
                         size_t) -> slimps_status {
    switch (*static_cast<int*>(user_data)) {
      case 0:
        throw std::bad_alloc();
      case 1:
        throw std::length_error("too long");
      case 2:
        throw std::runtime_error("no way");
      default:
        throw 42;
    }
  };
  int what = 0;
  ASSERT_C_OK(slimps_set_updater(raw_, throws, &what));
  for (const auto& [status, words] :
       {std::pair(SLIMPS_RESOURCE_EXHAUSTED, "out of memory"),
        std::pair(SLIMPS_RESOURCE_EXHAUSTED, "too long"), std::pair(SLIMPS_INTERNAL, "no way"),
        std::pair(SLIMPS_INTERNAL, "of unknown type")}) {
    EXPECT_C_FAILS(slimps_push(raw_, kW, gradient_.data(), 2, 0), status, words);
    ++what;
  }
}

TEST(CApiCompression, IsSetBySpecAndByPairs) {
  const Store store = Make("device");
  ASSERT_C_OK(InitKey(store, kW, {0, 0}));
  const char* const names[] = {"type", "threshold", "type"};
  const char* const values[] = {"2bit", "2", nullptr};
  EXPECT_C_REFUSES(slimps_set_gradient_compression(store.get(), "3bit"), "3bit");
  EXPECT_C_REFUSES(slimps_set_gradient_compression(store.get(), nullptr), "codec: expected text");
  EXPECT_C_REFUSES(slimps_set_gradient_compression_pairs(store.get(), names, nullptr, 2),
                   "values: expected 2");
  EXPECT_C_REFUSES(slimps_set_gradient_compression_pairs(store.get(), nullptr, values, 2),
                   "names: expected 2");
  EXPECT_C_REFUSES(slimps_set_gradient_compression_pairs(store.get(), names, values, 3),
                   "values: expected text");
  const char* const twice[] = {"2bit", "2", "1bit"};
  EXPECT_C_REFUSES(slimps_set_gradient_compression_pairs(store.get(), names, twice, 3),
                   "names: expected each once, got \"type\" twice");
  ASSERT_C_OK(slimps_set_gradient_compression_pairs(store.get(), names, values, 2));
  ASSERT_C_OK(slimps_push(store.get(), kW, Values{3, 1}.data(), 2, 0));
  EXPECT_EQ(PullOf(store, kW, 2), (Values{2, 0}));
  EXPECT_C_FAILS(slimps_set_gradient_compression(store.get(), "1bit"), SLIMPS_FAILED_PRECONDITION,
                 "before the first push");
}

}  // namespace
