// SPDX-License-Identifier: Apache-2.0
// Writes a threshold table's rows into a message and reads them. The worker and the scheduler use
// the same message; as templates these functions need not know its type.
//
//   AddRows(table, wire::PUSH, report.mutable_rows());
//   auto table = ThresholdTable::FromRows(report.codec(), RowsOf(report.rows(), wire::PUSH));
#ifndef SLIMPS_COMPRESS_POLICY_TABLE_ROWS_H_
#define SLIMPS_COMPRESS_POLICY_TABLE_ROWS_H_

#include <vector>

#include "absl/time/time.h"
#include "compress/policy/threshold_row.h"
#include "compress/policy/threshold_table.h"

namespace slimps {

// Adds the table's rows, as those of `direction`, to a repeated field of wire::ThresholdRow.
template <typename Direction, typename Rows>
void AddRows(const ThresholdTable& table, Direction direction, Rows* rows) {
  for (const ThresholdRow& row : table.Rows()) {
    auto* const out = rows->Add();
    out->set_bytes(row.bytes);
    out->set_t_c_ms(absl::ToDoubleMilliseconds(row.t_c));
    out->set_t_cq_ms(absl::ToDoubleMilliseconds(row.t_cq));
    out->set_t_pq_ms(absl::ToDoubleMilliseconds(row.t_pq));
    out->set_raw_samples(row.raw_samples);
    out->set_compressed_samples(row.compressed_samples);
    out->set_direction(direction);
    out->set_tensors(row.tensors);
  }
}

// Returns the rows of `direction` from such a field.
template <typename Rows, typename Direction>
std::vector<ThresholdRow> RowsOf(const Rows& rows, Direction direction) {
  std::vector<ThresholdRow> read;
  for (const auto& row : rows) {
    if (row.direction() != direction) continue;
    read.push_back({.bytes = row.bytes(),
                    .t_c = absl::Milliseconds(row.t_c_ms()),
                    .t_cq = absl::Milliseconds(row.t_cq_ms()),
                    .t_pq = absl::Milliseconds(row.t_pq_ms()),
                    .raw_samples = row.raw_samples(),
                    .compressed_samples = row.compressed_samples(),
                    .tensors = row.tensors()});
  }
  return read;
}

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_TABLE_ROWS_H_
