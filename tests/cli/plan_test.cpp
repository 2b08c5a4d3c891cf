// weft plan as a user runs it: recipes that are planned, and other programs' configurations.
#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace weft {
namespace {

const std::string kImports = std::string(WEFT_SOURCE_DIR) + "/tests/plan/data/imports/";

TEST(PlanTest, APlannedRecipeTrainsOnWhatItsUserWrote) {
  const Program weft;
  weft.write("text.txt", sample_text());
  weft.write("mine.toml", sample_recipe() + "[lora]\nrank = 2\n");
  const Outcome plan = weft.run("plan mine.toml --cluster 2xh100-sxm --mesh dp=2,zero=2 --recipe out.toml");
  EXPECT_EQ(plan.status, 2);  // the vocabulary depends on the text
  std::string recipe = weft.read_file("mine.toml");
  recipe.replace(recipe.find("ffn = 64"), 8, "ffn = 64\nvocab = 512");
  weft.write("mine.toml", recipe);
  const Outcome again = weft.run("plan mine.toml --cluster 2xh100-sxm --mesh dp=2,zero=2 --recipe out.toml");
  ASSERT_EQ(again.status, 0) << again.err;
  const std::string planned = weft.read_file("out.toml");
  for (const char* line :
       {"zero = 2\n", "dp = 2\n", "[lora]\nrank = 2\n", "lr = 0.003\n", "every = 3\n", "steps = 6\n"})
    EXPECT_NE(planned.find(line), std::string::npos) << line << planned;
  EXPECT_EQ(weft.run("train out.toml").status, 0);
}

TEST(PlanTest, ImportsSayWhatBecomesOfEachKey) {
  const Program weft;
  const Outcome o = weft.run("plan llama-1b --cluster 8xh100-sxm --import " + kImports +
                             "deepspeed_zero3_offload.json --recipe out.toml");
  ASSERT_EQ(o.status, 0) << o.err;
  for (const char* words : {"A configuration of DeepSpeed, 45 keys", "zero_optimization.stage", "mesh.zero = 3",
                            "same by default", "not needed", "data.train"})
    EXPECT_NE(o.out.find(words), std::string::npos) << words << "\n" << o.out;
  EXPECT_NE(weft.read_file("out.toml").find("preset = \"llama-1b\""), std::string::npos);
}

TEST(PlanTest, ImportsAsJson) {
  const Program weft;
  const Outcome o = weft.run("plan --json --import " + kImports + "megatron_llama.args");
  ASSERT_EQ(o.status, 0) << o.err;
  const auto json = nlohmann::json::parse(o.out);
  EXPECT_EQ(json["from"], "megatron");
  EXPECT_EQ(json["keys"].size(), 49u);
  EXPECT_NE(json["recipe"].get<std::string>().find("layers = 32"), std::string::npos);
}

TEST(PlanTest, ImportsThatAreRefused) {
  const Program weft;
  weft.write("broken.json", "{\"train_batch_size\": 8,}");
  const Outcome broken = weft.run("plan --import broken.json");
  EXPECT_EQ(broken.status, 2);
  EXPECT_NE(broken.err.find("broken.json, line 1"), std::string::npos) << broken.err;
  EXPECT_NE(weft.run("plan --import nothing.json").status, 0);
  EXPECT_EQ(weft.run("plan --import broken.json --from fairscale").status, 2);
  weft.write("odd.json", R"({"train_batch_size": 10, "train_micro_batch_size_per_gpu": 4})");
  const Outcome odd = weft.run("plan --import odd.json --recipe out.toml");
  EXPECT_EQ(odd.status, 2);
  EXPECT_NE(odd.out.find("train.micro_batch = 4"), std::string::npos) << odd.out;
  EXPECT_NE(odd.err.find("train.global_batch = 10"), std::string::npos) << odd.err;
}

}  // namespace
}  // namespace weft
