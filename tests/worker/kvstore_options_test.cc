// SPDX-License-Identifier: Apache-2.0
#include "worker/kvstore_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace slimps {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

KVStoreOptions Set(std::initializer_list<std::pair<const char*, const char*>> values) {
  KVStoreOptions options;
  for (const auto& [name, value] : values) {
    const absl::Status set = SetOption(name, value, &options);
    EXPECT_TRUE(set.ok()) << set;
  }
  return options;
}

Environment Of(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

const Variables kJob = {{"DMLC_PS_ROOT_URI", "10.0.0.1"},
                        {"DMLC_PS_ROOT_PORT", "9091"},
                        {"DMLC_NUM_WORKER", "4"},
                        {"DMLC_NUM_SERVER", "2"}};

absl::Status JobStatus(const Variables& changes, const char* missing = "") {
  Variables variables = changes;
  variables.insert(kJob.begin(), kJob.end());
  variables.erase(missing);
  KVStoreOptions options;
  const absl::Status status = SetJobFromEnvironment(Of(variables), &options);
  EXPECT_EQ(options.scheduler_address.empty(), !status.ok()) << "changed by what failed";
  return status;
}

TEST(KVStoreOptions, EachNameReachesItsField) {
  const KVStoreOptions options = Set({{"compression", "2bit"},
                                      {"threshold", "4096"},
                                      {"pull_compression", "fp16"},
                                      {"pull_threshold", "0"},
                                      {"pre_steps", "8"},
                                      {"policy", "lgreco:codec=topk"},
                                      {"remeasure_every", "12"},
                                      {"threshold_table", "t.json"},
                                      {"partition_bytes", "1024"},
                                      {"encode_threads", "2"},
                                      {"staleness", "3"},
                                      {"grad_scale", "32"},
                                      {"non_finite", "pass"},
                                      {"same_host", "ipc"},
                                      {"emulate_link", "100mbit"},
                                      {"emulate_latency_ms", "1.5"},
                                      {"join_timeout_s", "40"},
                                      {"timeout_s", "2.5"},
                                      {"metrics_port", "9101"},
                                      {"watch_bind", "::1"},
                                      {"scheduler", "host:1"},
                                      {"key_file", "w.key"},
                                      {"scheduler_key", std::string(64, 'a').c_str()},
                                      {"job_id", "j"},
                                      {"num_workers", "5"},
                                      {"num_servers", "6"},
                                      {"rank", "4"}});
  EXPECT_EQ(options.compression, "2bit");
  EXPECT_EQ(options.fixed_threshold_bytes, 4096u);
  EXPECT_EQ(options.pull_compression, "fp16");
  EXPECT_EQ(options.fixed_pull_threshold_bytes, 0u);
  EXPECT_EQ(options.pre_steps, 8);
  EXPECT_EQ(options.policy, "lgreco:codec=topk");
  EXPECT_EQ(options.remeasure_every, 12u);
  EXPECT_EQ(options.threshold_table_file, "t.json");
  EXPECT_EQ(options.partition_bytes, 1024u);
  EXPECT_EQ(options.encode_threads, 2);
  EXPECT_EQ(KVStoreOptions().encode_threads, 0);  // as many as there are cores
  EXPECT_EQ(options.staleness, 3u);
  EXPECT_EQ(options.grad_scale, 32.0f);
  EXPECT_TRUE(options.pass_non_finite);
  EXPECT_EQ(options.same_host, SameHost::kIpc);
  EXPECT_DOUBLE_EQ(options.emulate_link_bytes_per_second, 12.5e6);
  EXPECT_EQ(options.emulate_link_latency, absl::Microseconds(1500));
  EXPECT_EQ(options.join_timeout, absl::Seconds(40));
  EXPECT_EQ(options.timeout, absl::Milliseconds(2500));
  EXPECT_EQ(options.metrics_port, 9101);
  EXPECT_EQ(options.watch_bind, "::1");
  EXPECT_EQ(options.scheduler_address, "tcp://host:1");
  EXPECT_EQ(options.key_file, "w.key");
  EXPECT_EQ(options.scheduler_key, std::string(64, 'a'));
  EXPECT_EQ(options.job_id, "j");
  EXPECT_EQ(options.num_workers, 5u);
  EXPECT_EQ(options.num_servers, 6u);
  EXPECT_EQ(options.wanted_rank, 4);
  EXPECT_EQ(OptionNames().size(), 27u) << "a new option belongs into this test";
}

TEST(KVStoreOptions, WhatIsGivenBackSetsTheSameAgain) {
  using Given = std::initializer_list<std::pair<const char*, const char*>>;
  for (const auto& [name, value] : Given{{"compression", "2bit:threshold=0.5"},
                                         {"threshold", "4096"},
                                         {"threshold", "auto"},
                                         {"pull_compression", "fp16"},
                                         {"pull_threshold", "0"},
                                         {"pre_steps", "8"},
                                         {"remeasure_every", "0"},
                                         {"remeasure_every", "12"},
                                         {"threshold_table", "t.json"},
                                         {"partition_bytes", "1024"},
                                         {"encode_threads", "2"},
                                         {"staleness", "3"},
                                         {"grad_scale", "0.1"},
                                         {"grad_scale", "1e-30"},
                                         {"non_finite", "stop"},
                                         {"same_host", "tcp"},
                                         {"emulate_link", "1234.5678B"},
                                         {"emulate_latency_ms", "1.5"},
                                         {"join_timeout_s", "0.2"},
                                         {"timeout_s", "0"},
                                         {"timeout_s", "0.1"},
                                         {"timeout_s", "1e+06"},
                                         {"metrics_port", "0"},
                                         {"watch_bind", "0.0.0.0"},
                                         {"scheduler", "host:1"},
                                         {"key_file", "w.key"},
                                         {"scheduler_key", ""},
                                         {"job_id", "j"},
                                         {"num_workers", "5"},
                                         {"num_servers", "6"},
                                         {"rank", "-1"}}) {
    const KVStoreOptions options = Set({{name, value}});
    EXPECT_EQ(GetOption(name, options).value(), value) << name;
  }
  for (const char* rate : {"100mbit", "0.3kbit", "3.3333GB", "98765432109876543210987654321GB"}) {
    const KVStoreOptions options = Set({{"emulate_link", rate}});
    const std::string got = GetOption("emulate_link", options).value();
    EXPECT_EQ(Set({{"emulate_link", got.c_str()}}).emulate_link_bytes_per_second,
              options.emulate_link_bytes_per_second)
        << got;
  }
}

TEST(KVStoreOptions, EveryDefaultIsGivenAndCanBeSet) {
  const std::vector<std::string> unset = {"threshold_table", "emulate_link", "scheduler"};
  for (const std::string& name : OptionNames()) {
    KVStoreOptions options;
    const std::string value = GetOption(name, options).value();
    if (std::find(unset.begin(), unset.end(), name) != unset.end()) {
      EXPECT_EQ(value, "") << name;
      continue;
    }
    ASSERT_TRUE(SetOption(name, value, &options).ok()) << name << "=" << value;
    EXPECT_EQ(GetOption(name, options).value(), value);
  }
  EXPECT_EQ(GetOption("threshold", {}).value(), "auto");
  EXPECT_EQ(GetOption("timeout_s", {}).value(), "0");
  EXPECT_EQ(GetOption("join_timeout_s", {}).value(), "600");
  EXPECT_THAT(std::string(GetOption("compresion", {}).status().message()),
              HasSubstr("no option \"compresion\"; there are compression, threshold, "));
}

TEST(KVStoreOptions, WhatIsAutomaticOrOffCanBeSaidAgain) {
  const KVStoreOptions options = Set({{"threshold", "0"},
                                      {"threshold", "auto"},
                                      {"remeasure_every", "8"},
                                      {"remeasure_every", "0"},
                                      {"rank", "3"},
                                      {"rank", "-1"}});
  EXPECT_FALSE(options.fixed_threshold_bytes.has_value());
  EXPECT_EQ(options.remeasure_every, 0u);
  EXPECT_EQ(options.wanted_rank, -1);
}

TEST(KVStoreOptions, WhatMakesNoSenseIsNamedAndChangesNothing) {
  struct Case {
    const char *name, *value, *expected;
  };
  for (const Case& bad : std::initializer_list<Case>{
           {"threshold", "-1", "auto or a number of bytes"},
           {"pull_threshold", "some", "auto or a number of bytes"},
           {"pre_steps", "3", "a whole number from 4 to 1000000"},
           {"pre_steps", "1000001", "a whole number from 4 to 1000000"},
           {"remeasure_every", "7", "0 or a whole number from 8 to 1000000"},
           {"partition_bytes", "2.5", "a whole number from 4 to 65011712"},
           {"partition_bytes", "65011713", "a whole number from 4 to 65011712"},
           {"encode_threads", "-1", "from 0 to 1024"},
           {"staleness", "-1", "from 0 to 2147483647"},
           {"grad_scale", "0", "a number from 1e-30 to 1e+30"},
           {"grad_scale", "nan", "a number from"},
           {"join_timeout_s", "0", "a number from 0.001 to 1e+06"},
           {"timeout_s", "-1", "a number from 0 to 1e+06"},
           {"timeout_s", "inf", "a number from 0 to 1e+06"},
           {"metrics_port", "65536", "a whole number from -1 to 65535"},
           {"emulate_latency_ms", "-1", "a number from 0"},
           {"emulate_link", "0mbit", "a rate with a unit"},
           {"non_finite", "skip", "stop or pass"},
           {"same_host", "udp", "shm, ipc or tcp"},
           {"scheduler", "nowhere", "host:port of slimps_scheduler"},
           {"scheduler", "host:99999", "host:port of slimps_scheduler"},
           {"scheduler_key", "abc", "the scheduler's public key, 64 hexadecimal digits"},
           {"num_workers", "0", "from 1 to 4096"},
           {"num_servers", "4097", "from 1 to 4096"},
           {"rank", "-2", "from -1 to 4095"},
       }) {
    KVStoreOptions options = Set({{"pre_steps", "5"}, {"timeout_s", "7"}});
    const absl::Status refused = SetOption(bad.name, bad.value, &options);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << bad.name;
    const std::string message(refused.message());
    EXPECT_THAT(message, HasSubstr(std::string("option ") + bad.name + ": expected "));
    EXPECT_THAT(message, HasSubstr(bad.expected));
    EXPECT_THAT(message, HasSubstr(std::string("got \"") + bad.value + "\""));
    EXPECT_EQ(options.pre_steps, 5);
    EXPECT_EQ(options.timeout, absl::Seconds(7));
  }
}

TEST(KVStoreOptions, AnUnknownNameIsAnsweredWithThoseThatThereAre) {
  KVStoreOptions options;
  const std::string message(SetOption("compresion", "1bit", &options).message());
  EXPECT_THAT(message, HasSubstr("no option \"compresion\"; there are compression, threshold, "));
}

TEST(JobFromEnvironment, DmlcVariablesSayThePlace) {
  KVStoreOptions options = Set({{"compression", "1bit"}});
  ASSERT_TRUE(SetJobFromEnvironment(Of(kJob), &options).ok());
  EXPECT_EQ(options.scheduler_address, "tcp://10.0.0.1:9091");
  EXPECT_EQ(options.num_workers, 4u);
  EXPECT_EQ(options.num_servers, 2u);
  EXPECT_EQ(options.wanted_rank, -1);
  EXPECT_EQ(options.compression, "1bit") << "it says nothing of this";
  Variables variables = kJob;
  variables["DMLC_ROLE"] = "worker";
  variables["DMLC_WORKER_ID"] = "3";
  variables["SLIMPS_JOIN_TIMEOUT_S"] = "90";
  ASSERT_TRUE(SetJobFromEnvironment(Of(variables), &options).ok());
  EXPECT_EQ(options.wanted_rank, 3);
  EXPECT_EQ(options.join_timeout, absl::Seconds(90));
}

TEST(JobFromEnvironment, TorchrunsVariablesStandIn) {
  Variables variables = kJob;
  variables["RANK"] = "1";
  variables["WORLD_SIZE"] = "3";
  KVStoreOptions options;
  ASSERT_TRUE(SetJobFromEnvironment(Of(variables), &options).ok());
  EXPECT_EQ(options.num_workers, 4u) << "DMLC_NUM_WORKER counts before";
  EXPECT_EQ(options.wanted_rank, 1);
  variables["DMLC_NUM_WORKER"] = "";  // counts as not set
  ASSERT_TRUE(SetJobFromEnvironment(Of(variables), &options).ok());
  EXPECT_EQ(options.num_workers, 3u);
}

TEST(JobFromEnvironment, MetricsStayAsTheyAreUnlessItNamesThem) {
  KVStoreOptions options = Set({{"metrics_port", "9101"}, {"watch_bind", "::1"}});
  ASSERT_TRUE(SetJobFromEnvironment(Of(kJob), &options).ok());
  EXPECT_EQ(options.metrics_port, 9101);
  EXPECT_EQ(options.watch_bind, "::1");
  Variables variables = kJob;
  variables["SLIMPS_METRICS_PORT"] = "0";
  variables["SLIMPS_WATCH_BIND"] = "10.0.0.2";
  ASSERT_TRUE(SetJobFromEnvironment(Of(variables), &options).ok());
  EXPECT_EQ(options.metrics_port, 0);
  EXPECT_EQ(options.watch_bind, "10.0.0.2");
}

TEST(JobFromEnvironment, WhatIsMissingIsNamedWithWhatToDo) {
  for (const auto& [missing, what] :
       {std::pair("DMLC_PS_ROOT_PORT", "scheduler is not known: DMLC_PS_ROOT_URI and"),
        std::pair("DMLC_NUM_WORKER", "num_workers is not known: DMLC_NUM_WORKER (or torchrun's"),
        std::pair("DMLC_NUM_SERVER", "num_servers is not known: DMLC_NUM_SERVER is not set")}) {
    const absl::Status refused = JobStatus({}, missing);
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << missing;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(what));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("tools/slimps launch"));
  }
}

TEST(JobFromEnvironment, WhatMakesNoSenseIsRefused) {
  EXPECT_THAT(std::string(JobStatus({{"DMLC_NUM_WORKER", "two"}}).message()),
              HasSubstr("option num_workers: expected a whole number from 1 to 4096, got \"two\""));
  EXPECT_THAT(std::string(JobStatus({{"DMLC_WORKER_ID", "4"}}).message()),
              HasSubstr("rank: expected -1 to 3 with 4 workers, got 4"));
  EXPECT_EQ(JobStatus({{"SLIMPS_METRICS_PORT", "any"}}),
            absl::InvalidArgumentError("SLIMPS_METRICS_PORT: option metrics_port: expected a whole "
                                       "number from -1 to 65535, got \"any\""));
  const absl::Status other = JobStatus({{"DMLC_ROLE", "server"}});
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), HasSubstr("DMLC_ROLE=server: expected worker"));
}

TEST(ParseRate, BitsAndBytesPerSecond) {
  EXPECT_DOUBLE_EQ(*ParseRate("100mbit"), 12.5e6);
  EXPECT_DOUBLE_EQ(*ParseRate("1gbit"), 125e6);
  EXPECT_DOUBLE_EQ(*ParseRate("800kbit"), 1e5);
  EXPECT_DOUBLE_EQ(*ParseRate("12.5MB"), 12.5e6);
  EXPECT_DOUBLE_EQ(*ParseRate("64kB"), 64e3);
  EXPECT_DOUBLE_EQ(*ParseRate("2GB"), 2e9);
  EXPECT_DOUBLE_EQ(*ParseRate("12.5b"), 12.5);
}

TEST(ParseRate, EverythingElseIsRefused) {
  for (const char* bad : {"", "100", "mbit", "0mbit", "-1mbit", "1.2.3mbit", "100 mbit", "100mbps",
                          "1e9999gbit", "nangbit"}) {
    EXPECT_EQ(ParseRate(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace slimps
