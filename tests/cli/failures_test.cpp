// Failing well: one clear sentence that names the culprit and the remedy, and exit status 2 or 1.
#include "cli/program.h"
#include "weft/tensor/cuda/cuda_device.h"

namespace weft {
namespace {

struct Mistake {
  const char* name;
  const char* arguments;
  int status;
  std::vector<const char*> says;
};

class FailuresTest : public testing::TestWithParam<Mistake> {};
std::string mistake_name(const testing::TestParamInfo<Mistake>& info) { return info.param.name; }

const Mistake kMistakes[] = {
    {"unknown_command", "trian r.toml", 2, {"trian"}},
    {"no_recipe", "train none.toml", 2, {"none.toml"}},
    {"unknown_key", "train r.toml --train.step=4", 2, {"train.step", "train.steps"}},
    {"unknown_section", "train r.toml --trian.steps=4", 2, {"trian.steps", "train.steps"}},
    {"wrong_type", "train r.toml --train.steps=many", 2, {"train.steps", "many"}},
    {"unknown_family", "train r.toml --model.family=lama", 2, {"model.family", "lama", "llama"}},
    {"unknown_preset", "train r.toml --model.preset=gpt2-125m", 2, {"gpt2-125m", "gpt2-124m"}},
    {"heads_do_not_divide", "train r.toml --model.heads=5", 2, {"model.hidden", "32", "5"}},
    {"kv_heads_do_not_divide", "train r.toml --model.kv_heads=3", 2, {"model.kv_heads", "3", "4"}},
    {"batch_does_not_add_up", "train r.toml --train.micro_batch=3", 2, {"train.global_batch", "8", "micro_batch 3"}},
    {"batch_over_ranks", "train r.toml --mesh dp=3", 2, {"train.global_batch", "8", "dp 3"}},
    {"sequence_over_context", "train r.toml --model.context=16", 2, {"train.seq_len", "16"}},
    {"missing_data", "train r.toml --data.train=absent.txt", 2, {"data.train", "absent.txt"}},
    {"text_too_short", "train r.toml --data.train=short.txt", 2, {"data.train", "train.seq_len"}},
    {"small_vocabulary", "train r.toml --model.vocab=100", 2, {"model.vocab", "100", "257"}},
    {"other_axes", "train r.toml --mesh qp=2", 2, {"mesh.qp"}},
    {"unknown_precision", "train r.toml --train.precision=fp4", 2, {"train.precision", "fp4", "bf16"}},
    {"fp8_of_nf4", "train r.toml --train.precision=fp8 --lora.quantize=nf4", 2, {"lora.quantize", "fp8", "bf16"}},
    {"unknown_device", "train r.toml --device tpu", 2, {"mesh.device", "tpu", "cuda"}},
    {"bad_beta", "train r.toml --optimizer.betas=[0.9,1.5]", 2, {"optimizer.betas"}},
    {"rate_that_never_falls",
     "train r.toml --optimizer.schedule=constant --optimizer.min_lr=1e-4",
     2,
     {"optimizer.min_lr", "constant", "leave it out"}},
    {"folder_for_nothing", "train r.toml --mesh.offload_dir=far", 2, {"mesh.offload_dir", "offload_optimizer"}},
    {"trace_behind_the_end", "train r.toml --log.trace_steps=[7,9]", 2, {"log.trace_steps", "train.steps = 6"}},
    {"trace_before_the_first", "train r.toml --log.trace_steps=[-1,0]", 2, {"log.trace_steps", "from 1"}},
    {"missing_model", "generate nowhere --prompt x", 2, {"nowhere"}},
    {"model_is_a_file", "eval text.txt --data text.txt", 2, {"text.txt"}},
    {"too_many_threads", "generate nowhere --prompt x --threads 5000", 2, {"--threads", "1024"}},
    {"bad_temperature", "generate nowhere --prompt x --temperature -1", 2, {"temperature -1"}},
    {"temperature_is_no_number", "generate nowhere --prompt x --temperature nan", 2, {"--temperature nan"}},
    {"top_k_below_zero", "generate nowhere --prompt x --top-k -5", 2, {"--top-k -5"}},
    {"seed_below_zero", "generate nowhere --prompt x --seed -1", 2, {"--seed", "-1"}},
    {"too_many_tokens", "generate nowhere --prompt x --max-tokens 9223372036854775807", 2, {"--max-tokens"}},
    {"too_many_tokens_to_say", "chat nowhere --max-tokens 9223372036854775807", 2, {"--max-tokens"}},
    {"too_many_rows", "eval nowhere --data text.txt --rows 9223372036854775807", 2, {"--rows"}},
    {"rows_below_zero", "eval nowhere --data text.txt --rows -1", 2, {"--rows"}},
    {"window_below_zero", "eval nowhere --data text.txt --seq-len -1", 2, {"--seq-len"}},
    {"port_too_large", "serve nowhere --port 99999", 2, {"weft: --port", "99999", "65535"}},
    {"unknown_random_preset", "inspect random:gpt2-125m", 2, {"random:gpt2-125m", "gpt2-124m"}},
    {"help_of_nothing", "help trian", 2, {"trian is not a command"}},
    {"too_many_places", "train r.toml --hosts a:99999999999", 2, {"--hosts a:99999999999", "host:ranks"}},
    {"layouts_below_zero", "plan llama-1b --cluster 8xh100-sxm --top -1", 2, {"--top"}},
    {"batch_to_plan_too_large",
     "plan llama-1b --cluster 8xh100-sxm --global-batch 9223372036854775807",
     2,
     {"--global-batch"}},
    {"batch_too_large", "bench train --shape tiny --batch 2147483647", 2, {"--batch"}},
    {"batch_below_zero", "bench train --shape tiny --batch -3", 2, {"--batch"}},
    {"repeats_below_zero", "bench comm --repeats -5", 2, {"--repeats"}},
    {"vocab_below_zero", "bench serve --vocab -1", 2, {"--vocab"}},
    {"nothing_to_inspect", "inspect nowhere", 2, {"nowhere"}},
    {"unknown_shape", "bench train --shape gpt5", 2, {"gpt5"}},
    {"bench_in_unknown_precision", "bench train --precision fp4", 2, {"--precision", "fp4", "fp8"}},
    {"bench_of_unknown_device", "bench matmul --device tpu", 2, {"--device", "tpu", "cuda"}},
    {"heads_not_shared", "bench attention --shape 1,8,4,3,16", 2, {"--shape", "4", "3"}},
    {"log_dir_is_a_file", "train r.toml --log.dir=text.txt", 1, {"text.txt"}},
};
INSTANTIATE_TEST_SUITE_P(Mistakes, FailuresTest, testing::ValuesIn(kMistakes), mistake_name);

TEST_P(FailuresTest, SaysWhatAndWhatToDo) {
  const Program weft;
  weft.write("r.toml", sample_recipe());
  weft.write("text.txt", sample_text());
  weft.write("short.txt", "abc");
  const Outcome o = weft.run(GetParam().arguments);
  EXPECT_EQ(o.status, GetParam().status) << o.err;
  for (const char* word : GetParam().says) EXPECT_NE(o.err.find(word), std::string::npos) << word << " in: " << o.err;
  EXPECT_EQ(o.err.find("terminate called"), std::string::npos) << o.err;
  EXPECT_LE(std::count(o.err.begin(), o.err.end(), '\n'), 6) << o.err;
}

TEST(DeviceFailuresTest, SayWhatIsMissing) {
  if (!cuda_devices().empty()) GTEST_SKIP() << "this machine has a device";
  const Program weft;
  weft.write("r.toml", sample_recipe());
  weft.write("text.txt", sample_text());
  for (const char* command :
       {"train r.toml --device cuda", "verify r.toml --mesh dp=2 --device cuda", "bench matmul --device cuda",
        "bench attention --device cuda", "bench train --mesh dp=2 --device cuda"}) {
    const Outcome o = weft.run(command);
    EXPECT_EQ(o.status, 1) << command;
    EXPECT_NE(o.err.find("CUDA"), std::string::npos) << o.err;
  }
}

}  // namespace
}  // namespace weft
