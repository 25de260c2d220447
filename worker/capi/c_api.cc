// SPDX-License-Identifier: Apache-2.0
// c_api.h: errors, options, optimizers, the store's life, the job. c_api_tensors.cc has tensors;
// c_api_figures.cc has what a store has counted and keeps.
#include "worker/capi/c_api.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "glog/logging.h"
#include "proto/base/status_macros.h"
#include "worker/capi/c_api_handle.h"
#include "worker/capi/c_api_support.h"
#include "worker/collective_optimizer.h"
#include "worker/kvstore_options.h"
#include "worker/optimizer_options.h"

namespace {

using slimps::Ask;
using slimps::AskKey;
using slimps::Await;
using slimps::AwaitWith;
using slimps::CheckPointer;
using slimps::CheckText;
using slimps::Guarded;
using slimps::KVStore;

// Writes what `get` returns for the store into `out`.
template <typename Out, typename Get>
slimps_status Tell(const char* function, const slimps_store* store, const char* what, Out* out,
                   Get get) noexcept {
  return Guarded(function, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("store", store));
    SLIMPS_RETURN_IF_ERROR(CheckPointer(what, out));
    *out = get(*store->shared);
    return absl::OkStatus();
  });
}

}  // namespace

extern "C" {

// ---- what it is, and errors ---------------------------------------------------------------------

int32_t slimps_api_version(void) { return SLIMPS_C_API_VERSION; }

const char* slimps_status_name(slimps_status status) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  const bool known = status >= 0 && static_cast<size_t>(status) < std::size(kNames);
  return kNames[known ? status : SLIMPS_UNKNOWN];
}

slimps_status slimps_log_to_stderr(void) {
  return Guarded(__func__, [] {
    [[maybe_unused]] static const bool once = [] {  // glog ends a process that sets it up twice
      if (!google::IsGoogleLoggingInitialized()) {
        FLAGS_logtostderr = true;
        google::InitGoogleLogging("slimps");
      }
      return true;
    }();
    return absl::OkStatus();
  });
}

const char* slimps_last_error(void) { return slimps::LastError(); }

void slimps_free(void* memory) { std::free(memory); }

// ---- options ------------------------------------------------------------------------------------

slimps_status slimps_options_create(slimps_options** options) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("options", options));
    *options = new slimps_options;
    return absl::OkStatus();
  });
}

slimps_status slimps_options_set(slimps_options* options, const char* name, const char* value) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("options", options));
    SLIMPS_RETURN_IF_ERROR(CheckText("name", name));
    SLIMPS_RETURN_IF_ERROR(CheckText("value", value));
    return slimps::SetOption(name, value, &options->options);
  });
}

slimps_status slimps_options_get(slimps_options* options, const char* name, const char** value) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("options", options));
    SLIMPS_RETURN_IF_ERROR(CheckText("name", name));
    SLIMPS_RETURN_IF_ERROR(CheckPointer("value", value));
    SLIMPS_ASSIGN_OR_RETURN(options->text, slimps::GetOption(name, options->options));
    *value = options->text.c_str();
    return absl::OkStatus();
  });
}

slimps_status slimps_options_from_environment(slimps_options* options) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("options", options));
    return slimps::SetJobFromEnvironment([](const char* name) { return std::getenv(name); },
                                         &options->options);
  });
}

void slimps_options_destroy(slimps_options* options) { delete options; }

// ---- the store ----------------------------------------------------------------------------------

slimps_status slimps_create(const char* type, const slimps_options* options, slimps_store** store) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckText("type", type));
    SLIMPS_RETURN_IF_ERROR(CheckPointer("store", store));
    auto made = std::make_unique<slimps_store>();
    SLIMPS_ASSIGN_OR_RETURN(auto open, KVStore::Create(type, slimps::OptionsOf(options)));
    made->shared = std::make_shared<slimps::SharedStore>(type, std::move(open));
    *store = made.release();
    return absl::OkStatus();
  });
}

slimps_status slimps_close(slimps_store* store) {
  return Await(__func__, store, [](KVStore* open) { return open->Close(); });
}

void slimps_destroy(slimps_store* store) { delete store; }

slimps_status slimps_abort(slimps_store* store, const char* why) {
  return Ask(__func__, store, [why](KVStore* open) -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckText("why", why));
    open->Abort(absl::AbortedError(why));
    return absl::OkStatus();
  });
}

slimps_status slimps_rank(const slimps_store* store, uint32_t* rank) {
  return Tell(__func__, store, "rank", rank, [](const auto& of) { return of.store()->rank(); });
}

slimps_status slimps_num_workers(const slimps_store* store, uint32_t* num_workers) {
  return Tell(__func__, store, "num_workers", num_workers,
              [](const auto& of) { return of.store()->num_workers(); });
}

slimps_status slimps_timeout(const slimps_store* store, double* seconds) {
  return Tell(__func__, store, "seconds", seconds,
              [](const auto& of) { return absl::ToDoubleSeconds(of.store()->timeout()); });
}

slimps_status slimps_former_rounds(const slimps_store* store, uint64_t* rounds) {
  return Tell(__func__, store, "rounds", rounds,
              [](const auto& of) { return of.store()->former_rounds(); });
}

slimps_status slimps_type(const slimps_store* store, const char** type) {
  return Tell(__func__, store, "type", type, [](const auto& of) { return of.type().c_str(); });
}

slimps_status slimps_is_capable(const slimps_store* store, const char* capability,
                                int32_t* capable) {
  return Ask(__func__, store, [&](KVStore* open) -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckText("capability", capability));
    SLIMPS_RETURN_IF_ERROR(CheckPointer("capable", capable));
    *capable = open->is_capable(capability) ? 1 : 0;
    return absl::OkStatus();
  });
}

// ---- what becomes of gradients ------------------------------------------------------------------

slimps_status slimps_optimizer_create(const char* kind, slimps_optimizer** optimizer) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckText("kind", kind));
    SLIMPS_RETURN_IF_ERROR(CheckPointer("optimizer", optimizer));
    SLIMPS_ASSIGN_OR_RETURN(slimps::wire::OptimizerSpec spec, slimps::MakeOptimizer(kind));
    *optimizer = new slimps_optimizer{std::move(spec)};
    return absl::OkStatus();
  });
}

slimps_status slimps_optimizer_set_number(slimps_optimizer* optimizer, const char* name,
                                          double value) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("optimizer", optimizer));
    SLIMPS_RETURN_IF_ERROR(CheckText("name", name));
    return slimps::SetOptimizerNumber(name, value, &optimizer->spec);
  });
}

slimps_status slimps_optimizer_set(slimps_optimizer* optimizer, const char* name,
                                   const char* value) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("optimizer", optimizer));
    SLIMPS_RETURN_IF_ERROR(CheckText("name", name));
    SLIMPS_RETURN_IF_ERROR(CheckText("value", value));
    return slimps::SetOptimizerOption(name, value, &optimizer->spec);
  });
}

void slimps_optimizer_destroy(slimps_optimizer* optimizer) { delete optimizer; }

slimps_status slimps_set_optimizer(slimps_store* store, const slimps_optimizer* optimizer) {
  const auto copy = [&]() -> absl::StatusOr<slimps::wire::OptimizerSpec> {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("optimizer", optimizer));
    return optimizer->spec;
  };
  return AwaitWith(__func__, store, copy, [](KVStore* open, const auto& spec) {
    return slimps::SetOptimizerTogether(spec, open);
  });
}

slimps_status slimps_set_hyper(slimps_store* store, slimps_key key, double learning_rate,
                               double weight_decay) {
  return AskKey(__func__, store, key, [=](KVStore* open, const slimps::Key& name) {
    return open->SetHyper(name, slimps::Hyper{learning_rate, weight_decay});
  });
}

slimps_status slimps_set_hyper_with_momentum(slimps_store* store, slimps_key key,
                                             double learning_rate, double weight_decay,
                                             double momentum) {
  return AskKey(__func__, store, key, [=](KVStore* open, const slimps::Key& name) {
    return open->SetHyper(name, slimps::ToHyper(learning_rate, weight_decay, momentum));
  });
}

slimps_status slimps_reset_hyper(slimps_store* store, slimps_key key) {
  return AskKey(__func__, store, key, [](KVStore* open, const slimps::Key& name) {
    return open->SetHyper(name, std::nullopt);
  });
}

slimps_status slimps_set_updater(slimps_store* store, slimps_updater updater, void* user_data) {
  return Ask(__func__, store, [=](KVStore* open) -> absl::Status {
    if (updater == nullptr) return open->SetUpdater(nullptr);
    return open->SetUpdater([updater, user_data](const slimps::Key& key,
                                                 std::span<const float> gradient,
                                                 std::span<float> weight) {
      const slimps_status status =
          updater(user_data, slimps::FromKey(key), gradient.data(), weight.data(), weight.size());
      if (status == SLIMPS_OK) return;
      const bool known = status > SLIMPS_OK && status <= SLIMPS_UNAUTHENTICATED;
      // An Updater returns nothing: only an exception carries the status through the push.
      throw slimps::StatusError{
          absl::Status(known ? static_cast<absl::StatusCode>(status) : absl::StatusCode::kUnknown,
                       absl::StrCat("the updater returned ", slimps_status_name(status), " (",
                                    status, ") for key ", key.typed_name()))};
    });
  });
}

slimps_status slimps_set_gradient_compression(slimps_store* store, const char* codec) {
  const auto copy = [&]() -> absl::StatusOr<std::string> {
    SLIMPS_RETURN_IF_ERROR(CheckText("codec", codec));
    return std::string(codec);
  };
  return AwaitWith(__func__, store, copy, [](KVStore* open, const std::string& spec) {
    return open->SetGradientCompression(spec);
  });
}

slimps_status slimps_set_policy(slimps_store* store, const char* policy) {
  const auto copy = [&]() -> absl::StatusOr<std::string> {
    SLIMPS_RETURN_IF_ERROR(CheckText("policy", policy));
    return std::string(policy);
  };
  return AwaitWith(__func__, store, copy,
                   [](KVStore* open, const std::string& given) { return open->SetPolicy(given); });
}

slimps_status slimps_set_gradient_compression_pairs(slimps_store* store, const char* const* names,
                                                    const char* const* values, size_t count) {
  using Pairs = std::map<std::string, std::string>;
  const auto copy = [&]() -> absl::StatusOr<Pairs> {
    SLIMPS_ASSIGN_OR_RETURN(const auto given_names, slimps::ToSpan("names", names, count));
    SLIMPS_ASSIGN_OR_RETURN(const auto given_values, slimps::ToSpan("values", values, count));
    Pairs pairs;
    for (size_t i = 0; i < count; ++i) {
      SLIMPS_RETURN_IF_ERROR(CheckText("names", given_names[i]));
      SLIMPS_RETURN_IF_ERROR(CheckText("values", given_values[i]));
      if (!pairs.emplace(given_names[i], given_values[i]).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("names: expected each once, got \"", given_names[i], "\" twice"));
      }
    }
    return pairs;
  };
  return AwaitWith(__func__, store, copy, [](KVStore* open, const Pairs& pairs) {
    return open->SetGradientCompression(pairs);
  });
}

// ---- the job ------------------------------------------------------------------------------------

slimps_status slimps_barrier(slimps_store* store) {
  return Await(__func__, store, [](KVStore* open) { return open->Barrier(); });
}

slimps_status slimps_all_reduce_sum(slimps_store* store, double* values, size_t count) {
  return Await(__func__, store, [=](KVStore* open) -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(const std::span<double> given, slimps::ToSpan("values", values, count));
    SLIMPS_ASSIGN_OR_RETURN(const std::vector<double> sums,
                            open->AllReduceSum({given.begin(), given.end()}));
    std::copy(sums.begin(), sums.end(), given.begin());
    return absl::OkStatus();
  });
}

slimps_status slimps_broadcast_bytes(slimps_store* store, slimps_bytes* buffers, size_t count) {
  return Await(__func__, store, [=](KVStore* open) -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(const std::span<slimps_bytes> given,
                            slimps::ToSpan("buffers", buffers, count));
    std::vector<std::span<std::byte>> spans;
    for (const slimps_bytes& one : given) {
      if (one.struct_size != sizeof(slimps_bytes)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "buffers: expected struct_size ", sizeof(slimps_bytes), ", got ", one.struct_size));
      }
      SLIMPS_ASSIGN_OR_RETURN(const std::span<std::byte> span,
                              slimps::ToSpan("data", static_cast<std::byte*>(one.data), one.bytes));
      spans.push_back(span);
    }
    SLIMPS_ASSIGN_OR_RETURN(const std::vector<bool> written, open->BroadcastBytes(spans));
    for (size_t i = 0; i < count; ++i) given[i].written = written[i] ? 1 : 0;
    return absl::OkStatus();
  });
}

slimps_status slimps_wait(slimps_store* store) {
  return Await(__func__, store, [](KVStore* open) { return open->Wait(); });
}

slimps_status slimps_leave(slimps_store* store) {
  return Await(__func__, store, [](KVStore* open) { return open->Leave(); });
}

}  // extern "C"
