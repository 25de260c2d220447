// SPDX-License-Identifier: Apache-2.0
// c_api_calls.h: calls in the background. c_api_lists.cc has lists.
#include "worker/capi/c_api_calls.h"

#include <memory>
#include <string>
#include <utility>

#include "proto/base/status_macros.h"
#include "proto/base/thread.h"
#include "worker/capi/c_api_handle.h"
#include "worker/capi/c_api_support.h"

using slimps::CheckPointer;
using slimps::CheckText;
using slimps::Guarded;
using slimps::SharedStore;

extern "C" {

slimps_status slimps_call_create(slimps_call** call) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("call", call));
    auto made = std::make_unique<slimps_call>();
    made->call = std::make_shared<slimps::BackgroundCall>();
    SLIMPS_RETURN_IF_ERROR(made->call->OpenDescriptor());
    *call = made.release();
    return absl::OkStatus();
  });
}

slimps_status slimps_call_descriptor(const slimps_call* call, int* descriptor) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("call", call));
    SLIMPS_RETURN_IF_ERROR(CheckPointer("descriptor", descriptor));
    *descriptor = call->call->descriptor();
    return absl::OkStatus();
  });
}

slimps_status slimps_call_finish(slimps_call* call) {
  if (call != nullptr) return call->call->Finish(__func__);
  return Guarded(__func__, [&] { return CheckPointer("call", call); });
}

slimps_status slimps_call_cancel(slimps_call* call) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("call", call));
    call->call->Cancel();
    return absl::OkStatus();
  });
}

void slimps_call_destroy(slimps_call* call) {
  if (call == nullptr) return;
  call->call->Cancel();
  delete call;
}

slimps_status slimps_create_in_background(const char* type, const slimps_options* options,
                                          slimps_call* call, slimps_store** store) {
  const char* const function = __func__;
  std::shared_ptr<slimps::BackgroundCall> shared;
  const slimps_status begun = Guarded(function, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckText("type", type));
    SLIMPS_RETURN_IF_ERROR(CheckPointer("call", call));
    SLIMPS_RETURN_IF_ERROR(CheckPointer("store", store));
    shared = call->call;
    return shared->Begin();
  });
  if (begun != SLIMPS_OK) return begun;
  try {
    slimps::KVStoreOptions stoppable = slimps::OptionsOf(options);
    stoppable.stop = shared->NewStop();
    auto create = [=, type = std::string(type)] {
      shared->End(slimps::Caught(function, [&]() -> absl::Status {
        auto made = std::make_unique<slimps_store>();
        SLIMPS_ASSIGN_OR_RETURN(auto open, slimps::KVStore::Create(type, stoppable));
        made->shared = std::make_shared<SharedStore>(type, std::move(open));
        return shared->Keep([&] { *store = made.release(); });
      }));
    };
    if (SharedStore::IsLocal(type)) {
      create();
    } else {
      slimps::Thread::StartDetached("create", std::move(create));
    }
  } catch (...) {
    shared->End(slimps::OutcomeOfException(function));
  }
  return shared->Return();
}

slimps_status slimps_in_background(slimps_store* store, slimps_call* call,
                                   slimps_store** background) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("store", store));
    SLIMPS_RETURN_IF_ERROR(CheckPointer("call", call));
    SLIMPS_RETURN_IF_ERROR(CheckPointer("background", background));
    *background = new slimps_store{store->shared, call->call};
    return absl::OkStatus();
  });
}

}  // extern "C"
