// SPDX-License-Identifier: Apache-2.0
// Writes a threshold table's rows into a message. The worker and the scheduler fill in the same
// message; as a template this file need not know its type.
//
//   AddRows(table, wire::PUSH, report.mutable_rows());
#ifndef SLIMPS_COMPRESS_POLICY_TABLE_ROWS_H_
#define SLIMPS_COMPRESS_POLICY_TABLE_ROWS_H_

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

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_TABLE_ROWS_H_
