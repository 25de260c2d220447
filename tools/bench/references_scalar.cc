#include "tools/bench/reference_loops.h"
#include "tools/bench/reference_sets.h"

namespace slimps {

constexpr References kScalarReferences = MakeReferences("scalar");

}  // namespace slimps
