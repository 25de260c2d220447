// What is measured: one row of the report each.
#ifndef SLIMPS_TOOLS_BENCH_CASES_H_
#define SLIMPS_TOOLS_BENCH_CASES_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compress/kernels/kernels.h"
#include "tools/bench/codec_settings.h"

namespace slimps {

enum class Operation : uint8_t {
  kEncodeWithFeedback,  // encode_ef, beside d += s
  kEncode,              // encode, beside a sum that only reads
  kDecodeAdd,           // decode_add, beside d *= c
  kAggregate,  // aggregate: payloads of all workers, summed, through the optimizer; beside d += s
};

std::string_view OperationName(Operation operation);

struct Case {
  CodecSetting setting;
  Operation operation = Operation::kEncode;
  size_t workers = 1;
  size_t elements = 0;
  int threads = 1;
  const Kernels* kernels = nullptr;

  std::string Name()
      const;  // "1bit encode_ef 16Mi avx2", with workers and threads where there are several
};

// As the command line has them. Lists are separated by commas; an empty one means the default.
struct CaseLists {
  std::string codecs;      // all
  std::string operations;  // all
  std::string elements;    // 64Ki,1Mi,16Mi; 64Ki with `quick`
  std::string threads;     // 1
  std::string isa;         // avx2 and the best that runs here
  std::string workers;     // 1,2,4,8,16 for aggregate; 1,4 with `quick`
  bool quick = false;
};

// Every combination that makes sense, by size. InvalidArgument: names the list, the word and what was expected.
[[nodiscard]] absl::StatusOr<std::vector<Case>> MakeCases(const CaseLists& lists);

// For a model's whole gradient: codecs with known bounds, numbers of threads, and by default the best isa alone; the other
// lists say nothing. InvalidArgument: as above, or `table` is not a model of models.h.
[[nodiscard]] absl::StatusOr<std::vector<Case>> MakeModelCases(const std::string& table,
                                                               const CaseLists& lists);

// "16Mi" for 16777216; a plain number where no unit fits.
std::string CountName(size_t count);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CASES_H_
