// SPDX-License-Identifier: Apache-2.0
#include "worker/capi/c_api_trace.h"

#include <fstream>
#include <sstream>
#include <string>

#include "tests/worker/capi/c_api_fixture.h"

namespace {

TEST_F(CApi, ATraceHasTheRowsOfTheProgramAndOfTheStore) {
  const std::string path = testing::TempDir() + "/rows.json";
  EXPECT_C_OK(slimps_trace_start(path.c_str()));
  EXPECT_C_FAILS(slimps_trace_start(path.c_str()), SLIMPS_FAILED_PRECONDITION, "already");
  EXPECT_C_OK(slimps_trace_span(SLIMPS_TRACE_FORWARD, "Net", 3, 2'000, 5'500));
  EXPECT_C_OK(slimps_trace_span(SLIMPS_TRACE_CALL, "push", 0, 6'000, 6'001));
  EXPECT_C_OK(slimps_trace_finish(path.c_str(), 7));
  std::ifstream file(testing::TempDir() + "/rows.worker7.json");
  std::stringstream content;
  content << file.rdbuf();
  EXPECT_THAT(content.str(), HasSubstr(R"("process":"worker 7")"));
  EXPECT_THAT(content.str(), HasSubstr(R"("name":"Net","cat":"forward","ts":0.000,"dur":3.500)"));
  EXPECT_THAT(content.str(), HasSubstr(R"("round":3)"));
  EXPECT_THAT(content.str(), HasSubstr(R"("name":"push","cat":"call","ts":4.000,"dur":0.001)"));
}

TEST_F(CApi, WithoutATraceSpansAreNothingAndThereIsNoFile) {
  EXPECT_C_OK(slimps_trace_span(SLIMPS_TRACE_STEP, "step", 0, 0, 1));
  EXPECT_C_FAILS(slimps_trace_finish("none.json", 0), SLIMPS_FAILED_PRECONDITION, "not record");
}

TEST_F(CApi, ATraceThatMakesNoSenseIsRefused) {
  EXPECT_C_FAILS(slimps_trace_start("/no/such/t.json"), SLIMPS_UNAVAILABLE, "/no/such/t.json");
  EXPECT_C_REFUSES(slimps_trace_start(nullptr), "path: expected");
  EXPECT_C_REFUSES(slimps_trace_span(4, "step", 0, 0, 1), "row: expected 0 to 3, got 4");
  EXPECT_C_REFUSES(slimps_trace_span(SLIMPS_TRACE_STEP, nullptr, 0, 0, 1), "name: expected");
  EXPECT_C_REFUSES(slimps_trace_finish(nullptr, 0), "path: expected");
}

}  // namespace
