// SPDX-License-Identifier: Apache-2.0
#include "proto/net/zmq/same_host.h"

#include <unistd.h>

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/buffer.h"
#include "proto/net/address.h"
#include "proto/net/local_sockets.h"
#include "proto/net/shared/process_watch.h"
#include "proto/net/shared/shared_memory.h"
#include "proto/net/zmq/zmq_options.h"

namespace slimps {
namespace {

constexpr std::string_view kIpc = "ipc://";

}  // namespace

absl::StatusOr<SameHost> ParseSameHost(std::string_view text) {
  for (const SameHost choice : {SameHost::kTcp, SameHost::kIpc, SameHost::kShm}) {
    if (text == SameHostName(choice)) return choice;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", std::string(text), "': expected shm, ipc or tcp"));
}

std::string_view SameHostName(SameHost same_host) {
  switch (same_host) {
    case SameHost::kTcp:
      return "tcp";
    case SameHost::kIpc:
      return "ipc";
    case SameHost::kShm:
      return "shm";
  }
  return "";
}

absl::StatusOr<std::string> ChooseEndpoint(std::span<const std::string> endpoints,
                                           SameHost same_host) {
  for (const std::string& endpoint : endpoints) {
    if (same_host == SameHost::kTcp || !endpoint.starts_with(kIpc)) continue;
    const absl::StatusOr<Address> address = ParseAddress(endpoint);
    if (address.ok() && LocalSocketIsOurs(address->path)) return endpoint;
  }
  for (const std::string& endpoint : endpoints) {
    if (!endpoint.starts_with(kIpc)) return endpoint;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no endpoint to connect to among '", absl::StrJoin(endpoints, "', '"), "'"));
}

absl::Status ShareMemory(ZmqTransportOptions* options) {
  SharedMemory& memory = SharedMemory::OfProcess();
  if (!memory.ok()) {
    return absl::UnavailableError("this system has no sealed memfd: payloads are not shared");
  }
  const absl::Status watched = ProcessWatch().Add(static_cast<uint64_t>(getpid()));
  if (!watched.ok()) {
    return absl::UnavailableError(
        absl::StrCat("this system does not tell when a process ends: payloads are not shared: ",
                     watched.message()));
  }
  SetPayloadMemory(&memory);
  options->shared_memory = &memory;
  return absl::OkStatus();
}

}  // namespace slimps
