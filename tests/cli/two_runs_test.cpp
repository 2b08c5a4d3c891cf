// Two runs in one folder: the second is refused, and what the first has written stays; a killed one leaves nothing.
#include "cli/program.h"

namespace weft {
namespace {

TEST(TwoRunsTest, TheSecondInAFolderIsRefusedAndAKilledOneIsNot) {
  Program weft;
  weft.write("text.txt", sample_text());
  weft.write("r.toml", sample_recipe());
  const std::string long_run = std::string(WEFT_PROGRAM) + " train r.toml --train.steps=1000000 --train.eval_every=0";
  const Outcome o = weft.shell(fmt::format(
      "{0} >first 2>&1 & first=$!; for i in $(seq 1000); do [ -d run/checkpoints/step-000003 ] && break; sleep 0.02; "
      "done; cp run/recipe.toml before; "
      "{0} --train.seed=5 2>plain; echo $?; {0} --train.seed=5 --restarts 3 2>supervised; echo $?; "
      "{0} --log.dir=other --checkpoint.dir=run/checkpoints 2>shared; echo $?; "
      "cmp before run/recipe.toml; echo $?; {1} generate run --prompt for --max-tokens 2 >/dev/null; echo $?; "
      "kill -0 $first; echo $?; kill -KILL $first; wait $first; echo $first >process",
      long_run, WEFT_PROGRAM));
  EXPECT_EQ(o.out, "1\n1\n1\n0\n0\n0\n") << o.err;
  const std::string process = weft.read_file("process");
  const std::string who = fmt::format("weft: another run (process {} on ", process.substr(0, process.size() - 1));
  for (const char* told : {"plain", "supervised"}) {
    const std::string text = weft.read_file(told);
    EXPECT_TRUE(text.starts_with(who)) << text;
    EXPECT_TRUE(text.ends_with(") uses run: wait until it has ended, or write another log.dir\n")) << text;
  }
  EXPECT_NE(weft.read_file("shared").find(") uses run/checkpoints: wait until it has ended, or write another"),
            std::string::npos);
  const Outcome again = weft.run("train r.toml --train.steps=3 --checkpoint.resume=none --log.dir=run");
  EXPECT_EQ(again.status, 0) << again.err;
}

}  // namespace
}  // namespace weft
