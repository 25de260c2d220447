// SPDX-License-Identifier: Apache-2.0
#include "worker/kvstore_options.h"

#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/net/address.h"
#include "proto/net/identity/node_keys.h"
#include "proto/net/zmq/same_host.h"
#include "proto/partition_limits.h"

namespace slimps {
namespace {

constexpr double kMillion = 1e6;
constexpr double kMaxNodes = 4096;
constexpr char kScheme[] = "tcp://";

// One option's text as given, and the range that the table has for it.
struct Given {
  std::string name, text;
  double low, high;

  absl::Status Refuse(const std::string& expected) const {
    return absl::InvalidArgumentError(
        absl::StrCat("option ", name, ": expected ", expected, ", got \"", text, "\""));
  }
};

using Set = absl::Status (*)(const Given& given, KVStoreOptions* options);

template <auto kField>
absl::Status SetText(const Given& given, KVStoreOptions* options) {
  options->*kField = given.text;
  return absl::OkStatus();
}

template <auto kField>
absl::Status SetCount(const Given& given, KVStoreOptions* options) {
  int64_t count = 0;
  const bool is_count = absl::SimpleAtoi(given.text, &count);
  const auto number = static_cast<double>(count);
  if (!is_count || number < given.low || number > given.high) {
    return given.Refuse(absl::StrCat("a whole number from ", static_cast<int64_t>(given.low),
                                     " to ", static_cast<int64_t>(given.high)));
  }
  options->*kField = static_cast<std::remove_reference_t<decltype(options->*kField)>>(count);
  return absl::OkStatus();
}

absl::StatusOr<double> NumberOf(const Given& given) {
  double number = 0;
  if (absl::SimpleAtod(given.text, &number) && number >= given.low && number <= given.high) {
    return number;  // not NaN: a comparison with NaN is false
  }
  return given.Refuse(absl::StrCat("a number from ", given.low, " to ", given.high));
}

template <auto kField>
absl::Status SetThreshold(const Given& given, KVStoreOptions* options) {
  if (given.text == "auto") {
    options->*kField = std::nullopt;
    return absl::OkStatus();
  }
  uint64_t bytes = 0;
  if (!absl::SimpleAtoi(given.text, &bytes)) {
    return given.Refuse("auto or a number of bytes (0 compresses everything)");
  }
  options->*kField = bytes;
  return absl::OkStatus();
}

absl::Status SetRemeasuring(const Given& given, KVStoreOptions* options) {
  if (given.text == "0") {
    options->remeasure_every = 0;
    return absl::OkStatus();
  }
  const absl::Status set = SetCount<&KVStoreOptions::remeasure_every>(given, options);
  return set.ok() ? set : given.Refuse("0 or a whole number from 8 to 1000000");
}

absl::Status SetGradScale(const Given& given, KVStoreOptions* options) {
  SLIMPS_ASSIGN_OR_RETURN(const double scale, NumberOf(given));
  options->grad_scale = static_cast<float>(scale);
  return absl::OkStatus();
}

absl::Status SetNonFinite(const Given& given, KVStoreOptions* options) {
  if (given.text != "stop" && given.text != "pass") return given.Refuse("stop or pass");
  options->pass_non_finite = given.text == "pass";
  return absl::OkStatus();
}

absl::Status SetSameHost(const Given& given, KVStoreOptions* options) {
  const absl::StatusOr<SameHost> same_host = ParseSameHost(given.text);
  if (!same_host.ok()) return given.Refuse("shm, ipc or tcp");
  options->same_host = *same_host;
  return absl::OkStatus();
}

absl::Status SetLink(const Given& given, KVStoreOptions* options) {
  const absl::StatusOr<double> rate = ParseRate(given.text);
  if (!rate.ok()) return given.Refuse("a rate with a unit, as 100mbit, 1gbit or 12.5MB");
  options->emulate_link_bytes_per_second = *rate;
  return absl::OkStatus();
}

absl::Status SetLatency(const Given& given, KVStoreOptions* options) {
  SLIMPS_ASSIGN_OR_RETURN(const double milliseconds, NumberOf(given));
  options->emulate_link_latency = absl::Milliseconds(milliseconds);
  return absl::OkStatus();
}

template <absl::Duration KVStoreOptions::*kField>
absl::Status SetSeconds(const Given& given, KVStoreOptions* options) {
  SLIMPS_ASSIGN_OR_RETURN(const double seconds, NumberOf(given));
  options->*kField = absl::Seconds(seconds);
  return absl::OkStatus();
}

absl::Status SetScheduler(const Given& given, KVStoreOptions* options) {
  const std::string address = absl::StrCat(kScheme, given.text);
  if (!ParseAddress(address).ok()) return given.Refuse("host:port of slimps_scheduler");
  options->scheduler_address = address;
  return absl::OkStatus();
}

absl::Status SetSchedulerKey(const Given& given, KVStoreOptions* options) {
  if (!given.text.empty() && !ParseNodeKey(given.text).ok()) {
    return given.Refuse("the scheduler's public key, 64 hexadecimal digits");
  }
  options->scheduler_key = given.text;
  return absl::OkStatus();
}

// Returns the option's value as a text that Set takes; "" if it is not set.
using Get = std::string (*)(const KVStoreOptions& options);

template <auto kField>
std::string GetText(const KVStoreOptions& options) {
  return options.*kField;
}

template <auto kField>
std::string GetCount(const KVStoreOptions& options) {
  return absl::StrCat(options.*kField);
}

template <auto kField>
std::string GetThreshold(const KVStoreOptions& options) {
  const std::optional<uint64_t>& bytes = options.*kField;
  return bytes.has_value() ? absl::StrCat(*bytes) : "auto";
}

// Returns the shortest text that reads as this very number.
template <typename Number, typename... Format>
std::string TextOf(Number number, Format... format) {
  char text[400];  // the largest double has 309 digits before its point
  return {text, std::to_chars(std::begin(text), std::end(text), number, format...).ptr};
}

std::string GetGradScale(const KVStoreOptions& options) { return TextOf(options.grad_scale); }

std::string GetNonFinite(const KVStoreOptions& options) {
  return options.pass_non_finite ? "pass" : "stop";
}

std::string GetSameHost(const KVStoreOptions& options) {
  return std::string(SameHostName(options.same_host));
}

std::string GetLink(const KVStoreOptions& options) {
  const double rate = options.emulate_link_bytes_per_second;
  return rate == 0 ? "" : TextOf(rate, std::chars_format::fixed) + "B";
}

std::string GetLatency(const KVStoreOptions& options) {
  return TextOf(absl::ToDoubleMilliseconds(options.emulate_link_latency));
}

template <absl::Duration KVStoreOptions::*kField>
std::string GetSeconds(const KVStoreOptions& options) {
  return TextOf(absl::ToDoubleSeconds(options.*kField));
}

std::string GetScheduler(const KVStoreOptions& options) {
  const std::string& address = options.scheduler_address;
  return address.empty() ? "" : address.substr(std::string_view(kScheme).size());
}

struct Option {
  const char* name;
  Set set;
  Get get;
  double low = 0, high = 0;
};

constexpr Option kOptions[] = {
    {"compression", SetText<&KVStoreOptions::compression>, GetText<&KVStoreOptions::compression>},
    {"threshold", SetThreshold<&KVStoreOptions::fixed_threshold_bytes>,
     GetThreshold<&KVStoreOptions::fixed_threshold_bytes>},
    {"policy", SetText<&KVStoreOptions::policy>, GetText<&KVStoreOptions::policy>},
    {"pull_compression", SetText<&KVStoreOptions::pull_compression>,
     GetText<&KVStoreOptions::pull_compression>},
    {"pull_threshold", SetThreshold<&KVStoreOptions::fixed_pull_threshold_bytes>,
     GetThreshold<&KVStoreOptions::fixed_pull_threshold_bytes>},
    {"pre_steps", SetCount<&KVStoreOptions::pre_steps>, GetCount<&KVStoreOptions::pre_steps>, 4,
     kMillion},
    {"remeasure_every", SetRemeasuring, GetCount<&KVStoreOptions::remeasure_every>, 8, kMillion},
    {"threshold_table", SetText<&KVStoreOptions::threshold_table_file>,
     GetText<&KVStoreOptions::threshold_table_file>},
    {"partition_bytes", SetCount<&KVStoreOptions::partition_bytes>,
     GetCount<&KVStoreOptions::partition_bytes>, 4, kMaxPartitionBytes},
    {"encode_threads", SetCount<&KVStoreOptions::encode_threads>,
     GetCount<&KVStoreOptions::encode_threads>, 0, 1024},
    {"staleness", SetCount<&KVStoreOptions::staleness>, GetCount<&KVStoreOptions::staleness>, 0,
     2147483647},
    {"grad_scale", SetGradScale, GetGradScale, 1e-30, 1e30},
    {"non_finite", SetNonFinite, GetNonFinite},
    {"same_host", SetSameHost, GetSameHost},
    {"emulate_link", SetLink, GetLink},
    {"emulate_latency_ms", SetLatency, GetLatency, 0, kMillion},
    {"join_timeout_s", SetSeconds<&KVStoreOptions::join_timeout>,
     GetSeconds<&KVStoreOptions::join_timeout>, 0.001, kMillion},
    {"timeout_s", SetSeconds<&KVStoreOptions::timeout>, GetSeconds<&KVStoreOptions::timeout>, 0,
     kMillion},
    {"metrics_port", SetCount<&KVStoreOptions::metrics_port>,
     GetCount<&KVStoreOptions::metrics_port>, -1, 65535},
    {"watch_bind", SetText<&KVStoreOptions::watch_bind>, GetText<&KVStoreOptions::watch_bind>},
    {"scheduler", SetScheduler, GetScheduler},
    {"key_file", SetText<&KVStoreOptions::key_file>, GetText<&KVStoreOptions::key_file>},
    {"scheduler_key", SetSchedulerKey, GetText<&KVStoreOptions::scheduler_key>},
    {"job_id", SetText<&KVStoreOptions::job_id>, GetText<&KVStoreOptions::job_id>},
    {"num_workers", SetCount<&KVStoreOptions::num_workers>, GetCount<&KVStoreOptions::num_workers>,
     1, kMaxNodes},
    {"num_servers", SetCount<&KVStoreOptions::num_servers>, GetCount<&KVStoreOptions::num_servers>,
     1, kMaxNodes},
    {"rank", SetCount<&KVStoreOptions::wanted_rank>, GetCount<&KVStoreOptions::wanted_rank>, -1,
     kMaxNodes - 1},
};

absl::StatusOr<const Option*> FindOption(std::string_view name) {
  for (const Option& option : kOptions) {
    if (name == option.name) return &option;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "no option \"", std::string(name), "\"; there are ", absl::StrJoin(OptionNames(), ", ")));
}

absl::Status Missing(const char* what, const char* variables) {
  return absl::FailedPreconditionError(absl::StrCat(
      what, " is not known: ", variables,
      " not set. Start the program by `tools/slimps launch --workers 2 --servers 2 -- PROGRAM`, "
      "set the variables, or set option ",
      what));
}

// Returns the first of the variables that is set. An empty variable counts as not set.
std::optional<std::string> Find(const Environment& environment,
                                std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    const char* text = environment(variable);
    if (text != nullptr && *text != '\0') return text;
  }
  return std::nullopt;
}

}  // namespace

absl::Status SetOption(std::string_view name, std::string_view value, KVStoreOptions* options) {
  SLIMPS_ASSIGN_OR_RETURN(const Option* option, FindOption(name));
  return option->set({std::string(name), std::string(value), option->low, option->high}, options);
}

absl::StatusOr<std::string> GetOption(std::string_view name, const KVStoreOptions& options) {
  SLIMPS_ASSIGN_OR_RETURN(const Option* option, FindOption(name));
  return option->get(options);
}

absl::Status CheckRank(const KVStoreOptions& options) {
  if (options.wanted_rank < static_cast<int64_t>(options.num_workers)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("option rank: expected -1 to ", options.num_workers - 1, " with ",
                   options.num_workers, " workers, got ", options.wanted_rank));
}

std::vector<std::string> OptionNames() {
  std::vector<std::string> names;
  for (const Option& option : kOptions) names.emplace_back(option.name);
  return names;
}

absl::Status SetJobFromEnvironment(const Environment& environment, KVStoreOptions* options) {
  const std::string role = Find(environment, {"DMLC_ROLE"}).value_or("worker");
  if (role != "worker") {
    return absl::FailedPreconditionError(absl::StrCat(
        "DMLC_ROLE=", role, ": expected worker; this process was to run slimps_", role));
  }
  const auto host = Find(environment, {"DMLC_PS_ROOT_URI"});
  const auto port = Find(environment, {"DMLC_PS_ROOT_PORT"});
  const auto workers = Find(environment, {"DMLC_NUM_WORKER", "WORLD_SIZE"});
  const auto servers = Find(environment, {"DMLC_NUM_SERVER"});
  const auto rank = Find(environment, {"DMLC_WORKER_ID", "RANK"});
  const auto key_file = Find(environment, {"SLIMPS_KEY_FILE"});
  const auto scheduler_key = Find(environment, {"SLIMPS_SCHEDULER_KEY"});
  const auto join_timeout = Find(environment, {"SLIMPS_JOIN_TIMEOUT_S"});
  const auto metrics_port = Find(environment, {"SLIMPS_METRICS_PORT"});
  const auto watch_bind = Find(environment, {"SLIMPS_WATCH_BIND"});
  if (!host || !port) return Missing("scheduler", "DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT are");
  if (!workers) return Missing("num_workers", "DMLC_NUM_WORKER (or torchrun's WORLD_SIZE) is");
  if (!servers) return Missing("num_servers", "DMLC_NUM_SERVER is");
  KVStoreOptions job = *options;
  SLIMPS_RETURN_IF_ERROR(SetOption("scheduler", absl::StrCat(*host, ":", *port), &job));
  SLIMPS_RETURN_IF_ERROR(SetOption("num_workers", *workers, &job));
  SLIMPS_RETURN_IF_ERROR(SetOption("num_servers", *servers, &job));
  SLIMPS_RETURN_IF_ERROR(SetOption("rank", rank.value_or("-1"), &job));
  SLIMPS_RETURN_IF_ERROR(SetOption("key_file", key_file.value_or(""), &job));
  SLIMPS_RETURN_IF_ERROR(SetOption("scheduler_key", scheduler_key.value_or(""), &job));
  if (join_timeout) {
    SLIMPS_RETURN_IF_ERROR(
        Prefixed(SetOption("join_timeout_s", *join_timeout, &job), "SLIMPS_JOIN_TIMEOUT_S"));
  }
  if (metrics_port) {
    SLIMPS_RETURN_IF_ERROR(
        Prefixed(SetOption("metrics_port", *metrics_port, &job), "SLIMPS_METRICS_PORT"));
  }
  job.watch_bind = watch_bind.value_or(job.watch_bind);
  SLIMPS_RETURN_IF_ERROR(CheckRank(job));
  *options = std::move(job);
  return absl::OkStatus();
}

absl::StatusOr<double> ParseRate(std::string_view text) {
  constexpr std::pair<const char*, double> kUnits[] = {
      {"kbit", 1e3 / 8}, {"mbit", 1e6 / 8}, {"gbit", 1e9 / 8}, {"kb", 1e3},
      {"mb", 1e6},       {"gb", 1e9},       {"b", 1}};
  const std::string lower = absl::AsciiStrToLower(std::string(text));
  const size_t unit_at = lower.find_first_not_of("0123456789.");
  double number = 0;
  if (unit_at != std::string::npos && absl::SimpleAtod(lower.substr(0, unit_at), &number) &&
      number > 0) {
    for (const auto& [unit, bytes_per_second] : kUnits) {
      const double rate = number * bytes_per_second;
      if (lower.substr(unit_at) == unit && std::isfinite(rate)) return rate;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      std::string(text),
      ": expected a rate over 0 with a unit: kbit, mbit, gbit (bits per second), B, kB, MB or "
      "GB (bytes per second), as in 100mbit"));
}

}  // namespace slimps
