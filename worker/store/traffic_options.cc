// SPDX-License-Identifier: Apache-2.0
#include "worker/store/traffic_options.h"

#include <utility>

namespace slimps {

PullMergerOptions MakePullOptions(const KVStoreOptions& options, WorkerNode* node,
                                  CodecChoice* codecs) {
  return {.timeout = options.timeout,
          .threads = options.encode_threads,
          .change_codec = [codecs](
                              const TensorPlan& tensor,
                              uint64_t version) { return codecs->ChangeCodecFor(tensor, version); },
          .measures =
              [codecs](const TensorPlan& tensor, uint64_t version) {
                return codecs->plan()->MeasuresPull(tensor, version);
              },
          .momentum = codecs->momentum(),
          .on_measured =
              [codecs](const PullMeasurement& measured) {
                codecs->plan()->RecordPull(*measured.tensor, measured.version,
                                           measured.communication, measured.coding);
              },
          .clock = options.clock,
          .on_out_of_memory = node->on_out_of_memory()};
}

PushPipelineOptions MakePushOptions(const KVStoreOptions& options, WorkerNode* node,
                                    CodecChoice* codecs, PullMerger* pull) {
  PushPipelineOptions push;
  push.clock = options.clock;
  push.payloads = {.grad_scale = options.grad_scale,
                   .worker = node->rank(),
                   .keeps_payloads = node->membership()->servers_may_return(),
                   .pass_non_finite = options.pass_non_finite};
  push.encode_threads = options.encode_threads;
  push.timeout = options.timeout;
  push.checksums = options.checksums;
  push.on_report = [node](wire::ThresholdReport report) { node->Report(std::move(report)); };
  push.change_codec = [codecs](const TensorPlan& tensor, uint64_t round) {
    return codecs->ChangeCodecFor(tensor, round);
  };
  push.momentum = codecs->momentum();
  push.sends_whole_gradients = [codecs] { return codecs->compresses_momenta(); };
  push.await_measured_pulls = [pull, timeout = options.timeout] { pull->AwaitMeasured(timeout); };
  push.on_error = [node](absl::Status why) { node->Fail(why, WorkerNode::Cause::kOurs); };
  push.on_out_of_memory = node->on_out_of_memory();
  return push;
}

PhasedPushesOptions MakePhasesOptions(const KVStoreOptions& options, WorkerNode* node) {
  return {.exchange = {.timeout = options.timeout, .checksums = options.checksums},
          .grad_scale = options.grad_scale,
          .worker = node->rank(),
          .threads = options.encode_threads,
          .on_error = [node](absl::Status why) { node->Fail(why, WorkerNode::Cause::kOurs); },
          .clock = options.clock,
          .on_out_of_memory = node->on_out_of_memory()};
}

}  // namespace slimps
