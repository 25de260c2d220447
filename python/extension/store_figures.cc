// SPDX-License-Identifier: Apache-2.0
// Store: returns what it has counted and what was decided, as dicts.
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "python/extension/store.h"

namespace slimps::python {

namespace py = pybind11;

py::dict Store::Totals() const {
  StoreTotals totals;
  {
    py::gil_scoped_release no_gil;
    totals = store_->totals();
  }
  py::dict found;
  found["bytes_pushed"] = totals.bytes_pushed;
  found["bytes_pulled"] = totals.bytes_pulled;
  found["copy_s"] = absl::ToDoubleSeconds(totals.copy);
  found["encode_s"] = absl::ToDoubleSeconds(totals.encode);
  found["send_s"] = absl::ToDoubleSeconds(totals.send);
  found["wait_s"] = absl::ToDoubleSeconds(totals.wait);
  found["decode_s"] = absl::ToDoubleSeconds(totals.decode);
  return found;
}

py::object Store::Decision() const {
  std::optional<wire::CodecMap> map;
  {
    py::gil_scoped_release no_gil;
    map = store_->codec_map();
  }
  if (!map.has_value()) return py::none();
  const auto threshold = [](bool there, uint64_t bytes) -> py::object {
    return there ? py::object(py::int_(bytes)) : py::object(py::none());
  };
  py::list rows;
  for (const wire::ThresholdRow& row : map->table()) {
    py::dict one;
    one["direction"] = row.direction() == wire::PULL ? "pull" : "push";
    one["bytes"] = row.bytes();
    one["t_c_ms"] = row.t_c_ms();
    one["t_cq_ms"] = row.t_cq_ms();
    one["t_pq_ms"] = row.t_pq_ms();
    rows.append(std::move(one));
  }
  py::dict found;
  found["from_round"] = map->from_round();
  found["codec"] = map->codec();
  found["threshold_bytes"] = threshold(map->has_threshold(), map->threshold_bytes());
  found["pull_codec"] = map->pull_codec();
  found["pull_threshold_bytes"] = threshold(map->has_pull_threshold(), map->pull_threshold_bytes());
  found["table"] = std::move(rows);
  return found;
}

}  // namespace slimps::python
