// The equality suite on the default model, where it was fetched.
#include <gtest/gtest.h>

#include "tests/runner/equality_suite.h"

namespace baton::runner {
namespace {

INSTANTIATE_TEST_SUITE_P(
    DefaultModel, EqualityTest,
    testing::Values(ModelCase{
        .name = "SmolLM2", .prompt_max = 60, .output_max = 8, .alone_stride = 5}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace baton::runner
