// SPDX-License-Identifier: Apache-2.0
#include "tests/proto/golden_messages.h"

#include <functional>

#include "absl/strings/str_cat.h"
#include "tests/proto/golden_files.h"

namespace slimps {
namespace {

constexpr uint64_t kKey = 0x0123456789abcdef;

Payload BytesPayload(const std::string& bytes) {
  return Payload::Copy(std::as_bytes(std::span<const char>(bytes.data(), bytes.size())));
}

wire::Header Envelope() {
  wire::Header header;
  header.set_job_id("job");
  header.mutable_sender()->set_role(wire::WORKER);
  header.mutable_sender()->set_rank(1);
  header.set_incarnation(0x1122334455667788);
  header.set_incarnation_high(0x99aabbccddeeff00);
  header.set_membership_epoch(3);
  header.set_request_id(42);
  return header;
}

template <typename Item>
void Identify(Item* item, uint32_t partition, uint64_t ticket) {
  item->mutable_id()->set_key(kKey);
  item->mutable_id()->set_partition(partition);
  item->mutable_id()->set_ticket(ticket);
}

void SetStatus(wire::StatusProto* status) {
  status->set_code(14);
  status->set_message("server 1 is gone");
}

void SetKey(wire::KeyInfo* info) {
  info->set_key(kKey);
  info->set_name("s:fc1.weight");
  info->add_shape(2);
  info->add_shape(2);
  info->set_layer(wire::DENSE);
}

void AddRow(google::protobuf::RepeatedPtrField<wire::ThresholdRow>* rows) {
  wire::ThresholdRow* row = rows->Add();
  row->set_bytes(4194304);
  row->set_t_c_ms(75.5);
  row->set_t_cq_ms(37.3);
  row->set_t_pq_ms(8.5);
  row->set_raw_samples(9);
  row->set_compressed_samples(9);
}

void AddMembership(const std::function<Message*(const char*)>& add) {
  wire::Register* reg = add("register")->header.mutable_register_();
  reg->set_role(wire::SERVER);
  reg->set_wanted_rank(-1);
  reg->add_endpoints("tcp://127.0.0.1:4711");
  reg->set_num_workers(2);
  reg->set_num_servers(2);
  reg->set_host("node7");
  reg->set_pid(1234);
  wire::Welcome* welcome = add("welcome")->header.mutable_welcome();
  welcome->set_rank(1);
  welcome->set_heartbeat_interval_ms(1000);
  welcome->set_heartbeat_timeout_ms(10000);
  wire::Roster* roster = add("roster")->header.mutable_roster();
  roster->set_epoch(4);
  roster->set_num_workers(1);
  roster->set_num_servers(1);
  wire::RosterEntry* entry = roster->add_nodes();
  entry->mutable_node()->set_role(wire::SERVER);
  entry->add_endpoints("ipc:///tmp/s0");
  entry->set_host("node7");
  entry->set_pid(1234);
  entry->set_incarnation(7);
  entry->set_incarnation_high(8);
  wire::Barrier* barrier = add("barrier")->header.mutable_barrier();
  barrier->set_name("epoch");
  barrier->set_group(wire::WORKER);
  barrier->set_ticket(5);
  wire::BarrierRelease* release = add("barrier_release")->header.mutable_barrier_release();
  release->set_name("epoch");
  release->set_ticket(5);
  add("heartbeat")->header.mutable_heartbeat()->set_sequence(99);
  wire::NodeDown* down = add("node_down")->header.mutable_node_down();
  down->mutable_node()->set_role(wire::SERVER);
  down->set_reason("no heartbeat for 10 s");
  SetStatus(add("shutdown")->header.mutable_shutdown()->mutable_reason());
  add("goodbye")->header.mutable_goodbye();
  SetStatus(add("ack")->header.mutable_ack()->mutable_status());
  wire::Error* error = add("error")->header.mutable_error();
  SetStatus(error->mutable_status());
  error->mutable_node()->set_role(wire::SERVER);
  error->set_key("s:fc1.weight");
}

void AddKeysAndThreshold(const std::function<Message*(const char*)>& add) {
  wire::DeclareKeys* declare = add("declare_keys")->header.mutable_declare_keys();
  SetKey(declare->add_keys());
  declare->set_partition_elements(1048576);
  wire::KeyPlace* place = add("placement")->header.mutable_placement()->add_keys();
  place->set_key(kKey);
  place->add_partitions()->set_elements(2);
  wire::PartitionPlace* second = place->add_partitions();
  second->set_server(1);
  second->set_offset(2);
  second->set_elements(2);
  wire::ThresholdReport* report = add("threshold_report")->header.mutable_threshold_report();
  AddRow(report->mutable_rows());
  report->set_ready_round(21);
  report->set_codec("1bit:scaling=l1");
  wire::CodecMap* map = add("codec_map")->header.mutable_codec_map();
  map->set_version(1);
  map->set_from_round(23);
  map->set_has_threshold(true);
  map->set_threshold_bytes(2306867);
  map->set_codec_below("none");
  map->set_codec("1bit:scaling=l1");
  wire::CodecEntry* entry = map->add_entries();
  entry->set_key(kKey);
  entry->set_codec("none");
  AddRow(map->mutable_table());
  wire::OptimizerSpec* spec = add("set_optimizer")->header.mutable_set_optimizer()->mutable_spec();
  spec->set_kind(wire::OptimizerSpec::SGD);
  spec->set_learning_rate(0.125);
  spec->set_momentum(0.5);
  spec->mutable_schedule()->set_kind(wire::LearningRateSchedule::STEP);
  spec->mutable_schedule()->set_every(100);
}

void AddData(const std::function<Message*(const char*)>& add) {
  Message* message = add("init");
  wire::InitItem* init = message->header.mutable_init()->add_items();
  Identify(init, 0, 7);
  SetKey(init->mutable_info());
  init->set_elements(4);
  init->set_partitions(1);
  init->set_format(wire::RAW_F32);
  AttachPayload(init, FloatPayload({0.5f, -1.0f, 2.0f, 0.0f}), PayloadHashing::kXxh3, message);
  Identify(add("init_reply")->header.mutable_init_reply()->add_items(), 0, 7);
  *add("push") = ReadmeExample();
  wire::ItemStatus* pushed = add("push_reply")->header.mutable_push_reply()->add_items();
  Identify(pushed, 1, 8);
  SetStatus(pushed->mutable_status());
  pushed->set_decode_ns(1500);
  wire::PullItem* pull = add("pull")->header.mutable_pull()->add_items();
  Identify(pull, 1, 9);
  pull->set_min_version(5);
  pull->set_timeout_ms(60000);
  pull->set_priority(-1);
  pull->set_elements(2);
  message = add("pull_reply");
  wire::PullReplyItem* pulled = message->header.mutable_pull_reply()->add_items();
  Identify(pulled, 1, 9);
  pulled->set_version(5);
  pulled->set_elements(2);
  pulled->set_format(wire::RAW_F16);
  AttachPayload(pulled, BytesPayload(std::string("\x00\x3c\x00\xc0", 4)), PayloadHashing::kOff,
                message);
  message = add("push_pull");
  wire::PushItem* absent = message->header.mutable_push_pull()->add_push();
  Identify(absent, 0, 10);
  absent->set_round(6);
  absent->set_elements(2);
  wire::PushItem* levels = message->header.mutable_push_pull()->add_push();
  Identify(levels, 1, 11);
  levels->set_round(6);
  levels->set_elements(2);
  levels->set_format(wire::LEVELS);
  AttachPayload(levels, BytesPayload("levels"), PayloadHashing::kXxh3, message);
  Identify(message->header.mutable_push_pull()->add_pull(), 1, 12);
  add("leave")->header.mutable_leave()->set_from_round(8);
}

// Adds what servers that are started again say, and are told.
void AddRestarts(const std::function<Message*(const char*)>& add) {
  wire::Register* reg = add("restarts/register")->header.mutable_register_();
  reg->set_role(wire::SERVER);
  reg->set_wanted_rank(1);
  reg->add_endpoints("tcp://127.0.0.1:4712");
  reg->set_num_workers(2);
  reg->set_num_servers(2);
  reg->set_restored(true);
  add("restarts/welcome")->header.mutable_welcome()->set_servers_may_return(true);
  wire::Roster* roster = add("restarts/roster")->header.mutable_roster();
  roster->set_epoch(5);
  wire::RosterEntry* entry = roster->add_nodes();
  entry->mutable_node()->set_role(wire::SERVER);
  entry->set_restarts(3);
  wire::ItemStatus* status = add("restarts/push_reply")->header.mutable_push_reply()->add_items();
  status->mutable_id()->set_ticket(17);
  status->set_durable(8);
  add("restarts/persist")->header.mutable_persist();
  wire::Roster* without = add("away/roster")->header.mutable_roster();
  without->add_nodes()->mutable_node()->set_role(wire::WORKER);
  without->mutable_nodes(0)->set_away(true);
  wire::Roster* ended = add("ended/roster")->header.mutable_roster();
  ended->add_nodes()->mutable_node()->set_role(wire::WORKER);
  ended->mutable_nodes(0)->set_ended(true);
  add("ended/heartbeat")->header.mutable_heartbeat()->set_waits("round 7 waits for worker 1");
  add("ended/declare_keys")->header.mutable_declare_keys()->set_number(3);
  wire::Heartbeat* reporting = add("reports/heartbeat")->header.mutable_heartbeat();
  reporting->set_report("a report");
  reporting->set_wants_details(true);
  add("reports/welcome")->header.mutable_welcome()->set_wants_reports(true);
  add("away/heartbeat")->header.mutable_heartbeat()->set_saved_epoch(6);
  add("away/has_pushed")->header.mutable_heartbeat()->set_has_pushed(true);
  add("away/push")->header.mutable_push()->add_items()->set_left_out(true);
}

void AddCheckpoints(const std::function<Message*(const char*)>& add) {
  wire::Checkpoint* checkpoint = add("checkpoints/checkpoint")->header.mutable_checkpoint();
  checkpoint->set_step(wire::Checkpoint::READ);
  checkpoint->set_id(0x0123456789abcdef);
  checkpoint->set_folder("/saved/step-000000100");
  checkpoint->add_files("server-0.images");
  wire::Part* part = add("parts/part")->header.mutable_part();
  part->set_hash(0x0123456789abcdef);
  part->set_number(1);
  part->set_parts(3);
  part->set_piece("bytes");
  Message* chunk = add("parts/relay");
  wire::Relay* relay = chunk->header.mutable_relay();
  relay->set_broadcast(0x0123456789abcdef);
  relay->set_chunk(3);
  relay->set_takers(1);
  AttachPayload(relay, BytesPayload("bytes"), PayloadHashing::kXxh3, chunk);
  wire::CheckpointFile* written = add("checkpoints/ack")->header.mutable_ack()->mutable_written();
  written->set_name("server-0.images");
  written->set_bytes(4711);
  written->set_crc32(0x89abcdef);
}

// Adds row-sparse tensors, the optimizer's state and hyperparameters: other contents of the verbs
// above.
void AddMomenta(const std::function<Message*(const char*)>& add) {
  Message* message = add("momenta/push");
  wire::PushItem* push = message->header.mutable_push()->add_items();
  Identify(push, 1, 18);
  push->set_round(8);
  push->set_elements(2);
  push->set_format(wire::RAW_F32);
  push->set_momentum(true);
  AttachPayload(push, FloatPayload({0.5f, -0.5f}), PayloadHashing::kXxh3, message);
  message = add("momenta/pull_reply");
  wire::PullReplyItem* answer = message->header.mutable_pull_reply()->add_items();
  Identify(answer, 1, 19);
  answer->set_version(8);
  answer->set_elements(2);
  answer->set_format(wire::RAW_F32);
  answer->set_is_change(true);
  answer->set_base_version(7);
  wire::MomentumExchange* momentum = answer->mutable_momentum();
  momentum->set_beta1(0.875);
  momentum->set_unscale(2);
  momentum->set_scale(0.5);
  momentum->set_step(0.125);
  momentum->set_epsilon(0.0625);
  momentum->set_shrink(0.75);
  AttachPayload(answer, FloatPayload({0.5f, -0.5f}), PayloadHashing::kXxh3, message);
}

void AddClipping(const std::function<Message*(const char*)>& add) {
  Message* message = add("clipping/push");
  wire::PushItem* push = message->header.mutable_push()->add_items();
  Identify(push, 1, 20);
  push->set_round(9);
  push->set_elements(2);
  push->set_format(wire::RAW_F32);
  push->set_clipped(true);
  AttachPayload(push, FloatPayload({0.5f, -0.5f}), PayloadHashing::kXxh3, message);
  wire::PushItem* scale = message->header.mutable_push()->add_items();
  Identify(scale, 1, 21);
  scale->set_round(8);
  scale->set_elements(2);
  scale->set_gradient_scale(0.75);
  wire::PullItem* pull = add("clipping/pull")->header.mutable_pull()->add_items();
  Identify(pull, 1, 22);
  pull->set_min_version(9);
  pull->set_elements(2);
  pull->set_norm(true);
  wire::PullReplyItem* answer =
      add("clipping/pull_reply")->header.mutable_pull_reply()->add_items();
  Identify(answer, 1, 22);
  answer->set_version(9);
  answer->set_elements(2);
  answer->set_norm2(0.5);
}

void AddUnmasked(const std::function<Message*(const char*)>& add) {
  wire::PushItem* push = add("masks/push")->header.mutable_push()->add_items();
  push->set_momentum(true);
  wire::PullReplyItem* answer = add("masks/pull_reply")->header.mutable_pull_reply()->add_items();
  for (const uint32_t number : {768, 256, 1536, 1}) {
    push->add_unmasked(number);
    answer->mutable_momentum()->add_unmasked(number);
  }
}

void AddRowsAndState(const std::function<Message*(const char*)>& add) {
  Message* message = add("push_rows");
  wire::PushItem* push = message->header.mutable_push()->add_items();
  Identify(push, 1, 13);
  push->set_round(6);
  push->set_elements(5);
  push->set_format(wire::ROWS);
  // The worked example of compress/format/rows.h.
  const std::string head("\xba\0\0\0\x02\0\0\0\x05\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0", 24);
  const std::string skip("\x01\0\0\0\0\0\0\0", 8), rows("\0\0\0\0\x02\0\0\0", 8);
  const std::string values("\0\0\0\x3f\0\0\0\x40\0\0\x80\x40", 12);
  AttachPayload(push, BytesPayload(head + skip + rows + values), PayloadHashing::kXxh3, message);
  wire::PullItem* pull = add("pull_rows")->header.mutable_pull()->add_items();
  Identify(pull, 1, 14);
  pull->set_min_version(6);
  pull->set_elements(5);
  pull->set_rows_only(true);
  pull->set_rows(rows);
  wire::PullItem* asked = add("pull_state")->header.mutable_pull()->add_items();
  Identify(asked, 1, 15);
  asked->set_elements(2);
  asked->set_state_tensor(2);
  message = add("pull_reply_state");
  wire::PullReplyItem* answer = message->header.mutable_pull_reply()->add_items();
  Identify(answer, 1, 15);
  answer->set_version(6);
  answer->set_elements(2);
  answer->set_format(wire::RAW_F32);
  answer->mutable_state()->set_kind(wire::OptimizerSpec::ADAM);
  answer->mutable_state()->set_tensors(2);
  answer->mutable_state()->set_tensor(2);
  answer->mutable_state()->set_updates(6);
  AttachPayload(answer, FloatPayload({0.25f, 1.5f}), PayloadHashing::kXxh3, message);
  message = add("push_hyper");
  wire::PushItem* stepped = message->header.mutable_push()->add_items();
  Identify(stepped, 1, 16);
  stepped->set_round(7);
  stepped->set_elements(2);
  stepped->set_format(wire::RAW_F32);
  stepped->mutable_hyper()->set_learning_rate(0.125);
  stepped->mutable_hyper()->set_weight_decay(0.0001);
  AttachPayload(stepped, FloatPayload({1.0f, -2.0f}), PayloadHashing::kXxh3, message);
  const Message without = *message;
  message = add("push_momentum");
  *message = without;
  message->header.mutable_push()->mutable_items(0)->mutable_hyper()->set_momentum(0.875);
  message = add("auxiliary/init");
  wire::InitItem* factor = message->header.mutable_init()->add_items();
  Identify(factor, 0, 17);
  SetKey(factor->mutable_info());
  factor->set_elements(2);
  factor->set_partitions(1);
  factor->set_format(wire::RAW_F32);
  factor->set_combine(wire::ORTHOGONALISE);
  factor->set_auxiliary(true);
  AttachPayload(factor, FloatPayload({0.0f, 0.0f}), PayloadHashing::kXxh3, message);
  message = add("auxiliary/pull_reply");
  wire::PullReplyItem* combined = message->header.mutable_pull_reply()->add_items();
  Identify(combined, 1, 17);
  combined->set_version(7);
  combined->set_elements(2);
  combined->set_format(wire::RAW_F32);
  for (const uint32_t worker : {0u, 2u, 300u}) combined->add_contributors(worker);
  AttachPayload(combined, FloatPayload({0.6f, 0.8f}), PayloadHashing::kXxh3, message);
  AddMomenta(add);
  AddClipping(add);
  AddRestarts(add);
  AddCheckpoints(add);
  AddUnmasked(add);
}

}  // namespace

Payload FloatPayload(const std::vector<float>& values) {
  return Payload::Copy(std::as_bytes(std::span<const float>(values)));
}

Message ReadmeExample() {
  Message message;
  message.header = Envelope();
  wire::PushItem* push = message.header.mutable_push()->add_items();
  Identify(push, 1, 8);
  push->set_round(5);
  push->set_elements(2);
  push->set_format(wire::RAW_F32);
  push->set_priority(3);
  AttachPayload(push, FloatPayload({1.0f, -2.0f}), PayloadHashing::kXxh3, &message);
  return message;
}

std::vector<GoldenMessage> GoldenMessages() {
  std::vector<GoldenMessage> messages;
  messages.reserve(64);  // AddX keep pointers to single messages only until their next `add`
  const std::function<Message*(const char*)> add = [&messages](const char* name) {
    messages.push_back({name, {}});
    messages.back().message.header = Envelope();
    return &messages.back().message;
  };
  AddMembership(add);
  AddKeysAndThreshold(add);
  AddData(add);
  AddRowsAndState(add);
  return messages;
}

std::string GoldenListing() {
  std::string listing;
  for (const GoldenMessage& golden : GoldenMessages()) {
    const absl::StatusOr<Frame> frame = BuildFrame(golden.message, kDefaultLimits);
    if (!frame.ok()) return absl::StrCat(golden.name, ": ", frame.status().ToString());
    for (size_t i = 0; i < frame->size(); ++i) {
      absl::StrAppend(&listing, golden.name, i == 0 ? " header part, " : " payload, ",
                      (*frame)[i].size(), " bytes\n", HexListing((*frame)[i].bytes()), "\n");
    }
  }
  return listing;
}

}  // namespace slimps
