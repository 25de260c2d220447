// SPDX-License-Identifier: Apache-2.0
#include "worker/courier/coalescer.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace slimps {

std::vector<Batch> Coalescer::Add(uint32_t server, OutgoingItem item, int64_t priority) {
  std::vector<Batch> leaving;
  const size_t said = std::visit([](const auto& one) { return one.ByteSizeLong(); }, item.item);
  const size_t bytes = item.payload.size() + said;
  if (item.payload.size() > kSmallItemBytes || said > kSmallItemBytes) {
    if (auto open = open_.extract(server)) leaving.push_back(std::move(open.mapped()));
    Batch& alone = leaving.emplace_back(
        Batch{.server = server, .priority = priority, .bytes = bytes, .items = {}});
    alone.items.push_back(std::move(item));
    return leaving;
  }
  Batch& batch =
      open_.try_emplace(server, Batch{.server = server, .priority = priority, .items = {}})
          .first->second;
  batch.priority = std::max(batch.priority, priority);
  batch.bytes += bytes;
  batch.items.push_back(std::move(item));
  if (batch.bytes >= kFullBatchBytes || batch.items.size() >= kFullBatchItems) {
    leaving.push_back(std::move(open_.extract(server).mapped()));
  }
  return leaving;
}

std::vector<Batch> Coalescer::TakeAll() {
  std::vector<Batch> leaving;
  for (auto& [server, batch] : open_) leaving.push_back(std::move(batch));
  open_.clear();
  return leaving;
}

}  // namespace slimps
