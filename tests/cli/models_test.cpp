// The program on a model that Hugging Face's library made: logits, tokens, conversion and training on meshes.
#include "pretrained/chatty_model.h"

#include "cli/program.h"

namespace weft {
namespace {

using Json = nlohmann::json;

// Thirteen characters, as many as the golden models have tokens.
std::string small_text() {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "abcdefghijkl\n"[size_t(i) * size_t(i) % 7 + size_t(i) % 6];
  return text + "abcdefghijkl\n";
}

std::string recipe(const std::string& model) {
  return fmt::format(R"([model]
path = "{}"
[data]
train = "text.txt"
tokenizer = "char"
[train]
steps = 3
seq_len = 16
global_batch = 4
[optimizer]
lr = 1e-3
warmup = 1
[log]
dir = "run"
)",
                     model);
}

class ModelsTest : public testing::Test {
 protected:
  Json run(const std::string& arguments) const {
    const Outcome o = program.run(arguments + " --json");
    EXPECT_EQ(o.status, 0) << o.err;
    return o.status == 0 ? Json::parse(o.out) : Json();
  }
  Program program;
};

TEST_F(ModelsTest, LogitsAndTokensOnMeshes) {
  const GoldenModel golden("qwen3_moe");
  const std::string ids = fmt::format("--ids {}", fmt::join(golden.ids(), ","));
  for (const char* mesh : {"", " --mesh tp=2,pp=2", " --mesh ep=2"}) {
    const Json json = run(fmt::format("logits {} {}{}", golden.path(), ids, mesh));
    const auto rows = json["logits"].get<std::vector<std::vector<double>>>();
    ASSERT_EQ(rows.size(), golden.ids().size());
    for (size_t t = 0; t < rows.size(); ++t)
      for (size_t v = 0; v < rows[t].size(); ++v) EXPECT_NEAR(rows[t][v], golden.logits()[t][v], 1e-5);
  }
  program.write("ids.txt", fmt::format("{}\n", fmt::join(golden.ids(), " ")));
  EXPECT_EQ(run(fmt::format("logits {} --ids-file ids.txt", golden.path())),
            run(fmt::format("logits {} {}", golden.path(), ids)));
  const std::string go_on = fmt::format("generate {} --ids 3,1,4 --max-tokens 8 --temperature 0", golden.path());
  EXPECT_EQ(run(go_on)["ids"].size(), 8u);
  EXPECT_EQ(run(go_on)["ids"], run(go_on + " --mesh tp=2,pp=2,ep=2")["ids"]);
}

TEST_F(ModelsTest, SamplesAsItsFilesSay) {
  const GoldenModel golden("llama");
  const auto tokens = [&](const std::string& how) {
    return run(fmt::format("generate {} --ids 3,1,4 --max-tokens 12 {}", golden.path(), how))["ids"];
  };
  const Json best = tokens("--temperature 0");
  EXPECT_NE(tokens("--seed 1"), tokens("--seed 2"));
  std::ofstream(golden.path() + "/generation_config.json") << R"({"do_sample": true, "top_k": 1})";
  EXPECT_EQ(tokens("--seed 1"), best);
  EXPECT_EQ(tokens("--seed 2"), best);
  EXPECT_NE(tokens("--top-k 0 --seed 1"), tokens("--top-k 0 --seed 2"));
}

TEST_F(ModelsTest, TrainsOnAnyMeshAndGoesBack) {
  const GoldenModel golden("gpt_neox");
  program.write("text.txt", small_text());
  program.write("recipe.toml", recipe(golden.path()));
  const Json one = run("train recipe.toml --log.dir=one");
  const Json many = run("train recipe.toml --log.dir=many --mesh dp=2,tp=2,pp=2,zero=1");
  EXPECT_NEAR(one["first_loss"].get<double>(), many["first_loss"].get<double>(), 1e-5);
  EXPECT_NEAR(one["loss"].get<double>(), many["loss"].get<double>(), 1e-4);
  run("convert many exported");
  // A run's folder stays one: a model written into it would hide the run.
  const Outcome into = program.run("convert many many");
  EXPECT_EQ(into.status, 2);
  EXPECT_NE(into.err.find("not empty"), std::string::npos) << into.err;
  const std::string ids = "--ids 0,1,2,3,4";
  EXPECT_EQ(run("logits exported " + ids)["logits"], run("logits many " + ids)["logits"]);
  EXPECT_NE(run("logits exported " + ids)["logits"], run(fmt::format("logits {} {}", golden.path(), ids))["logits"]);
  // The run goes on from its checkpoint, not from the model.
  EXPECT_EQ(run("train recipe.toml --log.dir=one --train.steps=4")["first_step"], 3);
}

// Greedy, by the logits of the whole text before each token.
TEST_F(ModelsTest, T5ReadsOneTextAndWritesAnother) {
  const GoldenModel golden("flan_t5", "golden_encoders");
  const std::string ids = fmt::format("--ids {}", fmt::join(golden.list<int32_t>("encoder_ids"), ","));
  std::vector<int> written{0}, made;
  for (int i = 0; i < 6; ++i) {
    const Json logits =
        run(fmt::format("logits {} {} --decoder-ids {}", golden.path(), ids, fmt::join(written, ",")));
    const auto last = logits["logits"].back().get<std::vector<float>>();
    written.push_back(int(std::max_element(last.begin(), last.end()) - last.begin()));
    if (written.back() == 1) break;
    made.push_back(written.back());
  }
  const Json text = run(fmt::format("generate {} {} --max-tokens 6 --temperature 0", golden.path(), ids));
  EXPECT_EQ(text["ids"].get<std::vector<int>>(), made);
  for (const char* how : {"--temperature 0", "--temperature 1 --seed 3"}) {
    const std::string generate = fmt::format("generate {} {} --max-tokens 6 {}", golden.path(), ids, how);
    for (const char* mesh : {"tp=2", "pp=2", "tp=2,pp=3"})
      EXPECT_EQ(run(generate + " --mesh " + mesh)["ids"], run(generate)["ids"]) << how << " " << mesh;
  }
  EXPECT_EQ(program.run("generate " + GoldenModel("bert", "golden_encoders").path() + " --ids 1").status, 2);
}

// The tokens 0 to 11 are the letters from a on, and nothing ends a text.
void write_letters(const std::string& folder) {
  Json vocab;
  for (int i = 0; i < 12; ++i) vocab[std::string(1, char('a' + i))] = i;
  const Json model{{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}};
  std::ofstream(folder + "/tokenizer.json") << Json{{"version", "1.0"}, {"model", model}};
}

// -log softmax(logits)[target]
double loss_of(const std::vector<double>& logits, int target) {
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  return std::log(sum) - logits[size_t(target)];
}

TEST_F(ModelsTest, EvaluatesWhatT5Writes) {
  const GoldenModel golden("flan_t5", "golden_encoders");
  write_letters(golden.path());
  program.write("pairs.jsonl", R"({"prompt": "cdef", "completion": "ghk"}
{"instruction": "kk", "input": "", "output": "ccgl"}
)");
  double sum = 0;
  const auto add = [&](const char* source, const std::vector<int>& before, const std::vector<int>& target) {
    const Json json =
        run(fmt::format("logits {} --ids {} --decoder-ids {}", golden.path(), source, fmt::join(before, ",")));
    const auto rows = json["logits"].get<std::vector<std::vector<double>>>();
    for (size_t i = 0; i < target.size(); ++i) sum += loss_of(rows[i], target[i]);
  };
  add("2,3,4,5,1", {0, 6, 7, 10}, {6, 7, 10, 1});  // 0 begins a text and 1 ends it, says the configuration
  add("10,10,1", {0, 2, 2, 6, 11}, {2, 2, 6, 11, 1});
  for (const char* mesh : {"", " --mesh tp=2", " --mesh pp=2", " --mesh tp=2,pp=2,dp=2"}) {
    const Json report = run(fmt::format("eval {} --data pairs.jsonl{}", golden.path(), mesh));
    EXPECT_EQ(report["tokens"], 9) << mesh;
    EXPECT_EQ(report["bytes"], 7) << mesh;
    EXPECT_NEAR(report["loss"].get<double>(), sum / 9, 1e-5) << mesh;
    EXPECT_NEAR(report["perplexity"].get<double>(), std::exp(sum / 9), 1e-4) << mesh;
  }
}

TEST_F(ModelsTest, EvalSaysWhatIsMissing) {
  const GoldenModel golden("t5", "golden_encoders");
  write_letters(golden.path());
  program.write("text.txt", "abc");
  program.write("empty.jsonl", "");
  program.write("chat.jsonl",
                R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},)"
                R"({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})");
  program.write("pairs.jsonl", R"({"prompt": "cdef", "completion": "ghk"})");
  struct Case {
    std::string arguments;
    int status;
    const char* says;
  };
  const std::string t5 = "eval " + golden.path() + " --data ";
  for (const char* name : {"bert", "vit", "clip"}) {
    const GoldenModel other(name, "golden_encoders");
    const Outcome o = program.run("eval " + other.path() + " --data text.txt");
    EXPECT_EQ(o.status, 2) << o.err;
    EXPECT_NE(o.err.find("weft logits"), std::string::npos) << o.err;
  }
  const Outcome chat = program.run("chat " + golden.path());
  EXPECT_EQ(chat.status, 2) << chat.err;
  EXPECT_NE(chat.err.find("weft generate"), std::string::npos) << chat.err;
  for (const Case& c :
       {Case{"text.txt", 2, "completion"}, Case{"empty.jsonl", 2, "no examples"},
        Case{"chat.jsonl", 1, "one question and its answer"}, Case{"pairs.jsonl --seq-len 4", 2, "--seq-len"},
        Case{"pairs.jsonl --mesh pp=6", 2, "5 layers"}, Case{"pairs.jsonl --mesh ep=2", 2, "no experts"}}) {
    const Outcome o = program.run(t5 + c.arguments);
    EXPECT_EQ(o.status, c.status) << c.arguments << ": " << o.err;
    EXPECT_NE(o.err.find(c.says), std::string::npos) << c.arguments << ": " << o.err;
  }
}

TEST_F(ModelsTest, InspectShowsConfigurationAndTensors) {
  const GoldenModel golden("qwen3_moe");
  const Json model = run("inspect " + golden.path());
  EXPECT_EQ(model["kind"], "model");
  EXPECT_EQ(model["form"], "hugging-face");
  EXPECT_EQ(model["model"]["experts"], 5);
  EXPECT_EQ(model["num_params"], model["num_elements"]);
  const Json weights = run("inspect " + golden.path() + "/model.safetensors");
  EXPECT_EQ(weights["kind"], "weights");
  EXPECT_EQ(weights["tensors"], model["tensors"]);
}

TEST_F(ModelsTest, InspectTakesNoOtherFileForATrace) {
  program.write("tokenizer.json", R"({"model": {"type": "BPE"}})");
  const Outcome o = program.run("inspect tokenizer.json");
  EXPECT_EQ(o.status, 2);
  EXPECT_NE(o.err.find("is no trace"), std::string::npos) << o.err;
}

TEST_F(ModelsTest, InspectShowsAPresetWithoutMakingIt) {
  const Json model = run("inspect random:gpt-oss-120b");
  EXPECT_EQ(model["form"], "random");
  EXPECT_EQ(model["num_params"], 116829156672);
  int64_t elements = 0;
  for (const Json& tensor : model["tensors"]) {
    int64_t size = 1;
    for (const Json& dim : tensor["shape"]) size *= dim.get<int64_t>();
    elements += size;
  }
  EXPECT_EQ(elements, model["num_params"]);
}

TEST_F(ModelsTest, GoesToAGgufFileAndBack) {
  const GoldenModel golden("llama");
  const std::string ids = fmt::format(" --ids {}", fmt::join(golden.ids(), ","));
  const Json logits = run("logits " + golden.path() + ids)["logits"];
  EXPECT_EQ(run("convert " + golden.path() + " exact.gguf")["form"], "gguf");
  EXPECT_EQ(run("logits exact.gguf" + ids)["logits"], logits);
  run("convert exact.gguf back");
  EXPECT_EQ(run("logits back" + ids)["logits"], logits);
  // Rows of 16 hold no block of 32.
  const Json half = run("convert " + golden.path() + " half.gguf --dtype q8_0");
  EXPECT_NE(half["notes"].dump().find("F16 instead of Q8_0"), std::string::npos) << half;
  EXPECT_EQ(run("logits half.gguf" + ids)["logits"].size(), golden.ids().size());
  EXPECT_EQ(program.run("convert " + golden.path() + " exact.gguf").status, 2);
}

// It has no text, and can do all that needs none.
TEST_F(ModelsTest, AGgufFileWithoutATokenizerTakesTokens) {
  const GoldenModel golden("llama");
  EXPECT_NE(run("convert " + golden.path() + " m.gguf")["notes"].dump().find("holds no tokenizer"),
            std::string::npos);
  const Outcome o = program.run("generate m.gguf --prompt x");
  EXPECT_EQ(o.status, 2) << o.err;
  EXPECT_NE(o.err.find("m.gguf holds no tokenizer"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("--ids"), std::string::npos) << o.err;
  EXPECT_EQ(run("generate m.gguf --ids 1,2 --max-tokens 3")["ids"].size(), 3u);
  EXPECT_NE(run("convert m.gguf back")["notes"].dump().find("holds no tokenizer"), std::string::npos);
}

// A run from a model that talks talks as that does, and so does what is made of it.
TEST_F(ModelsTest, AFineTunedModelKeepsItsTemplateAndEnds) {
  const GoldenModel golden("llama");
  make_chatty(golden.path());
  std::string text = recipe(golden.path());
  text.replace(text.find("text.txt"), 8, "asked.jsonl");
  text.erase(text.find("tokenizer = \"char\"\n"), 19);
  program.write("recipe.toml", text);
  program.write("asked.jsonl", R"({"messages":[{"role":"user","content":"ab"},{"role":"assistant","content":"12"}]})"
                               "\n");
  program.write("q.jsonl", R"({"question":"ab","answer":"12"})");
  const Outcome trained = program.run("train recipe.toml --train.steps=1 --data.valid_fraction=0");
  ASSERT_EQ(trained.status, 0) << trained.err;
  const auto chat = [&](const std::string& model) {
    const Outcome o =
        program.shell(fmt::format("echo ab | {} chat {} --seed 3 --max-tokens 8 --json", WEFT_PROGRAM, model));
    EXPECT_EQ(o.status, 0) << o.err;
    return o.status == 0 ? Json::parse(o.out) : Json();
  };
  const Json talked = chat("run");
  EXPECT_EQ(talked["prompt_tokens"], 1);  // "ab" alone, as the template writes it
  run("convert run folder");
  run("convert folder saved --to checkpoint");
  run("convert saved m.gguf");
  for (const char* model : {"folder", "saved", "m.gguf"}) EXPECT_EQ(chat(model), talked) << model;
  for (const char* model : {"run", "folder"})
    EXPECT_EQ(run(fmt::format("eval {} --questions q.jsonl --reward contains --max-tokens 4", model))["questions"],
              1);
  const Json config = Json::parse(program.read_file("folder/config.json")),
             generation = Json::parse(program.read_file("folder/generation_config.json"));
  for (const Json* json : {&config, &generation}) {
    EXPECT_EQ((*json)["bos_token_id"], 0);
    EXPECT_EQ((*json)["eos_token_id"], Json({6, 7}));
    EXPECT_EQ((*json)["pad_token_id"], 5);
  }
  EXPECT_EQ(generation["temperature"], 0.6);
}

TEST_F(ModelsTest, GoesToAFolderOfCodes) {
  const GoldenModel golden("llama");
  for (const char* dtype : {"int8", "fp8", "nf4"}) {
    run(fmt::format("convert {} {} --dtype {}", golden.path(), dtype, dtype));
    const Json model = run(fmt::format("inspect {}", dtype));
    EXPECT_NE(model["tensors"].dump().find(" codes"), std::string::npos) << model;
    const Json logits = run(fmt::format("logits {} --ids {}", dtype, fmt::join(golden.ids(), ",")))["logits"];
    EXPECT_EQ(logits.size(), golden.ids().size()) << dtype;
  }
}

TEST_F(ModelsTest, MeasuresStepsOfServing) {
  const GoldenModel golden("llama");
  for (const char* mesh : {"", " --mesh tp=2"}) {
    const Json decode =
        run(fmt::format("bench decode {} --sequences 1,3 --context 5 --repeats 2{}", golden.path(), mesh));
    ASSERT_EQ(decode["rows"].size(), 2u);
    EXPECT_EQ(decode["rows"][1]["sequences"], 3);
    EXPECT_GT(decode["rows"][1]["tokens_per_s"], 0);
    EXPECT_EQ(decode["rows"][0].contains("read_bytes_per_s"), mesh == std::string());
    const Json prefill =
        run(fmt::format("bench prefill {} --tokens 6,9 --chunk 4 --repeats 2{}", golden.path(), mesh));
    ASSERT_EQ(prefill["rows"].size(), 2u);
    EXPECT_EQ(prefill["rows"][1]["tokens"], 9);
    EXPECT_GT(prefill["rows"][1]["tokens_per_s"], 0);
  }
  const Outcome o = program.run("bench prefill " + golden.path() + " --tokens 99999");
  EXPECT_EQ(o.status, 2) << o.err;
  EXPECT_NE(o.err.find("context"), std::string::npos) << o.err;
}

TEST_F(ModelsTest, SaysWhatIsWrong) {
  const GoldenModel golden("llama");
  const std::string m = golden.path();
  const auto expect_usage = [&](const std::string& arguments, std::initializer_list<const char*> words) {
    const Outcome o = program.run(arguments);
    EXPECT_EQ(o.status, 2) << arguments << ": " << o.err;
    for (const char* word : words) EXPECT_NE(o.err.find(word), std::string::npos) << o.err;
  };
  expect_usage("logits " + m, {"--ids"});
  expect_usage("logits " + m + " --ids 1,13", {"--ids", "13", "0 to 12"});
  expect_usage("logits " + m + " --ids 1,x", {"--ids", "x"});
  expect_usage("logits " + m + " --ids 1 --mesh pp=9", {"pp=9", "3 layers"});
  expect_usage("logits " + m + " --ids 1 --mesh tp2", {"--mesh", "tp=2"});
  expect_usage("logits " + m + " --ids 1 --dtype int4", {"--dtype", "bf16"});
  expect_usage("convert " + m + " copy --to onnx", {"--to", "hugging-face"});
  expect_usage("convert " + m + " copy --to gguf", {"--to", ".gguf"});
  expect_usage("convert " + m + " copy --dtype q8", {"--dtype", "q8", "nf4"});
  expect_usage("convert " + m + " copy --to checkpoint --dtype int8", {"--dtype", "fp32"});
  expect_usage("convert " + m + " copy.gguf --dtype iq1_s", {"--dtype", "iq1_s", "Q4_K"});
  program.write("recipe.toml", recipe(m));
  program.write("text.txt", small_text());
  expect_usage("train recipe.toml --model.hidden=32", {"model.hidden", "remove the key"});
  expect_usage("train recipe.toml --model.preset=llama-1b", {"model.preset", "remove the key"});
}

}  // namespace
}  // namespace weft
