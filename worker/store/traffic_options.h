// SPDX-License-Identifier: Apache-2.0
// What the stages of TensorTraffic are made with: a store's options, and the calls by which a stage
// reaches the node and the choice of codecs.
#ifndef SLIMPS_WORKER_STORE_TRAFFIC_OPTIONS_H_
#define SLIMPS_WORKER_STORE_TRAFFIC_OPTIONS_H_

#include "worker/kvstore.h"
#include "worker/phases/phased_pushes.h"
#include "worker/pull/pull_merger.h"
#include "worker/push/push_pipeline.h"
#include "worker/store/codec_choice.h"
#include "worker/store/worker_node.h"

namespace slimps {

// REQUIRES: the arguments outlive what is made with the result.
PullMergerOptions MakePullOptions(const KVStoreOptions& options, WorkerNode* node,
                                  CodecChoice* codecs);
PushPipelineOptions MakePushOptions(const KVStoreOptions& options, WorkerNode* node,
                                    CodecChoice* codecs, PullMerger* pull);
PhasedPushesOptions MakePhasesOptions(const KVStoreOptions& options, WorkerNode* node);

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_TRAFFIC_OPTIONS_H_
