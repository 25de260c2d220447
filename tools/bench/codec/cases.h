// SPDX-License-Identifier: Apache-2.0
// The cases to measure. Each is one row of the report.
#ifndef SLIMPS_TOOLS_BENCH_CODEC_CASES_H_
#define SLIMPS_TOOLS_BENCH_CODEC_CASES_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compress/format/row_grid.h"
#include "compress/kernels/kernels.h"
#include "tools/bench/codec/codec_settings.h"

namespace slimps {

enum class Operation : uint8_t {
  kEncodeWithFeedback,  // encode_ef, compared with d += s
  kEncode,              // encode, compared with a sum that only reads
  kDecodeAdd,           // decode_add, compared with d *= c
  // aggregate: sums the payloads of all workers and steps the optimizer; compared with d += s
  kAggregate,
  // phases: one worker's part in the phases before its payload, and what the servers make
  // orthonormal between them; compared with d += s. For codecs with phases, if it is asked for.
  kPhases,
  // levels: encodes at three levels, each made from the one before; compared with each anew
  kLevels,
};

std::string_view OperationName(Operation operation);

struct Case {
  CodecSetting setting;
  Operation operation = Operation::kEncode;
  size_t workers = 1;
  size_t elements = 0;
  int threads = 1;  // several: each takes one partition of kPartitionElements at a time
  const Kernels* kernels = nullptr;
  RowGrid grid = {};  // no elements: the codec sees no matrix

  // Returns "1bit encode_ef 16Mi avx2". Adds workers and threads if there are several.
  std::string Name() const;
};

// The lists of the command line, as text with commas. An empty list means the default, given here.
struct CaseLists {
  std::string codecs;      // all
  std::string operations;  // all
  std::string elements;    // 64Ki,256Ki,1Mi,16Mi; 64Ki with `quick`
  std::string threads;     // 1
  std::string isa;         // avx2 and the best that runs here
  std::string workers;     // 1,2,4,8,16 for aggregate; 1,4 with `quick`
  bool quick = false;
  bool matrix = false;  // tensors are matrices, as square as powers of two allow
};

// Returns every combination that makes sense, by size. Tensors of one partition, levels and phases
// have no row with several threads.
// InvalidArgument: a word of a list is unknown; names the list, the word and what was expected.
// InvalidArgument: no combination makes sense.
[[nodiscard]] absl::StatusOr<std::vector<Case>> MakeCases(const CaseLists& lists);

// Returns the cases of a model's whole gradient: codecs with known bounds, with each number of
// threads, by default on the best isa only. Ignores the other lists.
// InvalidArgument: as above.
// InvalidArgument: `table` is not a model of models.h.
[[nodiscard]] absl::StatusOr<std::vector<Case>> MakeModelCases(const std::string& table,
                                                               const CaseLists& lists);

// Returns "16Mi" for 16777216; a plain number if no unit fits.
std::string CountName(size_t count);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CODEC_CASES_H_
