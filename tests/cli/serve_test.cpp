// The program as a server: started as a user would, asked over HTTP, ended by a signal.
#include <cmath>
#include <future>
#include <set>

#include "cli/served_program.h"
#include "pretrained/golden_models.h"
#include "weft/pretrained/embedding_rule.h"

namespace weft {
namespace {

using Json = nlohmann::json;

TEST_F(ServeTest, AnswersOverHttpUntilItIsTold) {
  ServedProgram served(program_,
                       {program_.path("run"), "--served-model-name", "base", "--mesh", "tp=2", "--kv-dtype", "int8"});
  const int port = served.port();
  ASSERT_GT(port, 0) << served.said();
  EXPECT_NE(served.said().find("\"kv_dtype\":\"int8\""), std::string::npos) << served.said();
  EXPECT_EQ(get(port, "/v1/models")["data"][0]["id"], "base");
  EXPECT_EQ("weft " + get(port, "/version")["version"].get<std::string>() + "\n", program_.run("--version").out);
  EXPECT_EQ(text_of(port, "base"), text_of(port, "base"));
  EXPECT_EQ(post(port, "/v1/completions", {{"model", "nobody"}, {"prompt", {1}}}).status, 404);
  EXPECT_EQ(served.stop(), 0) << served.said();
}

TEST_F(ServeTest, SaysThatItLivesAndCanBeStoppedWhileItReadsItsModel) {
  ServedProgram served(program_, {"random:gpt2-1.5b"});  // which takes much longer to make than this to ask
  const int port = served.port("listening");
  ASSERT_GT(port, 0) << served.said();
  const auto status_of = [port](const char* path) {
    return bench::HttpClient("127.0.0.1", port).request("GET", path, "").status;
  };
  EXPECT_EQ(status_of("/health"), 200);
  EXPECT_EQ(status_of("/ready"), 503);
  EXPECT_EQ(served.stop(), 128 + SIGTERM) << served.said();
}

TEST_F(ServeTest, SeveralModelsAndAdaptersHaveOneAddress) {
  ServedProgram served(
      program_, {"--model", "base=" + program_.path("run"), "--model", "tuned=" + program_.path("tuned"), "--lora",
                 "law=" + program_.path("adapters/law"), "--lora-dir", program_.path("adapters"), "--draft",
                 program_.path("run"), "--speculate", "3"});
  const int port = served.port();
  ASSERT_GT(port, 0) << served.said();
  std::vector<std::string> names;
  const Json models = get(port, "/v1/models");
  for (const Json& model : models["data"]) names.push_back(model["id"]);
  EXPECT_EQ(names, (std::vector<std::string>{"base", "law", "tuned"}));
  EXPECT_EQ(models["data"][1]["parent"], "base");
  const std::string tuned = text_of(port, "tuned");
  EXPECT_EQ(text_of(port, "law"), tuned);
  EXPECT_NE(text_of(port, "base"), tuned);
  EXPECT_EQ(post(port, "/v1/load_lora_adapter", {{"lora_name", "again"}, {"lora_path", "law"}}).status, 200);
  EXPECT_EQ(text_of(port, "again"), tuned);
  EXPECT_EQ(post(port, "/v1/unload_lora_adapter", {{"lora_name", "again"}}).status, 200);
  EXPECT_EQ(post(port, "/v1/completions", {{"model", "again"}, {"prompt", "x"}}).status, 404);
  EXPECT_EQ(served.stop(), 0) << served.said();
}

// Of words w0 to w12, with numbers for names; a pair stands between w5, w0 and w3.
constexpr const char* kWords = R"({"version": "1.0", "added_tokens": [], "normalizer": null,
  "pre_tokenizer": {"type": "Whitespace"},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "w5", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "w3", "type_id": 0}}],
    "pair": [{"SpecialToken": {"id": "w5", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
             {"SpecialToken": {"id": "w0", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}},
             {"SpecialToken": {"id": "w3", "type_id": 1}}],
    "special_tokens": {"w0": {"id": "w0", "ids": [0], "tokens": ["w0"]},
                       "w3": {"id": "w3", "ids": [3], "tokens": ["w3"]},
                       "w5": {"id": "w5", "ids": [5], "tokens": ["w5"]}}},
  "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
  "model": {"type": "WordPiece", "unk_token": "w1", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 9,
            "vocab": {"w0": 0, "w1": 1, "w2": 2, "w3": 3, "w4": 4, "w5": 5, "w6": 6, "w7": 7, "w8": 8, "w9": 9,
                      "w10": 10, "w11": 11, "w12": 12}}})";

TEST_F(ServeTest, EncodersMakeVectorsAndScores) {
  const GoldenModel judge("bert_scores", "golden_encoders"), plain("bert", "golden_encoders");
  for (const GoldenModel* model : {&judge, &plain}) std::ofstream(model->path() + "/tokenizer.json") << kWords;
  for (const char* mesh : {"tp=2", "pp=2", "dp=2"}) {
    ServedProgram served(program_,
                         {"--model", "judge=" + judge.path(), "--model", "plain=" + plain.path(), "--mesh", mesh});
    const int port = served.port();
    ASSERT_GT(port, 0) << served.said();
    // As the golden model read them: 5, 2, 0, 12, 11, 0 and, of the other kind, 2, 9, 7, 3.
    const Json scored =
        Json::parse(post(port, "/v1/score", {{"model", "judge"}, {"text_1", "w2 w0 w12 w11"}, {"text_2", "w2 w9 w7"}})
                        .body)["data"];
    EXPECT_NEAR(double(scored[0]["score"]), 1 / (1 + std::exp(-judge.logits()[0][0])), 1e-6);
    const Json body = {{"model", "plain"}, {"input", {"w2 w0", "w7"}}};
    const Json made = Json::parse(post(port, "/v1/embeddings", body).body);
    ASSERT_EQ(made["data"].size(), 2u) << made;
    EXPECT_EQ(made["data"][0]["embedding"].size(), 16u);
    EXPECT_EQ(made["usage"]["prompt_tokens"], 7);
    const auto refused = post(port, "/v1/completions", {{"model", "plain"}, {"prompt", "w2"}});
    EXPECT_EQ(refused.status, 501);
    EXPECT_NE(refused.body.find("writes none"), std::string::npos) << refused.body;
    EXPECT_EQ(served.stop(), 0) << served.said();
  }
  EXPECT_NE(program_.run("serve " + plain.path() + " --lora a=b").err.find("--lora"), std::string::npos);
}

// A matrix that leaves the first three elements, of a decoder whose tokens see all of their text.
TEST_F(ServeTest, ProjectionsArePartOfAVector) {
  constexpr int64_t kHidden = 32, kWidth = 3;
  const GoldenModel golden("gemma3_both_ways");
  std::ofstream(golden.path() + "/tokenizer.json") << kWords;
  const auto vector_of = [&](const std::string& mesh) {
    ServedProgram served(program_, {golden.path(), "--served-model-name", "m", "--mesh", mesh});
    EXPECT_GT(served.port(), 0) << served.said();
    const auto said = post(served.port(), "/v1/embeddings", {{"model", "m"}, {"input", "w2 w0 w7"}});
    EXPECT_EQ(said.status, 200) << said.body;
    EXPECT_EQ(post(served.port(), "/v1/completions", {{"model", "m"}, {"prompt", "w2"}}).status, 501);
    EXPECT_EQ(served.stop(), 0) << served.said();
    return Json::parse(said.body)["data"][0]["embedding"].get<std::vector<double>>();
  };
  const std::vector<double> whole = vector_of("tp=2");
  ASSERT_EQ(whole.size(), size_t(kHidden));
  std::vector<float> first(kWidth * kHidden);
  for (int64_t i = 0; i < kWidth; ++i) first[size_t(i * kHidden + i)] = 1;
  const std::string layer = program_.path("layer");
  std::filesystem::create_directories(layer);
  SafetensorsWriter writer(FileSystem::real(), layer + "/model.safetensors",
                           {{"linear.weight", DType::f32, Shape{kWidth, kHidden}}});
  writer.write(std::as_bytes(std::span(first)));
  writer.finish();
  const DenseLayer dense{.file = layer, .weight = "linear.weight", .bias = {}, .in = kHidden, .out = kWidth};
  write_embedding_rule({.pooling = Pooling::mean, .dense = {dense}}, kHidden, golden.path(), FileSystem::real());
  const std::vector<double> made = vector_of("dp=2");
  ASSERT_EQ(made.size(), size_t(kWidth));
  const double length = std::sqrt(whole[0] * whole[0] + whole[1] * whole[1] + whole[2] * whole[2]);
  for (size_t i = 0; i < made.size(); ++i) EXPECT_NEAR(made[i], whole[i] / length, 1e-5);
  EXPECT_NE(program_.run("serve " + golden.path() + " --device-map auto").err.find("--device-map"),
            std::string::npos);
}

TEST_F(ServeTest, ReplicasShareTheRequests) {
  ServedProgram one(program_, {program_.path("run")});  // served by its folder's name, not its checkpoint's
  ASSERT_GT(one.port(), 0) << one.said();
  const std::string text = text_of(one.port(), "run");
  EXPECT_EQ(one.stop(), 0) << one.said();
  ServedProgram two(program_, {program_.path("run"), "--served-model-name", "run", "--mesh", "dp=2,tp=2",
                               "--lora-dir", program_.path("adapters")});
  const int port = two.port();
  ASSERT_GT(port, 0) << two.said();
  std::vector<std::future<std::string>> texts;
  for (int i = 0; i < 8; ++i) texts.push_back(std::async(std::launch::async, [&] { return text_of(port, "run"); }));
  for (auto& one_text : texts) EXPECT_EQ(one_text.get(), text);
  EXPECT_EQ(post(port, "/v1/load_lora_adapter", {{"lora_name", "law"}}).status, 200);
  EXPECT_NE(text_of(port, "law"), text);
  EXPECT_EQ(two.stop(), 0) << two.said();
}

TEST_F(ServeTest, AutoIsWhatTheModelIsStoredIn) {
  ASSERT_EQ(program_.run("convert run half --dtype bf16").status, 0);
  const auto logits = [&](const std::string& arguments) {
    const Outcome o = program_.run("logits " + arguments + " --ids 1,2,3");
    EXPECT_EQ(o.status, 0) << o.err;
    return o.out;
  };
  EXPECT_EQ(logits("run --dtype auto"), logits("run --dtype fp32"));
  EXPECT_EQ(logits("half --dtype auto"), logits("half --dtype bf16"));
  EXPECT_NE(logits("half --dtype auto"), logits("half --dtype fp32"));
}

TEST_F(ServeTest, SamplesAsTheModelsFilesSay) {
  ASSERT_EQ(program_.run("convert run folder").status, 0);
  Json tokenizer = {{"version", "1.0"}, {"model", {{"type", "BPE"}, {"merges", Json::array()}}}};
  for (int token = 0; token < 256; ++token) tokenizer["model"]["vocab"][fmt::format("{} ", token)] = token;
  program_.write("folder/tokenizer.json", tokenizer.dump());
  program_.write("folder/generation_config.json", R"({"temperature": 0.5, "top_p": 3})");
  const Outcome refused = program_.run("serve folder --port 0");
  EXPECT_EQ(refused.status, 2) << refused.err;
  EXPECT_NE(refused.err.find("top_p"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("--sampling-defaults none"), std::string::npos) << refused.err;
  program_.write("folder/generation_config.json", R"({"temperature": 0.5, "top_k": 1})");
  for (const bool has_defaults : {true, false}) {
    ServedProgram served(program_, {program_.path("folder"), "--sampling-defaults", has_defaults ? "model" : "none"});
    const int port = served.port();
    ASSERT_GT(port, 0) << served.said();
    EXPECT_EQ(served.said().find("\"temperature\":0.5,\"top_k\":1") != std::string::npos, has_defaults)
        << served.said();
    std::set<std::string> texts;
    for (int seed = 0; seed < 8; ++seed)
      texts.insert(Json::parse(post(port, "/v1/completions", {{"prompt", {1}}, {"max_tokens", 8}, {"seed", seed}})
                                   .body)["choices"][0]["text"]);
    EXPECT_EQ(texts.size() == 1, has_defaults);
    EXPECT_EQ(served.stop(), 0) << served.said();
  }
}

TEST_F(ServeTest, ModelsComeWhenTheyAreAskedFor) {
  ServedProgram served(program_,
                       {"--model", "base=" + program_.path("run"), "--model", "tuned=" + program_.path("tuned"),
                        "--max-loaded", "1", "--lora", "law=" + program_.path("adapters/law")});
  const int port = served.port();
  ASSERT_GT(port, 0) << served.said();
  EXPECT_EQ(served.said().find("is loaded"), std::string::npos) << served.said();
  const std::string base = text_of(port, "base"), tuned = text_of(port, "tuned");
  EXPECT_NE(base, tuned);
  EXPECT_NE(served.said().find("weft: base is unloaded"), std::string::npos) << served.said();
  EXPECT_EQ(text_of(port, "law"), tuned);
  EXPECT_EQ(text_of(port, "base"), base);
  EXPECT_EQ(served.stop(), 0) << served.said();
  EXPECT_EQ(program_.run("serve run --max-loaded 1").status, 2);
  EXPECT_EQ(program_.run("serve --model a=run --idle-seconds 1").status, 2);
}

TEST_F(ServeTest, ADraftHasTheTokensOfTheModel) {
  const Outcome o = program_.run("serve run --port 0 --draft nowhere --speculate 3");
  EXPECT_NE(o.status, 0);
  EXPECT_EQ(program_.run("serve run --draft run").status, 2) << "says how many tokens are drafted";
  EXPECT_EQ(program_.run("serve run --kv-dtype int4").status, 2);
  EXPECT_EQ(program_.run("serve").status, 2);
  EXPECT_EQ(program_.run("serve run --model a=run").status, 2);
}

TEST_F(ServeTest, RefusesWhatDoesNotFitBeforeItIsAllocated) {
  const Outcome o = program_.run("serve run --port 0 --kv-cache 100000GiB");
  EXPECT_EQ(o.status, 1) << o.err;
  EXPECT_NE(o.err.find(" more than the "), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("lower --kv-cache to"), std::string::npos) << o.err;
}

TEST_F(ServeTest, WhatClientsMeetIsCheckedBeforeAModelIsRead) {
  const Outcome keys = program_.run("serve run --port 0 --kv-cache 100000GiB --api-key-file none.txt");
  EXPECT_NE(keys.err.find("none.txt"), std::string::npos) << keys.err;
  const Outcome tls = program_.run("serve run --port 0 --kv-cache 100000GiB --tls-cert none.pem --tls-key none.pem");
  EXPECT_EQ(tls.status, 2);
  EXPECT_NE(tls.err.find("--tls-cert none.pem"), std::string::npos) << tls.err;
  const Outcome twice = program_.run("serve --model a=run --model a=nowhere");
  EXPECT_EQ(twice.status, 2);
  EXPECT_NE(twice.err.find("two models are called a"), std::string::npos) << twice.err;
  for (const char* never_sent : {"http://a.example/", "https://A.example", "http://a.example:80",
                                 "https://a.example:443", "http://*.example", "a.example", "http://"}) {
    const Outcome origin = program_.run(
        fmt::format("serve run --allowed-origins '*,http://[::1]:3000,https://a.example:80,{}'", never_sent));
    EXPECT_EQ(origin.status, 2);
    EXPECT_NE(origin.err.find(fmt::format("'{}'", never_sent)), std::string::npos) << origin.err;
  }
}

TEST_F(ServeTest, LayersThatDoNotFitAreFar) {
  const Outcome o = program_.run(
      "train base.toml --model.layers=8 --model.hidden=128 --model.ffn=256 --log.dir=deep --train.steps=3");
  ASSERT_EQ(o.status, 0) << o.err;
  const std::vector<std::string> asked{program_.path("deep"), "--served-model-name", "deep", "--tokens-per-step",
                                       "16"};
  std::string text;
  {
    ServedProgram near(program_, asked);
    ASSERT_GT(near.port(), 0) << near.said();
    text = text_of(near.port(), "deep");
  }
  const std::string limit = "5MiB";
  const Outcome refused =
      program_.run("serve deep --port 0 --kv-cache 1MiB --tokens-per-step 16 --memory-limit " + limit);
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.err.find("--device-map auto"), std::string::npos) << refused.err;
  std::vector<std::string> limited = asked;
  limited.insert(limited.end(), {"--memory-limit", limit, "--device-map", "auto", "--far-dir", program_.path("far")});
  ServedProgram far(program_, limited);
  ASSERT_GT(far.port(), 0) << far.said();
  EXPECT_NE(far.said().find("of 8 layers do not fit"), std::string::npos) << far.said();
  EXPECT_EQ(text_of(far.port(), "deep"), text);
  EXPECT_EQ(far.stop(), 0) << far.said();
}

TEST_F(ServeTest, TakesThePlannersMesh) {
  ServedProgram server(program_, {program_.path("run"), "--mesh", "auto"});
  ASSERT_GT(server.port(), 0) << server.said();
  EXPECT_NE(server.said().find("--mesh auto: one rank"), std::string::npos) << server.said();
  EXPECT_EQ(server.stop(), 0) << server.said();
}

TEST_F(ServeTest, IsPlanned) {
  const Outcome o = program_.run("plan run --for serve --cluster 2xrtx4090 --input-len 16 --output-len 8 --json");
  ASSERT_EQ(o.status, 0) << o.err;
  const Json plan = Json::parse(o.out);
  EXPECT_FALSE(plan["ranked"].empty());
  EXPECT_EQ(plan["ranked"][0]["batches"][0]["batch"], 1);
  EXPECT_NE(plan["command"].get<std::string>().find("weft serve run"), std::string::npos);
  EXPECT_EQ(program_.run("plan run --for serve --cluster 2xrtx4090 --mesh tp=3").status, 2);
}

}  // namespace
}  // namespace weft
