// SPDX-License-Identifier: Apache-2.0
#include "worker/store/broadcast/byte_broadcast.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/buffer.h"
#include "proto/base/hash.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "proto/base/thread.h"
#include "proto/incarnation.h"

namespace slimps {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;
// All take part in a passage, so nobody waits for long, unless a process has died in its midst.
constexpr absl::Duration kLongestChunk = absl::Minutes(5);
constexpr char kWhat[] = "a broadcast of bytes";
constexpr size_t kNumbersEach = 3;  // what rank 0 says of a buffer: size, halves of its hash

// A double has 53 bits, so a hash takes two numbers.
double HighHalf(uint64_t hash) { return static_cast<double>(hash >> 32); }
double LowHalf(uint64_t hash) { return static_cast<double>(hash & 0xffffffff); }

// The buffers that travel, as if they lay one behind another. Chunk c has their bytes from
// c * kChunkBytes on.
class Stream final {
 public:
  void Add(std::span<std::byte> buffer) {
    ends_.push_back(bytes() + buffer.size());
    buffers_.push_back(buffer);
  }
  size_t bytes() const { return ends_.empty() ? 0 : ends_.back(); }
  uint64_t chunks() const { return (bytes() + kChunkBytes - 1) / kChunkBytes; }
  size_t BytesOf(uint64_t chunk) const {
    return std::min(kChunkBytes, bytes() - chunk * kChunkBytes);
  }

  // Calls visit(part of a buffer, where it lies in the chunk) for each part of the chunk.
  template <typename Visit>
  void Walk(uint64_t chunk, const Visit& visit) const {
    const size_t begin = chunk * kChunkBytes, end = begin + BytesOf(chunk);
    size_t i = static_cast<size_t>(std::ranges::upper_bound(ends_, begin) - ends_.begin());
    for (size_t at = begin; at < end; ++i) {
      const std::span<std::byte> part =
          buffers_[i].last(ends_[i] - at).first(std::min(ends_[i], end) - at);
      visit(part, at - begin);
      at += part.size();
    }
  }

 private:
  std::vector<std::span<std::byte>> buffers_;
  std::vector<size_t> ends_;
};

// One broadcast, once all know what travels. Thread-compatible; several threads run it, each with
// a server of its own.
struct Passage {
  WorkerNode* node;
  absl::Duration timeout;
  const Stream* stream;
  uint64_t broadcast;
  uint32_t takers;
  uint32_t servers;

  wire::Header Question(uint64_t chunk) const {
    wire::Header header = node->membership()->MakeHeader();
    header.mutable_relay()->set_broadcast(broadcast);
    header.mutable_relay()->set_chunk(chunk);
    return header;
  }

  absl::Status Give(uint32_t server) const {
    for (uint64_t chunk = server; chunk < stream->chunks(); chunk += servers) {
      AlignedBuffer bytes(stream->BytesOf(chunk));
      stream->Walk(chunk, [&](std::span<std::byte> part, size_t at) {
        std::ranges::copy(part, bytes.bytes().begin() + static_cast<ptrdiff_t>(at));
      });
      Message question{.header = Question(chunk), .payloads = {}};
      wire::Relay* const relay = question.header.mutable_relay();
      relay->set_takers(takers);
      AttachPayload(relay, Payload::Adopt(std::move(bytes), stream->BytesOf(chunk)),
                    PayloadHashing::kXxh3, &question);
      SLIMPS_RETURN_IF_ERROR(
          node->ExchangeWith(server, std::move(question), timeout, kWhat).status());
    }
    return absl::OkStatus();
  }

  absl::Status Take(uint32_t server) const {
    for (uint64_t chunk = server; chunk < stream->chunks(); chunk += servers) {
      SLIMPS_ASSIGN_OR_RETURN(
          const Message answer,
          node->ExchangeWith(server, {.header = Question(chunk), .payloads = {}}, timeout, kWhat));
      const size_t expected = stream->BytesOf(chunk);
      if (answer.payloads.size() != 1 || answer.payloads[0].size() != expected) {
        return absl::DataLossError(absl::StrCat(kWhat, " at server ", server, ": expected ",
                                                expected, " bytes of chunk ", chunk));
      }
      stream->Walk(chunk, [&](std::span<std::byte> part, size_t at) {
        std::ranges::copy(answer.payloads[0].bytes().subspan(at, part.size()), part.begin());
      });
    }
    wire::Header end = Question(0);
    end.mutable_relay()->set_end(true);
    return node->AskServer(server, end, timeout, kWhat).status();
  }
};

// Calls run(server) for each server, all at once, and returns the first error.
template <typename Run>
absl::Status AtEach(uint32_t servers, const OnOutOfMemory& on_out_of_memory, const Run& run) {
  std::vector<absl::Status> results(servers, DroppedStatus());
  const auto run_one = [&](uint32_t server) {
    OrTell(on_out_of_memory, [&] { results[server] = run(server); });
  };
  std::vector<Thread> threads;
  threads.reserve(servers);
  uint32_t begun = 1;
  try {
    for (; begun < servers; ++begun) {
      threads.emplace_back("broadcast", [&run_one, begun] { run_one(begun); });
    }
  } catch (const std::exception&) {  // no memory or no thread is left: one after another
  }
  run_one(0);
  for (; begun < servers; ++begun) run_one(begun);
  for (Thread& thread : threads) thread.Join();
  for (const absl::Status& result : results) SLIMPS_RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<bool>> BroadcastBytes(std::span<const std::span<std::byte>> buffers,
                                                 const KVStoreOptions& options, WorkerNode* node) {
  const size_t count = buffers.size();
  const bool gives = node->rank() == 0;
  std::vector<uint64_t> hashes;
  for (const std::span<std::byte> buffer : buffers) hashes.push_back(HashBytes(buffer));
  std::vector<double> told(1 + kNumbersEach * count);
  if (gives) {
    told[0] = static_cast<double>(DrawIncarnation().low >> 12);
    for (size_t i = 0; i < count; ++i) {
      told[1 + kNumbersEach * i] = static_cast<double>(buffers[i].size());
      told[2 + kNumbersEach * i] = HighHalf(hashes[i]);
      told[3 + kNumbersEach * i] = LowHalf(hashes[i]);
    }
  }
  SLIMPS_ASSIGN_OR_RETURN(const std::vector<double> rank_0, node->Sum(kWhat, told));
  absl::Status fits;
  // Four parts: this worker takes bytes (0 or 1), it cannot (0 or 1), the buffers that differ, and
  // what each worker has drawn. The scheduler answers a worker that was started again with the sums
  // of before; the drawn number tells it so.
  std::vector<double> differs(2 + count + options.num_workers);
  double& drawn = differs[2 + count + node->rank()];
  drawn = static_cast<double>(DrawIncarnation().low >> 12);
  for (size_t i = 0; i < count; ++i) {
    const double bytes = rank_0[1 + kNumbersEach * i];
    if (bytes != static_cast<double>(buffers[i].size())) {
      fits.Update(absl::InvalidArgumentError(
          absl::StrCat(kWhat, ": buffer ", i, " of worker ", node->rank(), ": expected ", bytes,
                       " bytes as on worker 0, got ", buffers[i].size())));
    }
    if (rank_0[2 + kNumbersEach * i] == HighHalf(hashes[i]) &&
        rank_0[3 + kNumbersEach * i] == LowHalf(hashes[i])) {
      continue;
    }
    differs[2 + i] = differs[0] = 1;
  }
  const bool takes = differs[0] > 0;
  const absl::Status too_late = absl::FailedPreconditionError(
      absl::StrCat(kWhat, ": worker ", node->rank(), " was started again with other bytes than ",
                   gives ? "before" : "worker 0 has",
                   " and the others do not take part again; expected equal "
                   "ones, as of a checkpoint that all read"));
  if (gives && takes) fits.Update(too_late);  // others have its hashes of before
  if (!fits.ok()) differs[1] = 1;
  SLIMPS_ASSIGN_OR_RETURN(const std::vector<double> all, node->Sum(kWhat, differs));
  SLIMPS_RETURN_IF_ERROR(fits);
  if (all[2 + count + node->rank()] != drawn) {
    if (takes) return too_late;
    return std::vector<bool>(count);
  }
  if (all[1] > 0) {
    return absl::AbortedError(absl::StrCat(kWhat, ": ", all[1],
                                           " other workers have buffers of other sizes, or were "
                                           "started again with other bytes"));
  }
  std::vector<bool> written(count);
  Stream stream;
  for (size_t i = 0; i < count; ++i) {
    if (all[2 + i] == 0) continue;
    stream.Add(buffers[i]);
    written[i] = differs[2 + i] > 0;
  }
  if (stream.bytes() == 0 || (!gives && !takes)) return written;
  const Passage passage{
      .node = node,
      .timeout = std::min(options.timeout, kLongestChunk),
      .stream = &stream,
      .broadcast = static_cast<uint64_t>(rank_0[0]),
      .takers = static_cast<uint32_t>(all[0]),
      .servers = static_cast<uint32_t>(std::min<uint64_t>(options.num_servers, stream.chunks()))};
  const auto run = [&](uint32_t server) {
    return gives ? passage.Give(server) : passage.Take(server);
  };
  SLIMPS_RETURN_IF_ERROR(
      node->FailIfServerIsGone(AtEach(passage.servers, node->on_out_of_memory(), run)));
  return written;
}

}  // namespace slimps
