// The rules themselves on made-up files: each must find what it forbids, and nothing else.
#include "architecture/rules.h"

#include <gtest/gtest.h>

namespace weft::architecture {
namespace {

struct Case {
  const char* name;
  const char* path;
  const char* text;
  const char* expected;  // part of the one message, "file:line: " first; empty when nothing is wrong
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
std::string name_of(const testing::TestParamInfo<Case>& info) { return info.param.name; }

void expect_only(const Violations& found, const std::string& expected) {
  if (expected.empty()) {
    for (const Violation& violation : found) ADD_FAILURE() << "found by mistake: " << violation.to_string();
    return;
  }
  ASSERT_EQ(found.size(), 1u) << "expected: " << expected;
  EXPECT_NE(found[0].to_string().find(expected), std::string::npos) << found[0].to_string();
}

class IncludeRuleTest : public testing::TestWithParam<Case> {};

TEST_P(IncludeRuleTest, FindsWhatPointsUp) {
  expect_only(check_includes(GetParam().path, GetParam().text), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(
    Texts, IncludeRuleTest,
    testing::Values(
        Case{"Down", "src/weft/nn/linear.h", "// x\n#include \"weft/autograd/tape.h\"\n", ""},
        Case{"DownByTwo", "src/weft/train/trainer.h", "#include \"weft/base/error.h\"\n", ""},
        Case{"SameFolder", "src/weft/nn/linear.h", "#include \"weft/nn/attention.h\"\n", ""},
        Case{"Up", "src/weft/base/error.h", "\n\n#include \"weft/tensor/tensor.h\"\n",
             "src/weft/base/error.h:3: base/ may not include tensor/"},
        Case{"UpBehindSpaces", "src/weft/base/error.h", "  #  include  \"weft/tensor/tensor.h\"\n",
             "error.h:1: base/ may not include tensor/"},
        Case{"Sideways", "src/weft/kernels/kernels.h", "#include \"weft/comm/communicator.h\"\n",
             "kernels/ may not include comm/"},
        Case{"TrainNeverServes", "src/weft/train/trainer.cpp", "#include \"weft/serve/engine.h\"\n",
             "train/ may not include serve/"},
        Case{"ServeNeverTrains", "src/weft/serve/engine.cpp", "#include \"weft/train/trainer.h\"\n",
             "serve/ may not include train/"},
        Case{"UnknownFolder", "src/weft/utils/strings.h", "#include \"weft/base/error.h\"\n",
             "folder 'utils' is not in the table"},
        Case{"UnknownTarget", "src/weft/nn/linear.h", "#include \"weft/helpers/a.h\"\n",
             "folder 'helpers' is not in the table"},
        Case{"ShortPath", "src/weft/nn/linear.h", "#include \"attention.h\"\n", "write \"weft/...\""},
        Case{"OwnBackend", "src/weft/kernels/cpu/norm.cpp", "#include \"weft/kernels/cpu/simd.h\"\n", ""},
        Case{"OtherBackend", "src/weft/kernels/meta/norm.cpp", "#include \"weft/kernels/cpu/simd.h\"\n",
             "private to its backend"},
        Case{"BackendFromAbove", "src/weft/nn/linear.h", "#include \"weft/kernels/cpu/simd.h\"\n",
             "private to its backend"},
        Case{"BackendFromApps", "apps/weft/bench.cpp", "#include \"weft/kernels/cpu/simd.h\"\n",
             "private to its backend"},
        Case{"AppsSeeAll", "apps/weft/train.cpp",
             "#include \"weft/train/trainer.h\"\n#include \"weft/serve/engine.h\"\n#include \"command.h\"\n", ""},
        Case{"Cuda", "src/weft/nn/linear.cpp", "#include <cuda_runtime.h>\n",
             "linear.cpp:1: <cuda_runtime.h> does not belong here"},
        Case{"CudaAtHome", "src/weft/kernels/cuda/norm.cu", "#include <cuda_bf16.h>\n", ""},
        Case{"Nccl", "src/weft/parallel/mesh.cpp", "#include <nccl.h>\n", "take a Communicator"},
        Case{"Mpi", "src/weft/comm/threads/board.cpp", "#include <mpi.h>\n", "take a Communicator"},
        Case{"MpiAtHome", "src/weft/comm/mpi/mpi_communicator.cpp", "#include <mpi.h>\n", ""},
        Case{"MpiInApps", "apps/weft/main.cpp", "#include <mpi.h>\n", "take a Communicator"},
        Case{"Highway", "src/weft/optim/adamw.cpp", "#include <hwy/highway.h>\n", "call the Kernels table"},
        Case{"HighwayQuoted", "src/weft/optim/adamw.cpp", "#include \"hwy/highway.h\"\n", "call the Kernels table"},
        Case{"HighwayAtHome", "src/weft/kernels/cpu/norm.cpp", "#include \"hwy/highway.h\"\n", ""},
        Case{"CommandLine", "src/weft/train/trainer.cpp", "#include <CLI/CLI.hpp>\n", "apps/weft"},
        Case{"Regex", "src/weft/text/bpe.cpp", "#include <regex>\n", "overflows the stack"},
        Case{"InAComment", "src/weft/base/error.h", "// #include \"weft/tensor/tensor.h\"\n", ""}),
    name_of);

class StrategyRuleTest : public testing::TestWithParam<Case> {};

TEST_P(StrategyRuleTest, FindsStrategiesInModels) {
  expect_only(check_no_strategy(GetParam().path, GetParam().text), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(
    Texts, StrategyRuleTest,
    testing::Values(Case{"Plain", "models/llama.cpp", "Var y = add(x, step(attention, norm(x, eps)));\n", ""},
                    Case{"Axis", "models/llama.cpp", "\nif (config.tp > 1) {}\n", "llama.cpp:2: 'tp'"},
                    Case{"Camel", "models/llama.cpp", "TensorParallelLinear up;\n", "'TensorParallelLinear'"},
                    Case{"Snake", "models/llama.cpp", "y = column_tensor_parallel(x);\n", "'column_tensor_parallel'"},
                    Case{"Collective", "models/llama.cpp", "y = all_reduce(y);\n", "'all_reduce'"},
                    Case{"Zero", "models/gpt2.cpp", "int zero_stage;\n", "'zero_stage'"},
                    Case{"ZerosAreFine", "models/gpt2.cpp", "fill_zeros(y); int steps = 0; auto t = temp;\n", ""},
                    Case{"Pipeline", "models/gpt2.cpp", "#include \"weft/parallel/pipeline/schedule.h\"\n",
                         "'pipeline'"},
                    Case{"InAComment", "models/gpt2.cpp", "// fsdp wraps this\n/* dp\n */ int b;\n", ""},
                    Case{"InAString", "models/gpt2.cpp", "check(ok, \"rank {} \\\" dp\", n);\n", ""}),
    name_of);

TEST(CardRuleTest, FindsWhatTheEmulatorAloneHas) {
  const std::string path = "tests/cuda/far_test.cpp";
  expect_only(check_is_for_cards_too(path, "\nauto n = emulated::num_copies();\n"), "far_test.cpp:2: 'emulated'");
  expect_only(check_is_for_cards_too(path, "setenv(\"A\", \"1\", 1);\n"), "'setenv'");
  expect_only(check_is_for_cards_too(path, "if (!kIsEmulated) GTEST_SKIP() << \"emulated\";  // setenv\n"), "");
}

class FileRuleTest : public testing::TestWithParam<Case> {};

TEST_P(FileRuleTest, FindsMissingFirstLineOrGuard) {
  expect_only(check_shape_of_file(GetParam().path, GetParam().text), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(
    Texts, FileRuleTest,
    testing::Values(Case{"Header", "src/weft/nn/linear.h", "// Linear: y = xW.\n#pragma once\n", ""},
                    Case{"Source", "src/weft/nn/linear.cpp", "// Linear: y = xW.\n", ""},
                    Case{"NoComment", "src/weft/nn/linear.cpp", "#include <x>\n", "linear.cpp:1: the first line"},
                    Case{"Empty", "src/weft/nn/linear.cpp", "", "the first line"},
                    Case{"NoGuard", "src/weft/nn/linear.h", "// Linear: y = xW.\nint x;\n", "#pragma once"}),
    name_of);

TEST(SizeRuleTest, HasOneLimitForEachKindOfFile) {
  const auto violations = [](const char* path, int lines) {
    std::string text = "// What this file offers.\n";
    for (int i = 1; i < lines; ++i) text += "int x;\n";
    return check_shape_of_file(path, text).size();
  };
  EXPECT_EQ(violations("src/weft/nn/linear.cpp", 500), 0u);
  EXPECT_EQ(violations("src/weft/nn/linear.cpp", 501), 1u);
  EXPECT_EQ(violations("src/weft/kernels/cpu/matmul.cpp", 800), 0u);
  EXPECT_EQ(violations("src/weft/kernels/cpu/matmul.cpp", 801), 1u);
  EXPECT_EQ(violations("examples/train.cpp", 100), 0u);
  EXPECT_EQ(violations("examples/train.cpp", 101), 1u);
  EXPECT_EQ(check_line_count("docs/ARCHITECTURE.md", "a\nb\nc\n", 2).size(), 1u);
  EXPECT_EQ(check_line_count("docs/ARCHITECTURE.md", "a\nb\n", 2).size(), 0u);
}

TEST(PathRuleTest, FindsPlacesOfOneMachine) {
  const std::vector<std::string> places = {"/Users/", "/opt/me/weft"};
  expect_only(check_no_absolute_path("a.md", "x\nsee /opt/me/weft/src\n", places), "a.md:2: '/opt/me/weft'");
  expect_only(check_no_absolute_path("a.md", "(/Users/x)\n", places), "a.md:1");
  expect_only(check_no_absolute_path("a.md", "${root}/Users/x and a/Users/b\n", places), "");
}

TEST(FolderTableTest, HasNoCycleAndNamesOnlyItself) {
  for (const auto& [folder, needs] : folder_table()) {
    for (const std::string& need : needs) {
      EXPECT_TRUE(folder_table().contains(need)) << folder << " needs " << need << ", which has no line";
      EXPECT_FALSE(reachable_from(need).contains(folder)) << folder << " and " << need << " need each other";
    }
  }
}

}  // namespace
}  // namespace weft::architecture
