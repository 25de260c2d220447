// SPDX-License-Identifier: Apache-2.0
// Fixtures for tests of the C API: objects that destroy themselves.
#ifndef SLIMPS_TESTS_WORKER_CAPI_C_API_FIXTURE_H_
#define SLIMPS_TESTS_WORKER_CAPI_C_API_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/capi/c_api.h"
#include "worker/capi/c_api_calls.h"
#include "worker/capi/c_api_exchange.h"

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Values = std::vector<float>;

struct Destroy {
  void operator()(slimps_store* store) const { slimps_destroy(store); }
  void operator()(slimps_options* options) const { slimps_options_destroy(options); }
  void operator()(slimps_call* call) const { slimps_call_destroy(call); }
  void operator()(slimps_exchange* exchange) const { slimps_exchange_destroy(exchange); }
  void operator()(slimps_optimizer* optimizer) const { slimps_optimizer_destroy(optimizer); }
};
using Store = std::unique_ptr<slimps_store, Destroy>;
using Call = std::unique_ptr<slimps_call, Destroy>;
using Exchange = std::unique_ptr<slimps_exchange, Destroy>;
using Options = std::unique_ptr<slimps_options, Destroy>;
using Optimizer = std::unique_ptr<slimps_optimizer, Destroy>;

#define ASSERT_C_OK(call) ASSERT_EQ((call), SLIMPS_OK) << slimps_last_error()
#define EXPECT_C_OK(call) EXPECT_EQ((call), SLIMPS_OK) << slimps_last_error()
// Expects that the call fails with `status` and that the last error contains `words`.
#define EXPECT_C_FAILS(call, status, words) \
  EXPECT_EQ((call), status);                \
  EXPECT_THAT(slimps_last_error(), HasSubstr(words))
#define EXPECT_C_REFUSES(call, words) EXPECT_C_FAILS(call, SLIMPS_INVALID_ARGUMENT, words)

inline Options MakeOptions(const char* name = nullptr, const char* value = nullptr) {
  slimps_options* options = nullptr;
  EXPECT_C_OK(slimps_options_create(&options));
  if (name != nullptr) {
    EXPECT_C_OK(slimps_options_set(options, name, value));
  }
  return Options(options);
}

inline Store Make(const char* type = "local", const slimps_options* options = nullptr) {
  slimps_store* store = nullptr;
  EXPECT_C_OK(slimps_create(type, options, &store));
  return Store(store);
}

inline Call MakeCall() {
  slimps_call* call = nullptr;
  EXPECT_C_OK(slimps_call_create(&call));
  return Call(call);
}

inline Store InBackground(const Store& store, const Call& call) {
  slimps_store* background = nullptr;
  EXPECT_C_OK(slimps_in_background(store.get(), call.get(), &background));
  return Store(background);
}

// slimps_item for each key of a list. Thread-compatible.
class Items final {
 public:
  // Adds a key with one array per device.
  Items& Add(slimps_key key, std::vector<const float*> gradients, float* out, size_t elements) {
    gradients_.push_back(std::make_shared<std::vector<const float*>>(std::move(gradients)));
    items_.push_back({sizeof(slimps_item), key, gradients_.back()->data(),
                      gradients_.back()->size(), out, elements});
    return *this;
  }
  Items& Add(const char* key, std::vector<const float*> gradients, float* out,
             size_t elements = 1) {
    return Add(slimps_text_key(key), std::move(gradients), out, elements);
  }
  const slimps_item* data() const { return items_.data(); }
  size_t size() const { return items_.size(); }
  slimps_item& at(size_t index) { return items_.at(index); }

 private:
  std::vector<std::shared_ptr<std::vector<const float*>>> gradients_;  // shared with copies
  std::vector<slimps_item> items_;
};

inline Optimizer MakeOptimizer(const char* kind) {
  slimps_optimizer* optimizer = nullptr;
  EXPECT_C_OK(slimps_optimizer_create(kind, &optimizer));
  return Optimizer(optimizer);
}

inline slimps_status InitKey(const Store& store, slimps_key key, const Values& values,
                             int32_t dtype = SLIMPS_FLOAT32) {
  const int64_t shape[] = {static_cast<int64_t>(values.size())};
  slimps_tensor tensor = SLIMPS_TENSOR(key, shape, 1, values.data());
  tensor.dtype = dtype;
  return slimps_init(store.get(), &tensor, 1);
}

inline Values PullOf(const Store& store, slimps_key key, size_t elements) {
  Values out(elements, NAN);
  EXPECT_C_OK(slimps_pull(store.get(), key, out.data(), elements, 0));
  return out;
}

inline const slimps_key kW = slimps_text_key("w");

// A local store with the key "w" of two elements, 1 and 2.
class CApi : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_C_OK(InitKey(store_, kW, {1, 2})); }
  Values Pulled() const { return PullOf(store_, kW, 2); }

  Store store_ = Make();
  slimps_store* const raw_ = store_.get();
  const Values gradient_ = {10, 20};
};

#endif  // SLIMPS_TESTS_WORKER_CAPI_C_API_FIXTURE_H_
